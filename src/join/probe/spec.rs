//! The facts that all probe streams of a join share, and what lookups must bring for them.

use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::physical_expr::PhysicalExprRef;

use crate::join::build_side::side::BuildSide;
use crate::join::lookup::columns::DeviceColumn;
use crate::join::lookup::result::LookupKind;
use crate::join::memory::ROW_BYTES;
use crate::join::output::columns::OutputColumns;
use crate::join::output::join_type::Outcome;
use crate::join::rows::Source;

/// Bytes of a chunk's keys where they are of more than two words: page-locking more memory costs
/// more than larger chunks gain.
const LONG_KEYS: usize = 8 << 20;

/// Pairs of a window for each row of a chunk: fewer windows for small fan-outs.
const WINDOW_PAIRS: usize = 4;

/// The facts that all probe streams of a join share.
#[derive(Debug)]
pub struct ProbeSpec {
    /// Key expressions over the probe side.
    pub on: Vec<PhysicalExprRef>,
    /// Says whether NULL keys match each other.
    pub null_equality: NullEquality,
    /// Type of the join.
    pub join_type: JoinType,
    /// The join type's use of a step's matches.
    pub outcome: Outcome,
    /// NOT IN: a NULL on either side decides for no row.
    pub null_aware: bool,
    /// The residual filter and its input.
    pub filter: Option<(PhysicalExprRef, OutputColumns)>,
    /// Columns of the output batches.
    pub output: OutputColumns,
    /// Rows of an output batch.
    pub batch_size: usize,
    /// Rows to return at most.
    pub fetch: Option<usize>,
    /// Rows of a chunk.
    pub chunk_rows: usize,
    /// True if a lookup waits for a whole chunk: not with an unbounded input.
    pub whole_chunks: bool,
}

impl ProbeSpec {
    /// Returns how many rows a chunk has at most, to be looked up in the table of `build`.
    pub(super) fn most_chunk_rows(&self, build: &BuildSide) -> usize {
        let most = match build.encoder().words() {
            0..=2 => self.chunk_rows,
            words => self.chunk_rows.min(LONG_KEYS / (4 * words)),
        };
        most.max(1)
    }

    /// Returns how many bytes the batches have of a chunk of `rows` rows at most, unless one alone
    /// has more.
    pub(super) fn most_bytes(&self, rows: usize) -> usize {
        ROW_BYTES * rows.max(self.chunk_rows)
    }

    /// Returns the bytes of a pair in a window: key's position, build row and gathered columns.
    pub(super) fn pair_bytes(build: &BuildSide) -> usize {
        let gathered = build.gathered().iter().map(DeviceColumn::width);
        2 * size_of::<u32>() + gathered.sum::<usize>()
    }

    /// Returns how many pairs a window has at most.
    fn window(&self, build: &BuildSide) -> usize {
        let has_room = ROW_BYTES * self.chunk_rows / Self::pair_bytes(build);
        (WINDOW_PAIRS * self.chunk_rows)
            .min(has_room)
            .max(self.batch_size + 1)
    }

    /// Returns `wanted`, cut down for the lookup of a chunk of `rows` rows: few rows have few pairs
    /// as a rule.
    pub(super) fn first_window(&self, wanted: LookupKind, rows: usize) -> LookupKind {
        match wanted {
            LookupKind::Pairs { build_rows, window } => LookupKind::Pairs {
                build_rows,
                window: window.min((WINDOW_PAIRS * rows).max(self.batch_size + 1)),
            },
            other => other,
        }
    }

    /// Returns what lookups must bring back.
    pub(super) fn wanted(&self, build: &BuildSide) -> LookupKind {
        let checked = self.filter.is_some() || !build.encoder().is_exact();
        match self.outcome {
            Outcome::Later if !checked => LookupKind::Visits,
            Outcome::Matched | Outcome::Unmatched | Outcome::Marked if !checked => LookupKind::Bits,
            Outcome::Matches if !checked && self.output.columns.is_empty() => LookupKind::Count,
            _ => LookupKind::Pairs {
                build_rows: self.needs_build_rows(build),
                window: self.window(build),
            },
        }
    }

    /// Returns whether the host does something with the pairs' build rows.
    pub(super) fn needs_build_rows(&self, build: &BuildSide) -> bool {
        let gathered = |source: Source| build.is_gathered(source);
        let filter = self.filter.iter().flat_map(|(_, shape)| &shape.columns);
        let mut columns = self.output.columns.iter().chain(filter);
        let keys = if build.encoder().is_exact() {
            0
        } else {
            self.on.len()
        };
        build.visited().is_some_and(|visited| !visited.by_lookups())
            || (0..keys).any(|c| !gathered(Source::Key(c)))
            || columns.any(|c| c.side == JoinSide::Left && !gathered(Source::Batch(c.index)))
    }
}
