//! The queries over a join: their texts, and what they must give.
//!
//! ```text
//!   sums    SELECT count(*), sum(v), sum(w) FROM build … probe      one row
//!   wide    SELECT b_int, …, p_int, … FROM build … probe            the join's rows
//! ```
//!
//! Most queries reduce their join to a row, as the pairs that it finds are the question there. Wide
//! ones let it make its output. No aggregate reads that, because twelve sums would be timed with
//! the join. Whoever reads the rows counts them, and reads their cells in warm-up runs.

use super::columns::{Column, Payload};
use super::keys::NAMES;
use super::tables::{Answers, Shape};
use super::tally::{Reading, Tally};

/// The rows without a match that a join keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer {
    /// Build rows.
    Left,
    /// Probe rows.
    Right,
    /// All rows.
    Full,
}

/// The query over a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// Only how many pairs.
    Count,
    /// A column of each side.
    Sum,
    /// Strings of the build side.
    Strings,
    /// A join with a residual condition.
    Filter,
    /// A column of each side of an outer join.
    Outer(Outer),
    /// Probe rows with a match.
    ProbeSemi,
    /// Probe rows without one.
    ProbeAnti,
    /// Build rows with a match.
    BuildSemi,
    /// Build rows without one.
    BuildAnti,
    /// The rows themselves, with so many columns; of an outer join if one is named.
    Wide(usize, Option<Outer>),
}

/// A query over tables at hand.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its text.
    pub sql: String,
    /// The rows that it gives.
    pub expected: Tally,
    /// How much of them a timed run reads.
    pub timed: Reading,
}

impl Outer {
    fn name(self) -> &'static str {
        match self {
            Outer::Left => "left",
            Outer::Right => "right",
            Outer::Full => "full",
        }
    }
}

impl Query {
    /// Its part of a case's name.
    pub fn name(self) -> String {
        let name = match self {
            Query::Count => "count",
            Query::Sum => "sum",
            Query::Strings => "strings",
            Query::Filter => "filter",
            Query::Outer(outer) => outer.name(),
            Query::ProbeSemi => "probe-semi",
            Query::ProbeAnti => "probe-anti",
            Query::BuildSemi => "build-semi",
            Query::BuildAnti => "build-anti",
            Query::Wide(columns, None) => return format!("wide{columns}"),
            Query::Wide(columns, Some(outer)) => return format!("wide{columns}-{}", outer.name()),
        };
        name.to_string()
    }

    /// The payload columns that it reads.
    pub fn payload(self) -> Payload {
        match self {
            Query::Strings => Payload::Strings,
            Query::Wide(columns, _) => Payload::Wide(columns),
            _ => Payload::Narrow,
        }
    }

    /// Returns it for tables of `shape`, joins of which give `answers`.
    pub fn ask(self, shape: &Shape, answers: &Answers) -> Asked {
        let makes_rows = matches!(self, Query::Wide(..));
        Asked {
            sql: self.sql(shape.key_columns),
            expected: self.expected(answers),
            timed: if makes_rows {
                Reading::Counts
            } else {
                Reading::Cells
            },
        }
    }

    /// The build side stands where the planner takes it for one: on the left, or for EXISTS
    /// wherever it is the smaller.
    fn sql(self, key_columns: usize) -> String {
        let equal = |key: &&str| format!("build.{key} = probe.{key}");
        let keys: Vec<String> = NAMES.iter().take(key_columns).map(equal).collect();
        let keys = keys.join(" AND ");
        let join = |columns: &str, outer: Option<Outer>| {
            let outer = outer.map_or("INNER", Outer::name).to_uppercase();
            format!("SELECT {columns} FROM build {outer} JOIN probe ON {keys}")
        };
        let exists = |columns: &str, from: &str, not: &str, in_table: &str| {
            format!(
                "SELECT {columns} FROM {from}
                 WHERE {not} EXISTS (SELECT 1 FROM {in_table} WHERE {keys})"
            )
        };
        match self {
            Query::Count => join("count(*)", None),
            Query::Sum => join("sum(v), sum(w)", None),
            Query::Strings => join("sum(octet_length(s))", None),
            Query::Filter => join("count(*), sum(v), sum(w)", None) + " AND v < w",
            Query::Outer(outer) => join("count(*), sum(v), sum(w)", Some(outer)),
            Query::ProbeSemi => exists("count(*), sum(w)", "probe", "", "build"),
            Query::ProbeAnti => exists("count(*), sum(w)", "probe", "NOT", "build"),
            Query::BuildSemi => exists("count(*), sum(v)", "build", "", "probe"),
            Query::BuildAnti => exists("count(*), sum(v)", "build", "NOT", "probe"),
            Query::Wide(_, outer) => {
                let payload = self.payload();
                let columns = payload.build().iter().chain(payload.probe());
                let names: Vec<&str> = columns.map(|Column { name, .. }| *name).collect();
                join(&names.join(", "), outer)
            }
        }
    }

    fn expected(self, answers: &Answers) -> Tally {
        let (build, probe) = (&answers.build, &answers.probe);
        let sums = |rows: &Tally| [Some(rows.rows), rows.total(0), rows.total(1)];
        // The count, and the sum of the only column.
        let sum = |rows: &Tally| Tally::row(&[Some(rows.rows), rows.total(0)]);
        match self {
            Query::Count => Tally::row(&[Some(build.pairs.rows)]),
            Query::Sum => Tally::row(&[build.pairs.total(0), probe.pairs.total(0)]),
            Query::Strings => Tally::row(&[build.pairs.bytes(1)]),
            Query::Filter => Tally::row(&sums(&answers.less)),
            Query::Outer(outer) => Tally::row(&sums(&joined(answers, Some(outer)))),
            Query::ProbeSemi => sum(&probe.hits),
            Query::ProbeAnti => sum(&probe.misses()),
            Query::BuildSemi => sum(&build.hits),
            Query::BuildAnti => sum(&build.misses()),
            Query::Wide(_, outer) => joined(answers, outer),
        }
    }
}

/// The rows of a join, build columns first.
fn joined(answers: &Answers, outer: Option<Outer>) -> Tally {
    let (mut build, mut probe) = (answers.build.pairs.clone(), answers.probe.pairs.clone());
    // Columns of the other side are NULL in rows that are kept.
    if matches!(outer, Some(Outer::Left | Outer::Full)) {
        build.add(&answers.build.misses());
    }
    if matches!(outer, Some(Outer::Right | Outer::Full)) {
        probe.add(&answers.probe.misses());
    }
    build.rows += probe.rows - answers.probe.pairs.rows;
    build.beside(probe)
}

#[cfg(test)]
mod tests {
    use super::super::keys::Keys;
    use super::super::tally::Matched;
    use super::*;
    use arrow::array::{ArrayRef, Int64Array};
    use std::sync::Arc;

    fn column(values: &[i64]) -> Vec<ArrayRef> {
        vec![Arc::new(Int64Array::from(values.to_vec()))]
    }

    /// Two build rows of one key, one of another; hits 2 of 3 probe rows.
    fn answers() -> Answers {
        Answers {
            build: Matched::read(&[2, 2, 0], &column(&[1, 2, 3])).unwrap(),
            probe: Matched::read(&[2, 2, 0], &column(&[10, 20, 30])).unwrap(),
            less: Tally::empty(2),
        }
    }

    #[test]
    fn closed_forms() {
        let answers = answers();
        let row = |query: Query| query.expected(&answers);
        let some =
            |values: &[u64]| Tally::row(&values.iter().map(|v| Some(*v)).collect::<Vec<_>>());
        assert_eq!(row(Query::Count), some(&[4]));
        assert_eq!(row(Query::Sum), some(&[6, 60]));
        assert_eq!(row(Query::Filter), Tally::row(&[Some(0), None, None]));
        assert_eq!(row(Query::Outer(Outer::Left)), some(&[5, 9, 60]));
        assert_eq!(row(Query::Outer(Outer::Right)), some(&[5, 6, 90]));
        assert_eq!(row(Query::Outer(Outer::Full)), some(&[6, 9, 90]));
        assert_eq!(row(Query::ProbeSemi), some(&[2, 30]));
        assert_eq!(row(Query::ProbeAnti), some(&[1, 30]));
        assert_eq!(row(Query::BuildSemi), some(&[2, 3]));
        assert_eq!(row(Query::BuildAnti), some(&[1, 3]));
        let none = Answers {
            build: Matched::empty(1),
            probe: Matched::empty(1),
            less: Tally::empty(2),
        };
        let none = Query::Outer(Outer::Left).expected(&none);
        assert_eq!(none, Tally::row(&[Some(0), None, None]));
    }

    #[test]
    fn rows_of_wide_queries() {
        let answers = answers();
        let rows = |outer| {
            let rows = Query::Wide(2, outer).expected(&answers);
            let values: Vec<u64> = rows.columns.iter().map(|column| column.values).collect();
            (rows.rows, values, rows.total(0), rows.total(1))
        };
        assert_eq!(rows(None), (4, vec![4, 4], Some(6), Some(60)));
        assert_eq!(rows(Some(Outer::Left)), (5, vec![5, 4], Some(9), Some(60)));
        assert_eq!(rows(Some(Outer::Right)), (5, vec![4, 5], Some(6), Some(90)));
        assert_eq!(rows(Some(Outer::Full)), (6, vec![5, 5], Some(9), Some(90)));
    }

    #[test]
    fn texts() {
        let shape = Shape {
            keys: Keys::Sparse,
            key_columns: 2,
            payload: Payload::Narrow,
            present: 1,
            copies: 1,
            all: 1,
            probe_rows: 1,
        };
        let asked = |query: Query| query.ask(&shape, &answers());
        let wide = asked(Query::Wide(2, Some(Outer::Full)));
        assert_eq!(
            wide.sql,
            "SELECT b_int, p_int FROM build FULL JOIN probe \
             ON build.k = probe.k AND build.k2 = probe.k2"
        );
        assert_eq!(wide.timed, Reading::Counts);
        let filter = asked(Query::Filter);
        assert!(filter.sql.ends_with("build.k2 = probe.k2 AND v < w"));
        assert_eq!(filter.timed, Reading::Cells);
    }
}
