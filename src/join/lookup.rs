//! The device's part of a probe chunk: look keys up, and bring back no more than is needed.
//!
//! ```text
//!                            ┌ Count    how many pairs
//!  keys ─send─▶ values ─────▶│ Visits   nothing: bits of build rows stay on the device
//!               pairs counted│ Bits     one bit a key
//!                            └ Pairs    a window: probe rows, build rows, gathered columns
//! ```
//!
//! A semi join needs no pairs and a count no rows, and where every key has one match the probe
//! rows go without saying. Pairs beyond a window wait on the device until they are asked for, so
//! that a hot key's fan-out takes bounded memory.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::device::{Answer, Device, Queue, Staging};
use crate::error::Result;
use crate::table::multimap::pairs::{Matches, Pairs};
use crate::table::primitives::rows::set_bits;

use super::host::HostMatches;
use super::table::JoinTable;

/// A device, and how much of its memory may be in use.
#[derive(Debug, Clone)]
pub struct Access {
    /// The device.
    pub device: Device,
    /// Device memory limit in bytes.
    pub memory_limit: u64,
}

impl Access {
    /// As [`Device::run`], within the limit.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Queue) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'static, Result<Answer<T>>> {
        let limit = self.memory_limit;
        self.device.run(move |queue| {
            queue.limit_memory(limit);
            job(queue)
        })
    }
}

/// 32-bit words on their way to or from a lookup.
#[derive(Debug)]
pub enum Words {
    /// Where the device copies them from, or to.
    Staged(Staging<u32>),
    /// The host's own.
    Host(Vec<u32>),
}

impl Words {
    /// Keeps the first `len` words.
    pub fn truncate(&mut self, len: usize) {
        match self {
            Words::Staged(words) => words.truncate(len),
            Words::Host(words) => words.truncate(len),
        }
    }

    /// The words, copied if they are not the host's own.
    pub fn into_vec(self) -> Vec<u32> {
        match self {
            Words::Staged(words) => words.to_vec(),
            Words::Host(words) => words,
        }
    }
}

impl Deref for Words {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match self {
            Words::Staged(words) => words,
            Words::Host(words) => words,
        }
    }
}

impl DerefMut for Words {
    fn deref_mut(&mut self) -> &mut [u32] {
        match self {
            Words::Staged(words) => words,
            Words::Host(words) => words,
        }
    }
}

/// What a lookup brings back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The number of pairs.
    Count,
    /// Nothing.
    Visits,
    /// Which keys have a match.
    Bits,
    /// The pairs, at most `window` at a time.
    Pairs {
        /// Their build rows too, not only gathered columns.
        build_rows: bool,
        /// Pairs of a window; at least two.
        window: usize,
    },
}

impl Wanted {
    /// Halves a window of more than `least` pairs, to no fewer; whether there was one.
    pub fn halve(&mut self, least: usize) -> bool {
        match self {
            Wanted::Pairs { window, .. } if *window > least => {
                *window = (*window / 2).max(least);
                true
            }
            _ => false,
        }
    }
}

/// What a lookup found.
#[derive(Debug, Default)]
pub struct Found {
    /// Keys looked up.
    pub keys: usize,
    /// Buckets read, if the table has buckets.
    pub buckets_read: Option<usize>,
    /// Keys with a match.
    pub matched: u64,
    /// Pairs.
    pub total: u64,
    /// One bit a key, if wanted.
    pub bits: Option<Words>,
    /// The first pairs, if wanted.
    pub window: Window,
    /// Where further windows come from.
    pub rest: Rest,
}

/// Where pairs behind a window come from.
#[derive(Debug, Default)]
pub enum Rest {
    /// There are none.
    #[default]
    Nothing,
    /// The device, which has one table.
    Device(Arc<Matches>),
    /// The host, in the device's place.
    Host(Arc<HostMatches>),
}

/// Consecutive pairs.
#[derive(Debug, Default)]
pub struct Window {
    /// The first pair's number.
    pub first: u64,
    /// Pairs.
    pub len: usize,
    /// Positions of their keys, ascending; missing if pair `i` is of key `i`.
    pub probe: Option<Words>,
    /// Their build rows, if wanted.
    pub build: Option<Words>,
    /// For each column that the table gathers: its values, in 32-bit words.
    pub columns: Vec<Staging<u32>>,
}

impl Window {
    /// The number of the first pair after it.
    pub fn end(&self) -> u64 {
        self.first + self.len as u64
    }
}

/// Looks `keys` up.
///
/// # Errors
/// [`DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
pub fn look_up(
    queue: &mut Queue,
    table: &JoinTable,
    keys: Staging<u32>,
    wanted: Wanted,
) -> Result<Found> {
    let n = keys.len() / table.built.key_words();
    let keys = queue.send("probe keys", keys)?;
    let matches = table.built.lookup(queue, &keys, n)?;
    if let Some(visited) = &table.visited {
        set_bits(queue, matches.values(), n, visited)?;
    }
    let mut found = Found {
        keys: n,
        buckets_read: (table.table().as_horton()).map(|_| n + matches.reads() as usize),
        matched: matches.matched(),
        total: matches.total(),
        ..Found::default()
    };
    match wanted {
        Wanted::Count | Wanted::Visits => {}
        Wanted::Bits => {
            let bits = matches.bits(queue)?;
            let words = bits.len();
            found.bits = Some(Words::Staged(queue.fetch(bits, words)?));
        }
        Wanted::Pairs { .. } if found.total == 0 => {}
        Wanted::Pairs { .. } => {
            found.window = fetch_window(queue, table, &matches, 0, wanted)?;
            if found.window.end() < found.total {
                found.rest = Rest::Device(Arc::new(matches));
            }
        }
    }
    Ok(found)
}

impl Found {
    /// The window from pair `first` on; `None` if there are no more.
    pub fn window_from(
        &self,
        table: Option<&Arc<JoinTable>>,
        first: u64,
        (access, wanted): (&Access, Wanted),
    ) -> Option<BoxFuture<'static, Result<Answer<Window>>>> {
        let Wanted::Pairs { window, .. } = wanted else {
            return None;
        };
        let window = match (&self.rest, table) {
            (Rest::Device(matches), Some(table)) => {
                let (matches, table) = (Arc::clone(matches), Arc::clone(table));
                let job =
                    move |queue: &mut Queue| fetch_window(queue, &table, &matches, first, wanted);
                return Some(access.run(job));
            }
            (Rest::Host(matches), _) => matches.window(first, window),
            _ => return None,
        };
        let answer = Answer {
            value: window,
            cost: Default::default(),
        };
        Some(futures::future::ready(Ok(answer)).boxed())
    }
}

fn fetch_window(
    queue: &mut Queue,
    table: &JoinTable,
    matches: &Matches,
    first: u64,
    wanted: Wanted,
) -> Result<Window> {
    let Wanted::Pairs { build_rows, window } = wanted else {
        return Ok(Window::default());
    };
    let left = usize::try_from(matches.total() - first).unwrap_or(usize::MAX);
    let len = left.min(window);
    let (probe, build) = if matches.one_each() {
        let build = queue.allocate("build rows of pairs", len)?;
        matches.write_build(queue, first, &build)?;
        (None, build)
    } else {
        let pairs = Pairs::with_room(queue, len)?;
        matches.write(queue, first, &pairs)?;
        (Some(pairs.probe), pairs.build)
    };
    let mut wanted = Vec::with_capacity(table.columns.len() + 2);
    for column in &table.columns {
        let gathered = column.gather(queue, &build, len)?;
        let words = gathered.len();
        wanted.push(queue.begin_fetch(gathered, words)?);
    }
    if build_rows {
        wanted.push(queue.begin_fetch(build, len)?);
    }
    let brings_probe = probe.is_some();
    if let Some(probe) = probe {
        wanted.push(queue.begin_fetch(probe, len)?);
    }
    let mut columns = queue.end_fetches(wanted)?;
    let mut last_if = |is_there: bool| match is_there {
        true => columns.pop().map(Words::Staged),
        false => None,
    };
    Ok(Window {
        first,
        len,
        probe: last_if(brings_probe),
        build: last_if(build_rows),
        columns,
    })
}
