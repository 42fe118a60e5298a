//! Runs a recorded join again: DataFusion's join, ours on the host, and ours on a device.
//!
//! ```text
//!  FOLDER ─▶ both inputs, in memory ─┬─▶ stock   HashJoinExec     ─┐
//!                                    ├─▶ host    HortonJoinExec    ├─▶ rows, their hash, times
//!                                    └─▶ device  HortonJoinExec    ┘   equal?
//! ```
//!
//! The ways take turns, so that a machine that gets slower is slower for all of them, and a first
//! turn warms all up. Rows are compared in each turn. Inputs are in memory, batch by batch as they
//! were recorded: no file is read in the time that is shown. But DataFusion does not know how their
//! rows were partitioned. It does that once more for a join that is partitioned.

use std::fmt;
use std::fs::File;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::Array;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::exec_datafusion_err;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions, execute_stream,
};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::bytes::physical_plan_from_bytes;
use futures::StreamExt;
use horton_join::config::HortonConfig;
use horton_join::warm_up;

use crate::args::Replay;
use crate::record::{JOIN, file_name, read_inputs, read_options};
use crate::summary;

/// The rule that would swap the sides of the recorded join.
const SWAPS: &str = "join_selection";

/// A way in which the join is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Stock,
    Host,
    Device,
}

const WAYS: [Way; 3] = [Way::Stock, Way::Host, Way::Device];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Stock => "stock",
            Way::Host => "host",
            Way::Device => "device",
        }
    }

    /// Returns the options that make a session join so.
    fn options(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Way::Stock => &[("horton.enabled", "never")],
            // More rows than there are.
            Way::Host => &[
                ("horton.enabled", "auto"),
                ("horton.min_build_rows", "4611686018427387904"),
            ],
            Way::Device => &[("horton.enabled", "always")],
        }
    }
}

/// The rows of a run: their number, and a hash that does not depend on their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Rows {
    number: usize,
    hash: u64,
}

impl Rows {
    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let state = RandomState::with_seed(0);
        let mut hashes = vec![0; batch.num_rows()];
        // DataFusion's hash of a whole row is a sum of products that leaves NULLs out. It would not
        // say in which column a NULL is, nor that two rows have changed a value.
        for column in batch.columns() {
            let mut of_column = vec![0; hashes.len()];
            create_hashes([column], &state, &mut of_column)?;
            let nulls = column.logical_nulls();
            for (row, (hash, value)) in hashes.iter_mut().zip(of_column).enumerate() {
                let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
                *hash = state.hash_one((*hash, value, is_null));
            }
        }
        self.number += hashes.len();
        self.hash = hashes.into_iter().fold(self.hash, u64::wrapping_add);
        Ok(())
    }
}

/// What came of one way.
struct Replayed {
    way: Way,
    session: SessionContext,
    times: Vec<Duration>,
    /// The rows of its first turn, and whether another turn had others.
    rows: Option<Rows>,
    differs: bool,
    /// The place where it ran, or the reason why it did not.
    place: Result<String, String>,
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut times = self.times.clone();
        times.sort_unstable();
        let median = times.get(times.len() / 2);
        let median = median.map_or("–".to_owned(), |time| {
            format!("{:.1}", 1e3 * time.as_secs_f64())
        });
        let (name, rows) = (self.way.name(), self.rows.unwrap_or_default().number);
        write!(f, "{name:<8}{median:>12}{rows:>14}  ")?;
        match &self.place {
            Ok(place) => f.write_str(place),
            Err(reason) => write!(f, "not run: {reason}"),
        }
    }
}

/// A recorded join.
struct Recorded {
    /// The join over two inputs that are empty, in the form of `datafusion-proto`.
    join: Vec<u8>,
    /// The batches of each partition of the left input, and of the right one.
    inputs: Vec<Vec<Vec<RecordBatch>>>,
}

impl Recorded {
    fn read(folder: &Path) -> Result<Self> {
        let mut inputs = Vec::new();
        for (side, partitions) in read_inputs(folder)? {
            let files = (0..partitions).map(|partition| folder.join(file_name(&side, partition)));
            let read = files.map(|file| {
                let batches = batches(&file);
                batches.map_err(|error| exec_datafusion_err!("{}: {error}", file.display()))
            });
            inputs.push(read.collect::<Result<_>>()?);
        }
        let join = std::fs::read(folder.join(JOIN))?;
        Ok(Self { join, inputs })
    }

    /// Returns the plan of the join in `session`, which has not run.
    fn plan(&self, session: &SessionContext) -> Result<Arc<dyn ExecutionPlan>> {
        // Anew, as a join keeps its table for plans that are made of it.
        let join = physical_plan_from_bytes(&self.join, &session.task_ctx());
        let join = join.map_err(|error| exec_datafusion_err!("{JOIN}: {error}"))?;
        let inputs = self.inputs.iter().zip(join.children());
        let inputs = inputs.map(|(partitions, empty)| {
            let input = MemorySourceConfig::try_new_exec(partitions, empty.schema(), None)?;
            Ok(input as Arc<dyn ExecutionPlan>)
        });
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let join = join.replace_children(inputs, anew)?;
        let state = session.state();
        let rules = state.physical_optimizers().iter();
        let mut rules = rules.filter(|rule| rule.name() != SWAPS);
        rules.try_fold(join, |plan, rule| {
            rule.optimize(plan, state.config_options())
        })
    }
}

fn batches(file: &Path) -> Result<Vec<RecordBatch>> {
    let reader = StreamReader::try_new_buffered(File::open(file)?, None)?;
    Ok(reader.collect::<Result<_, _>>()?)
}

/// Replays the join of a folder, and prints a line for each way. Returns whether all have the same
/// rows.
///
/// # Errors
/// If the folder has no join that can be read, and those of the joins.
pub async fn run(replay: &Replay) -> Result<bool> {
    let recorded = Recorded::read(&replay.folder)?;
    let mut ways = Vec::new();
    for way in WAYS {
        ways.push(Replayed {
            way,
            session: session(way, replay)?,
            times: Vec::new(),
            rows: None,
            differs: false,
            place: Ok(String::new()),
        });
    }
    for turn in 0..=replay.repeat {
        for replayed in &mut ways {
            replayed.run(&recorded, turn > 0).await?;
        }
    }
    println!("{:<8}{:>12}{:>14}  where", "way", "median ms", "rows");
    for replayed in &ways {
        println!("{replayed}");
    }
    let mut ran = ways.iter().filter(|replayed| replayed.rows.is_some());
    let first = ran.next().map(|replayed| replayed.rows);
    let is_equal = ran.all(|replayed| Some(replayed.rows) == first);
    let is_stable = !ways.iter().any(|replayed| replayed.differs);
    if !is_equal {
        println!("The rows differ.");
    }
    if !is_stable {
        println!("The rows of a way differ from turn to turn.");
    }
    Ok(is_equal && is_stable)
}

fn session(way: Way, replay: &Replay) -> Result<SessionContext> {
    let mut config = SessionConfig::new().with_option_extension(HortonConfig::default());
    let recorded = read_options(&replay.folder)?;
    let set = recorded.iter().chain(&replay.set);
    let set = set.map(|(name, value)| (name.as_str(), value.as_str()));
    let device = replay.device.as_deref();
    let device = device.map(|device| ("horton.device", device));
    for (name, value) in set.chain(device).chain(way.options().iter().copied()) {
        config.options_mut().set(name, value)?;
    }
    Ok(horton_join::context(config))
}

impl Replayed {
    /// Runs the join once; timed, or to warm up.
    async fn run(&mut self, recorded: &Recorded, is_timed: bool) -> Result<()> {
        if self.way == Way::Device
            && !is_timed
            && let Err(error) = warm_up(&self.session).await
        {
            self.place = Err(error.to_string());
        }
        if self.place.is_err() {
            return Ok(());
        }
        let plan = recorded.plan(&self.session)?;
        let began = Instant::now();
        let mut stream = execute_stream(Arc::clone(&plan), self.session.task_ctx())?;
        let mut batches = Vec::new();
        while let Some(batch) = stream.next().await {
            batches.push(batch?);
        }
        let took = began.elapsed();
        if is_timed {
            self.times.push(took);
        }
        let mut rows = Rows::default();
        batches.iter().try_for_each(|batch| rows.add(batch))?;
        let first = *self.rows.get_or_insert(rows);
        self.differs |= first != rows;
        self.place = Ok(match self.way {
            Way::Host => "1 join on the host, as asked".to_owned(),
            _ => summary::joins(&[plan]).unwrap_or_default(),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};

    fn rows(batches: &[(&[i64], &[&str])]) -> Rows {
        let mut rows = Rows::default();
        for (numbers, texts) in batches {
            let columns: [(&str, ArrayRef); 2] = [
                ("n", Arc::new(Int64Array::from(numbers.to_vec()))),
                ("t", Arc::new(StringArray::from(texts.to_vec()))),
            ];
            rows.add(&RecordBatch::try_from_iter(columns).unwrap())
                .unwrap();
        }
        rows
    }

    #[test]
    fn rows_are_compared_without_their_order() {
        let all = rows(&[(&[1, 2, 2], &["a", "b", "b"])]);
        assert_eq!(all, rows(&[(&[2], &["b"]), (&[2, 1], &["b", "a"])]));
        assert_ne!(all, rows(&[(&[1, 2, 2], &["b", "b", "a"])]));
        assert_ne!(all, rows(&[(&[1, 2], &["a", "b"])]));
        assert_ne!(all, rows(&[(&[1, 1, 2], &["a", "a", "b"])]));
        let with_null = |columns: [Option<i64>; 2]| {
            let column = |value| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
            let [a, b] = columns.map(column);
            let mut rows = Rows::default();
            let batch = RecordBatch::try_from_iter([("a", a), ("b", b)]).unwrap();
            rows.add(&batch).unwrap();
            rows
        };
        assert_ne!(with_null([Some(7), None]), with_null([None, Some(7)]));
    }
}
