//! The rows of a scan that pass its filters.
//!
//! ```text
//!  batch ─▶ filter a ─▶ filter b ─▶ survivors, gathered into full batches
//!
//!  a filter:   Active ── lets most of a batch through ──▶ Paused for 1, 2, 4 … 128 batches
//!                ▲                                           │   from 1 on, once it excludes
//!                └── its pause is over, or it changed ───────┘   enough rows of a batch
//! ```
//!
//! Filters that leave few rows are tried in order of their rank: the time of a test per row that it
//! excludes (Hellerstein and Stonebraker, SIGMOD 1993). Both are measured. The others come after
//! them, in order of the rows that they leave. A filter that lets most rows through costs the copy
//! of these rows and saves little. So it pauses, each time for twice as many batches up to 128.
//! Then it is tried again: values that come in the order of time change.
//!
//! Masks of several filters are combined, and rows are copied once. Where few are left, later
//! filters see just those, and are not judged by them. So what is known of them grows old: after 8,
//! 16 … 128 batches, the one that has not been judged for longest is tried first.
//!
//! A filter whose join comes next, and looks keys up as fast as the filter tests them, spares only
//! the lookups and costs a copy. So it pauses unless few rows are left, or another filter has rows
//! copied anyway.
//!
//! The [comparisons](super::comparisons) of a filter node above are one more filter. It is tried
//! first at the beginning, and only together with another one.
//!
//! Survivors do not wait until their batch is full: a LIMIT above may want only these. The first
//! ones are passed on with the batch that they came in, later ones after 2, 4, 8 … 128 batches.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{and, filter_record_batch, prep_null_mask_filter};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, DynamicFilterPhysicalExpr, Literal};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricCategory, RecordOutput,
};
use futures::TryStreamExt;

use crate::keys::membership::InFilterExpr;
use crate::output_batches::OutputBatches;

/// Batches that a filter pauses at most: of a useless one, one batch of 129 is tested.
const PAUSE_BATCHES_MAX: usize = 128;

/// Batches of the scan for which survivors wait at most, until their own batch is full. Also the
/// most batches from one trial to the next.
const WAIT_BATCHES_MAX: usize = 128;

/// Batches until the first trial, in which the filter that was judged longest ago is tried first.
const TRIAL_BATCHES: usize = 8;

/// Rows of ten that a filter may let through: copying more costs what it saves.
const PASSING_TENTHS_MAX: usize = 7;

/// Survivors among which a later filter is tested alone, and which are few for a filter that the
/// next join repeats: one row of so many.
const SPARSE_FACTOR: usize = 8;

/// Metrics of one partition.
#[derive(Debug)]
pub struct ScanMetrics {
    baseline: BaselineMetrics,
    input_rows: Count,
    pauses: Count,
}

impl ScanMetrics {
    /// Registers the metrics of `partition`.
    pub fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        Self {
            baseline: BaselineMetrics::new(set, partition),
            input_rows: MetricBuilder::new(set)
                .with_category(MetricCategory::Rows)
                .counter("input_rows", partition),
            pauses: MetricBuilder::new(set).counter("filter_pauses", partition),
        }
    }
}

/// One filter of one partition.
struct Filter {
    /// What it is made of; `None` if it never changes.
    dynamic: Option<Arc<dyn PhysicalExpr>>,
    generation: u64,
    /// The predicate that it tests now; `None` if it lets everything through.
    test: Option<Arc<dyn PhysicalExpr>>,
    state: State,
    /// Whether it has a test, and does not pause.
    is_tried: bool,
    rank: Rank,
    /// The least time in which it tested a row of a whole batch, in seconds.
    cost: f64,
    /// Batches that it has been tried in since it was judged.
    age: usize,
}

/// The order of filters, the smallest first.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum Rank {
    /// Few rows are left: the time of a test per row that it excludes.
    Few(f64),
    /// The share of rows that are left. The next filter sees all of them.
    Many(f64),
}

enum State {
    Active {
        /// Batches of the pause before; 0 if it excluded enough rows since.
        last_pause: usize,
    },
    Paused {
        batches: usize,
        left: usize,
    },
}

impl Filter {
    fn new(dynamic: &Arc<dyn PhysicalExpr>) -> Self {
        Self {
            dynamic: Some(Arc::clone(dynamic)),
            generation: 0,
            test: None,
            state: State::Active { last_pause: 0 },
            is_tried: false,
            rank: Rank::Many(1.0),
            cost: f64::INFINITY,
            age: 0,
        }
    }

    /// Returns one that always tests `predicate`: first, until a batch has been tested.
    fn fixed(predicate: &Arc<dyn PhysicalExpr>) -> Self {
        Self {
            dynamic: None,
            test: Some(Arc::clone(predicate)),
            rank: Rank::Few(0.0),
            ..Self::new(predicate)
        }
    }

    /// Looks whether the filter changed, and whether it is to be asked about the next batch.
    fn refresh(&mut self) -> Result<()> {
        if let Some(dynamic) = &self.dynamic {
            // Before what it belongs to, so that no later one is missed.
            let generation = dynamic.snapshot_generation();
            if generation != self.generation {
                let test = match dynamic.downcast_ref::<DynamicFilterPhysicalExpr>() {
                    Some(dynamic) => test_of(dynamic.current()?),
                    None => None,
                };
                *self = Self {
                    generation,
                    test,
                    ..Self::new(dynamic)
                };
            }
        }
        self.is_tried = self.test.is_some() && self.takes_turn();
        Ok(())
    }

    /// Returns whether it does not pause, and counts the batches of its pause.
    fn takes_turn(&mut self) -> bool {
        if let State::Paused { batches, left } = &mut self.state {
            if *left > 0 {
                *left -= 1;
                return false;
            }
            self.state = State::Active {
                last_pause: *batches,
            };
        }
        true
    }

    /// Returns whether the next node tests rows by the same keys, as fast.
    fn is_repeated(&self) -> bool {
        let test = self.test.as_ref();
        test.and_then(|test| test.downcast_ref::<InFilterExpr>())
            .is_some_and(InFilterExpr::is_repeated)
    }

    /// Judges by a batch of `rows` rows, of which `passes` pass, and which were tested in `time`
    /// seconds. Returns whether the filter pauses. It is the only one that is tested if it
    /// `is_alone`.
    fn judge(&mut self, passes: usize, rows: usize, time: f64, is_alone: bool) -> bool {
        self.age = 0;
        // Other work of the machine only adds to the time.
        self.cost = self.cost.min(time / rows as f64);
        // Unless few are left, the next filter sees all of them.
        self.rank = if passes * SPARSE_FACTOR < rows {
            Rank::Few(self.cost * rows as f64 / (rows - passes) as f64)
        } else {
            Rank::Many(passes as f64 / rows as f64)
        };
        let last_pause = match self.state {
            State::Active { last_pause } => last_pause,
            State::Paused { batches, .. } => batches,
        };
        let pauses = if is_alone && self.is_repeated() {
            passes * SPARSE_FACTOR > rows
        } else {
            passes * 10 > rows * PASSING_TENTHS_MAX
        };
        self.state = if pauses {
            let batches = (2 * last_pause).clamp(1, PAUSE_BATCHES_MAX);
            let left = batches;
            State::Paused { batches, left }
        } else {
            State::Active { last_pause: 0 }
        };
        pauses
    }
}

/// Returns the part of a dynamic filter that rows are tested by: the set alone where there is one,
/// as it excludes all that bounds and lists beside it do; `None` for `true`.
fn test_of(current: Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>> {
    let is_true = current
        .downcast_ref::<Literal>()
        .is_some_and(|literal| *literal.value() == ScalarValue::Boolean(Some(true)));
    if is_true {
        return None;
    }
    if let Some(both) = current.downcast_ref::<BinaryExpr>()
        && *both.op() == Operator::And
        && both.right().downcast_ref::<InFilterExpr>().is_some()
    {
        return Some(Arc::clone(both.right()));
    }
    Some(current)
}

/// Returns the rows of `batch` that pass `test`; a NULL does not.
fn mask_of(test: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<BooleanArray> {
    let mask = test.evaluate(batch)?.into_array(batch.num_rows())?;
    let mask = mask.as_boolean();
    Ok(match mask.nulls() {
        None => mask.clone(),
        Some(_) => prep_null_mask_filter(mask),
    })
}

/// The filtered batches of one partition.
pub struct FilterStream {
    /// `None` once it has ended.
    input: Option<SendableRecordBatchStream>,
    filters: Vec<Filter>,
    output: OutputBatches,
    /// The time that survivors wait for others.
    wait: Wait,
    /// The time until the filter that was judged longest ago is tried first.
    trial: Wait,
    metrics: ScanMetrics,
}

/// A time in batches of the scan.
struct Wait {
    batches: usize,
    most: usize,
}

impl Wait {
    /// Returns one that ends after `most` batches.
    fn new(most: usize) -> Self {
        Self { batches: 0, most }
    }

    /// Counts one more batch. Returns whether it has lasted long enough; the next one lasts twice
    /// as long.
    fn ends(&mut self) -> bool {
        self.batches += 1;
        let ends = self.batches >= self.most;
        if ends {
            self.batches = 0;
            self.most = (2 * self.most).min(WAIT_BATCHES_MAX);
        }
        ends
    }
}

impl FilterStream {
    /// Returns the rows of `input` that pass dynamic `filters`, in batches of `output`'s size.
    pub fn new(
        input: SendableRecordBatchStream,
        filters: &[Arc<dyn PhysicalExpr>],
        output: OutputBatches,
        metrics: ScanMetrics,
    ) -> Self {
        Self {
            input: Some(input),
            filters: filters.iter().map(Filter::new).collect(),
            output,
            wait: Wait::new(1),
            trial: Wait::new(TRIAL_BATCHES),
            metrics,
        }
    }

    /// Returns the same stream, which tests `predicate` together with the filters.
    #[must_use]
    pub fn with_predicate(mut self, predicate: Option<&Arc<dyn PhysicalExpr>>) -> Self {
        self.filters.extend(predicate.map(Filter::fixed));
        self
    }

    /// Returns the next batch.
    ///
    /// # Errors
    /// The scan's; those of evaluating a filter.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.output.next_completed() {
                return Ok(Some(batch.record_output(&self.metrics.baseline)));
            }
            let Some(input) = &mut self.input else {
                return Ok(None);
            };
            match input.try_next().await? {
                Some(batch) => self.push(batch)?,
                None => {
                    self.input = None;
                    self.output.finish_buffered()?;
                }
            }
        }
    }

    /// Gathers the rows of `batch` that pass.
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let time = self.metrics.baseline.elapsed_compute().clone();
        let _timer = time.timer();
        self.metrics.input_rows.add(batch.num_rows());
        let (batch, mask) = self.test(batch)?;
        match mask {
            Some(mask) => self.output.push_filtered(batch, &mask)?,
            None => self.output.push(batch)?,
        }
        if self.output.has_completed() || !self.output.has_buffered() {
            self.wait.batches = 0;
        } else if self.wait.ends() {
            self.output.finish_buffered()?;
        }
        Ok(())
    }

    /// Puts the filters in the order in which the next batch is tested by them.
    fn sort(&mut self) {
        let by_rank = |a: &Filter, b: &Filter| a.rank.partial_cmp(&b.rank);
        self.filters
            .sort_by(|a, b| by_rank(a, b).unwrap_or(Ordering::Equal));
        let is_choice = self.filters.iter().filter(|f| f.is_tried).count() > 1;
        if !is_choice || !self.trial.ends() {
            return;
        }
        // Of equals the one whose test takes least.
        let is_later = |(_, a): &(_, &Filter), (_, b): &(_, &Filter)| {
            a.age.cmp(&b.age).then(b.cost.total_cmp(&a.cost))
        };
        let tried = self.filters.iter().enumerate().filter(|(_, f)| f.is_tried);
        if let Some((oldest, _)) = tried.max_by(is_later) {
            self.filters[..=oldest].rotate_right(1);
        }
    }

    /// Returns the rows that may pass, and which of them do; `None` if all.
    fn test(&mut self, mut batch: RecordBatch) -> Result<(RecordBatch, Option<BooleanArray>)> {
        let mut tried = 0;
        for filter in &mut self.filters {
            filter.refresh()?;
            tried += usize::from(filter.is_tried && filter.dynamic.is_some());
        }
        self.sort();
        let rows = batch.num_rows();
        let mut mask: Option<BooleanArray> = None;
        for filter in &mut self.filters {
            // A filter node above tests by the predicate anyway.
            let is_left_out = filter.dynamic.is_none() && tried == 0;
            if is_left_out || !filter.is_tried {
                continue;
            }
            let is_judged = batch.num_rows() == rows;
            filter.age += 1;
            if batch.num_rows() == 0 {
                continue;
            }
            let Some(test) = &filter.test else { continue };
            let began = Instant::now();
            let passes = mask_of(test, &batch)?;
            let time = began.elapsed().as_secs_f64();
            if is_judged && filter.judge(passes.true_count(), rows, time, tried == 1) {
                self.metrics.pauses.add(1);
                // Not worth a copy of the rows, unless they are copied anyway.
                if mask.is_none() {
                    continue;
                }
            }
            let both = match &mask {
                Some(mask) => and(mask, &passes)?,
                None => passes,
            };
            mask = if both.true_count() * SPARSE_FACTOR < batch.num_rows() {
                batch = filter_record_batch(&batch, &both)?;
                None
            } else {
                Some(both)
            };
        }
        Ok((batch, mask))
    }
}
