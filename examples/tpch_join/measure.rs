//! Runs one query on both plans: stock DataFusion and DataFusion with Horton joins.
//!
//! ```text
//!   warm-up:  stock ─ horton          (kernels get compiled, caches filled; not timed)
//!   timed:    stock ─ horton   horton ─ stock   stock ─ horton …
//!             └── a pair ───┘                           best of each, and the pairs' median ratio
//! ```
//!
//! The two alternate, so that a machine that slows down slows both. The best of each is the least
//! time that a query can take. Where plans are equal, the best times of a shared machine can still
//! be some per cent apart: either side had the luckier moment. The median over pairs of
//! neighbouring runs is less sensitive to that. A time runs from the query's text to its last row:
//! parsing and planning are in it, on both sides. The rows of every Horton run are compared with
//! those of the stock plan's first run. One run would not do: a race in a kernel need not show at
//! once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::context::SQLOptions;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::SessionContext;
use horton_join::HortonJoinExec;
use horton_test_support::check::{Differences, compare};
use horton_test_support::folder::Query;
use horton_test_support::median::median;

use crate::Result;
use crate::limit::{Limit, is_exhausted, pooled, take_peak};

/// The two contexts over the same tables.
pub struct Sides {
    /// DataFusion as published.
    pub stock: SessionContext,
    /// The session with the Horton rules.
    pub horton: SessionContext,
    /// The memory that measured runs may reserve.
    pub limit: Option<Limit>,
}

impl Sides {
    /// Both for a query whose stock plan reserves `peak` bytes.
    fn limited(&self, peak: usize) -> Result<Self> {
        let bytes = self.limit.map(|limit| limit.bytes(peak));
        Ok(Self {
            stock: pooled(&self.stock, bytes)?,
            horton: pooled(&self.horton, bytes)?,
            limit: self.limit,
        })
    }
}

/// One finished execution of a query.
pub struct Run {
    /// The result's columns.
    pub schema: SchemaRef,
    /// The result.
    pub batches: Vec<RecordBatch>,
    /// The executed plan, with its metrics.
    pub plan: Arc<dyn ExecutionPlan>,
    /// Time from text to last row.
    pub time: Duration,
}

impl Run {
    /// Rows of the result.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// A hash join of an executed plan.
pub struct Join {
    /// Its device; `None` if it ran as DataFusion's own.
    pub device: Option<String>,
    /// Its line in EXPLAIN.
    pub line: String,
    /// Kernels it launched.
    pub launches: usize,
    /// True if neither input was empty, as far as the plan says.
    has_rows: bool,
}

/// The outcome of one query.
pub struct Outcome {
    /// The query's name.
    pub label: String,
    /// The last run with Horton joins.
    pub run: Run,
    /// Its hash joins, in the order of EXPLAIN.
    pub joins: Vec<Join>,
    /// Times of the stock plan; `None` if it failed for want of memory.
    pub stock: Option<Times>,
    /// Times with Horton joins.
    pub horton: Times,
    /// The first run of each side, Horton's and the stock plan's: in a fresh process the device is
    /// being made ready meanwhile.
    pub first: [Duration; 2],
    /// Stock time over Horton time: the median over the pairs of runs, if there are any.
    pub median_ratio: Option<f64>,
    /// Bytes that runs reserved at most.
    pub memory: Memory,
    /// Differences of the first run whose rows were not the stock plan's, or that there were
    /// none. `None` if rows were not compared.
    pub differences: Option<Differences>,
}

impl Outcome {
    /// Returns the joins that ran on a device.
    pub fn device_joins(&self) -> impl Iterator<Item = &Join> {
        self.joins.iter().filter(|join| join.device.is_some())
    }

    /// Returns the number of joins that ran as DataFusion's own.
    pub fn stock_joins(&self) -> usize {
        self.joins
            .iter()
            .filter(|join| join.device.is_none())
            .count()
    }

    /// Kernels launched by all joins.
    pub fn launches(&self) -> usize {
        self.joins.iter().map(|join| join.launches).sum()
    }

    /// Returns whether device joins had rows to join and launched no kernel: then the device did
    /// not do what the plan says.
    pub fn is_idle(&self) -> bool {
        self.launches() == 0 && self.device_joins().any(|join| join.has_rows)
    }

    /// Best stock time over best Horton time: above 1, Horton is faster.
    pub fn ratio(&self) -> Option<f64> {
        Some(ratio(self.stock?.best, self.horton.best))
    }

    /// Differing rows and columns, and one for an idle device; 0 if rows were not compared.
    pub fn difference_count(&self) -> usize {
        let idle = usize::from(self.is_idle());
        let of_rows = self.differences.as_ref();
        of_rows.map_or(0, |differences| differences.count() + idle)
    }
}

/// Bytes that runs reserved in their memory pools.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// The limit on them.
    pub limit: Option<usize>,
    /// The most of a run with Horton joins.
    pub horton: usize,
    /// The most of a run of the stock plan.
    pub stock: usize,
    /// Bytes that the last run's joins wrote to disk.
    pub spilled: usize,
}

/// Times of runs of one side.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// The fastest.
    pub best: Duration,
    /// The one in the middle.
    pub median: Duration,
}

impl Times {
    /// Returns the times of some runs, at least one.
    fn from_runs(runs: &[Duration]) -> Self {
        let seconds = runs.iter().map(Duration::as_secs_f64);
        Self {
            best: runs.iter().copied().min().unwrap_or_default(),
            median: Duration::from_secs_f64(median(seconds).unwrap_or_default()),
        }
    }
}

/// The number of runs of a query.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Least number of runs.
    pub repeat: usize,
    /// Until so much time has gone.
    pub time: Duration,
}

/// Runs `query` once on both sides to warm up and as often as `effort` says to measure, by turns;
/// compares the rows if `check`. Under a limit, the stock plan without one gives the rows to
/// compare.
///
/// # Errors
/// A side's error, with the query's label and the side. That the stock plan has too little memory
/// is none.
pub async fn measure(sides: &Sides, query: &Query, effort: Effort, check: bool) -> Result<Outcome> {
    let side = |name: &'static str| {
        let label = query.label.clone();
        move |e| format!("{label}, {name}: {e}")
    };
    let (in_stock, in_horton) = (side("stock plan"), side("Horton plan"));
    take_peak(&sides.stock)?;
    let reference = run(&sides.stock, query, "stock plan")
        .await
        .map_err(&in_stock)?;
    let sides = sides.limited(take_peak(&sides.stock)?)?;
    let mut stock_fails = false;
    let warm = run(&sides.horton, query, "Horton plan")
        .await
        .map_err(&in_horton)?;
    let first = [warm.time, reference.time];
    let mut differences = check.then(|| compare_runs(&reference, &warm)).transpose()?;
    let mut last = Some(warm);
    let (mut stock_times, mut horton_times) = (vec![], vec![]);
    let mut ratios = vec![];
    let began = Instant::now();
    // Each side is as often the first as the second: where those differ, a median shows the more
    // frequent.
    let repeat = effort.repeat.next_multiple_of(2);
    while horton_times.len() < repeat || began.elapsed() < effort.time {
        // What one side keeps alive would slow the other down.
        drop(last.take());
        let (mut stock, mut horton) = (None, None);
        // Neither side is always the first.
        for turn in 0..2 {
            if (horton_times.len() + turn) % 2 == 1 {
                horton = Some(
                    run(&sides.horton, query, "Horton plan")
                        .await
                        .map_err(&in_horton)?,
                );
            } else if !stock_fails {
                stock = match run(&sides.stock, query, "stock plan").await {
                    Err(error) if sides.limit.is_some() && is_exhausted(&error) => None,
                    ran => Some(ran.map_err(&in_stock)?),
                };
                stock_fails = stock.is_none();
            }
        }
        let horton = horton.ok_or("each turn has a run")?;
        horton_times.push(horton.time);
        if let Some(stock) = stock {
            ratios.push(ratio(stock.time, horton.time));
            stock_times.push(stock.time);
        }
        if differences.as_ref().is_some_and(|d| d.count() == 0) {
            differences = Some(compare_runs(&reference, &horton)?);
        }
        last = Some(horton);
    }
    let last = last.ok_or("no run was measured")?;
    Ok(Outcome {
        label: query.label.clone(),
        joins: joins(&last.plan)?,
        stock: (!stock_fails).then(|| Times::from_runs(&stock_times)),
        horton: Times::from_runs(&horton_times),
        first,
        median_ratio: if stock_fails { None } else { median(ratios) },
        memory: memory(&sides, &last.plan)?,
        run: last,
        differences,
    })
}

/// Returns what runs of both sides reserved, and what the joins of `plan` wrote to disk.
fn memory(sides: &Sides, plan: &Arc<dyn ExecutionPlan>) -> Result<Memory> {
    let mut spilled = 0;
    plan.apply(|node| {
        let metrics = HortonJoinExec::downcast(node.as_ref()).and_then(HortonJoinExec::metrics);
        spilled += metrics.and_then(|m| m.spilled_bytes()).unwrap_or(0);
        Ok(TreeNodeRecursion::Continue)
    })?;
    let limit = sides.horton.runtime_env().memory_pool.memory_limit();
    Ok(Memory {
        limit: match limit {
            MemoryLimit::Finite(bytes) => Some(bytes),
            _ => None,
        },
        horton: take_peak(&sides.horton)?,
        stock: take_peak(&sides.stock)?,
        spilled,
    })
}

fn ratio(stock: Duration, horton: Duration) -> f64 {
    stock.as_secs_f64() / horton.as_secs_f64()
}

/// Plans and runs one query; anything but a query is refused, because it would run several
/// times, and on tables that both sides share.
async fn run(context: &SessionContext, query: &Query, side: &str) -> Result<Run> {
    let _shown = horton_trace::query(format_args!("{}, {side}", query.label));
    let only_queries = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    let start = Instant::now();
    let plan = async {
        let frame = context.sql_with_options(&query.sql, only_queries).await?;
        frame.create_physical_plan().await
    };
    let plan = horton_trace::planned(plan).await?;
    let batches = collect(Arc::clone(&plan), context.task_ctx()).await?;
    Ok(Run {
        schema: plan.schema(),
        batches,
        plan,
        time: start.elapsed(),
    })
}

fn compare_runs(stock: &Run, horton: &Run) -> Result<Differences> {
    compare(
        (&stock.schema, &stock.batches),
        (&horton.schema, &horton.batches),
    )
}

/// Returns the hash joins of a plan, scalar subqueries included.
fn joins(plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<Join>> {
    let mut joins = vec![];
    plan.apply(|node| {
        joins.extend(join(node.as_ref()));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(joins)
}

/// Returns the node as a join, if it is a hash join.
fn join(node: &dyn ExecutionPlan) -> Option<Join> {
    let horton = HortonJoinExec::downcast(node);
    if horton.is_none() && node.downcast_ref::<HashJoinExec>().is_none() {
        return None;
    }
    let metrics = node.metrics();
    let metric = |name| Some(metrics.as_ref()?.sum_by_name(name)?.as_usize());
    Some(Join {
        device: horton.and_then(HortonJoinExec::device_name),
        line: displayable(node).one_line().to_string().trim().to_string(),
        launches: metric("kernel_launches").unwrap_or(0),
        has_rows: ["build_input_rows", "input_rows"]
            .iter()
            .all(|name| metric(name) != Some(0)),
    })
}
