//! The queries to run: TPC-H's 22 with the specification's validation parameters, or the user's own
//! SQL.
//!
//! The texts are the specification's (section 2.4), with its "first N rows" as LIMIT and
//! Q15's view as a CTE. Only Q11 depends on the size of the data: its fraction is
//! 0.0001 divided by the scale factor, without which it selects everything at small
//! scales and nothing at large ones.

use std::str::FromStr;

use horton_test_support::folder::Query;

/// The queries' texts; `TPCH[n - 1]` is Qn.
const TPCH: [&str; 22] = [
    include_str!("queries/q1.sql"),
    include_str!("queries/q2.sql"),
    include_str!("queries/q3.sql"),
    include_str!("queries/q4.sql"),
    include_str!("queries/q5.sql"),
    include_str!("queries/q6.sql"),
    include_str!("queries/q7.sql"),
    include_str!("queries/q8.sql"),
    include_str!("queries/q9.sql"),
    include_str!("queries/q10.sql"),
    include_str!("queries/q11.sql"),
    include_str!("queries/q12.sql"),
    include_str!("queries/q13.sql"),
    include_str!("queries/q14.sql"),
    include_str!("queries/q15.sql"),
    include_str!("queries/q16.sql"),
    include_str!("queries/q17.sql"),
    include_str!("queries/q18.sql"),
    include_str!("queries/q19.sql"),
    include_str!("queries/q20.sql"),
    include_str!("queries/q21.sql"),
    include_str!("queries/q22.sql"),
];

/// Q11's fraction at scale 1, as written in its text.
const Q11_FRACTION: &str = "0.0001000000";

/// The value of `--query`.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// One TPC-H query, from 1 to 22.
    One(usize),
    /// All of TPC-H.
    All,
    /// A query text.
    Sql(String),
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text.parse() {
            Ok(number) if (1..=TPCH.len()).contains(&number) => Ok(Self::One(number)),
            Ok(_) => Err(format!("TPC-H has queries 1 to {}", TPCH.len())),
            Err(_) if text.eq_ignore_ascii_case("all") => Ok(Self::All),
            Err(_) if text.is_empty() => Err("a number, 'all' or a query text".to_string()),
            Err(_) => Ok(Self::Sql(text.to_string())),
        }
    }
}

impl Selection {
    /// Returns whether the queries need TPC-H's tables.
    pub fn is_tpch(&self) -> bool {
        !matches!(self, Self::Sql(_))
    }

    /// Returns the queries, for data of TPC-H scale factor `scale`.
    pub fn queries(&self, scale: f64) -> Vec<Query> {
        match self {
            Self::One(number) => vec![tpch(*number, scale)],
            Self::All => (1..=TPCH.len()).map(|n| tpch(n, scale)).collect(),
            Self::Sql(sql) => vec![Query {
                label: "query".to_string(),
                sql: sql.clone(),
            }],
        }
    }
}

/// TPC-H query `number`, from 1 to 22.
fn tpch(number: usize, scale: f64) -> Query {
    let text = TPCH[number - 1];
    let fraction = format!("{:.12}", 0.0001 / scale);
    Query {
        label: format!("Q{number}"),
        sql: if number == 11 {
            text.replace(Q11_FRACTION, &fraction)
        } else {
            text.to_string()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections() {
        let parse = |text: &str| text.parse::<Selection>();
        assert_eq!(parse("7"), Ok(Selection::One(7)));
        assert_eq!(parse(" ALL "), Ok(Selection::All));
        assert_eq!(parse("select 1"), Ok(Selection::Sql("select 1".into())));
        for wrong in ["0", "23", ""] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_text_is_in_its_place() {
        let all = Selection::All.queries(1.0);
        assert_eq!(all.len(), 22);
        for (i, query) in all.iter().enumerate() {
            let title = format!("-- TPC-H Q{}, ", i + 1);
            assert!(query.sql.starts_with(&title), "{title}");
        }
    }

    #[test]
    fn the_fraction_of_q11_follows_the_scale() {
        let sql = |scale| Selection::One(11).queries(scale).remove(0).sql;
        assert!(sql(1.0).contains("* 0.000100000000\n"));
        assert!(sql(0.01).contains("* 0.010000000000\n"));
        assert!(sql(100.0).contains("* 0.000001000000\n"));
    }
}
