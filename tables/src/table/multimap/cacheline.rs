//! Linear probing over codes of one or two words, a cache line at a time; the host side of
//! `cl/multimap/cacheline.cl`.
//!
//! ```text
//!  code ──mix──▶ m ──▶ line      m0 m1 m2 m3 m4 | v0 v1 v2 v3 v4 | stays     64 bytes
//!                                                └ full: the next line; the bit of m's tag says so
//! ```
//!
//! This table is not from the papers. Eight spare bytes of each line hold a filter. Like the remap
//! entries of a Horton table (section 4), it shows a miss that no second line has to be read. On a
//! CPU a lookup costs instructions while the table is in cache, and cache lines beyond that. A
//! Horton bucket costs more there: its comparisons branch unpredictably, or its remap entries are
//! read for nothing. Keys of two words are looked up there by half of their mix.
//! [`crate::table::multimap::multiword`] compares and resolves the hits: two random reads and five
//! launches per chunk. Here one line has codes and values, and nothing is compared but the mixed
//! codes, which stand for the codes. GPUs hide all of that.
//!
//! Bucketized cuckoo hashing with 12-byte items would fill lines to 0.9 instead of 0.6, and read a
//! second line for more of the hits; linear probing goes on in the next line, which CPUs fetch
//! unasked. Codes must be distinct: rows by code are [`crate::table::primitives::group`]'s and
//! [`crate::table::multimap::multiword`]'s.
//!
//! Cost: 64 bytes for three codes; one compare-and-swap per code to build; 1.07 lines read per hit,
//! 1.01 per miss (simulated; without the bits 1.36 per miss).

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, DeviceKind, Queue};
use crate::error::{Error, Result};
use crate::kernel_sources;
use crate::table::api::{Items, MISS};
use crate::table::launch::{
    LaunchConfig, check_lookup, group_of, local_group, peek_define, prefetches,
};
use crate::table::primitives::mix::seed_words;

/// Codes that a line has room for.
const LINE_CODES: usize = 5;

/// Codes per line, on average: a load factor of 0.6.
const CODES_PER_LINE: usize = 3;

/// Codes whose lines are asked for together: those of two blocks are under way at a time.
const BLOCK_CODES: usize = 64;

/// 64-bit words of a line.
const LINE_WORDS: usize = 8;

/// The facts that a program over codes depends on.
#[derive(Debug)]
struct Variant {
    /// Words of a key.
    words: usize,
    /// Number of work-items of a work-group.
    group: usize,
    prefetch: bool,
    peek: bool,
}

fn text(variant: &Variant) -> ProgramText {
    let Variant {
        words,
        group,
        prefetch,
        peek,
    } = *variant;
    let defines = [
        ("MISS", format!("{MISS:#x}u")),
        ("EMPTY_CODE", format!("{:#x}ul", u64::MAX)),
        ("LINE_CODES", LINE_CODES.to_string()),
        ("CODE_WORDS", words.to_string()),
        ("CODES_GROUP", group.to_string()),
        ("BLOCK", BLOCK_CODES.to_string()),
        ("PREFETCH", u8::from(prefetch).to_string()),
        peek_define(peek),
    ];
    let parts = [kernel_sources::MIX, kernel_sources::CACHELINE];
    ProgramText::new("codes", &defines, &parts)
}

/// Returns the programs under the names of files; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    use crate::device::KernelBody::{Chunk, LocalTile};
    let bodies = [Chunk, LocalTile].into_iter().map(group_of);
    bodies
        .flat_map(|group| [(1, group), (2, group)])
        .map(|(words, group)| {
            let name = format!("codes_{words}_{group}");
            let variant = Variant {
                words,
                group,
                prefetch: false,
                peek: false,
            };
            (name, text(&variant))
        })
}

fn program(queue: &Queue, words: usize) -> ProgramText {
    let variant = Variant {
        words,
        group: local_group(queue),
        prefetch: prefetches(queue),
        peek: queue.volatile_sees_atomics(),
    };
    ProgramText::once("codes", &variant, || text(&variant))
}

/// The status that `enter_codes` returns for a code that is there twice.
const REPEATS: u32 = 1;

/// Seeds that are tried: under each, one code of 2^64 cannot be stored.
const SEEDS: u32 = 4;

/// A table of distinct codes of one or two words to values, in device memory.
#[derive(Debug)]
pub struct CacheLineTable {
    lines: Buffer<u64>,
    codes: usize,
    words: usize,
    seed: u32,
}

impl CacheLineTable {
    /// Returns whether a cache-line table is faster than other tables on the queue's device, and
    /// can be built there.
    pub fn suits(queue: &Queue) -> bool {
        queue.info().kind == DeviceKind::Cpu && queue.info().has_int64_atomics()
    }

    /// Builds a table of `items`, whose keys are codes of so many `words`, one or two, low word
    /// first; `None` if some code is there more than once.
    ///
    /// # Errors
    /// [`Error::Invalid`] if codes have more words or there are fewer or more values;
    /// [`Error::TooManyRows`] beyond 2^32 - 1 codes; [`Error::DeviceMemory`], OpenCL's own.
    pub fn build(
        queue: &mut Queue,
        seed: u32,
        items: Items<'_>,
        words: usize,
    ) -> Result<Option<Self>> {
        if !(1..=2).contains(&words) {
            return Err(Error::Invalid(format!(
                "a table of codes has codes of one or two words, not {words}"
            )));
        }
        let n = items.keys.len() / words;
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
        let lines = n.div_ceil(CODES_PER_LINE).max(1);
        let mut table = Self {
            lines: queue.allocate_table("a table of codes", lines * LINE_WORDS)?,
            codes: n,
            words,
            seed,
        };
        for attempt in 0..SEEDS {
            table.seed = seed.wrapping_add(attempt);
            match table.enter(queue, items)? {
                0 => return Ok(Some(table)),
                found if found & REPEATS != 0 => return Ok(None),
                _ => log::debug!("a code cannot be stored with seed {:#x}", table.seed),
            }
        }
        let what = format!("{n} codes found no room under any of {SEEDS} seeds");
        Err(queue.wrong_answer(what))
    }

    /// Enters all items into the cleared table; what is wrong with them, or 0.
    fn enter(&self, queue: &mut Queue, items: Items<'_>) -> Result<u32> {
        let n = self.codes;
        queue.fill(&self.lines, u64::MAX)?;
        let wrong = queue.buffer_from("codes that repeat", &[0])?;
        let config = LaunchConfig::new(queue, n, 1);
        let [low, high] = seed_words(self.seed);
        let args = [
            Arg::Longs(&self.lines),
            Arg::Words(items.keys),
            items.values.map_or(Arg::Null, Arg::Words),
            Arg::Words(&wrong),
            Arg::U32(self.line_count()),
            Arg::U32(low),
            Arg::U32(high),
            Arg::U32(config.per_item as u32),
            Arg::U32(n as u32),
        ];
        let program = program(queue, self.words);
        queue.launch(&program, "enter_codes", config.grid(n), &args)?;
        let mut found = [0u32];
        queue.download(&wrong, 0, &mut found)?;
        Ok(found[0])
    }

    fn line_count(&self) -> u32 {
        (self.lines.len() / LINE_WORDS) as u32
    }

    /// Looks up the first `n` of `keys`, codes of as many words as the table's: `values[i]`
    /// receives the value, or [`MISS`].
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
        check_lookup(n, (keys.len() / self.words).min(values.len()))?;
        let config = LaunchConfig::new(queue, n, 1);
        let [low, high] = seed_words(self.seed);
        let args = [
            Arg::Longs(&self.lines),
            Arg::Words(keys),
            Arg::Words(values),
            Arg::U32(self.line_count()),
            Arg::U32(low),
            Arg::U32(high),
            Arg::U32(config.per_item as u32),
            Arg::U32(n as u32),
        ];
        let program = program(queue, self.words);
        queue.launch(&program, "find_codes", config.grid(n), &args)
    }

    /// Returns the number of codes.
    pub fn len(&self) -> usize {
        self.codes
    }

    /// Returns whether the table has no codes.
    pub fn is_empty(&self) -> bool {
        self.codes == 0
    }

    /// Returns the number of 32-bit words of a code.
    pub fn key_words(&self) -> usize {
        self.words
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.lines.len() / LINE_WORDS * LINE_CODES
    }

    /// Returns the bytes in device memory.
    pub fn bytes(&self) -> u64 {
        self.lines.bytes()
    }
}
