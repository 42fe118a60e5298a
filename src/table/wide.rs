//! Keys of two words, over a table of 32-bit keys; the driver of `cl/wide.cl`.
//!
//! ```text
//!  code, 64 bits ──mix──▶ key: the table's      check: what tells apart
//!
//!  by key               [k1: r5]  [k2: r1 r9 r4]  [k3: r2 r7]
//!  by check: runs       [r5]      [r1 r4] [r9]    [r2 r7]        k2 is of two codes
//!  table: first run      0         1               3
//!  runs: check, answer; bits: the key goes on
//! ```
//!
//! The mix is one-to-one, so key and check together are the code, and comparing the check is all the
//! verifying there is. Codes that share a key, a few in a thousand million pairs, are runs one after the other.
//! If all runs have one row, a run answers with it and nothing else is kept of the groups.
//!
//! Cost: 8 bytes and a bit a run, 8 instead of 4 bytes a key sent, and one more random read
//! for each key that is in the table. A table of 64-bit keys would need no groups, but buckets of twice the
//! size or half the slots, and it would not be the paper's table; comparing on the host costs a random
//! read there, at a tenth of the rate, and brings every candidate back for it.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};

use super::group::{Groups, RowGroups, group_by_pairs, group_only};
use super::horton::{Items, MISS};
use super::launch::prefetches;
use super::rows::gather_rows;
use super::scan;

/// The largest group whose rows one work-item puts in order of their checks.
const ORDERED: usize = 32;

/// Work-group size of kernels that need none.
const GROUP: usize = 256;

fn text(prefetch: bool) -> ProgramText {
    let defines = [
        ("MISS", format!("{MISS:#x}u")),
        ("ORDERED", ORDERED.to_string()),
        ("PREFETCH", u8::from(prefetch).to_string()),
    ];
    let parts = [("wide.cl", include_str!("../../cl/wide.cl"))];
    ProgramText::new("wide", &defines, &parts)
}

/// The program under the name of a file; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    std::iter::once(("wide".to_owned(), text(false)))
}

fn program(queue: &Queue) -> ProgramText {
    let prefetch = prefetches(queue);
    ProgramText::once("wide", &prefetch, || text(prefetch))
}

/// What is mixed with codes of a table with this seed.
fn seed_words(seed: u32) -> [u32; 2] {
    [seed, seed.rotate_left(16) ^ 0x9e37_79b9]
}

/// The key and the check of `code`.
pub fn split(code: u64, seed: u32) -> (u32, u32) {
    let [low, high] = seed_words(seed);
    let mixed = mix(code ^ (u64::from(high) << 32 | u64::from(low)));
    (mixed as u32, (mixed >> 32) as u32)
}

/// A one-to-one function of good avalanche: the finalizer of MurmurHash3.
fn mix(mut code: u64) -> u64 {
    code ^= code >> 33;
    code = code.wrapping_mul(0xff51_afd7_ed55_8ccd);
    code ^= code >> 33;
    code = code.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    code ^ code >> 33
}

/// Codes taken apart, on the device.
#[derive(Debug)]
pub struct SplitCodes {
    /// What the table knows them by.
    pub keys: Buffer<u32>,
    /// What tells apart codes of one key.
    pub checks: Buffer<u32>,
    seed: u32,
}

impl SplitCodes {
    /// The first `n` of `codes`, two words each, low word first.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are fewer, [`Error::DeviceMemory`], OpenCL's own.
    pub fn new(queue: &mut Queue, codes: &Buffer<u32>, n: usize, seed: u32) -> Result<Self> {
        if codes.len() < 2 * n {
            return Err(Error::Invalid(format!(
                "{n} codes of two words were to be split, but there are {} words",
                codes.len()
            )));
        }
        let split = Self {
            keys: queue.allocate("keys of codes", n)?,
            checks: queue.allocate("checks of codes", n)?,
            seed,
        };
        let [low, high] = seed_words(seed);
        let args = [
            Arg::Words(codes),
            Arg::Words(&split.keys),
            Arg::Words(&split.checks),
            Arg::U32(n as u32),
            Arg::U32(low),
            Arg::U32(high),
        ];
        queue.launch(&program(queue), "split_codes", (n, GROUP), &args)?;
        Ok(split)
    }
}

/// What a table's values stand for: runs of rows of one code.
#[derive(Debug)]
pub struct Runs {
    /// Check and answer of each run, a word each.
    words: Buffer<u32>,
    /// One bit a run: the next one has the same key. Missing if none has.
    goes_on: Option<Buffer<u32>>,
    seed: u32,
}

/// Codes by key and check.
#[derive(Debug)]
pub struct GroupedCodes {
    /// Their runs.
    pub runs: Runs,
    /// The rows by run, which runs answer with; `None` if each has one row and answers with that.
    pub groups: Option<RowGroups>,
    /// The distinct keys.
    pub keys: Buffer<u32>,
    /// The first run of each.
    pub first: Buffer<u32>,
}

impl Runs {
    /// The runs of codes whose keys are distinct: the run of a code is its position. `rows` are their
    /// row numbers; without them, their positions.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn of_rows(
        queue: &mut Queue,
        codes: &SplitCodes,
        rows: Option<&Buffer<u32>>,
    ) -> Result<Self> {
        let n = codes.checks.len();
        let words = queue.allocate("runs", 2 * n)?;
        let args = [
            Arg::Words(&codes.checks),
            rows.map_or(Arg::Null, Arg::Words),
            Arg::Words(&words),
            Arg::U32(n as u32),
        ];
        queue.launch(&program(queue), "runs_of_rows", (n, GROUP), &args)?;
        Ok(Self {
            words,
            goes_on: None,
            seed: codes.seed,
        })
    }

    /// What the first `n` codes stand for, whose keys' values in the table are `first`: rows or groups, or
    /// [`MISS`] for absent codes.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn resolve(
        &self,
        queue: &mut Queue,
        first: &Buffer<u32>,
        checks: &Buffer<u32>,
        n: usize,
    ) -> Result<Buffer<u32>> {
        let answers = queue.allocate("answers to codes", n)?;
        let args = [
            Arg::Words(first),
            Arg::Words(checks),
            Arg::Words(&self.words),
            self.goes_on.as_ref().map_or(Arg::Null, Arg::Words),
            Arg::Words(&answers),
            Arg::U32(n as u32),
        ];
        queue.launch(&program(queue), "resolve", (n, GROUP), &args)?;
        Ok(answers)
    }

    /// The seed that codes are to be split with.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> u64 {
        self.words.bytes() + self.goes_on.as_ref().map_or(0, Buffer::bytes)
    }
}

impl GroupedCodes {
    /// Groups `codes` by key and check; `rows` are their row numbers, ascending; without them, their
    /// positions.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn new(queue: &mut Queue, codes: SplitCodes, rows: Option<&Buffer<u32>>) -> Result<Self> {
        let by_key = Items {
            keys: &codes.keys,
            values: None,
        };
        let groups = group_only(queue, by_key, u32::BITS)?;
        let mut ordered = Ordered::new(queue, groups, &codes)?;
        if ordered.mixed {
            // A key of many rows that other codes share: seldom, unless someone wants it so.
            let groups = group_by_pairs(queue, &codes.keys, &codes.checks)?;
            ordered = Ordered::new(queue, groups, &codes)?;
        }
        drop(codes);
        ordered.into_runs(queue, rows)
    }
}

/// Positions by key, then check, starts of runs marked.
struct Ordered {
    program: ProgramText,
    groups: Groups,
    /// Checks by position in the groups.
    checks: Buffer<u32>,
    heads: Buffer<u32>,
    starts: Buffer<u32>,
    /// Starts before each word of them.
    ranks: Buffer<u32>,
    runs: usize,
    seed: u32,
    /// Whether some group of more than [`ORDERED`] positions has several checks, which may be in any order.
    mixed: bool,
}

impl Ordered {
    fn new(queue: &mut Queue, groups: Groups, codes: &SplitCodes) -> Result<Self> {
        let program = program(queue);
        let (n, count) = (groups.rows.len(), groups.unique_keys.len());
        let (words, keys) = (n.div_ceil(32), Arg::U32(count as u32));
        let checks = gather_rows(queue, (&codes.checks, 0), &groups.rows, n)?;
        let heads = queue.allocate("heads of groups", words)?;
        queue.fill(&heads, 0)?;
        let args = [Arg::Words(&groups.offsets), Arg::Words(&heads), keys];
        queue.launch(&program, "mark_heads", (count, GROUP), &args)?;
        let args = [
            Arg::Words(&groups.offsets),
            Arg::Words(&checks),
            Arg::Words(&groups.rows),
            keys,
        ];
        queue.launch(&program, "order_groups", (count, GROUP), &args)?;
        let starts = queue.allocate("starts of runs", words)?;
        // One more than words: its prefix sum is the number of runs.
        let ranks = queue.allocate("ranks of runs", words + 1)?;
        let mixed = queue.buffer_from("mixed groups", &[0])?;
        let args = [
            Arg::Words(&checks),
            Arg::Words(&heads),
            Arg::Words(&groups.offsets),
            Arg::Words(&starts),
            Arg::Words(&ranks),
            Arg::Words(&mixed),
            keys,
            Arg::U32(n as u32),
        ];
        queue.launch(&program, "mark_runs", (words, GROUP), &args)?;
        scan::exclusive(queue, &ranks, words + 1)?;
        let (mut runs, mut several) = ([0u32], [0u32]);
        queue.download(&ranks, words, &mut runs)?;
        queue.download(&mixed, 0, &mut several)?;
        Ok(Self {
            program,
            groups,
            checks,
            heads,
            starts,
            ranks,
            runs: runs[0] as usize,
            seed: codes.seed,
            mixed: several[0] != 0,
        })
    }

    fn into_runs(self, queue: &mut Queue, rows: Option<&Buffer<u32>>) -> Result<GroupedCodes> {
        let n = self.groups.rows.len();
        let positions = &self.groups.rows;
        let numbered = match rows {
            Some(rows) => Some(gather_rows(queue, (rows, 0), positions, n)?),
            None => None,
        };
        let offsets = match self.runs < n {
            true => Some(queue.allocate("offsets of runs", self.runs + 1)?),
            false => None,
        };
        if let Some(offsets) = &offsets {
            queue.upload(offsets, self.runs, &[n as u32])?;
        }
        let runs = self.write_runs(queue, numbered.as_ref(), offsets.as_ref())?;
        let first = self.first_runs(queue)?;
        let rows = numbered.unwrap_or(self.groups.rows);
        Ok(GroupedCodes {
            runs,
            groups: offsets.map(|offsets| RowGroups { offsets, rows }),
            keys: self.groups.unique_keys,
            first,
        })
    }

    fn write_runs(
        &self,
        queue: &mut Queue,
        rows: Option<&Buffer<u32>>,
        offsets: Option<&Buffer<u32>>,
    ) -> Result<Runs> {
        let n = self.groups.rows.len();
        let words = queue.allocate("runs", 2 * self.runs)?;
        let goes_on = match self.runs > self.groups.unique_keys.len() {
            true => Some(queue.allocate("runs that go on", self.runs.div_ceil(32))?),
            false => None,
        };
        if let Some(goes_on) = &goes_on {
            queue.fill(goes_on, 0)?;
        }
        let args = [
            Arg::Words(&self.starts),
            Arg::Words(&self.heads),
            Arg::Words(&self.ranks),
            Arg::Words(&self.checks),
            Arg::Words(rows.unwrap_or(&self.groups.rows)),
            Arg::Words(&words),
            goes_on.as_ref().map_or(Arg::Null, Arg::Words),
            offsets.map_or(Arg::Null, Arg::Words),
            Arg::U32(n as u32),
        ];
        queue.launch(&self.program, "write_runs", (n, GROUP), &args)?;
        Ok(Runs {
            words,
            goes_on,
            seed: self.seed,
        })
    }

    fn first_runs(&self, queue: &mut Queue) -> Result<Buffer<u32>> {
        let count = self.groups.unique_keys.len();
        let first = queue.allocate("first runs", count)?;
        let args = [
            Arg::Words(&self.groups.offsets),
            Arg::Words(&self.starts),
            Arg::Words(&self.ranks),
            Arg::Words(&first),
            Arg::U32(count as u32),
        ];
        queue.launch(&self.program, "first_runs", (count, GROUP), &args)?;
        Ok(first)
    }
}
