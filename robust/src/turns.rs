//! Runs a query on all engines by turns, within a time limit, and compares the rows.
//!
//! ```text
//!   round 0   stock ─ ours ─ bloom     warm-up: kernels are compiled, Bloom samples its sources
//!   round 1   ours ─ bloom ─ stock     timed
//!   round 2   bloom ─ stock ─ ours     timed        the median of an engine's rounds is its time
//!
//!   this thread  ──spawn──▶ runtime: text ─▶ plan ─▶ rows
//!        └─ waits at most the limit, then aborts and waits until no task is left
//! ```
//!
//! Time runs from the text to the last row: Bloom executes its transfer while it plans. The limit
//! is kept by a thread outside the runtime. A join may keep all of its workers busy, and then its
//! timers are late. What is stopped must be gone before the next engine begins.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::context::SQLOptions;
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionContext;
use horton_test_support::Result;
use horton_test_support::check::compare;
use horton_test_support::median::median;
use tokio::runtime::Runtime;

use crate::engines::{Engine, Session};

/// The pause between two looks at whether stopped tasks are gone.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The rows that a query has.
pub struct Rows {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
}

impl Rows {
    /// Returns the number of differences, which is 0 if `found` has the same rows in any order.
    ///
    /// # Errors
    /// Types that cannot be compared.
    pub fn differences(&self, found: &Self) -> Result<usize> {
        let found = (&found.schema, &found.batches[..]);
        Ok(compare((&self.schema, &self.batches), found)?.count())
    }
}

/// The end that a query came to.
#[derive(Debug, Clone)]
pub enum Outcome {
    Took(Duration),
    /// It took longer than the limit.
    Stopped,
    Failed(String),
}

/// What one engine did with one text.
#[derive(Debug, Clone)]
pub struct Measured {
    pub engine: Engine,
    /// The median of its runs, unless one of them was stopped or failed.
    pub outcome: Outcome,
    /// Rows that differ from those expected, in the run that differed most.
    pub differences: usize,
}

/// The rounds in which engines take turns.
#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    /// True if an untimed round comes first.
    pub warm_up: bool,
    /// Timed rounds.
    pub timed: usize,
    /// The engine that has the first turn of the first round.
    pub first: usize,
}

/// The engines, and the runtime that they run on.
pub struct Turns {
    pub runtime: Runtime,
    pub sessions: Vec<Session>,
    pub limit: Duration,
}

impl Turns {
    /// Runs `sql` on all engines. The first rows of all are what the others are `expected` to
    /// have, unless there are some already.
    ///
    /// # Errors
    /// Rows that cannot be compared. That an engine fails is none.
    pub fn run(
        &self,
        sql: &str,
        rounds: Rounds,
        expected: &mut Option<Rows>,
    ) -> Result<Vec<Measured>> {
        let engines = self.sessions.len();
        let mut ends: Vec<Option<Outcome>> = vec![None; engines];
        let mut times = vec![vec![]; engines];
        let mut differences = vec![0; engines];
        let warm_ups = usize::from(rounds.warm_up);
        for round in 0..warm_ups + rounds.timed {
            for turn in 0..engines {
                let at = (rounds.first + round + turn) % engines;
                if ends[at].is_some() {
                    continue;
                }
                let (outcome, rows) = self.once(&self.sessions[at].1, sql);
                match outcome {
                    Outcome::Took(time) if round >= warm_ups => times[at].push(time),
                    Outcome::Took(_) => {}
                    end => ends[at] = Some(end),
                }
                match (&expected, rows) {
                    (Some(expected), Some(rows)) => {
                        differences[at] = differences[at].max(expected.differences(&rows)?);
                    }
                    (None, rows) => *expected = rows,
                    _ => {}
                }
            }
        }
        let engines = self.sessions.iter().zip(ends).zip(times).zip(differences);
        let measured = engines.map(|((((engine, _), end), times), differences)| {
            let seconds = median(times.iter().map(Duration::as_secs_f64)).unwrap_or_default();
            Measured {
                engine: *engine,
                outcome: end.unwrap_or(Outcome::Took(Duration::from_secs_f64(seconds))),
                differences,
            }
        });
        Ok(measured.collect())
    }

    /// Runs `sql` once.
    fn once(&self, session: &SessionContext, sql: &str) -> (Outcome, Option<Rows>) {
        let (sender, receiver) = channel();
        let (session, sql) = (session.clone(), sql.to_owned());
        let task = self.runtime.spawn(async move {
            let start = Instant::now();
            let rows = rows(&session, &sql).await;
            // Nobody listens any more to what took too long.
            let _ = sender.send((start.elapsed(), rows));
        });
        match receiver.recv_timeout(self.limit) {
            Ok((time, Ok(rows))) => (Outcome::Took(time), Some(rows)),
            Ok((_, Err(error))) => (Outcome::Failed(first_line(&error.to_string())), None),
            Err(RecvTimeoutError::Disconnected) => (Outcome::Failed("a panic".to_owned()), None),
            Err(RecvTimeoutError::Timeout) => {
                task.abort();
                self.wait_until_idle();
                (Outcome::Stopped, None)
            }
        }
    }

    /// Waits until the tasks of a stopped query are gone, but no longer than the limit.
    fn wait_until_idle(&self) {
        let since = Instant::now();
        while self.runtime.metrics().num_alive_tasks() > 0 {
            if since.elapsed() > self.limit {
                eprintln!("warning: a stopped query still runs; later times may suffer");
                return;
            }
            sleep(LOOK_EVERY);
        }
    }
}

/// Plans and runs a query, and nothing else: it runs several times.
async fn rows(session: &SessionContext, sql: &str) -> Result<Rows> {
    let only_queries = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    let frame = session.sql_with_options(sql, only_queries).await?;
    let plan = frame.create_physical_plan().await?;
    Ok(Rows {
        schema: plan.schema(),
        batches: collect(plan, session.task_ctx()).await?,
    })
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
