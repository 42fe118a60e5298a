//! Output pairs of each join type, made of a probe batch's matches.
//!
//! ```text
//!  matches      (0,a) (0,c) │ (2,d)                     verified, filtered
//!  Right        (0,a) (0,c) │ (2,d) (1,-)               unmatched at the end, or in order
//!  RightSemi    0 │ 2        RightAnti  1        RightMark  0 1 2: true false true
//! ```

use std::ops::Range;

use arrow::array::{BooleanArray, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take;
use datafusion::common::JoinType;

use crate::error::Result;

use crate::join::output::row_pairs::Pairs;
use crate::join::rows::NO_ROW;

/// The way in which a join type turns a step's matches into output.
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
    /// The build side is emitted at the end, and nothing now.
    Later,
}

impl Outcome {
    /// Returns what `join_type` emits while probing, with a probe side that is `ordered` or not.
    pub fn for_join_type(join_type: JoinType, ordered: bool) -> Self {
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

    /// Returns the output pairs of the resolved probe rows `range`, from their `matches`.
    ///
    /// A match of a row before `range` (its earlier matches were in an earlier step) is
    /// emitted as a match but resolves nothing again.
    ///
    /// # Errors
    /// Arrow's errors.
    pub fn apply(self, matches: Pairs, range: Range<usize>) -> Result<Pairs> {
        match self {
            Outcome::Matches => Ok(matches),
            Outcome::MatchesAndUnmatched { in_order: true } => interleaved(matches, range),
            Outcome::MatchesAndUnmatched { in_order: false } => {
                let unmatched = rows_where(&matched(&matches, &range), false, &range);
                let mut pairs = matches;
                pairs.append_unmatched(unmatched)?;
                Ok(pairs)
            }
            _ => Ok(self.resolve(&matched(&matches, &range), range)),
        }
    }

    /// Returns the output of the probe rows `range` for join types that ask only which of them have
    /// a match: bit `i` is row `range.start + i`'s.
    pub fn resolve(self, matched: &BooleanBuffer, range: Range<usize>) -> Pairs {
        match self {
            Outcome::Matched => probe_only(rows_where(matched, true, &range)),
            Outcome::Unmatched => probe_only(rows_where(matched, false, &range)),
            Outcome::Marked => {
                let mark = BooleanArray::new(matched.clone(), None);
                let mut pairs = probe_only(range.map(|row| row as u32).collect());
                pairs.mark = Some(mark);
                pairs
            }
            Outcome::Matches | Outcome::MatchesAndUnmatched { .. } | Outcome::Later => {
                Pairs::default()
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

/// Returns which rows of `range` have a match.
fn matched(matches: &Pairs, range: &Range<usize>) -> BooleanBuffer {
    let mut bits = vec![false; range.len()];
    for &row in &matches.probe {
        if let Some(at) = (row as usize).checked_sub(range.start) {
            bits[at] = true;
        }
    }
    BooleanBuffer::from(bits)
}

/// Returns the rows of `range` whose bit is `wanted`.
fn rows_where(bits: &BooleanBuffer, wanted: bool, range: &Range<usize>) -> Vec<u32> {
    range
        .clone()
        .zip(bits.iter())
        .filter(|(_, bit)| *bit == wanted)
        .map(|(row, _)| row as u32)
        .collect()
}

/// Returns the matches and unmatched rows of `range` in probe order.
fn interleaved(matches: Pairs, range: Range<usize>) -> Result<Pairs> {
    let probe = &matches.probe;
    let before = probe.partition_point(|row| (*row as usize) < range.start);
    // The match that each output pair is, if any.
    let mut picked: Vec<Option<u32>> = (0..before as u32).map(Some).collect();
    let mut rows = probe[..before].to_vec();
    let mut at = before;
    for row in range {
        let from = at;
        while at < probe.len() && probe[at] as usize == row {
            picked.push(Some(at as u32));
            at += 1;
        }
        if at == from {
            picked.push(None);
        }
        rows.resize(picked.len(), row as u32);
    }
    let indices = UInt32Array::from(picked.clone());
    let gathered = matches.gathered.into_iter().map(|(source, column)| {
        let column = take(&column, &indices, None)?;
        Ok((source, column))
    });
    // Without build rows of the matches nobody asks for those of others.
    let is_asked = matches.build.len() == probe.len();
    let build = picked.iter().filter(|_| is_asked).map(|pick| match pick {
        Some(at) => matches.build[*at as usize],
        None => NO_ROW,
    });
    Ok(Pairs {
        build: build.collect(),
        gathered: gathered.collect::<Result<_>>()?,
        probe: rows,
        mark: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::rows::BuildRow;

    fn matches(pairs: &[(u32, u32)]) -> Pairs {
        Pairs {
            probe: pairs.iter().map(|(probe, _)| *probe).collect(),
            build: pairs.iter().map(|(_, build)| BuildRow(*build)).collect(),
            ..Pairs::default()
        }
    }

    fn rows(
        outcome: Outcome,
        pairs: &[(u32, u32)],
        range: Range<usize>,
    ) -> Vec<(u32, Option<u32>)> {
        let pairs = outcome.apply(matches(pairs), range).unwrap();
        let build = |i: usize| pairs.build.get(i).filter(|row| **row != NO_ROW);
        let probe = pairs.probe.iter().enumerate();
        probe
            .map(|(i, row)| (*row, build(i).map(|row| row.0)))
            .collect()
    }

    #[test]
    fn each_join_type_makes_its_own_of_the_matches() {
        let pairs = [(0, 10), (0, 11), (2, 7)];
        let some = |pairs: &[(u32, u32)]| -> Vec<(u32, Option<u32>)> {
            pairs.iter().map(|(p, b)| (*p, Some(*b))).collect()
        };
        assert_eq!(rows(Outcome::Matches, &pairs, 0..4), some(&pairs));
        let in_order = Outcome::MatchesAndUnmatched { in_order: true };
        assert_eq!(
            rows(in_order, &pairs, 0..4),
            [
                (0, Some(10)),
                (0, Some(11)),
                (1, None),
                (2, Some(7)),
                (3, None)
            ]
        );
        let at_the_end = Outcome::MatchesAndUnmatched { in_order: false };
        assert_eq!(
            rows(at_the_end, &pairs, 0..4),
            [
                (0, Some(10)),
                (0, Some(11)),
                (2, Some(7)),
                (1, None),
                (3, None)
            ]
        );
        assert_eq!(rows(Outcome::Matched, &pairs, 0..4), [(0, None), (2, None)]);
        assert_eq!(
            rows(Outcome::Unmatched, &pairs, 0..4),
            [(1, None), (3, None)]
        );
        assert_eq!(rows(Outcome::Marked, &pairs, 0..4).len(), 4);
        assert_eq!(rows(Outcome::Later, &pairs, 0..4), []);
    }

    #[test]
    fn a_match_of_an_earlier_row_resolves_nothing_again() {
        let pairs = [(0, 12), (1, 3)];
        let in_order = Outcome::MatchesAndUnmatched { in_order: true };
        assert_eq!(rows(in_order, &pairs, 1..2), [(0, Some(12)), (1, Some(3))]);
        assert_eq!(rows(Outcome::Matched, &pairs, 1..2), [(1, None)]);
    }
}
