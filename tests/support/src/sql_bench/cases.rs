//! The joins to run: tables' shape, query, and what it must answer.
//!
//! ```text
//!   1.5Mx15M-sparse-sum-hit10
//!   │        │      │   └ per cent of probe rows with a match
//!   │        │      └ count, sum, or a join type that is neither inner
//!   │        └ dense, holes, sparse or text keys; fan4: four build rows per key
//!   └ build rows x probe rows at --scale 1
//!
//!   1Mx10M-sparse-keys2-wide12-left-hit10
//!                 │     └ the join's rows with 12 columns, six of each side
//!                 └ a key has two columns
//! ```
//!
//! A name keeps its sizes at other scales, so that a list of cases stays the same; the rows that
//! were joined are in the report. Presets order cases by their tables, because making those costs
//! more than a query. Two presets follow the machine, instead of one list cut at a time limit.
//! 200 M rows of two columns and their hash table need a large host. On two cores they show nothing
//! that 30 M do not.
//!
//! Wide cases are a preset beside them. A mean over cases says something beside an older one only
//! if the list is the same.

use std::fmt;

use regex::Regex;

use super::keys::Keys;
use super::query::{Outer, Query};
use super::tables::Shape;

/// One join to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Build rows at scale 1.
    pub build: u64,
    /// Probe rows at scale 1.
    pub probe: u64,
    /// The shape of the keys.
    pub keys: Keys,
    /// Columns that a key has.
    pub key_columns: usize,
    /// Build rows per key.
    pub copies: u64,
    /// Probe rows with a match, in per cent.
    pub hit: u64,
    /// The question that is asked.
    pub query: Query,
}

impl Case {
    /// Returns a join by one column, whose build keys are distinct.
    pub const fn new(build: u64, probe: u64, keys: Keys, query: Query, hit: u64) -> Self {
        Self {
            build,
            probe,
            keys,
            key_columns: 1,
            copies: 1,
            hit,
            query,
        }
    }

    const fn fan4(self) -> Self {
        Self { copies: 4, ..self }
    }

    const fn by(self, key_columns: usize) -> Self {
        Self {
            key_columns,
            ..self
        }
    }

    /// Its tables at `scale`.
    pub fn shape(&self, scale: f64) -> Shape {
        let scaled = |rows: u64| ((rows as f64 * scale).round() as u64).max(1);
        let present = (scaled(self.build) / self.copies).max(1);
        Shape {
            keys: self.keys,
            key_columns: self.key_columns,
            payload: self.query.payload(),
            present,
            copies: self.copies,
            all: (present * 100).div_ceil(self.hit),
            probe_rows: scaled(self.probe),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = match self.keys {
            Keys::Dense => "dense",
            Keys::Holes => "holes",
            Keys::Sparse => "sparse",
            Keys::Text => "text",
        };
        let (build, probe) = (rows(self.build), rows(self.probe));
        write!(f, "{build}x{probe}-{keys}")?;
        if self.key_columns > 1 {
            write!(f, "-keys{}", self.key_columns)?;
        }
        if self.copies > 1 {
            write!(f, "-fan{}", self.copies)?;
        }
        write!(f, "-{}-hit{}", self.query.name(), self.hit)
    }
}

/// Returns a text such as `1.5M`, `200M`, `100K` or `999`.
pub fn rows(count: u64) -> String {
    match count {
        1_000_000.. if count.is_multiple_of(100_000) => format!("{}M", count as f64 / 1e6),
        1000.. if count.is_multiple_of(1000) => format!("{}K", count / 1000),
        _ => count.to_string(),
    }
}

/// A list of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// For 16 cores and 128 GiB or more
    Host,
    /// For a few cores and 16 GiB
    Small,
    /// Joins that make rows of 6 and 12 columns, also by several keys; for 16 GiB
    Wide,
}

/// Cores from which [`Preset::Host`] is the default.
const HOST_CORES: usize = 8;

const M: u64 = 1_000_000;

impl Preset {
    /// Returns the one that suits a machine of `cores`.
    pub fn for_cores(cores: usize) -> Self {
        match cores {
            HOST_CORES.. => Preset::Host,
            _ => Preset::Small,
        }
    }

    /// Its cases, those with equal tables beside each other.
    pub fn cases(self) -> Vec<Case> {
        let mut cases = vec![];
        match self {
            Preset::Host => {
                cases.extend(hits(100 * M, 200 * M, Keys::Dense, &[100]));
                cases.extend(hits(100 * M, 200 * M, Keys::Sparse, &[100]));
                for (build, probe) in [(15 * M, 150 * M), (M, 150 * M)] {
                    cases.extend(hits(build, probe, Keys::Dense, &[100, 10, 1]));
                    cases.extend(hits(build, probe, Keys::Sparse, &[100, 10, 1]));
                }
                for (build, probe) in [(10 * M, 30 * M), (3 * M / 2, 15 * M)] {
                    cases.extend(hits(build, probe, Keys::Dense, &[100]));
                    cases.extend(hits(build, probe, Keys::Sparse, &[100]));
                }
                cases.extend(others((15 * M, 150 * M), (10 * M, 30 * M)));
                cases.extend(hits(M, 10 * M, Keys::Text, &[100]));
                cases.extend(hits(10 * M, 30 * M, Keys::Text, &[100]));
            }
            Preset::Small => {
                cases.extend(hits(10 * M, 30 * M, Keys::Dense, &[100]));
                cases.extend(hits(10 * M, 30 * M, Keys::Sparse, &[100]));
                for keys in [Keys::Dense, Keys::Sparse] {
                    cases.extend(hits(3 * M / 2, 15 * M, keys, &[100, 10, 1]));
                }
                cases.extend(hits(100_000, 15 * M, Keys::Dense, &[100]));
                cases.extend(hits(100_000, 15 * M, Keys::Sparse, &[100]));
                cases.extend(others((3 * M / 2, 15 * M), (M, 3 * M)));
                cases.extend(hits(M, 10 * M, Keys::Text, &[100]));
                cases.extend(hits(3 * M, 9 * M, Keys::Text, &[100]));
            }
            Preset::Wide => cases.extend(wide()),
        }
        cases
    }
}

/// Returns `count` and `sum` at each hit rate.
fn hits(build: u64, probe: u64, keys: Keys, rates: &[u64]) -> Vec<Case> {
    let both =
        |&hit| [Query::Count, Query::Sum].map(|query| Case::new(build, probe, keys, query, hit));
    rates.iter().flat_map(both).collect()
}

/// Keys with holes, the join types, a filter and strings at one size, and fan-out at another.
fn others((build, probe): (u64, u64), (fan_build, fan_probe): (u64, u64)) -> Vec<Case> {
    let sparse = |query, hit| Case::new(build, probe, Keys::Sparse, query, hit);
    let types = [
        Query::Outer(Outer::Left),
        Query::Outer(Outer::Right),
        Query::Outer(Outer::Full),
        Query::ProbeSemi,
        Query::ProbeAnti,
        Query::BuildSemi,
        Query::BuildAnti,
    ];
    let mut cases = hits(build, probe, Keys::Holes, &[10]);
    cases.extend(types.map(|query| sparse(query, 10)));
    cases.extend([sparse(Query::Filter, 100), sparse(Query::Strings, 100)]);
    for keys in [Keys::Dense, Keys::Sparse] {
        let fans = hits(fan_build, fan_probe, keys, &[100]);
        cases.extend(fans.into_iter().map(Case::fan4));
    }
    cases
}

/// Rows to be made: by size, width, hit rate and join type, and by two and three key columns.
fn wide() -> [Case; 16] {
    let sparse = |build, probe, columns, outer, hit| {
        let query = Query::Wide(columns, outer);
        Case::new(build, probe, Keys::Sparse, query, hit)
    };
    let (left, right) = (Some(Outer::Left), Some(Outer::Right));
    let middle = |columns, outer, hit| sparse(M, 10 * M, columns, outer, hit);
    let dense = Case {
        keys: Keys::Dense,
        ..middle(12, None, 100)
    };
    [
        sparse(M / 10, M, 6, None, 100),
        sparse(M / 10, M, 12, None, 100),
        sparse(M / 10, 30 * M, 12, None, 10),
        dense,
        middle(6, None, 100),
        middle(12, None, 100),
        middle(12, None, 10),
        middle(12, left, 10),
        middle(12, right, 10),
        middle(12, Some(Outer::Full), 10),
        middle(6, None, 100).by(2),
        middle(12, left, 10).by(2),
        middle(6, None, 100).by(3),
        middle(12, right, 10).by(3),
        sparse(3 * M, 30 * M, 6, None, 100),
        sparse(3 * M, 30 * M, 12, None, 100).by(2),
    ]
}

/// Returns the cases whose name one of `patterns` is found in; all of them without patterns.
///
/// # Errors
/// No case with one of the names that exist; a pattern that is not a regular expression.
pub fn select(cases: Vec<Case>, patterns: &[String]) -> super::Result<Vec<Case>> {
    let patterns = patterns
        .iter()
        .map(|pattern| Regex::new(pattern))
        .collect::<Result<Vec<_>, _>>()?;
    if patterns.is_empty() {
        return Ok(cases);
    }
    let names: Vec<String> = cases.iter().map(Case::to_string).collect();
    let is_asked = |name: &str| patterns.iter().any(|pattern| pattern.is_match(name));
    let found: Vec<Case> = cases
        .into_iter()
        .zip(&names)
        .filter(|(_, name)| is_asked(name))
        .map(|(case, _)| case)
        .collect();
    if found.is_empty() {
        return Err(format!("no such case; there are\n  {}", names.join("\n  ")).into());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_distinct_and_say_what_is_joined() {
        for preset in Preset::value_variants() {
            let cases = preset.cases();
            let names: BTreeSet<String> = cases.iter().map(Case::to_string).collect();
            assert_eq!(names.len(), cases.len());
        }
        let case = Case::new(3 * M / 2, 15 * M, Keys::Sparse, Query::Sum, 10);
        assert_eq!(case.to_string(), "1.5Mx15M-sparse-sum-hit10");
        assert_eq!(case.fan4().to_string(), "1.5Mx15M-sparse-fan4-sum-hit10");
        let query = Query::Wide(12, Some(Outer::Left));
        let case = Case::new(M, 10 * M, Keys::Sparse, query, 10).by(2);
        assert_eq!(case.to_string(), "1Mx10M-sparse-keys2-wide12-left-hit10");
    }

    #[test]
    fn presets_suit_the_machine() {
        assert_eq!(Preset::for_cores(2), Preset::Small);
        assert_eq!(Preset::for_cores(16), Preset::Host);
        let builds = |preset: Preset| preset.cases().iter().map(|c| c.build).max();
        assert_eq!(builds(Preset::Small), Some(10 * M));
        assert_eq!(builds(Preset::Host), Some(100 * M));
        assert_eq!(builds(Preset::Wide), Some(3 * M));
    }

    #[test]
    fn shapes_scale() {
        let case = Case::new(10 * M, 30 * M, Keys::Dense, Query::Count, 1).fan4();
        let shape = case.shape(0.001);
        assert_eq!(
            (shape.present, shape.copies, shape.probe_rows),
            (2500, 4, 30_000)
        );
        assert_eq!((shape.build_rows(), shape.all), (10_000, 250_000));
        assert_eq!(case.shape(1e-9).build_rows(), 4);
    }

    #[test]
    fn selection() {
        let all = || Preset::Small.cases();
        let named = |pattern: &str| select(all(), &[pattern.to_string()]);
        assert_eq!(select(all(), &[]).unwrap(), all());
        assert_eq!(named("^10Mx30M-dense-count").unwrap().len(), 1);
        assert_eq!(named("semi|anti").unwrap().len(), 4);
        assert!(named("cross").unwrap_err().to_string().contains("-full-"));
        assert!(named("(").is_err());
    }
}
