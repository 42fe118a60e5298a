//! Linear probing over codes of two words, a cache line at a time; the driver of `cl/codes.cl`.
//!
//! ```text
//!  code ──mix──▶ m ──▶ line      m0 m1 m2 m3 m4 | v0 v1 v2 v3 v4 | MISS      64 bytes
//!                                                └ full: the next line
//! ```
//!
//! Not from the papers. Keys of two words are otherwise looked up by half of their mix in a table of 32-bit
//! keys, and what is found there is compared and resolved by [`super::wide`]: two random reads a hit and
//! five launches a chunk, which GPUs hide and CPUs do not. Here one line has codes and values. What is
//! stored is the mixed code, which stands for the code, so nothing else is compared.
//!
//! Bucketized cuckoo hashing with 12-byte items would fill lines to 0.9 instead of 0.6, and read a second line
//! for more of the hits; linear probing goes on in the next line, which CPUs fetch unasked. For keys that
//! repeat there is no table of this kind: they go by way of [`super::wide`].
//!
//! Cost: 64 bytes for three codes; one compare-and-swap a code to build; 1.03 lines read a hit, 1.2 a miss.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, DeviceKind, Queue};
use crate::error::{Error, Result};

use super::Items;
use super::horton::MISS;
use super::horton::kernels::peek_define;
use super::launch::{Spread, prefetches};
use super::mix::seed_words;
use super::scan::{group_of, local_group};

/// Codes that a line has room for.
const LINE_CODES: usize = 5;

/// Codes a line, on average: a load factor of 0.6.
const FILLED: usize = 3;

/// Codes whose lines are asked for together: those of two blocks are under way at a time.
const BLOCK: usize = 64;

/// 64-bit words of a line.
const LINE_WORDS: usize = 8;

fn text(group: usize, (prefetch, peek): (bool, bool)) -> ProgramText {
    let defines = [
        ("MISS", format!("{MISS:#x}u")),
        ("EMPTY_CODE", format!("{:#x}ul", u64::MAX)),
        ("LINE_CODES", LINE_CODES.to_string()),
        ("CODES_GROUP", group.to_string()),
        ("BLOCK", BLOCK.to_string()),
        ("PREFETCH", u8::from(prefetch).to_string()),
        peek_define(peek),
    ];
    let parts = [
        ("mix.cl", include_str!("../../cl/mix.cl")),
        ("codes.cl", include_str!("../../cl/codes.cl")),
    ];
    ProgramText::new("codes", &defines, &parts)
}

/// The programs under the names of files; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    use crate::device::KernelBody::{Chunk, LocalTile};
    [Chunk, LocalTile].into_iter().map(|body| {
        (
            format!("codes_{}", group_of(body)),
            text(group_of(body), (false, false)),
        )
    })
}

fn program(queue: &Queue) -> ProgramText {
    let group = local_group(queue);
    let reads = (prefetches(queue), queue.volatile_sees_atomics());
    ProgramText::once("codes", &(group, reads), || text(group, reads))
}

/// A table of distinct codes of two words to values, in device memory.
#[derive(Debug)]
pub struct CodeTable {
    lines: Buffer<u64>,
    codes: usize,
    seed: u32,
}

impl CodeTable {
    /// Whether lookups on the queue's device are faster than by way of [`super::wide`].
    pub fn suits(queue: &Queue) -> bool {
        queue.info().kind == DeviceKind::Cpu
    }

    /// Builds a table of `items`, whose keys are codes of two words each, low word first; `None` if some code is
    /// there more than once (or, by a chance of one in 2^64 a code, cannot be stored under this `seed`).
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are fewer or more values, [`Error::TooManyRows`] beyond 2^32 - 1, [`Error::DeviceMemory`], OpenCL's own.
    pub fn build(queue: &mut Queue, seed: u32, items: Items<'_>) -> Result<Option<Self>> {
        let n = items.keys.len() / 2;
        if let Some(values) = items.values.filter(|values| values.len() != n) {
            return Err(Error::Invalid(format!(
                "{n} codes were given with {} values",
                values.len()
            )));
        }
        if n > u32::MAX as usize {
            return Err(Error::TooManyRows {
                rows: n,
                limit: u32::MAX as usize,
            });
        }
        let lines = n.div_ceil(FILLED).max(1);
        let table = Self {
            lines: queue.allocate_table("a table of codes", lines * LINE_WORDS)?,
            codes: n,
            seed,
        };
        queue.fill(&table.lines, u64::MAX)?;
        let wrong = queue.buffer_from("codes that repeat", &[0])?;
        let spread = Spread::new(queue, n, 1);
        let [low, high] = seed_words(seed);
        let args = [
            Arg::Longs(&table.lines),
            Arg::Words(items.keys),
            items.values.map_or(Arg::Null, Arg::Words),
            Arg::Words(&wrong),
            Arg::U32(lines as u32),
            Arg::U32(low),
            Arg::U32(high),
            Arg::U32(spread.share as u32),
            Arg::U32(n as u32),
        ];
        queue.launch(&program(queue), "enter_codes", spread.grid(n), &args)?;
        let mut found = [0u32];
        queue.download(&wrong, 0, &mut found)?;
        Ok((found[0] == 0).then_some(table))
    }

    /// Looks up the first `n` of `keys`, codes of two words: `values[i]` receives the value, or [`MISS`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if a buffer is shorter, and OpenCL's own.
    pub fn lookup(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        values: &Buffer<u32>,
        n: usize,
    ) -> Result<()> {
        let room = (keys.len() / 2).min(values.len());
        if room < n || n > u32::MAX as usize {
            return Err(Error::Invalid(format!(
                "{n} codes (at most 2^32 - 1) were to be looked up, but there is room for {room}"
            )));
        }
        let spread = Spread::new(queue, n, 1);
        let [low, high] = seed_words(self.seed);
        let args = [
            Arg::Longs(&self.lines),
            Arg::Words(keys),
            Arg::Words(values),
            Arg::U32((self.lines.len() / LINE_WORDS) as u32),
            Arg::U32(low),
            Arg::U32(high),
            Arg::U32(spread.share as u32),
            Arg::U32(n as u32),
        ];
        queue.launch(&program(queue), "find_codes", spread.grid(n), &args)
    }

    /// Codes.
    pub fn len(&self) -> usize {
        self.codes
    }

    /// Whether the table has no codes.
    pub fn is_empty(&self) -> bool {
        self.codes == 0
    }

    /// Slots.
    pub fn slots(&self) -> usize {
        self.lines.len() / LINE_WORDS * LINE_CODES
    }

    /// Bytes in device memory.
    pub fn bytes(&self) -> u64 {
        self.lines.bytes()
    }
}
