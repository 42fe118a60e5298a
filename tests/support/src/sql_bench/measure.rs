//! Runs one join on three plans by turns, checks each run's answer, and keeps the best of each.
//!
//! ```text
//!   warm-up:  stock ─ host ─ horton     (kernels get compiled; device memory is sampled here)
//!   timed:    stock ─ host ─ horton ─ stock ─ …                                best of each
//!   each run: SQL text ─▶ plan ─▶ rows ─▶ tally ─▶ equal to the one known from making the tables?
//!                          └─▶ metrics of its join: device clocks, launches, build rows, bytes
//! ```
//!
//! "Host" is Horton's plan with each join on the host. Filters and sides that are chosen at run
//! time gain without a device, too: what the device gains shows beside the host alone. Sides
//! alternate, so that a machine that slows down slows all of them. A time runs from the query's
//! text to its last row, parsing and planning included, on all sides. The warm-up is one run per
//! side whatever the case; what a device costs after it has been idle is another question. Plans
//! are dropped after each run, or they would keep the tables of past cases in memory.
//!
//! A task per partition reads the rows as they are made, and drops them. Collecting 30 M rows of 12
//! columns takes 4 GB of new memory, and its pages cost time that no join needs. Checking costs
//! nothing beside a join: most queries give one row, and of more rows a timed run reads only how
//! many there are, and how many NULLs. Their cells are read in the warm-up. Comparing joined rows
//! one by one would take longer than joining them, and the test suite does so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use datafusion::catalog::TableProvider;
use datafusion::common::runtime::JoinSet;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream_partitioned};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;
use horton_join::HortonJoinExec;
use horton_join::device::Device;
use horton_join::error::DeviceError;
use horton_trace::traced;

use super::Result;
use super::query::Asked;
use super::tables::{Pair, Shape};
use super::tally::{Reading, Tally};

/// The pause between samples of the device's used bytes in the warm-up run.
const SAMPLE_EVERY: Duration = Duration::from_micros(100);

/// The settings of all sessions.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The value of `horton.device`.
    pub device: String,
    /// The value of `horton.enabled`.
    pub enabled: String,
    /// Partitions of all plans.
    pub partitions: usize,
    /// True if the planner may swap a join's sides.
    pub reorder: bool,
    /// Options by their full names: `horton.…`, or `datafusion.…` for stock, too.
    pub options: Vec<(String, String)>,
}

/// The sessions, over the same tables.
pub struct Sides {
    stock: SessionContext,
    host: SessionContext,
    horton: SessionContext,
    device: Option<Device>,
    always: bool,
}

/// The side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// DataFusion as published.
    Stock,
    /// Horton joins that are kept on the host.
    Host,
    /// The session with joins on the device.
    Horton,
}

impl Side {
    /// In the order of their turns.
    const ALL: [Self; 3] = [Self::Stock, Self::Host, Self::Horton];
}

/// Whether a run's time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It does not.
    WarmUp,
    /// It does.
    Timed,
}

/// One finished run.
pub struct Run {
    pass: Pass,
    reading: Reading,
    answer: Tally,
    /// Time from the text to the last row.
    pub time: Duration,
    /// The work that its join did.
    pub join: Facts,
}

/// The metrics that a run's joins report, summed over partitions.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Joins that ran on the device.
    pub device_joins: usize,
    /// Kernels launched.
    pub launches: usize,
    /// Device clock: host to device.
    pub upload: Duration,
    /// Device clock: kernels.
    pub kernel: Duration,
    /// Device clock: device to host.
    pub download: Duration,
    /// Bytes sent.
    pub uploaded: usize,
    /// Bytes brought back.
    pub downloaded: usize,
    /// Rows of the build side.
    pub build_rows: usize,
    /// Memory reserved for the build side; of a device join, its table's included.
    pub build_bytes: usize,
    /// The table on the device, a part of that.
    pub table_bytes: usize,
    /// The joins' lines of EXPLAIN ANALYZE.
    pub lines: Vec<String>,
}

/// The outcome of one case.
pub struct Outcome {
    /// The case.
    pub name: String,
    /// Its tables.
    pub shape: Shape,
    /// The best stock run.
    pub stock: Option<Run>,
    /// The best run with Horton joins on the host.
    pub host: Option<Run>,
    /// The best run with Horton joins.
    pub horton: Option<Run>,
    /// Times of all timed runs, by side.
    pub times: [Vec<Duration>; 3],
    /// Most device bytes in use at once, tables and scratch; `None` if not seen.
    pub device_peak: Option<u64>,
    /// Runs whose answer was wrong, and those that left the device idle against the settings.
    pub differences: usize,
    /// Remarks about them, and about sides that were swapped; each once.
    pub notes: Vec<String>,
    /// The query.
    pub asked: Asked,
}

impl Sides {
    /// Returns the sessions with `settings`.
    ///
    /// # Errors
    /// An option that is not there, or a value it does not take; a device that is not there.
    pub async fn new(settings: &Settings) -> Result<Self> {
        let mut config = SessionConfig::new().with_target_partitions(settings.partitions);
        config.options_mut().optimizer.join_reordering = settings.reorder;
        let stock = traced(&SessionContext::new_with_config(config.clone()));
        let host = traced(&horton_join::context(config.clone()));
        let horton = traced(&horton_join::context(config));
        set(&horton, "horton.device", &settings.device).await?;
        set(&horton, "horton.enabled", &settings.enabled).await?;
        for (key, value) in &settings.options {
            if !key.starts_with("horton.") {
                set(&stock, key, value).await?;
            }
            set(&host, key, value).await?;
            set(&horton, key, value).await?;
        }
        set(&host, "horton.enabled", "auto").await?;
        set(&host, "horton.min_build_rows", &usize::MAX.to_string()).await?;
        Ok(Self {
            stock,
            host,
            horton,
            device: open(&settings.device)?,
            always: settings.enabled == "always",
        })
    }

    /// Returns the device that joins would run on, if there is one.
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    fn sessions(&self) -> [&SessionContext; 3] {
        [&self.stock, &self.host, &self.horton]
    }

    /// Makes `pair` the tables `build` and `probe` of all.
    ///
    /// # Errors
    /// Tables that were not [cleared](Self::clear).
    pub fn register(&self, pair: &Pair) -> Result<()> {
        for context in self.sessions() {
            for (name, table) in [("build", &pair.build), ("probe", &pair.probe)] {
                let table = Arc::clone(table) as Arc<dyn TableProvider>;
                context.register_table(name, table)?;
            }
        }
        Ok(())
    }

    /// Lets go of the tables.
    ///
    /// # Errors
    /// Of the catalogue.
    pub fn clear(&self) -> Result<()> {
        for context in self.sessions() {
            for name in ["build", "probe"] {
                context.deregister_table(name)?;
            }
        }
        Ok(())
    }

    /// Plans and runs a query on one side.
    ///
    /// # Errors
    /// The side's own, named.
    pub async fn run(&self, side: Side, asked: &Asked, pass: Pass) -> Result<Run> {
        let (context, name) = match side {
            Side::Stock => (&self.stock, "stock plan"),
            Side::Host => (&self.host, "Horton plan on the host"),
            Side::Horton => (&self.horton, "Horton plan"),
        };
        let _shown = horton_trace::query(format_args!("{name}: {}", asked.sql));
        let run = run(context, asked, pass).await;
        run.map_err(|e| format!("{name}: {e}").into())
    }

    /// Warms up the Horton side, with the most device bytes that were in use during it: exact if
    /// the process has never used more, else as sampled.
    async fn run_sampled(&self, asked: &Asked) -> Result<(Run, Option<u64>)> {
        let run = self.run(Side::Horton, asked, Pass::WarmUp);
        let Some(device) = self.device.clone() else {
            return Ok((run.await?, None));
        };
        let (stop, sampled) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let before = device.budget().peak();
        let sampler = {
            let (device, stop, sampled) = (device.clone(), Arc::clone(&stop), Arc::clone(&sampled));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    sampled.fetch_max(device.budget().used(), Ordering::Relaxed);
                    thread::sleep(SAMPLE_EVERY);
                }
            })
        };
        let run = run.await;
        stop.store(true, Ordering::Relaxed);
        sampler.join().map_err(|_| "the memory sampler panicked")?;
        let peak = match device.budget().peak() {
            after if after > before => after,
            _ => sampled.load(Ordering::Relaxed),
        };
        // A join of few rows can pass between two samples.
        Ok((run?, (peak > 0).then_some(peak)))
    }
}

/// Returns the device that is asked for. Returns `None` where no device is: plans then stay
/// DataFusion's own.
fn open(asked: &str) -> Result<Option<Device>> {
    match Device::open(asked) {
        Ok(device) => Ok(Some(device)),
        Err(DeviceError::NoPlatform(_) | DeviceError::NoUsableDevice(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn set(context: &SessionContext, key: &str, value: &str) -> Result<()> {
    let statement = format!("SET {key} = '{}'", value.replace('\'', "''"));
    context.sql(&statement).await?.collect().await?;
    Ok(())
}

async fn run(context: &SessionContext, asked: &Asked, pass: Pass) -> Result<Run> {
    let reading = match pass {
        Pass::WarmUp => Reading::Cells,
        Pass::Timed => asked.timed,
    };
    let start = Instant::now();
    let plan = async { context.sql(&asked.sql).await?.create_physical_plan().await };
    let plan = horton_trace::planned(plan).await?;
    let answer = read(context, &plan, reading).await?;
    let time = start.elapsed();
    Ok(Run {
        pass,
        reading,
        answer,
        time,
        join: facts(&plan)?,
    })
}

/// Reads a plan's rows.
async fn read(
    context: &SessionContext,
    plan: &Arc<dyn ExecutionPlan>,
    reading: Reading,
) -> Result<Tally> {
    let none = Tally::empty(plan.schema().fields().len());
    let mut tasks = JoinSet::new();
    for mut rows in execute_stream_partitioned(Arc::clone(plan), context.task_ctx())? {
        let mut tally = none.clone();
        tasks.spawn(async move {
            while let Some(batch) = rows.try_next().await? {
                tally.add(&Tally::read(batch.num_rows(), batch.columns(), reading)?);
            }
            Ok::<_, super::Error>(tally)
        });
    }
    let mut all = none;
    while let Some(part) = tasks.join_next().await {
        all.add(&part??);
    }
    Ok(all)
}

/// Returns what the plan's hash joins report.
fn facts(plan: &Arc<dyn ExecutionPlan>) -> Result<Facts> {
    let mut facts = Facts::default();
    plan.apply(|node| {
        facts.add(node.as_ref());
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(facts)
}

impl Facts {
    fn add(&mut self, node: &dyn ExecutionPlan) {
        let horton = HortonJoinExec::downcast(node);
        if horton.is_none() && node.downcast_ref::<HashJoinExec>().is_none() {
            return;
        }
        let metrics = node.metrics();
        let metric = |name| {
            let sum = metrics
                .as_ref()
                .and_then(|metrics| metrics.sum_by_name(name));
            sum.map_or(0, |value| value.as_usize())
        };
        let clock = |name| Duration::from_nanos(metric(name) as u64);
        let on_device = horton.is_some_and(|join| join.device_name().is_some());
        self.device_joins += usize::from(on_device);
        self.launches += metric("kernel_launches");
        self.upload += clock("upload_time");
        self.kernel += clock("kernel_time");
        self.download += clock("download_time");
        self.uploaded += metric("uploaded_bytes");
        self.downloaded += metric("downloaded_bytes");
        self.build_rows += metric("build_input_rows");
        self.build_bytes += metric("build_mem_used");
        self.table_bytes += metric("table_bytes");
        let line = DisplayableExecutionPlan::with_metrics(node).one_line();
        self.lines.push(line.to_string().trim().to_string());
    }
}

impl Outcome {
    /// An outcome of nothing yet.
    pub fn new(name: String, shape: Shape, asked: Asked) -> Self {
        Self {
            name,
            shape,
            stock: None,
            host: None,
            horton: None,
            times: [vec![], vec![], vec![]],
            device_peak: None,
            differences: 0,
            notes: vec![],
            asked,
        }
    }

    /// Checks a run, and keeps its time if it counts, and the run if it is the best so far.
    pub fn add(&mut self, sides: &Sides, side: Side, run: Run) {
        let mut notes = vec![];
        let (found, expected) = (&run.answer, self.asked.expected.as_read(run.reading));
        if *found != expected {
            notes.push(format!("{side:?} gave {found:?}, right is {expected:?}"));
        }
        let claims_device = sides.always || run.join.device_joins > 0;
        if side == Side::Horton && claims_device && run.join.launches == 0 {
            notes.push("no kernel was launched".to_string());
        }
        self.differences += notes.len();
        let (built, asked) = (run.join.build_rows as u64, self.shape.build_rows());
        if built != asked {
            notes.push(format!(
                "{side:?} built over {built} rows, not the {asked} of build"
            ));
        }
        notes.retain(|note| !self.notes.contains(note));
        self.notes.append(&mut notes);
        let best = match side {
            Side::Stock => &mut self.stock,
            Side::Host => &mut self.host,
            Side::Horton => &mut self.horton,
        };
        if run.pass == Pass::WarmUp {
            return;
        }
        self.times[side as usize].push(run.time);
        if best.as_ref().is_none_or(|best| run.time < best.time) {
            *best = Some(run);
        }
    }
}

/// Runs the query once on all sides to warm up and `repeat` times to measure.
///
/// # Errors
/// A side's error, with the case's name.
pub async fn measure(sides: &Sides, mut outcome: Outcome, repeat: usize) -> Result<Outcome> {
    let (name, asked) = (outcome.name.clone(), outcome.asked.clone());
    let of_case = |e: super::Error| format!("{name}, {e}");
    for side in [Side::Stock, Side::Host] {
        let run = sides.run(side, &asked, Pass::WarmUp).await;
        outcome.add(sides, side, run.map_err(of_case)?);
    }
    let (horton, peak) = sides.run_sampled(&asked).await.map_err(of_case)?;
    outcome.add(sides, Side::Horton, horton);
    outcome.device_peak = peak;
    for _ in 0..repeat {
        for side in Side::ALL {
            let run = sides.run(side, &asked, Pass::Timed).await;
            outcome.add(sides, side, run.map_err(of_case)?);
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::super::keys::Keys;
    use super::super::query::{Outer, Query};
    use super::super::tables::Tables;
    use super::*;

    /// On a session without a device join: answers are right, and the idle device is counted.
    #[tokio::test]
    async fn runs_are_checked() {
        let settings = Settings {
            device: "auto".to_string(),
            enabled: "always".to_string(),
            partitions: 2,
            reorder: false,
            options: vec![("horton.enabled".to_string(), "never".to_string())],
        };
        let sides = Sides::new(&settings).await.unwrap();
        let shape = |query: Query| Shape {
            keys: Keys::Text,
            key_columns: 2,
            payload: query.payload(),
            present: 500,
            copies: 3,
            all: 1000,
            probe_rows: 20_000,
        };
        let mut tables = Tables::default();
        let mut ask = |query: Query| {
            sides.clear().unwrap();
            let shape = shape(query);
            let pair = tables.make(&shape, 2).unwrap();
            sides.register(&pair).unwrap();
            Outcome::new("case".to_string(), shape, query.ask(&shape, &pair.answers))
        };
        for query in [
            Query::Count,
            Query::Strings,
            Query::Filter,
            Query::Outer(Outer::Full),
            Query::BuildAnti,
            Query::Wide(6, None),
            Query::Wide(12, Some(Outer::Left)),
            Query::Wide(12, Some(Outer::Full)),
        ] {
            let outcome = measure(&sides, ask(query), 1).await.unwrap();
            assert_eq!(outcome.notes, ["no kernel was launched"], "{query:?}");
            assert_eq!(outcome.differences, 2);
            assert!(outcome.stock.is_some() && outcome.horton.is_some());
            assert_eq!(outcome.host.unwrap().join.device_joins, 0, "{query:?}");
        }
        let mut wrong = ask(Query::Count);
        wrong.asked.expected = Tally::row(&[Some(1)]);
        let wrong = measure(&sides, wrong, 1).await.unwrap();
        assert_eq!(wrong.differences, 8);
        assert_eq!(wrong.notes.len(), 4);
        // Timed runs do not see it.
        let mut wrong = ask(Query::Wide(6, None));
        wrong.asked.expected.columns[0].total += 1;
        let wrong = measure(&sides, wrong, 1).await.unwrap();
        assert_eq!(wrong.differences, 2 + 3);
    }

    #[tokio::test]
    async fn unknown_options_are_refused() {
        let settings = |key: &str| Settings {
            device: "auto".to_string(),
            enabled: "auto".to_string(),
            partitions: 1,
            reorder: true,
            options: vec![(key.to_string(), "1".to_string())],
        };
        assert!(Sides::new(&settings("horton.colour")).await.is_err());
        let batch_size = "datafusion.execution.batch_size";
        assert!(Sides::new(&settings(batch_size)).await.is_ok());
    }
}
