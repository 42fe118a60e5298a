//! Runs a recorded join again: DataFusion's join, ours on the host, and ours on a device.
//!
//! ```text
//!  FOLDER ─▶ both inputs, in memory ─┬─▶ stock   HashJoinExec     ─┐
//!                                    ├─▶ host    HortonJoinExec    ├─▶ rows, their hash, times
//!                                    └─▶ device  HortonJoinExec    ┘   equal?
//! ```
//!
//! The ways take turns, so that a machine that gets slower is slower for all of them, and a first
//! turn warms all up. Inputs are in memory, batch by batch as they were recorded: what is timed is
//! the join and not its files.

use std::fmt;
use std::fs::File;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::ipc::reader::FileReader;
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
use crate::record::{JOIN, file_name, read_options};
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
        create_hashes(batch.columns(), &state, &mut hashes)?;
        self.number += hashes.len();
        // Once more: columns' hashes are combined by sums and products, which a sum over the rows
        // would not tell apart if two rows changed a value.
        let hashes = hashes.into_iter().map(|hash| state.hash_one(hash));
        self.hash = hashes.fold(self.hash, u64::wrapping_add);
        Ok(())
    }
}

/// What came of one way.
struct Replayed {
    way: Way,
    session: SessionContext,
    times: Vec<Duration>,
    rows: Rows,
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
        let (name, rows) = (self.way.name(), self.rows.number);
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
    inputs: [Vec<Vec<RecordBatch>>; 2],
}

impl Recorded {
    fn read(folder: &Path) -> Result<Self> {
        let at = |name: &str| folder.join(name);
        let join = std::fs::read(at(JOIN)).map_err(|error| {
            exec_datafusion_err!("{}: {error}; record one by --record", at(JOIN).display())
        })?;
        let read = |side: &str| {
            let files = (0..).map(|partition| at(&file_name(side, partition)));
            let there = files.take_while(|file| file.exists());
            let read = there.map(|file| {
                batches(&file).map_err(|error| exec_datafusion_err!("{}: {error}", file.display()))
            });
            read.collect::<Result<_>>()
        };
        Ok(Self {
            join,
            inputs: [read("left")?, read("right")?],
        })
    }

    /// Returns the plan of the join in `session`, which has not run.
    fn plan(&self, session: &SessionContext) -> Result<Arc<dyn ExecutionPlan>> {
        // Anew, as a join keeps its table for plans that are made of it.
        let join = physical_plan_from_bytes(&self.join, &session.task_ctx())?;
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
    let reader = FileReader::try_new_buffered(File::open(file)?, None)?;
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
            rows: Rows::default(),
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
    let mut ran = ways.iter().filter(|replayed| !replayed.times.is_empty());
    let first = ran.next().map(|replayed| replayed.rows);
    let are_equal = ran.all(|replayed| Some(replayed.rows) == first);
    if !are_equal {
        println!("The rows differ.");
    }
    Ok(are_equal)
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
        self.rows = Rows::default();
        batches.iter().try_for_each(|batch| self.rows.add(batch))?;
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
    }
}
