//! The queries over a join, and what they must answer.

use super::tables::Answers;

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
    pub fn name(self) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

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
