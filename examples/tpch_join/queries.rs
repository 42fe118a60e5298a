//! The queries to run: TPC-H's 22 with the specification's validation parameters, or the user's own
//! SQL.
//!
//! The texts are the specification's (section 2.4), with its "first N rows" as LIMIT and
//! Q15's view as a CTE. Only Q11 depends on the size of the data: its fraction is
//! 0.0001 divided by the scale factor, without which it selects everything at small
//! scales and nothing at large ones.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use datafusion::sql::parser::DFParser;

use crate::Result;

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

/// One query to run.
pub struct Query {
    /// `Q5`, or `query` for the user's own.
    pub label: String,
    /// Its text.
    pub sql: String,
}

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

/// Returns the queries in `dir`: its `.sql` files by name, one query per statement (`q14.1`,
/// `q14.2` if a file has several).
///
/// # Errors
/// Names the folder or file that cannot be read, or the folder without any query.
pub fn of_folder(dir: &Path) -> Result<Vec<Query>> {
    let describe = |path: &Path, e| format!("cannot read queries at {}: {e}", path.display());
    let mut files = vec![];
    for entry in fs::read_dir(dir).map_err(|e| describe(dir, e))? {
        let path = entry.map_err(|e| describe(dir, e))?.path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            files.push(path);
        }
    }
    files.sort();
    let mut queries = vec![];
    for file in &files {
        let text = fs::read_to_string(file).map_err(|e| describe(file, e))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let statements = statements(&text);
        let several = statements.len() > 1;
        for (i, sql) in statements.into_iter().enumerate() {
            let label = match several {
                true => format!("{name}.{}", i + 1),
                false => name.to_string(),
            };
            queries.push(Query { label, sql });
        }
    }
    match queries.is_empty() {
        true => Err(format!("there is no .sql file with a query in {}", dir.display()).into()),
        false => Ok(queries),
    }
}

/// Returns the statements of `text`, which semicolons separate; a text that is no SQL is one
/// statement, whose error the run shows.
fn statements(text: &str) -> Vec<String> {
    let parsed = DFParser::parse_sql(text);
    parsed.map_or_else(
        |_| vec![text.to_string()],
        |parsed| parsed.iter().map(ToString::to_string).collect(),
    )
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
    fn a_folder_of_queries() {
        let dir = tempfile::tempdir().unwrap();
        assert!(of_folder(dir.path()).is_err());
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("b.sql", "select 1; -- one\nselect ';' as x;");
        write("a.sql", "-- a comment; with a semicolon\nselect 2");
        write("c.txt", "select 3");
        let queries = of_folder(dir.path()).unwrap();
        let labels: Vec<_> = queries.iter().map(|query| query.label.as_str()).collect();
        assert_eq!(labels, ["a", "b.1", "b.2"]);
        assert!(queries[2].sql.contains("';'"));
    }

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
