//! Keys that are looked up, on the device; the host side of `workload.cl`.
//!
//! ```text
//!  distinct MT19937 keys, uploaded once ─▶ arrays to look up: hits, misses ─▶ wrong answers: 0?
//! ```
//!
//! Repeats of a key stand as far apart as there are keys, so that they add nothing to the locality
//! (Horton paper, section 7).

use std::sync::Arc;

use horton_tables::device::ProgramText;
use horton_tables::device::{Arg, Buffer, Device, Queue};
use horton_tables::error::{Error, Result};
use horton_tables::table::horton::MISS;

use super::keys::Keys;

/// Keys on the device.
pub type Resident = Arc<Buffer<u32>>;

/// Keys that follow each other in an array to look up stand so far apart in their own: a prime, and
/// more than there are keys.
const STRIDE: u32 = 2_654_435_761;

/// Work-group size of the kernels here.
const GROUP: usize = 256;

fn program() -> ProgramText {
    ProgramText::new(
        "workload",
        &[],
        &[("workload.cl", include_str!("workload.cl"))],
    )
}

/// Keys to look up, and what is to be found.
#[derive(Debug, Clone)]
pub struct Asked {
    pub keys: Resident,
    pub answers: Expected,
}

/// The keys that lookups are to find.
#[derive(Debug, Clone, Copy)]
pub enum Expected {
    /// Key `i` has value `(from + i) * stride % count`.
    Positions { from: u32, stride: u32, count: u32 },
    /// No key is there.
    Misses,
}

/// The keys of tables, and keys that are in none.
pub struct Workload {
    device: Device,
    present: Resident,
    absent: Resident,
}

impl Workload {
    pub fn new(device: &Device, keys: &Keys) -> Result<Self> {
        let upload = |keys: Vec<u32>| -> Result<Resident> {
            let job = move |queue: &mut Queue| queue.buffer_from("keys", &keys);
            Ok(Arc::new(device.run_blocking(job)?.value))
        };
        Ok(Self {
            device: device.clone(),
            present: upload(keys.all().to_vec())?,
            absent: upload(keys.others().to_vec())?,
        })
    }

    /// Returns the first `count` keys.
    pub fn first(&self, count: usize) -> Result<Resident> {
        self.repeat(&self.present, 1, (count, count))
    }

    /// Returns `n` keys of which all are among the first `count`.
    pub fn hits(&self, count: usize, n: usize) -> Result<Asked> {
        Ok(Asked {
            keys: self.repeat(&self.present, STRIDE, (count, n))?,
            answers: Expected::Positions {
                from: 0,
                stride: STRIDE,
                count: count as u32,
            },
        })
    }

    /// Returns `n` keys that are in no table.
    pub fn misses(&self, n: usize) -> Result<Asked> {
        Ok(Asked {
            keys: self.repeat(&self.absent, STRIDE, (self.absent.len(), n))?,
            answers: Expected::Misses,
        })
    }

    /// Returns `n` keys of the first `count` of `distinct`.
    fn repeat(
        &self,
        distinct: &Resident,
        stride: u32,
        (count, n): (usize, usize),
    ) -> Result<Resident> {
        let distinct = Arc::clone(distinct);
        let job = move |queue: &mut Queue| {
            if count == 0 || count > distinct.len() {
                let drawn = distinct.len();
                return Err(Error::Invalid(format!(
                    "{count} of {drawn} keys were asked for"
                )));
            }
            let keys = queue.allocate("keys to look up", n)?;
            let args = [
                Arg::Words(&distinct),
                Arg::Words(&keys),
                Arg::U32(stride),
                Arg::U32(count as u32),
                Arg::U32(n as u32),
            ];
            queue.launch(&program(), "repeat_keys", (n, GROUP), &args)?;
            Ok(keys)
        };
        Ok(Arc::new(self.device.run_blocking(job)?.value))
    }
}

/// Returns `n` keys by position from `from` on, all different in all 2^32 positions.
#[allow(dead_code, reason = "tables of billions draw their keys so")]
pub fn draw(queue: &mut Queue, from: u32, n: usize) -> Result<Buffer<u32>> {
    let keys = queue.allocate("keys", n)?;
    let args = [Arg::Words(&keys), Arg::U32(from), Arg::U32(n as u32)];
    queue.launch(&program(), "draw_keys", (n, GROUP), &args)?;
    Ok(keys)
}

/// Wrong ones among the answers to `n` keys.
pub fn count_wrong(
    queue: &mut Queue,
    values: &Buffer<u32>,
    expected: Expected,
    n: usize,
) -> Result<usize> {
    let wrong = queue.buffer_from("wrong answers", &[0u32])?;
    let (from, stride, count) = match expected {
        Expected::Positions {
            from,
            stride,
            count,
        } => (from, stride, count),
        Expected::Misses => (0, 1, 0),
    };
    let args = [
        Arg::Words(values),
        Arg::Words(&wrong),
        Arg::U32(from),
        Arg::U32(stride),
        Arg::U32(count),
        Arg::U32(MISS),
        Arg::U32(n as u32),
    ];
    queue.launch(&program(), "count_wrong", (n, GROUP), &args)?;
    Ok(queue.read(&wrong, 1)?[0] as usize)
}
