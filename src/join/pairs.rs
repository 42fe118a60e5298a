//! Candidate pairs of one probe batch, and what each join type makes of them.
//!
//! ```text
//!  lookup answers   row 0: group of 3   row 1: miss   row 2: 1
//!  candidates       (0,a) (0,b) (0,c) │ (2,d)          at most `batch_size` a step
//!  matches          (0,a) (0,c) │ (2,d)                 verified, filtered
//!  Right            (0,a) (0,c) │ (2,d) (1,-)           unmatched at the end, or in order
//!  RightSemi        0 │ 2        RightAnti  1        RightMark  0 1 2: true false true
//! ```
//!
//! As in the stock join, a step covers the probe rows up to its last match, so that a row whose
//! candidates are spread over several steps is resolved once. Stepping by candidates keeps
//! a hot key's fan-out in bounded memory.

use std::ops::Range;

use arrow::array::BooleanArray;
use arrow::buffer::BooleanBuffer;
use datafusion::common::JoinType;

use super::table::Rows;
use crate::table::horton::MISS;

use super::emit::{NO_ROW, Pairs};

/// Where the candidates of a probe batch are up to.
#[derive(Debug, Clone, Default)]
pub struct Cursor {
    /// Next probe row.
    row: usize,
    /// Matches of that row already taken.
    taken: usize,
    /// Probe rows resolved so far: up to the last match.
    resolved: usize,
}

impl Cursor {
    /// Whether every candidate of `answers` was taken.
    pub fn is_done(&self, answers: &[u32]) -> bool {
        self.row >= answers.len()
    }

    /// Up to `limit` candidate pairs, in probe order, matches in build order.
    pub fn candidates(&mut self, answers: &[u32], rows: &Rows, limit: usize) -> Pairs {
        let mut pairs = Pairs::default();
        while self.row < answers.len() && pairs.probe.len() < limit {
            let room = limit - pairs.probe.len();
            let (matches, done) = self.matches(answers[self.row], rows, room);
            let count = match matches {
                Matches::None => 0,
                Matches::One(row) => {
                    pairs.build.push(row);
                    1
                }
                Matches::Many(rows) => {
                    pairs.build.extend_from_slice(rows);
                    rows.len()
                }
            };
            pairs
                .probe
                .extend(std::iter::repeat_n(self.row as u32, count));
            if done {
                self.row += 1;
                self.taken = 0;
            } else {
                self.taken += count;
            }
        }
        pairs
    }

    /// At most `room` of the matches that `answer` stands for and were not taken yet, and
    /// whether they are the last.
    fn matches<'r>(&self, answer: u32, rows: &'r Rows, room: usize) -> (Matches<'r>, bool) {
        match (answer, rows) {
            (MISS, _) => (Matches::None, true),
            (row, Rows::Unique) => (Matches::One(row), true),
            (group, Rows::Grouped { offsets, rows }) => {
                let group = group as usize;
                let all = &rows[offsets[group] as usize..offsets[group + 1] as usize];
                let left = &all[self.taken..];
                let part = &left[..left.len().min(room)];
                (Matches::Many(part), part.len() == left.len())
            }
        }
    }

    /// The probe rows that the step's matches resolve: from the last step's end to its last
    /// match, or to the end of the batch.
    pub fn resolve(&mut self, matches: &Pairs, answers: &[u32]) -> Range<usize> {
        let from = self.resolved;
        let to = match (self.is_done(answers), matches.probe.last()) {
            (true, _) => answers.len(),
            (false, Some(last)) => *last as usize + 1,
            (false, None) => from,
        };
        self.resolved = to.max(from);
        from..self.resolved
    }
}

enum Matches<'r> {
    None,
    One(u32),
    Many(&'r [u32]),
}

/// How a join type turns a step's matches into output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The matches themselves.
    Matches,
    /// The matches, and probe rows without one.
    MatchesAndUnmatched {
        /// Unmatched rows stand in probe order rather than at the end.
        in_order: bool,
    },
    /// Probe rows with a match.
    Matched,
    /// Probe rows without one.
    Unmatched,
    /// All probe rows, marked.
    Marked,
    /// Nothing now: the build side is emitted at the end.
    Later,
}

impl Outcome {
    /// What `join_type` emits while probing, with a probe side that is `ordered` or not.
    pub fn of(join_type: JoinType, ordered: bool) -> Self {
        match join_type {
            JoinType::Inner | JoinType::Left => Outcome::Matches,
            JoinType::Right => Outcome::MatchesAndUnmatched { in_order: ordered },
            JoinType::Full => Outcome::MatchesAndUnmatched { in_order: false },
            JoinType::RightSemi => Outcome::Matched,
            JoinType::RightAnti => Outcome::Unmatched,
            JoinType::RightMark => Outcome::Marked,
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => Outcome::Later,
        }
    }

    /// The output pairs of the resolved probe rows `range`, from their `matches`.
    ///
    /// A match of a row before `range` (its earlier matches were in an earlier step) is
    /// emitted as a match but resolves nothing again.
    pub fn apply(self, matches: Pairs, range: Range<usize>) -> Pairs {
        match self {
            Outcome::Matches => matches,
            Outcome::Later => Pairs::default(),
            Outcome::MatchesAndUnmatched { in_order: true } => interleaved(matches, range),
            Outcome::MatchesAndUnmatched { in_order: false } => {
                let unmatched = rows_where(&matched(&matches, &range), false, &range);
                let mut pairs = matches;
                pairs
                    .build
                    .extend(std::iter::repeat_n(NO_ROW, unmatched.len()));
                pairs.probe.extend(unmatched);
                pairs
            }
            Outcome::Matched => probe_only(rows_where(&matched(&matches, &range), true, &range)),
            Outcome::Unmatched => probe_only(rows_where(&matched(&matches, &range), false, &range)),
            Outcome::Marked => {
                let mark = BooleanArray::new(matched(&matches, &range), None);
                let mut pairs = probe_only(range.map(|row| row as u32).collect());
                pairs.mark = Some(mark);
                pairs
            }
        }
    }
}

fn probe_only(probe: Vec<u32>) -> Pairs {
    Pairs {
        probe,
        ..Pairs::default()
    }
}

/// Which rows of `range` have a match.
fn matched(matches: &Pairs, range: &Range<usize>) -> BooleanBuffer {
    let mut bits = vec![false; range.len()];
    for &row in &matches.probe {
        if let Some(at) = (row as usize).checked_sub(range.start) {
            bits[at] = true;
        }
    }
    BooleanBuffer::from(bits)
}

/// Rows of `range` whose bit is `wanted`.
fn rows_where(bits: &BooleanBuffer, wanted: bool, range: &Range<usize>) -> Vec<u32> {
    range
        .clone()
        .zip(bits.iter())
        .filter(|(_, bit)| *bit == wanted)
        .map(|(row, _)| row as u32)
        .collect()
}

/// Matches and unmatched rows of `range` in probe order.
fn interleaved(matches: Pairs, range: Range<usize>) -> Pairs {
    let mut pairs = Pairs::default();
    let mut at = 0;
    let before = matches
        .probe
        .partition_point(|row| (*row as usize) < range.start);
    for i in 0..before {
        pairs.build.push(matches.build[i]);
        pairs.probe.push(matches.probe[i]);
        at = i + 1;
    }
    for row in range {
        let from = at;
        while at < matches.probe.len() && matches.probe[at] as usize == row {
            pairs.build.push(matches.build[at]);
            pairs.probe.push(row as u32);
            at += 1;
        }
        if at == from {
            pairs.build.push(NO_ROW);
            pairs.probe.push(row as u32);
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grouped() -> Rows {
        Rows::Grouped {
            offsets: vec![0, 3, 4],
            rows: vec![10, 11, 12, 7],
        }
    }

    /// All steps of a batch: output pairs, `(probe, build)`.
    fn steps(answers: &[u32], limit: usize, outcome: Outcome) -> Vec<(u32, Option<u32>)> {
        let rows = grouped();
        let mut cursor = Cursor::default();
        let mut out = Vec::new();
        while !cursor.is_done(answers) {
            let candidates = cursor.candidates(answers, &rows, limit);
            assert!(candidates.probe.len() <= limit);
            let range = cursor.resolve(&candidates, answers);
            let pairs = outcome.apply(candidates, range);
            for (i, probe) in pairs.probe.iter().enumerate() {
                let build = pairs.build.get(i).filter(|b| **b != NO_ROW);
                out.push((*probe, build.copied()));
            }
        }
        out
    }

    #[test]
    fn steps_of_any_size_give_the_same_pairs() {
        let answers = [0, MISS, 1, MISS, 0];
        for limit in 1..9 {
            assert_eq!(
                steps(&answers, limit, Outcome::Matches),
                [
                    (0, Some(10)),
                    (0, Some(11)),
                    (0, Some(12)),
                    (2, Some(7)),
                    (4, Some(10)),
                    (4, Some(11)),
                    (4, Some(12))
                ]
            );
            let ordered = steps(
                &answers,
                limit,
                Outcome::MatchesAndUnmatched { in_order: true },
            );
            assert!(ordered.is_sorted_by_key(|(probe, _)| *probe));
            assert_eq!(ordered.len(), 9);
            let mut appended = steps(
                &answers,
                limit,
                Outcome::MatchesAndUnmatched { in_order: false },
            );
            appended.sort();
            let mut ordered = ordered;
            ordered.sort();
            assert_eq!(appended, ordered);
            let semi = steps(&answers, limit, Outcome::Matched);
            assert_eq!(semi, [(0, None), (2, None), (4, None)]);
            let anti = steps(&answers, limit, Outcome::Unmatched);
            assert_eq!(anti, [(1, None), (3, None)]);
            let marked = steps(&answers, limit, Outcome::Marked);
            assert_eq!(marked.len(), 5);
        }
    }

    #[test]
    fn rows_whose_candidates_all_fail_stay_unresolved_until_the_end() {
        let answers = [0, 0];
        let rows = grouped();
        let mut cursor = Cursor::default();
        let step = cursor.candidates(&answers, &rows, 2);
        assert_eq!(step.probe, [0, 0]);
        // The residual filter dropped both: nothing is resolved yet.
        let range = cursor.resolve(&Pairs::default(), &answers);
        assert_eq!(range, 0..0);
        let step = cursor.candidates(&answers, &rows, 4);
        assert_eq!(step.build, [12, 10, 11, 12]);
        let range = cursor.resolve(&step, &answers);
        assert_eq!(range, 0..2);
    }
}
