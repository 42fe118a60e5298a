//! Records the two inputs of a join, so that the join can be run again elsewhere.
//!
//! ```text
//!  query ─▶ DataFusion's plan ─▶ its hash joins, numbered from the top
//!                                   │ one of them
//!                                   ▼
//!  FOLDER   left-0.arrows …  right-0.arrows …  one file per partition of an input
//!           join.pb          the HashJoinExec over two empty inputs
//!           inputs.txt       the numbers of partitions: it is written last
//!           options.txt      the session's options that are not defaults
//!           query.sql        the statement
//! ```
//!
//! A report that a join is slow, or its rows are wrong, comes with a query over tables that cannot
//! be sent. What the join itself reads often can: only the columns that reach it, after all filters
//! below it. The plan is DataFusion's own, so that no filter of this join has left out rows.
//!
//! The formats are Arrow's streams and `datafusion-proto`'s plans, which other programs read, too.
//! Arrow's files would have one dictionary per column, where batches may have one each.

use std::fs::{File, create_dir_all, read_dir, write};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{exec_datafusion_err, exec_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, displayable, execute_stream_partitioned};
use datafusion_proto::bytes::physical_plan_to_bytes;
use futures::StreamExt;
use horton_join::config::HortonConfig;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::spawn_blocking;

/// The file with the join.
pub const JOIN: &str = "join.pb";
/// The file with the options.
const OPTIONS: &str = "options.txt";
/// The file with the number of partitions of each input.
const INPUTS: &str = "inputs.txt";
/// The file with the statement.
const QUERY: &str = "query.sql";

/// DataFusion's option by which a plan computes the values of scalar subqueries before it runs.
const SUBQUERIES_APART: &str = "datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery";

/// Batches that wait for the disk.
const WAITING: usize = 2;

/// What is recorded, and where.
#[derive(Debug)]
pub struct Record {
    /// The folder, which is made.
    folder: PathBuf,
    /// The number of the join; without one, the query must have one join.
    join: Option<usize>,
    is_done: AtomicBool,
}

/// Returns the name of the file with partition `partition` of the input `side`.
pub fn file_name(side: &str, partition: usize) -> String {
    format!("{side}-{partition}.arrows")
}

impl Record {
    /// Returns what is to record a join in `folder`: that of number `join`, or the only one.
    pub fn new(folder: PathBuf, join: Option<usize>) -> Self {
        Self {
            folder,
            join,
            is_done: AtomicBool::new(false),
        }
    }

    /// Returns whether a join has been recorded.
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }

    /// Records a join of the query `text`, whose plan is `logical`. Returns what was recorded, in
    /// one line.
    ///
    /// # Errors
    /// If the query has several joins and none was chosen, if the folder has files, and those of
    /// the inputs.
    pub async fn run(
        &self,
        state: &SessionState,
        logical: &LogicalPlan,
        text: &str,
    ) -> Result<String> {
        let recorded = options(state.config_options())?;
        let mut stock = state.clone();
        let options = stock.config_mut().options_mut();
        options.set("horton.enabled", "never")?;
        // Their values would come from a node above the join, which does not run.
        options.set(SUBQUERIES_APART, "false")?;
        let plan = stock.create_physical_plan(logical).await?;
        let joins = hash_joins(&plan);
        let (number, join) = self.choose(&joins)?;
        self.make_folder()?;
        let (mut said, mut partitions) = (Vec::new(), String::new());
        for (side, input) in [("left", join.left()), ("right", join.right())] {
            let rows = self.write_input(side, input, &stock).await?;
            said.push(format!("{side} {} rows", rows.iter().sum::<usize>()));
            partitions.push_str(&format!("{side}={}\n", rows.len()));
        }
        let left = Arc::new(EmptyExec::new(join.left().schema()));
        let right = Arc::new(EmptyExec::new(join.right().schema()));
        // Anew: it has no filter that its inputs' scans know of.
        let join = HashJoinExec::try_new(
            left,
            right,
            join.on().to_vec(),
            join.filter().cloned(),
            join.join_type(),
            join.projection.as_ref().map(|columns| columns.to_vec()),
            *join.partition_mode(),
            join.null_equality(),
            join.null_aware,
        )?;
        self.write(JOIN, &physical_plan_to_bytes(Arc::new(join))?)?;
        self.write(OPTIONS, recorded.as_bytes())?;
        self.write(QUERY, text.trim().as_bytes())?;
        self.write(INPUTS, partitions.as_bytes())?;
        self.is_done.store(true, Ordering::Relaxed);
        let folder = self.folder.display();
        Ok(format!(
            "recorded join {number} in {folder}: {}",
            said.join(", ")
        ))
    }

    fn choose<'a>(&self, joins: &[&'a HashJoinExec]) -> Result<(usize, &'a HashJoinExec)> {
        let chosen = match (self.join, joins.len()) {
            (_, 0) => return exec_err!("nothing to record: DataFusion plans no hash join for it"),
            (None, 1) => 1,
            (Some(number), len) if (1..=len).contains(&number) => number,
            (_, len) => {
                let each = joins.iter().zip(1..).map(|(join, number)| {
                    let shown = displayable(*join as &dyn ExecutionPlan);
                    format!("\n  {number}: {}", shown.one_line().to_string().trim_end())
                });
                let each: String = each.collect();
                return exec_err!("it has {len} hash joins; choose one by --join NUMBER:{each}");
            }
        };
        Ok((chosen, joins[chosen - 1]))
    }

    fn make_folder(&self) -> Result<()> {
        create_dir_all(&self.folder).map_err(|error| self.error(&error))?;
        let mut files = read_dir(&self.folder).map_err(|error| self.error(&error))?;
        match files.next() {
            None => Ok(()),
            Some(_) => exec_err!(
                "{} has files, maybe of a recording that did not end; name a folder that is new or empty",
                self.folder.display()
            ),
        }
    }

    /// Writes all partitions of an input. Returns the number of rows of each.
    async fn write_input(
        &self,
        side: &str,
        input: &Arc<dyn ExecutionPlan>,
        state: &SessionState,
    ) -> Result<Vec<usize>> {
        let streams = execute_stream_partitioned(Arc::clone(input), state.task_ctx())?;
        let written = streams.into_iter().enumerate().map(|(partition, stream)| {
            let path = self.folder.join(file_name(side, partition));
            write_partition(path, stream)
        });
        // All at once, as they may be those of one `RepartitionExec`.
        futures::future::try_join_all(written).await
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write(self.folder.join(name), bytes).map_err(|error| self.error(&error))
    }

    fn error(&self, error: &std::io::Error) -> datafusion::error::DataFusionError {
        exec_datafusion_err!("{}: {error}", self.folder.display())
    }
}

/// Returns the hash joins of `plan`, from the top, the left input first.
fn hash_joins(plan: &Arc<dyn ExecutionPlan>) -> Vec<&HashJoinExec> {
    let below = plan.children().into_iter().flat_map(hash_joins);
    plan.downcast_ref().into_iter().chain(below).collect()
}

/// Writes the batches of `stream` to a file. Returns the number of its rows.
async fn write_partition(path: PathBuf, mut stream: SendableRecordBatchStream) -> Result<usize> {
    let (batches, to_write) = channel(WAITING);
    let schema = stream.schema();
    let writer = spawn_blocking(move || {
        let file = File::create_new(&path)?;
        let writer = StreamWriter::try_new(BufWriter::new(file), &schema)?;
        write_batches(writer, to_write)
    });
    while let Some(batch) = stream.next().await {
        // If nobody takes it, the writer says why.
        if batches.send(batch?).await.is_err() {
            break;
        }
    }
    drop(batches);
    let written = writer.await;
    written.map_err(|error| exec_datafusion_err!("the writer of a file: {error}"))?
}

fn write_batches(
    mut writer: StreamWriter<BufWriter<File>>,
    mut batches: Receiver<RecordBatch>,
) -> Result<usize> {
    let mut rows = 0;
    while let Some(batch) = batches.blocking_recv() {
        rows += batch.num_rows();
        writer.write(&batch)?;
    }
    writer.finish()?;
    Ok(rows)
}

/// Returns the options that are not defaults, as lines `name=value`.
fn options(options: &ConfigOptions) -> Result<String> {
    let mut defaults = ConfigOptions::new();
    defaults.extensions.insert(HortonConfig::default());
    let defaults = defaults.entries();
    let is_default = |name: &str, value: &str| {
        let mut same = defaults.iter().filter(|entry| entry.key == name);
        same.any(|entry| entry.value.as_deref() == Some(value))
    };
    let mut lines = String::new();
    for entry in options.entries() {
        let Some(value) = entry.value.filter(|value| !is_default(&entry.key, value)) else {
            continue;
        };
        if value.contains('\n') {
            return exec_err!(
                "{} has a line break in its value; RESET it to record",
                entry.key
            );
        }
        lines.push_str(&format!("{}={value}\n", entry.key));
    }
    Ok(lines)
}

/// Returns the options that were recorded in `folder`: names and values.
///
/// # Errors
/// If their file cannot be read.
pub fn read_options(folder: &Path) -> Result<Vec<(String, String)>> {
    pairs(&folder.join(OPTIONS))
}

/// Returns the inputs that were recorded in `folder`: names, and numbers of partitions.
///
/// # Errors
/// If their file cannot be read. It is the last one that a recording writes.
pub fn read_inputs(folder: &Path) -> Result<Vec<(String, usize)>> {
    let path = folder.join(INPUTS);
    let each = pairs(&path)?.into_iter().map(|(side, count)| {
        let count = count.parse();
        let count = count.map_err(|error| exec_datafusion_err!("{}: {error}", path.display()))?;
        Ok((side, count))
    });
    each.collect()
}

/// Reads lines `name=value`.
fn pairs(path: &Path) -> Result<Vec<(String, String)>> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let name = path.display();
        exec_datafusion_err!(
            "{name}: {error}; --record makes such a folder, if it comes to its end"
        )
    })?;
    let pairs = text.lines().map(|line| {
        let pair = line.split_once('=');
        let (name, value) = pair.ok_or_else(|| {
            exec_datafusion_err!("{}: expected NAME=VALUE and not '{line}'", path.display())
        })?;
        Ok((name.to_owned(), value.to_owned()))
    });
    pairs.collect()
}
