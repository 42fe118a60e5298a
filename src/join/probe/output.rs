//! The way from the results of lookups to output batches.
//!
//! ```text
//!  pairs, a window at a time ─▶ step of one batch ─▶ equal keys? ─▶ residual filter ─▶ join type
//!  one pair per row at most  ─▶ batch of an outer join ───────────────────────────────▶ rows
//!  bits, one per row         ─▶ batch ────────────────────────────────────────────────▶ join type
//!  visited build rows, at the end ────────────────────────────────────────────────────▶ join type
//!                                                                                    ─▶ rows
//! ```

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{prep_null_mask_filter, take};
use datafusion::common::JoinType;
use datafusion::common::cast::as_boolean_array;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_plan::coalesce::PushBatchStatus;
use tracing::trace_span;

use crate::error::Result;
use crate::join::bitmap::Bitmap;
use crate::join::build_side::side::BuildSide;
use crate::join::lookup::result::{LookupKind, LookupResult};
use crate::join::metrics::JoinMetrics;
use crate::join::output::columns::OutputColumns;
use crate::join::output::join_type::Outcome;
use crate::join::output::row_pairs::Pairs;
use crate::join::rows::{BuildRow, RowLocations, Source};
use crate::keys::verify::{Selected, equal_pairs, equal_strings, equal_views};
use crate::output_batches::OutputBatches;

use super::chunk::{Chunk, ProbeBatch};
use super::spec::ProbeSpec;

/// The output of one probe stream: results of lookups in, output batches out.
pub struct ProbeOutput {
    spec: Arc<ProbeSpec>,
    batches: OutputBatches,
    /// Rows until the LIMIT in the join; `None` without one.
    left: Option<usize>,
    metrics: JoinMetrics,
}

impl ProbeOutput {
    /// Returns an output without rows.
    pub fn new(spec: Arc<ProbeSpec>, metrics: JoinMetrics) -> Self {
        let schema = Arc::clone(&spec.output.schema);
        Self {
            batches: OutputBatches::new(schema, spec.batch_size),
            left: spec.fetch,
            spec,
            metrics,
        }
    }

    /// Returns the next batch that is full, or the last one.
    pub fn next_batch(&mut self) -> Option<RecordBatch> {
        self.batches.next_completed()
    }

    /// Ends the output: rows of a batch that is not full come, too.
    ///
    /// # Errors
    /// Arrow's errors.
    pub fn finish(&mut self) -> Result<()> {
        Ok(self.batches.finish_buffered()?)
    }

    /// Returns the first pair of the window that `chunk` needs before it is emitted further; `None`
    /// if it has what it needs.
    pub fn missing_pair(&self, chunk: &Chunk) -> Option<u64> {
        match chunk.wanted {
            LookupKind::Pairs { .. } => chunk.missing(self.step_pairs(chunk)),
            LookupKind::Count | LookupKind::Visits | LookupKind::Bits => None,
        }
    }

    /// Emits what comes next of a chunk: a step of its first batch, or all it is wanted for.
    /// Returns whether the output takes more, or `None` if nothing is left of the chunk.
    ///
    /// # Errors
    /// Those of the residual filter, and Arrow's.
    pub fn emit(
        &mut self,
        build: &BuildSide,
        chunk: &mut Chunk,
    ) -> Result<Option<PushBatchStatus>> {
        let _work = trace_span!("emit").entered();
        match chunk.wanted {
            LookupKind::Visits => {
                self.count_chunk(chunk);
                Ok(None)
            }
            LookupKind::Count => {
                // Once: what is left of a chunk to emit has no batches.
                if !chunk.batches.is_empty() {
                    self.count_chunk(chunk);
                    chunk.batches.clear();
                }
                self.emit_count(build, chunk)
            }
            LookupKind::Bits => self.emit_batch(build, chunk),
            LookupKind::Pairs { .. } => self.emit_step(build, chunk),
        }
    }

    /// Counts a chunk, whose matches are the device's, in the metrics.
    fn count_chunk(&self, chunk: &Chunk) {
        let rows: usize = chunk.batches.iter().map(|b| b.batch.num_rows()).sum();
        self.count_matches(&chunk.found, rows);
    }

    fn count_matches(&self, found: &LookupResult, rows: usize) {
        let metrics = &self.metrics;
        metrics.probe_hit_rate.add_total(rows);
        metrics.probe_hit_rate.add_part(found.matched as usize);
        metrics.avg_fanout.add_part(found.total as usize);
        metrics.avg_fanout.add_total(found.matched as usize);
    }

    /// Emits rows without columns, as many as there are pairs.
    fn emit_count(
        &mut self,
        build: &BuildSide,
        chunk: &mut Chunk,
    ) -> Result<Option<PushBatchStatus>> {
        let timer = self.metrics.join_time.timer();
        let rows = chunk.found.total.min(self.spec.batch_size as u64) as usize;
        if rows == 0 {
            return Ok(None);
        }
        chunk.found.total -= rows as u64;
        let pairs = Pairs::default();
        let batch = self.spec.output.batch(build.rows(), None, &pairs, rows)?;
        timer.done();
        Ok(Some(self.push(batch)?))
    }

    /// Emits the whole first batch of a chunk, for a join type that asks only which rows match.
    fn emit_batch(
        &mut self,
        build: &BuildSide,
        chunk: &mut Chunk,
    ) -> Result<Option<PushBatchStatus>> {
        let timer = self.metrics.join_time.timer();
        let Some(probe) = chunk.batches.pop_front() else {
            self.count_matches(&chunk.found, 0);
            return Ok(None);
        };
        let rows = probe.batch.num_rows();
        self.metrics.probe_hit_rate.add_total(rows);
        let matched = probe.matched(chunk.found.bits.as_ref().map(|bits| &***bits));
        let pairs = self.spec.outcome.resolve(&matched, 0..rows);
        let count = pairs.probe.len();
        let output = &self.spec.output;
        let batch = output.batch(build.rows(), Some(&probe.batch), &pairs, count)?;
        timer.done();
        Ok(Some(self.push(batch)?))
    }

    /// Returns how many pairs a step has at most: one fewer than a window, which tells whether more
    /// follow.
    fn step_pairs(&self, chunk: &Chunk) -> usize {
        match chunk.wanted {
            LookupKind::Pairs { window, .. } => self.spec.batch_size.min(window - 1),
            _ => self.spec.batch_size,
        }
    }

    /// Emits the whole first batch of a chunk for an outer join whose probe rows have one match at
    /// most. All rows come out as they are, in their order. Returns `None` if the batch takes
    /// steps.
    fn emit_all_rows(
        &mut self,
        build: &BuildSide,
        chunk: &mut Chunk,
    ) -> Result<Option<PushBatchStatus>> {
        let is_checked = self.spec.filter.is_some() || !build.encoder().is_exact();
        let notes_visits = build.visited().is_some_and(|visited| !visited.by_lookups());
        let emits_all = matches!(self.spec.outcome, Outcome::MatchesAndUnmatched { .. });
        if is_checked || notes_visits || !emits_all {
            return Ok(None);
        }
        let timer = self.metrics.join_time.timer();
        let most = self.spec.batch_size;
        let Some((matched, matches)) = chunk.rows_with_one_match(most, build.gathered())? else {
            return Ok(None);
        };
        let Some(probe) = chunk.batches.front() else {
            return Ok(None);
        };
        let hits = matched.count_set_bits();
        self.metrics.avg_fanout.add_part(hits);
        self.metrics.avg_fanout.add_total(hits);
        self.metrics.probe_hit_rate.add_part(hits);
        self.metrics.probe_hit_rate.add_total(matched.len());
        let pairs = matches.fill_unmatched(&matched)?;
        let output = &self.spec.output;
        let batch = output.batch(build.rows(), Some(&probe.batch), &pairs, matched.len())?;
        chunk.next_batch();
        timer.done();
        Ok(Some(self.push(batch)?))
    }

    /// Emits one step of the chunk's first batch.
    fn emit_step(
        &mut self,
        build: &BuildSide,
        chunk: &mut Chunk,
    ) -> Result<Option<PushBatchStatus>> {
        if let Some(status) = self.emit_all_rows(build, chunk)? {
            return Ok(Some(status));
        }
        let timer = self.metrics.join_time.timer();
        let limit = self.step_pairs(chunk);
        let Some((pairs, is_last)) = chunk.step(limit, build.gathered())? else {
            return Ok(None);
        };
        let Some(probe) = chunk.batches.front_mut() else {
            return Ok(None);
        };
        let matches = self.matches(build, probe, pairs)?;
        let range = probe.resolve(&matches, is_last);
        let batch = match self.spec.outcome {
            Outcome::Later => None,
            outcome => {
                let pairs = outcome.apply(matches, range)?;
                let rows = pairs.probe.len();
                let output = &self.spec.output;
                Some(output.batch(build.rows(), Some(&probe.batch), &pairs, rows)?)
            }
        };
        if is_last {
            let rows = probe.batch.num_rows();
            self.metrics.probe_hit_rate.add_total(rows);
            chunk.next_batch();
        }
        timer.done();
        match batch {
            Some(batch) => Ok(Some(self.push(batch)?)),
            None => Ok(Some(self.status())),
        }
    }

    /// Returns the step's candidates that are matches: equal keys, residual filter passed. Their
    /// build rows are noted if the join type asks for them. If it asks for nothing else, no match
    /// is returned.
    fn matches(&self, build: &BuildSide, probe: &ProbeBatch, mut pairs: Pairs) -> Result<Pairs> {
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
        let passed = match &self.spec.filter {
            Some(filter) => Some(residual(filter, build, probe, &pairs)?),
            None => None,
        };
        if let Some(visited) = build.visited()
            && !visited.by_lookups()
        {
            let visit = |row: BuildRow| visited.rows().set(row.0);
            match &passed {
                Some(passed) => passed.set_indices().for_each(|i| visit(pairs.build[i])),
                None => pairs.build.iter().copied().for_each(visit),
            }
        }
        match passed {
            _ if self.spec.outcome == Outcome::Later => Ok(Pairs::default()),
            Some(passed) => pairs.keep(&passed),
            None => Ok(pairs),
        }
    }

    /// Drops candidates whose keys only share a normalized key.
    fn verify(&self, build: &BuildSide, probe: &ProbeBatch, pairs: Pairs) -> Result<Pairs> {
        let _work = trace_span!("verify keys").entered();
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
            Some(equal) => pairs.keep(&equal),
            None => Ok(pairs),
        }
    }

    /// Returns which pairs have equal strings in key column `column`; `None` for other types.
    fn compare_in_place(
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

    /// Emits build rows among `rows` after the probe, up to an output batch. Returns the rows that
    /// are left, and whether the output takes more.
    ///
    /// # Errors
    /// Arrow's errors.
    pub fn emit_build_rows(
        &mut self,
        build: &BuildSide,
        visited: &Bitmap,
        rows: Range<u32>,
    ) -> Result<(Range<u32>, PushBatchStatus)> {
        let _work = trace_span!("emit").entered();
        let timer = self.metrics.join_time.timer();
        let (emitted, rest) = self.emitted_rows(build, visited, rows);
        self.metrics.input_rows.add(emitted.len());
        let mark = emitted.iter().map(|row| Some(visited.get(row.0))).collect();
        let pairs = Pairs {
            mark: Some(mark),
            build: emitted,
            ..Pairs::default()
        };
        let count = pairs.build.len();
        let batch = self.spec.output.batch(build.rows(), None, &pairs, count)?;
        timer.done();
        Ok((rest, self.push(batch)?))
    }

    /// Returns the build rows among `rows` that the join type emits, up to an output batch, and the
    /// rows to go on with. All are of one build batch, as gathering from many takes longer.
    fn emitted_rows(
        &self,
        build: &BuildSide,
        visited: &Bitmap,
        rows: Range<u32>,
    ) -> (Vec<BuildRow>, Range<u32>) {
        let skip_null_keys = self.spec.null_aware && build.null_aware().row();
        let is_emitted = |row: &u32| !(skip_null_keys && build.first_key_is_null(BuildRow(*row)));
        let (most, end) = (self.spec.batch_size, rows.end);
        let emitted: Vec<u32> = match self.spec.join_type {
            JoinType::LeftSemi => visited.rows(rows, true).take(most).collect(),
            JoinType::LeftMark => rows.take(most).collect(),
            _ => visited
                .rows(rows, false)
                .filter(is_emitted)
                .take(most)
                .collect(),
        };
        let next = match emitted.last() {
            Some(last) if emitted.len() == most => last + 1,
            _ => end,
        };
        (emitted.into_iter().map(BuildRow).collect(), next..end)
    }

    /// Hands rows to the output, up to the LIMIT, no more than a batch's rows at a time.
    fn push(&mut self, batch: RecordBatch) -> Result<PushBatchStatus> {
        let _work = trace_span!("coalesce output").entered();
        let size = self.spec.batch_size;
        let rows = batch.num_rows().min(self.left.unwrap_or(usize::MAX));
        for at in (0..rows).step_by(size) {
            self.batches.push(batch.slice(at, size.min(rows - at)))?;
        }
        self.left = self.left.map(|left| left - rows);
        Ok(self.status())
    }

    fn status(&self) -> PushBatchStatus {
        match self.left {
            Some(0) => PushBatchStatus::LimitReached,
            _ => PushBatchStatus::Continue,
        }
    }
}

/// Returns which pairs the residual filter lets pass.
fn residual(
    (filter, shape): &(PhysicalExprRef, OutputColumns),
    build: &BuildSide,
    probe: &ProbeBatch,
    pairs: &Pairs,
) -> Result<BooleanBuffer> {
    let _work = trace_span!("residual filter").entered();
    let rows = pairs.probe.len();
    if rows == 0 {
        return Ok(BooleanBuffer::new_unset(0));
    }
    let input = shape.batch(build.rows(), Some(&probe.batch), pairs, rows)?;
    let passed = filter.evaluate(&input)?.into_array(rows)?;
    let passed = as_boolean_array(&passed)?;
    Ok(match passed.null_count() {
        0 => passed.values().clone(),
        _ => prep_null_mask_filter(passed).values().clone(),
    })
}
