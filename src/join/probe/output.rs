//! The way from the results of lookups to output batches.
//!
//! ```text
//!  pairs, a window at a time ─▶ step of one batch ─▶ equal keys? ─▶ residual filter ─▶ join type
//!  bits, one per row         ─▶ batch ────────────────────────────────────────────────▶ join type
//!  visited build rows, at the end ────────────────────────────────────────────────────▶ join type
//!                                                                                    ─▶ rows
//! ```

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take;
use datafusion::common::JoinType;
use datafusion::common::cast::as_boolean_array;
use datafusion::physical_plan::coalesce::PushBatchStatus;

use crate::error::{Error, Result};
use crate::join::bitmap::Bitmap;
use crate::join::build_side::build_output::{Batches, Role};
use crate::join::build_side::side::BuildSide;
use crate::join::lookup::result::{LookupKind, LookupResult, Window};
use crate::join::output::row_pairs::Pairs;
use crate::join::probe::chunk::{Chunk, ProbeBatch, Step};
use crate::join::rows::RowLocations;
use crate::join::rows::Source;
use crate::keys::verify::{Selected, equal_pairs, equal_strings, equal_views};

use super::{Probe, State, WINDOW_PAIRS_MIN};

impl Probe {
    /// Emits what comes next of a chunk: a step of its first batch, or all it is wanted for.
    pub(super) async fn emit(
        &mut self,
        build: Arc<BuildSide>,
        mut chunk: Box<Chunk>,
    ) -> Result<State> {
        // A NOT IN whose other side has a NULL returns nothing at all.
        if self.spec.null_aware && build.null_aware().null() {
            return Ok(State::Fetch(build));
        }
        match chunk.wanted {
            LookupKind::Visits => {
                self.count_chunk(&chunk);
                Ok(State::Fetch(build))
            }
            LookupKind::Count => {
                // Once: what is left of a chunk to emit has no batches.
                if !chunk.batches.is_empty() {
                    self.count_chunk(&chunk);
                    chunk.batches.clear();
                }
                self.emit_count(build, chunk)
            }
            LookupKind::Bits => self.emit_batch(build, chunk),
            LookupKind::Pairs { .. } => {
                while let Some(first) = chunk.missing(self.step_pairs(&chunk)) {
                    self.fetch_window(&build, &mut chunk, first).await?;
                }
                self.emit_step(build, chunk)
            }
        }
    }

    /// Counts a chunk, whose matches are the device's, in the metrics.
    pub(super) fn count_chunk(&self, chunk: &Chunk) {
        let rows: usize = chunk.batches.iter().map(|b| b.batch.num_rows()).sum();
        self.count_matches(&chunk.found, rows);
    }

    pub(super) fn count_matches(&self, found: &LookupResult, rows: usize) {
        let metrics = &self.metrics;
        metrics.probe_hit_rate.add_total(rows);
        metrics.probe_hit_rate.add_part(found.matched as usize);
        metrics.avg_fanout.add_part(found.total as usize);
        metrics.avg_fanout.add_total(found.matched as usize);
    }

    /// Emits rows without columns, as many as there are pairs.
    pub(super) fn emit_count(
        &mut self,
        build: Arc<BuildSide>,
        mut chunk: Box<Chunk>,
    ) -> Result<State> {
        let timer = self.metrics.join_time.timer();
        let rows = chunk.found.total.min(self.spec.batch_size as u64) as usize;
        if rows == 0 {
            return Ok(State::Fetch(build));
        }
        chunk.found.total -= rows as u64;
        let pairs = Pairs::default();
        let batch = self.spec.output.batch(build.rows(), None, &pairs, rows)?;
        timer.done();
        self.push_and(batch, State::Emit(build, chunk))
    }

    /// Emits the whole first batch of a chunk, for a join type that asks only which rows match.
    pub(super) fn emit_batch(
        &mut self,
        build: Arc<BuildSide>,
        mut chunk: Box<Chunk>,
    ) -> Result<State> {
        let timer = self.metrics.join_time.timer();
        let Some(probe) = chunk.batches.pop_front() else {
            self.count_matches(&chunk.found, 0);
            return Ok(State::Fetch(build));
        };
        let rows = probe.batch.num_rows();
        self.metrics.probe_hit_rate.add_total(rows);
        let matched = probe.matched(chunk.found.bits.as_deref());
        let pairs = self.spec.outcome.resolve(&matched, 0..rows);
        let count = pairs.probe.len();
        let output = &self.spec.output;
        let batch = output.batch(build.rows(), Some(&probe.batch), &pairs, count)?;
        timer.done();
        self.push_and(batch, State::Emit(build, chunk))
    }

    /// Returns how many pairs a step has at most: one fewer than a window, which tells whether more
    /// follow.
    pub(super) fn step_pairs(&self, chunk: &Chunk) -> usize {
        match chunk.wanted {
            LookupKind::Pairs { window, .. } => self.spec.batch_size.min(window - 1),
            _ => self.spec.batch_size,
        }
    }

    /// Brings further pairs. If the device has no room for as many, or fails, none: then they are
    /// asked for again, fewer from now on, or of the host.
    pub(super) async fn fetch_window(
        &mut self,
        build: &Arc<BuildSide>,
        chunk: &mut Chunk,
        first: u64,
    ) -> Result<()> {
        let lost = || Error::Internal("pairs were lost".into());
        // The last one's memory is for the next.
        chunk.found.window = Window {
            first,
            ..Window::default()
        };
        let left = usize::try_from(chunk.found.total - first).unwrap_or(usize::MAX);
        self.reserve_pairs(build, &chunk.memory, left, &mut chunk.wanted);
        let rest = chunk.found.rest.clone().ok_or_else(lost)?;
        match rest.window(first, chunk.wanted).await {
            Ok(answer) => {
                self.sizing.note_answered();
                self.metrics.add_cost(&answer.cost);
                chunk.found.window = answer.value;
            }
            Err(error) => {
                let is_room = error.is_device_memory();
                let table = chunk.table.clone();
                if is_room && self.has_room_after(table.as_deref(), &error).await {
                    return Ok(());
                }
                if is_room && chunk.wanted.halve(WINDOW_PAIRS_MIN) {
                    self.shrink_windows();
                    return Ok(());
                }
                self.fail_over(build, table.as_deref(), error).await?;
                chunk.table = None;
                let from = chunk.front().ok_or_else(lost)?;
                let matches = self.lookup_again(build, &chunk.batches, from).await?;
                chunk.found.rest = Some(Arc::new(matches));
            }
        }
        Ok(())
    }

    /// Emits one step of the chunk's first batch.
    pub(super) fn emit_step(
        &mut self,
        build: Arc<BuildSide>,
        mut chunk: Box<Chunk>,
    ) -> Result<State> {
        let timer = self.metrics.join_time.timer();
        let limit = self.step_pairs(&chunk);
        let Some(Step { pairs, is_last }) = chunk.step(limit, build.gathered())? else {
            return Ok(State::Fetch(build));
        };
        let Some(probe) = chunk.batches.front_mut() else {
            return Ok(State::Fetch(build));
        };
        let matches = self.matches(&build, probe, pairs)?;
        let range = probe.resolve(&matches, is_last);
        let pairs = self.spec.outcome.apply(matches, range)?;
        let rows = pairs.probe.len();
        let output = &self.spec.output;
        let batch = output.batch(build.rows(), Some(&probe.batch), &pairs, rows)?;
        if is_last {
            let rows = probe.batch.num_rows();
            self.metrics.probe_hit_rate.add_total(rows);
            chunk.next_batch();
        }
        timer.done();
        self.push_and(batch, State::Emit(build, chunk))
    }

    /// Returns the step's candidates that are matches: equal keys, residual filter passed.
    pub(super) fn matches(
        &self,
        build: &BuildSide,
        probe: &ProbeBatch,
        mut pairs: Pairs,
    ) -> Result<Pairs> {
        if pairs.probe.is_empty() {
            return Ok(pairs);
        }
        if !build.encoder().is_exact() {
            pairs = self.verify(build, probe, pairs)?;
        }
        self.metrics.avg_fanout.add_part(pairs.probe.len());
        let hits = pairs.probe_rows();
        self.metrics.avg_fanout.add_total(hits);
        self.metrics.probe_hit_rate.add_part(hits);
        if let Some((filter, shape)) = &self.spec.filter {
            let rows = pairs.probe.len();
            let input = shape.batch(build.rows(), Some(&probe.batch), &pairs, rows)?;
            let passed = filter.evaluate(&input)?.into_array(rows)?;
            pairs = pairs.keep(as_boolean_array(&passed)?)?;
        }
        if let Some(visited) = build.visited()
            && !visited.by_lookups()
        {
            (pairs.build.iter()).for_each(|row| visited.rows().set(*row));
        }
        Ok(pairs)
    }

    /// Drops candidates whose keys only share a normalized key.
    pub(super) fn verify(
        &self,
        build: &BuildSide,
        probe: &ProbeBatch,
        pairs: Pairs,
    ) -> Result<Pairs> {
        let located = RowLocations::new(build.rows(), &pairs.build);
        let picked = if pairs.are_whole(probe.batch.num_rows()) {
            None
        } else {
            Some(UInt32Array::from(pairs.probe.clone()))
        };
        let mut build_columns = Vec::new();
        let mut probe_columns = Vec::new();
        let mut equal: Option<BooleanBuffer> = None;
        for (c, key) in probe.keys.iter().enumerate() {
            let gathered = pairs.gathered(Source::Key(c));
            if gathered.is_none()
                && let Some(bits) = self.compare_in_place(build, key, c, &pairs, &located)
            {
                equal = Some(equal.map_or(bits.clone(), |equal| &equal & &bits));
                continue;
            }
            build_columns.push(match gathered {
                Some(values) => Arc::clone(values),
                None => {
                    let column = build.column(Source::Key(c));
                    build.rows().gather(column, &located, key.data_type())?
                }
            });
            probe_columns.push(match &picked {
                Some(picked) => take(key, picked, None)?,
                None => Arc::clone(key),
            });
        }
        if !build_columns.is_empty() {
            let bits = equal_pairs(&build_columns, &probe_columns, self.spec.null_equality)?;
            equal = Some(equal.map_or(bits.clone(), |equal| &equal & &bits));
        }
        match equal {
            Some(equal) => pairs.keep(&BooleanArray::new(equal, None)),
            None => Ok(pairs),
        }
    }

    /// Returns which pairs have equal strings in key column `column`; `None` for other types.
    pub(super) fn compare_in_place(
        &self,
        build: &BuildSide,
        key: &ArrayRef,
        column: usize,
        pairs: &Pairs,
        located: &RowLocations<'_>,
    ) -> Option<BooleanBuffer> {
        let nulls = self.spec.null_equality;
        let probe = Selected {
            array: key,
            rows: &pairs.probe,
        };
        match build.column(Source::Key(column)) {
            [array] => {
                let rows = &pairs.build;
                equal_views(Selected { array, rows }, probe, nulls)
            }
            arrays => equal_strings(arrays, located.places(), probe, nulls),
        }
    }

    /// Ends a probe stream: finds out which part of the build output it emits.
    pub(super) async fn end_probe(&mut self, build: Arc<BuildSide>) -> Result<State> {
        let is_settled = self.spec.null_aware && build.null_aware().null();
        let Some(visited) = build.visited().filter(|_| !is_settled) else {
            return Ok(State::Done);
        };
        let mut share = visited.owed().end(self.partition).await;
        if share == Role::Leader {
            self.collect_visits(&build).await?;
            share = visited.owed().settle(self.partition);
            // As in `HashJoinExec`, the build output counts as one more input batch.
            self.metrics.input_batches.add(1);
        }
        Ok(match share {
            Role::Helper(batches) => State::Unmatched(build, batches, 0..0),
            Role::None | Role::Leader => State::Done,
        })
    }

    /// Emits up to a batch of the build output. Its rows are left in `rows`, or of the next of
    /// `batches`.
    pub(super) async fn emit_unmatched(
        &mut self,
        build: Arc<BuildSide>,
        mut batches: Batches,
        rows: Range<u32>,
    ) -> Result<State> {
        let Some(visited) = build.visited() else {
            return Ok(State::Done);
        };
        let rows = if rows.is_empty() {
            match batches.take(build.rows().batches().len()) {
                Some(batch) => build.rows().rows_of(batch),
                None => return Ok(State::Done),
            }
        } else {
            rows
        };
        let timer = self.metrics.join_time.timer();
        let (owed, rest) = self.owed_rows(&build, visited.rows(), rows);
        self.metrics.input_rows.add(owed.len());
        let mark = owed
            .iter()
            .map(|row| Some(visited.rows().get(*row)))
            .collect();
        let pairs = Pairs {
            mark: Some(mark),
            build: owed,
            ..Pairs::default()
        };
        let count = pairs.build.len();
        let batch = self.spec.output.batch(build.rows(), None, &pairs, count)?;
        timer.done();
        self.push_and(batch, State::Unmatched(build, batches, rest))
    }

    /// Returns the build rows among `rows` that the join type emits, up to an output batch, and the
    /// rows to go on with. All are of one build batch, as gathering from many takes longer.
    fn owed_rows(
        &self,
        build: &BuildSide,
        visited: &Bitmap,
        rows: Range<u32>,
    ) -> (Vec<u32>, Range<u32>) {
        let skip_null_keys = self.spec.null_aware && build.null_aware().row();
        let is_owed = |row: &u32| !(skip_null_keys && build.first_key_is_null(*row));
        let (most, end) = (self.spec.batch_size, rows.end);
        let owed: Vec<u32> = match self.spec.join_type {
            JoinType::LeftSemi => visited.rows(rows, true).take(most).collect(),
            JoinType::LeftMark => rows.take(most).collect(),
            _ => visited
                .rows(rows, false)
                .filter(is_owed)
                .take(most)
                .collect(),
        };
        let next = match owed.last() {
            Some(last) if owed.len() == most => last + 1,
            _ => end,
        };
        (owed, next..end)
    }

    /// Hands rows to the output; goes on to `next` unless that has enough.
    pub(super) fn push_and(&mut self, batch: RecordBatch, next: State) -> Result<State> {
        Ok(match self.push(batch)? {
            PushBatchStatus::Continue => next,
            PushBatchStatus::LimitReached => State::Done,
        })
    }

    /// Hands rows to the output, which passes a large batch on as it is: so no more than a
    /// batch's rows at a time.
    pub(super) fn push(&mut self, batch: RecordBatch) -> Result<PushBatchStatus> {
        let (rows, size) = (batch.num_rows(), self.spec.batch_size);
        for at in (0..rows).step_by(size) {
            let part = batch.slice(at, size.min(rows - at));
            if self.output.push_batch(part)? == PushBatchStatus::LimitReached {
                return Ok(PushBatchStatus::LimitReached);
            }
        }
        Ok(PushBatchStatus::Continue)
    }
}
