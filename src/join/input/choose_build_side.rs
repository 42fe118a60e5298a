//! The choice of the build side: the side that ends first when both are read alternately, or the
//! other one if the keys of the first make it much smaller.
//!
//! ```text
//!  rows     1 M       2 M             4 M                     ended: build side
//!  first    ▓▓▓▓ 1    ▓▓▓▓ 3          ▓▓▓▓▓▓▓▓ 5
//!  second        ▓▓▓▓ 2    ▓▓▓▓ 4              ▓▓ 6, ended    ◀── is built, the first is probed
//! ```
//!
//! Planners choose sides by estimates, which are wrong by orders of magnitude above joins,
//! aggregates and filters. An actual end cannot be wrong. While there is memory, the cost of the
//! other side is bounded: at most its first read, or twice the rows of the build side. Its rows are
//! probed as they are. The first read is long enough for most build sides to end in it. So the
//! other side is not opened before their keys filter its scans. [`sides`](crate::join::sides) says
//! which side is first.
//!
//! The second side is read on a guess. So that side must not take memory that the planned build
//! side needs: it yields memory ([`buffered`](super::buffered)). The states of a side:
//!
//! ```text
//!  Reading ── yields memory, and refused ─▶ Paused ── the other is ProbeOnly ─▶ Reading
//!    │  └─ the other is refused: to disk ─────┘
//!    └── refused with nothing left of the other in memory, or failed ──▶ ProbeOnly
//! ```
//!
//! The keys of the side that ended filter the scans of the other one, which may leave few of its
//! rows. So it is read until it has a [part](SMALLER) of the rows of the first. If it ends
//! there, it is built: to probe a row costs less than to build one, and copies nothing. Its whole
//! table may be read for that, so it is not done where the first rows of a large one may be enough
//! ([`stops_early`](crate::plan_nodes::stops_early)).
//!
//! ```text
//!  first   ▓▓▓▓▓▓▓▓ ended ─ keys ─┐                            probed
//!  second                         ▓ ended, a quarter at most:  built
//! ```
//!
//! If a side is refused while the other is ProbeOnly and on disk, neither fits, and both go there
//! ([`spill`](crate::join::spill)). Where sides are fixed (a promise of order, NOT IN, a LIMIT in
//! the join, an endless input), the left one alone is read.

use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::memory_pool::MemoryPool;
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::join::side::Side;
use crate::join::sides::Sides;
use crate::parallel::task_failed;

use super::buffered::{BufferedInput, ReadOutcome};
use super::files::SpillFiles;

/// Says whether an input has no rows, once a row has come or the read that has begun is over.
pub type IsEmpty = watch::Receiver<Option<bool>>;

/// An input, of which a read may have begun before its join is polled.
pub enum Input {
    /// Nothing is read.
    Unread(BufferedInput),
    /// It is being read.
    Begun(SpawnedTask<(BufferedInput, Result<ReadOutcome>)>),
}

impl Input {
    /// Begins to read `rows` rows of `input` where there is a runtime to run it.
    pub fn begin(mut input: BufferedInput, rows: usize) -> (Self, IsEmpty) {
        let (sender, is_empty) = watch::channel(None);
        if tokio::runtime::Handle::try_current().is_err() {
            return (Input::Unread(input), is_empty);
        }
        let task = SpawnedTask::spawn(async move {
            // Whoever waits for the first row need not wait for the others.
            let mut outcome = input.read(1).await;
            let has_ended = matches!(outcome, Ok(ReadOutcome::Ended));
            sender.send_replace(Some(has_ended && input.rows() == 0));
            if matches!(outcome, Ok(ReadOutcome::Full)) {
                outcome = input.read(rows).await;
            }
            (input, outcome)
        });
        (Input::Begun(task), is_empty)
    }

    /// Waits for a read that has begun. Returns the input, and whether all of its rows are read.
    async fn into_read(self) -> Result<(BufferedInput, bool)> {
        match self {
            Input::Unread(input) => Ok((input, false)),
            Input::Begun(task) => {
                let (input, outcome) = task.join().await.map_err(|e| task_failed(&e))?;
                let has_ended = outcome?.has_ended();
                Ok((input, has_ended))
            }
        }
    }
}

/// Both inputs, after the first read.
pub struct FirstRead {
    /// The side that was read, or was read to its end before.
    side: Side,
    outcome: ReadOutcome,
    /// The left and the right input.
    inputs: [BufferedInput; 2],
}

impl FirstRead {
    /// Reads up to `rows` rows of the side that `order` names. If a read that had begun has ended,
    /// that side is first.
    ///
    /// # Errors
    /// The errors of `order`; [`Error::DataFusion`] if a task panics.
    pub async fn read(
        [left, right]: [Input; 2],
        order: impl Future<Output = Result<Side>>,
        rows: usize,
    ) -> Result<Self> {
        let (left, left_ended) = left.into_read().await?;
        let (right, right_ended) = right.into_read().await?;
        let ended = match [left_ended, right_ended] {
            [true, true] if right.rows() < left.rows() => Some(Side::Right),
            [true, _] => Some(Side::Left),
            [false, true] => Some(Side::Right),
            [false, false] => None,
        };
        let mut inputs = [left, right];
        let (side, outcome) = match ended {
            Some(side) => (side, ReadOutcome::Ended),
            None => {
                let side = order.await?;
                (side, inputs[side as usize].read(rows).await?)
            }
        };
        Ok(Self {
            side,
            outcome,
            inputs,
        })
    }
}

/// A side that is built, while the other one is probed.
pub struct ChosenSide {
    /// The side that is built.
    pub side: Side,
    /// All of its rows.
    pub build: BufferedInput,
    /// The other side.
    pub probe: BufferedInput,
}

/// Rows of a side that has ended for each row of one that is built in its place.
const SMALLER: usize = 4;

/// A side of at most this part of a first read is built at once: a batch or two. Another one would
/// gain little.
const FEW: usize = 64;

impl ChosenSide {
    /// Returns the other side as the one that is built, if it ends with much fewer rows. Nothing of
    /// it is read yet, and its scans have the keys of this one. A first read is up to `sample_rows`
    /// rows.
    ///
    /// # Errors
    /// [`Error::DataFusion`] if a task panics.
    pub async fn or_smaller(mut self, sample_rows: usize) -> Result<Self> {
        let most = self.build.rows() / SMALLER;
        if self.build.rows() <= sample_rows / FEW || !self.probe.is_unread() {
            return Ok(self);
        }
        let outcome = self.probe.read(most + 1).await?;
        let has_ended = outcome.has_ended() && self.probe.rows() <= most;
        Ok(if has_ended {
            self.probe.take_all_memory();
            Self {
                side: self.side.other(),
                build: self.probe,
                probe: self.build,
            }
        } else {
            self
        })
    }
}

/// The choice of a build side, once it is made.
pub enum Chosen {
    /// A side has ended.
    Side(ChosenSide),
    /// The memory pool had room for no side that may be built.
    Refused {
        /// The left and the right side, as far as they were read.
        inputs: [BufferedInput; 2],
        /// The pool's error.
        error: Error,
    },
}

/// Returns what writes rows of a side to disk; `None` if the session has none do that.
pub type Disk<'a> = dyn Fn(&BufferedInput) -> Option<SpillFiles> + Send + Sync + 'a;

/// Reads sides alternately until one has ended, after the `first` read. The other side yields
/// memory of `pool`.
///
/// # Errors
/// The error of the input that must end, and the errors of writing files.
pub async fn choose_build_side(
    sides: Sides,
    first: FirstRead,
    pool: &Arc<dyn MemoryPool>,
    sample_rows: usize,
    disk: &Disk<'_>,
) -> Result<Chosen> {
    let side = first.side;
    let (one, other) = match (side, first.inputs) {
        (Side::Left, [left, right]) => (left, right),
        (Side::Right, [left, right]) => (right, left),
    };
    let mut candidates = Candidates {
        readers: [
            SideReader::new(side, one),
            SideReader::new(side.other(), other.yielding_memory(pool)),
        ],
        refusal: None,
    };
    if let Sides::Fixed(_) = sides {
        candidates.readers[1].state = ReadState::ProbeOnly;
    }
    let mut noted = candidates.note(0, first.outcome, disk).await?;
    let mut rows = sample_rows;
    let mut next = 1;
    loop {
        match noted {
            Noted::Ended(at) => return Ok(candidates.choose(at)),
            Noted::Refused(error) => return Ok(candidates.refused(error)),
            Noted::GoesOn => {}
        }
        noted = match candidates.readers[next].state {
            ReadState::Reading => {
                let alone = candidates.readers[1 - next].state != ReadState::Reading;
                let rows = if alone { usize::MAX } else { rows };
                let outcome = candidates.readers[next].input.read(rows).await?;
                candidates.note(next, outcome, disk).await?
            }
            ReadState::Paused | ReadState::ProbeOnly => Noted::GoesOn,
        };
        next = 1 - next;
        if next == 0 {
            rows = rows.saturating_mul(2);
        }
    }
}

/// The state of a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadState {
    /// It is read.
    Reading,
    /// It is read on if the other one is only probed.
    Paused,
    /// It is probed, and not built.
    ProbeOnly,
}

struct SideReader {
    side: Side,
    input: BufferedInput,
    state: ReadState,
}

impl SideReader {
    fn new(side: Side, input: BufferedInput) -> Self {
        let state = ReadState::Reading;
        Self { side, input, state }
    }

    /// Moves its rows to `disk`; whether it had some in memory.
    async fn spill_kept(&mut self, disk: &Disk<'_>) -> Result<bool> {
        let Some(files) = disk(&self.input).filter(|_| self.input.has_memory()) else {
            return Ok(false);
        };
        if self.state == ReadState::Reading {
            self.state = ReadState::Paused;
        }
        self.input.spill_kept(&files).await?;
        Ok(true)
    }

    /// Reads on, as the other one is only probed.
    fn take_over(&mut self) {
        self.state = ReadState::Reading;
        self.input.take_all_memory();
        self.input.read_back();
    }
}

struct Candidates {
    readers: [SideReader; 2],
    /// The error of the side that the pool refused, if it is only probed since.
    refusal: Option<Error>,
}

/// The consequence of a read.
enum Noted {
    GoesOn,
    /// The side of this reader ended first.
    Ended(usize),
    /// No side is left.
    Refused(Error),
}

impl Candidates {
    /// Notes the outcome of a read of the side reader `at`.
    async fn note(&mut self, at: usize, outcome: ReadOutcome, disk: &Disk<'_>) -> Result<Noted> {
        let alone = self.readers[1 - at].state == ReadState::ProbeOnly;
        match outcome {
            ReadOutcome::Ended => return Ok(Noted::Ended(at)),
            ReadOutcome::Full => {}
            // A planned build side that fails is the join's error, as in `HashJoinExec`.
            ReadOutcome::Failed if self.readers[at].side == Side::Left => {
                return Err(self.readers[at].input.failure());
            }
            // On disk, the left side may have no row that could match: then the right one's error
            // is nobody's.
            ReadOutcome::Failed if alone => {
                return match self.refusal.take() {
                    Some(error) => Ok(Noted::Refused(error)),
                    None => Err(self.readers[at].input.failure()),
                };
            }
            ReadOutcome::Failed => self.probe_only(at),
            ReadOutcome::Refused(_) if at == 1 && !alone => {
                self.readers[at].state = ReadState::Paused;
                self.readers[at].input.forget_table();
            }
            ReadOutcome::Refused(error) => {
                if self.readers[1 - at].spill_kept(disk).await? {
                    return Ok(Noted::GoesOn);
                }
                if alone {
                    return Ok(Noted::Refused(error));
                }
                self.refusal = Some(error);
                self.probe_only(at);
            }
        }
        Ok(Noted::GoesOn)
    }

    /// Takes the side reader `at` out of the choice: its side is not built.
    fn probe_only(&mut self, at: usize) {
        self.readers[at].state = ReadState::ProbeOnly;
        self.readers[at].input.forget_table();
        self.readers[1 - at].take_over();
    }

    fn choose(self, at: usize) -> Chosen {
        let [a, b] = self.readers;
        let (build, probe) = if at == 0 { (a, b) } else { (b, a) };
        Chosen::Side(ChosenSide {
            side: build.side,
            build: build.input,
            probe: probe.input,
        })
    }

    fn refused(self, error: Error) -> Chosen {
        let [a, b] = self.readers;
        let (left, right) = match a.side {
            Side::Left => (a, b),
            Side::Right => (b, a),
        };
        let inputs = [left.input, right.input];
        Chosen::Refused { inputs, error }
    }
}
