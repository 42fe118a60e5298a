//! The joins to run: tables' shape, query, and what it must answer.
//!
//! ```text
//!   1.5Mx15M-sparse-sum-hit10
//!   │        │      │   └ per cent of probe rows with a match
//!   │        │      └ count, sum, or a join type that is neither inner
//!   │        └ dense, holes, sparse or text keys; fan4: four build rows per key
//!   └ build rows x probe rows at --scale 1
//! ```
//!
//! A name keeps its sizes at other scales, so that a list of cases stays the same; the rows that
//! were joined are in the report. Presets order cases by their tables, because making those costs
//! more than a query. There are two presets instead of one list cut at a time limit. 200 M rows of
//! two columns and their hash table need a large host. On two cores they show nothing that 30 M do
//! not.

use std::fmt;

use regex::Regex;

use super::tables::{Answers, Keys, Shape};

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
    /// Outer, all build rows kept.
    Left,
    /// Outer, all probe rows kept.
    Right,
    /// Outer, all rows kept.
    Full,
    /// Probe rows with a match.
    ProbeSemi,
    /// Probe rows without one.
    ProbeAnti,
    /// Build rows with a match.
    BuildSemi,
    /// Build rows without one.
    BuildAnti,
}

impl Query {
    /// Its part of a case's name.
    fn name(self) -> &'static str {
        match self {
            Query::Count => "count",
            Query::Sum => "sum",
            Query::Strings => "strings",
            Query::Filter => "filter",
            Query::Left => "left",
            Query::Right => "right",
            Query::Full => "full",
            Query::ProbeSemi => "probe-semi",
            Query::ProbeAnti => "probe-anti",
            Query::BuildSemi => "build-semi",
            Query::BuildAnti => "build-anti",
        }
    }

    /// Its text. The build side stands where the planner takes it for one: on the left, or for
    /// EXISTS wherever it is the smaller.
    pub fn sql(self) -> &'static str {
        match self {
            Query::Count => "SELECT count(*) FROM build JOIN probe ON build.k = probe.k",
            Query::Sum => "SELECT sum(v), sum(w) FROM build JOIN probe ON build.k = probe.k",
            Query::Strings => {
                "SELECT sum(octet_length(s)) FROM build JOIN probe ON build.k = probe.k"
            }
            Query::Filter => {
                "SELECT count(*), sum(v), sum(w)
                 FROM build JOIN probe ON build.k = probe.k AND v < w"
            }
            Query::Left => {
                "SELECT count(*), sum(v), sum(w) FROM build LEFT JOIN probe ON build.k = probe.k"
            }
            Query::Right => {
                "SELECT count(*), sum(v), sum(w) FROM build RIGHT JOIN probe ON build.k = probe.k"
            }
            Query::Full => {
                "SELECT count(*), sum(v), sum(w) FROM build FULL JOIN probe ON build.k = probe.k"
            }
            Query::ProbeSemi => {
                "SELECT count(*), sum(w) FROM probe
                 WHERE EXISTS (SELECT 1 FROM build WHERE build.k = probe.k)"
            }
            Query::ProbeAnti => {
                "SELECT count(*), sum(w) FROM probe
                 WHERE NOT EXISTS (SELECT 1 FROM build WHERE build.k = probe.k)"
            }
            Query::BuildSemi => {
                "SELECT count(*), sum(v) FROM build
                 WHERE EXISTS (SELECT 1 FROM probe WHERE build.k = probe.k)"
            }
            Query::BuildAnti => {
                "SELECT count(*), sum(v) FROM build
                 WHERE NOT EXISTS (SELECT 1 FROM probe WHERE build.k = probe.k)"
            }
        }
    }

    /// Returns the one row that it gives.
    pub fn expected(self, a: &Answers) -> Vec<Option<i64>> {
        let build_misses = a.build_rows - a.build_hits;
        let build_misses_v = a.build_v - a.build_hits_v;
        let probe_misses = a.probe_rows - a.probe_hits;
        let probe_misses_w = a.probe_w - a.probe_hits_w;
        let count = |rows: u64| Some(rows as i64);
        // The sum of no rows is NULL.
        let sum = |rows: u64, sum: u64| (rows > 0).then_some(sum as i64);
        // An outer join: build and probe rows kept without a match.
        let outer = |build: u64, probe: u64| {
            let v = a.pairs_v + if build > 0 { build_misses_v } else { 0 };
            let w = a.pairs_w + if probe > 0 { probe_misses_w } else { 0 };
            vec![
                count(a.pairs + build + probe),
                sum(a.pairs + build, v),
                sum(a.pairs + probe, w),
            ]
        };
        match self {
            Query::Count => vec![count(a.pairs)],
            Query::Sum => vec![sum(a.pairs, a.pairs_v), sum(a.pairs, a.pairs_w)],
            Query::Strings => vec![sum(a.pairs, a.pairs_text)],
            Query::Filter => vec![count(a.less), sum(a.less, a.less_v), sum(a.less, a.less_w)],
            Query::Left => outer(build_misses, 0),
            Query::Right => outer(0, probe_misses),
            Query::Full => outer(build_misses, probe_misses),
            Query::ProbeSemi => vec![count(a.probe_hits), sum(a.probe_hits, a.probe_hits_w)],
            Query::ProbeAnti => vec![count(probe_misses), sum(probe_misses, probe_misses_w)],
            Query::BuildSemi => vec![count(a.build_hits), sum(a.build_hits, a.build_hits_v)],
            Query::BuildAnti => vec![count(build_misses), sum(build_misses, build_misses_v)],
        }
    }
}

/// One join to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Build rows at scale 1.
    pub build: u64,
    /// Probe rows at scale 1.
    pub probe: u64,
    /// The shape of the keys.
    pub keys: Keys,
    /// Build rows per key.
    pub copies: u64,
    /// Probe rows with a match, in per cent.
    pub hit: u64,
    /// The question that is asked.
    pub query: Query,
}

impl Case {
    const fn new(build: u64, probe: u64, keys: Keys, query: Query, hit: u64) -> Self {
        let copies = 1;
        Self {
            build,
            probe,
            keys,
            copies,
            hit,
            query,
        }
    }

    const fn fan4(self) -> Self {
        Self { copies: 4, ..self }
    }

    /// Its tables at `scale`.
    pub fn shape(&self, scale: f64) -> Shape {
        let scaled = |rows: u64| ((rows as f64 * scale).round() as u64).max(1);
        let present = (scaled(self.build) / self.copies).max(1);
        Shape {
            keys: self.keys,
            present,
            copies: self.copies,
            all: (present * 100).div_ceil(self.hit),
            probe_rows: scaled(self.probe),
            strings: self.query == Query::Strings,
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
        Query::Left,
        Query::Right,
        Query::Full,
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

/// Returns the cases whose name one of `patterns` is found in; all of them without patterns.
///
/// # Errors
/// There is none, with the names there are; a pattern that is not a regular expression.
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
    use std::collections::BTreeSet;

    #[test]
    fn names_are_distinct_and_say_what_is_joined() {
        for preset in [Preset::Host, Preset::Small] {
            let cases = preset.cases();
            let names: BTreeSet<String> = cases.iter().map(Case::to_string).collect();
            assert_eq!(names.len(), cases.len());
        }
        let case = Case::new(3 * M / 2, 15 * M, Keys::Sparse, Query::Sum, 10);
        assert_eq!(case.to_string(), "1.5Mx15M-sparse-sum-hit10");
        assert_eq!(case.fan4().to_string(), "1.5Mx15M-sparse-fan4-sum-hit10");
    }

    #[test]
    fn presets_suit_the_machine() {
        assert_eq!(Preset::for_cores(2), Preset::Small);
        assert_eq!(Preset::for_cores(16), Preset::Host);
        let builds = |preset: Preset| preset.cases().iter().map(|c| c.build).max();
        assert_eq!(builds(Preset::Small), Some(10 * M));
        assert_eq!(builds(Preset::Host), Some(100 * M));
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

    /// Two build rows of one key, one of another; hits 2 of 3 probe rows.
    #[test]
    fn closed_forms() {
        let answers = Answers {
            build_rows: 3,
            build_v: 6,
            build_hits: 2,
            build_hits_v: 3,
            probe_rows: 3,
            probe_w: 60,
            probe_hits: 2,
            probe_hits_w: 30,
            pairs: 4,
            pairs_v: 6,
            pairs_w: 60,
            pairs_text: 20,
            less: 0,
            less_v: 0,
            less_w: 0,
        };
        let row = |query: Query| query.expected(&answers);
        let some = |values: &[i64]| values.iter().map(|v| Some(*v)).collect::<Vec<_>>();
        assert_eq!(row(Query::Count), some(&[4]));
        assert_eq!(row(Query::Sum), some(&[6, 60]));
        assert_eq!(row(Query::Strings), some(&[20]));
        assert_eq!(row(Query::Filter), [Some(0), None, None]);
        assert_eq!(row(Query::Left), some(&[5, 9, 60]));
        assert_eq!(row(Query::Right), some(&[5, 6, 90]));
        assert_eq!(row(Query::Full), some(&[6, 9, 90]));
        assert_eq!(row(Query::ProbeSemi), some(&[2, 30]));
        assert_eq!(row(Query::ProbeAnti), some(&[1, 30]));
        assert_eq!(row(Query::BuildSemi), some(&[2, 3]));
        assert_eq!(row(Query::BuildAnti), some(&[1, 3]));
        let none = Query::Left.expected(&Answers::default());
        assert_eq!(none, [Some(0), None, None]);
    }
}
