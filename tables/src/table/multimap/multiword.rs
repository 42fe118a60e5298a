//! Keys of several words, over a table of 32-bit keys; the host side of `cl/multimap/multiword.cl`.
//!
//! ```text
//!  code, 2 to 8 words ──mix──▶ key: the table's      check: what tells apart
//!
//!  by key               [k1: r5]  [k2: r1 r9 r4]  [k3: r2 r7]
//!  by check: runs       [r5]      [r1 r4] [r9]    [r2 r7]        k2 is of two codes
//!  table: first run      0         1               3
//!  runs: check, answer; bits: the key goes on
//! ```
//!
//! The mix of two words is a bijection, so comparing key and check compares the code. Longer codes
//! are also stored with their runs and compared in full. Should two codes of a build share key and
//! check, the build starts again with another seed. Codes that share a key, a few in a thousand
//! million pairs, are runs one after the other. If all runs have one row, a run answers with it,
//! and nothing else is kept of the groups.
//!
//! Cost: 8 bytes and a bit per run, and the code if it is longer than two words. A lookup of a key
//! that is in the table takes one more random read; with a longer code, two. A table of 64-bit keys
//! would need no groups, but buckets of twice the size or half the slots. It would not be the
//! paper's table. Comparing on the host costs a random read there, at a tenth of the rate, and
//! brings every candidate back for it.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};
use crate::kernel_sources;
use crate::table::api::{Items, MISS};
use crate::table::launch::{GROUP, prefetches};
use crate::table::primitives::group::{Groups, RowGroups, group, group_by_pairs};
use crate::table::primitives::mix::{mixed, seed_words};
use crate::table::primitives::rows::gather_rows;
use crate::table::primitives::scan;

/// The largest group whose rows one work-item puts in order of their checks.
const ORDERED: usize = 32;

fn text(prefetch: bool) -> ProgramText {
    let defines = [
        ("MISS", format!("{MISS:#x}u")),
        ("ORDERED", ORDERED.to_string()),
        ("PREFETCH", u8::from(prefetch).to_string()),
    ];
    let parts = [kernel_sources::MIX, kernel_sources::MULTIWORD];
    ProgramText::new("wide", &defines, &parts)
}

/// Returns the program under the name of a file; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    std::iter::once(("wide".to_owned(), text(false)))
}

fn program(queue: &Queue) -> ProgramText {
    let prefetch = prefetches(queue);
    ProgramText::once("wide", &prefetch, || text(prefetch))
}

/// Returns the key and the check of `code`, low word first.
pub fn split(code: &[u32], seed: u32) -> (u32, u32) {
    let mixed = mixed(code, seed);
    (mixed as u32, (mixed >> 32) as u32)
}

/// Codes taken apart, on the device.
#[derive(Debug)]
pub struct HashAndTag {
    /// Keys that the table knows codes by.
    pub keys: Buffer<u32>,
    /// Checks that tell apart codes of one key.
    pub checks: Buffer<u32>,
    mixing: Mixing,
}

/// The way in which codes are taken apart.
#[derive(Debug, Clone, Copy)]
pub struct Mixing {
    /// Words of a code, at least two.
    pub words: usize,
    /// Another seed, other keys and checks.
    pub seed: u32,
}

impl Mixing {
    /// Returns whether key and check together are the code.
    fn is_one_to_one(self) -> bool {
        self.words <= 2
    }
}

impl HashAndTag {
    /// Returns the first `n` of `codes`, low words first.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are fewer, [`Error::DeviceMemory`], OpenCL's own.
    pub fn new(queue: &mut Queue, codes: &Buffer<u32>, n: usize, mixing: Mixing) -> Result<Self> {
        if codes.len() < mixing.words * n {
            return Err(Error::Invalid(format!(
                "{n} codes of {} words from a buffer of {} words",
                mixing.words,
                codes.len()
            )));
        }
        let split = Self {
            keys: queue.allocate("keys of codes", n)?,
            checks: queue.allocate("checks of codes", n)?,
            mixing,
        };
        let [low, high] = seed_words(mixing.seed);
        let args = [
            Arg::Words(codes),
            Arg::Words(&split.keys),
            Arg::Words(&split.checks),
            Arg::U32(n as u32),
            Arg::U32(mixing.words as u32),
            Arg::U32(low),
            Arg::U32(high),
        ];
        queue.launch(&program(queue), "split_codes", (n, GROUP), &args)?;
        Ok(split)
    }
}

/// The runs that a table's values stand for: rows of one code each.
#[derive(Debug)]
pub struct Runs {
    /// Check and answer of each run, a word each.
    words: Buffer<u32>,
    /// One bit per run: the next one has the same key. Missing if none has.
    goes_on: Option<Buffer<u32>>,
    /// The code of each run, unless checks tell all.
    codes: Option<Buffer<u32>>,
    mixing: Mixing,
}

/// Codes by key and check.
#[derive(Debug)]
pub struct GroupedCodes {
    /// Runs of the codes.
    pub runs: Runs,
    /// The rows by run, which runs answer with; `None` if each has one row and answers with that.
    pub groups: Option<RowGroups>,
    /// The distinct keys.
    pub keys: Buffer<u32>,
    /// The first run of each.
    pub first: Buffer<u32>,
}

impl Runs {
    /// Returns the runs of `codes`, which were split from `words_of_codes` and have distinct keys.
    /// The run of a code is its position. `rows` has the row number of each code. Without it, the
    /// position is the row number.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn from_rows(
        queue: &mut Queue,
        (codes, words_of_codes): (&HashAndTag, &Buffer<u32>),
        rows: Option<&Buffer<u32>>,
    ) -> Result<Self> {
        let n = codes.checks.len();
        let words = queue.allocate_table("runs", 2 * n)?;
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
            codes: if codes.mixing.is_one_to_one() {
                None
            } else {
                Some(copy_of(queue, words_of_codes)?)
            },
            mixing: codes.mixing,
        })
    }

    /// Returns what the first `n` of `codes` stand for, whose keys have the values `first` in the
    /// table: rows or groups, or [`MISS`] for absent codes.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn resolve(
        &self,
        queue: &mut Queue,
        first: &Buffer<u32>,
        (split, codes): (&HashAndTag, &Buffer<u32>),
        n: usize,
    ) -> Result<Buffer<u32>> {
        let answers = queue.allocate("answers to codes", n)?;
        let args = [
            Arg::Words(first),
            Arg::Words(&split.checks),
            Arg::Words(&self.words),
            self.goes_on.as_ref().map_or(Arg::Null, Arg::Words),
            Arg::Words(codes),
            self.codes.as_ref().map_or(Arg::Null, Arg::Words),
            Arg::Words(&answers),
            Arg::U32(self.mixing.words as u32),
            Arg::U32(n as u32),
        ];
        queue.launch(&program(queue), "resolve", (n, GROUP), &args)?;
        Ok(answers)
    }

    /// Returns how codes are to be split.
    pub fn mixing(&self) -> Mixing {
        self.mixing
    }

    /// Returns the bytes on the device.
    pub fn bytes(&self) -> u64 {
        let kept = |part: &Option<Buffer<u32>>| part.as_ref().map_or(0, Buffer::bytes);
        self.words.bytes() + kept(&self.goes_on) + kept(&self.codes)
    }
}

impl GroupedCodes {
    /// Groups `codes`, split from `words`, by key and check. `rows` has their row numbers,
    /// ascending. Without it, the position of a code is its row number. Returns `None` if two codes
    /// share key and check, as the build then needs another seed.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn new(
        queue: &mut Queue,
        (codes, words): (HashAndTag, &Buffer<u32>),
        rows: Option<&Buffer<u32>>,
    ) -> Result<Option<Self>> {
        let by_key = Items {
            keys: &codes.keys,
            values: None,
        };
        let groups = group(queue, by_key, u32::BITS)?;
        let mut ordered = Ordered::new(queue, groups, &codes)?;
        if ordered.mixed {
            // A key of many rows that other codes share: rare, unless someone chooses them so.
            let groups = group_by_pairs(queue, &codes.keys, &codes.checks)?;
            ordered = Ordered::new(queue, groups, &codes)?;
        }
        drop(codes);
        let kept = if ordered.mixing.is_one_to_one() {
            None
        } else {
            match ordered.keep_codes(queue, words)? {
                None => return Ok(None),
                kept => kept,
            }
        };
        Ok(Some(ordered.into_runs(queue, rows, kept)?))
    }
}

fn copy_of(queue: &mut Queue, words: &Buffer<u32>) -> Result<Buffer<u32>> {
    let copy = queue.allocate_table("codes of runs", words.len())?;
    queue.copy(words, &copy)?;
    Ok(copy)
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
    mixing: Mixing,
    /// True if some group of more than [`ORDERED`] positions has several checks, which may be in
    /// any order.
    mixed: bool,
}

impl Ordered {
    fn new(queue: &mut Queue, groups: Groups, codes: &HashAndTag) -> Result<Self> {
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
        let runs = queue.count((&ranks, words), ("runs", n))?;
        let mut several = [0u32];
        queue.download(&mixed, 0, &mut several)?;
        Ok(Self {
            program,
            groups,
            checks,
            heads,
            starts,
            ranks,
            runs,
            mixing: codes.mixing,
            mixed: several[0] != 0,
        })
    }

    /// Returns the code of each run, of all `codes`; `None` if some run has several.
    fn keep_codes(&self, queue: &mut Queue, codes: &Buffer<u32>) -> Result<Option<Buffer<u32>>> {
        let (n, words) = (self.groups.rows.len(), self.mixing.words);
        let kept = queue.allocate_table("codes of runs", self.runs * words)?;
        let mixed = queue.buffer_from("mixed runs", &[0])?;
        let args = [
            Arg::Words(&self.starts),
            Arg::Words(&self.ranks),
            Arg::Words(&self.groups.rows),
            Arg::Words(codes),
            Arg::Words(&kept),
            Arg::Words(&mixed),
            Arg::U32(words as u32),
            Arg::U32(n as u32),
        ];
        queue.launch(&self.program, "keep_codes", (n, GROUP), &args)?;
        let mut several = [0u32];
        queue.download(&mixed, 0, &mut several)?;
        Ok((several[0] == 0).then_some(kept))
    }

    fn into_runs(
        self,
        queue: &mut Queue,
        rows: Option<&Buffer<u32>>,
        codes: Option<Buffer<u32>>,
    ) -> Result<GroupedCodes> {
        let n = self.groups.rows.len();
        let positions = &self.groups.rows;
        let numbered = match rows {
            Some(rows) => Some(gather_rows(queue, (rows, 0), positions, n)?),
            None => None,
        };
        let offsets = if self.runs < n {
            Some(queue.allocate_table("offsets of runs", self.runs + 1)?)
        } else {
            None
        };
        if let Some(offsets) = &offsets {
            queue.upload(offsets, self.runs, &[n as u32])?;
        }
        let runs = Runs {
            codes,
            ..self.write_runs(queue, numbered.as_ref(), offsets.as_ref())?
        };
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
        let words = queue.allocate_table("runs", 2 * self.runs)?;
        let goes_on = if self.runs > self.groups.unique_keys.len() {
            Some(queue.allocate("runs that go on", self.runs.div_ceil(32))?)
        } else {
            None
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
            codes: None,
            mixing: self.mixing,
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
