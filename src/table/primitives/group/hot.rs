//! Hot keys, set apart from the others; the driver of `cl/primitives/group/hot.cl`.
//!
//! ```text
//!  keys ─sample_keys─▶ hot: 7      7 3 7 9 7 7 4 ─radix_pass─▶ 3 9 4 | 7 7 7 7
//!                                  0 1 2 3 4 5 6               1 3 6 | 0 2 4 5
//! ```
//!
//! A stable pass with a digit for each hot key groups all of their rows at once. What is left
//! often has no key twice; then no other grouping is needed. Scratch: 8 bytes a row and a
//! megabyte. (While the others are taken for single rows, their distinct keys and offsets are there
//! too, 8 bytes a row, as they are while any table over groups is built.)
//!
//! One row in 32 is sampled, or 65,536 of more than two million, and a key is hot if that
//! shows it 16 times: with about 500 rows of a million, 2,500 (0.025 %) of ten million. A key with
//! fewer rows may crowd a range (`range`), which costs the sort of that range only. With more than
//! 255 hot keys, many rows a key are the rule: the sort takes all rows at once.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, KernelBody, Queue};
use crate::error::Result;
use crate::sources;
use crate::table::api::Items;
use crate::table::launch::{GROUP, group_of, peek_define};
use crate::table::primitives::hash::{self, Reduction};

use super::groups::{Groups, Part, Size};
use super::pass::{Digit, Kernels, Pass, Places};

/// Digits of a pass, less that of all other keys.
const MAX_HOT: usize = 255;

/// Slots a hot key in the table that a pass finds them in.
const SLOTS_A_KEY: usize = 4;

/// How often a hot key is in the sample.
const SEEN_HOT: usize = 16;

/// Rows of which at most one is sampled.
const MIN_STRIDE: usize = 32;

/// Rows sampled at most.
const MAX_SAMPLES: usize = 1 << 16;

/// Slots of the sample's table.
const SEEN_SLOTS: usize = 2 * MAX_SAMPLES;

/// 32-bit words of a slot: a key, and how often it was seen.
const SEEN_WORDS: usize = 2;

/// Work-items that sample: few, so that most find a hot key counted already.
const SAMPLERS: usize = 1 << 14;

const DIGIT: [(&str, &str); 2] = [sources::HASH, sources::DIGIT_OF_HOT];

fn text(body: KernelBody) -> ProgramText {
    let mut defines = hash::defines(Reduction::MultiplyHigh);
    defines.extend([
        ("MAX_HOT", MAX_HOT.to_string()),
        ("SEEN_HOT", SEEN_HOT.to_string()),
        ("SEEN_SLOTS", SEEN_SLOTS.to_string()),
        peek_define(body.volatile_sees_atomics()),
    ]);
    let kernels = Kernels {
        name: "group hot keys",
        defines: &defines,
        digit: &DIGIT,
        rest: &[sources::GROUP_HOT],
    };
    kernels.text(body)
}

/// Every program of this module under the name of a file; see [`crate::table::programs`].
pub(super) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    [KernelBody::Chunk, KernelBody::LocalTile]
        .into_iter()
        .map(|body| (format!("group_hot_{}", group_of(body)), text(body)))
}

/// What a sample says of the keys.
pub(super) enum Sample {
    /// No key is hot.
    None,
    /// These are, ascending.
    Few(Vec<u32>),
    /// More than [`MAX_HOT`] are.
    Many,
}

impl Sample {
    /// Looks for hot keys.
    pub fn take(queue: &mut Queue, keys: &Buffer<u32>) -> Result<Self> {
        let stride = (keys.len() / MAX_SAMPLES).max(MIN_STRIDE);
        let samples = (keys.len() / stride).min(MAX_SAMPLES);
        if samples < SEEN_HOT {
            return Ok(Self::None);
        }
        let seen = queue.allocate("keys seen in a sample", SEEN_WORDS * SEEN_SLOTS)?;
        queue.fill(&seen, 0)?;
        let hot = queue.allocate("hot keys in a sample", 1 + MAX_HOT)?;
        queue.fill(&hot, 0)?;
        let args = [
            Arg::Words(keys),
            Arg::Words(&seen),
            Arg::Words(&hot),
            Arg::U32(samples as u32),
            Arg::U32(stride as u32),
        ];
        let grid = (samples.min(SAMPLERS), GROUP);
        queue.launch(&text(queue.body()), "sample_keys", grid, &args)?;
        let found = queue.read(&hot, 1 + MAX_HOT)?;
        Ok(match found[0] as usize {
            0 => Self::None,
            count @ 1..=MAX_HOT => {
                let mut keys = found[1..=count].to_vec();
                keys.sort_unstable();
                Self::Few(keys)
            }
            _ => Self::Many,
        })
    }
}

/// Where groups are written. Without `rows`, they stay where they are.
struct Target<'a> {
    unique_keys: &'a Buffer<u32>,
    offsets: &'a Buffer<u32>,
    rows: Option<&'a Buffer<u32>>,
}

/// Rows of hot keys by key, behind all others.
pub(super) struct Parted {
    program: ProgramText,
    hot_keys: Buffer<u32>,
    places: Places,
    /// Keys of the other rows.
    pub rest_keys: Buffer<u32>,
    /// All rows, those of other keys first.
    pub rows: Buffer<u32>,
}

impl Parted {
    /// Sets the rows of `hot` keys apart.
    pub fn new(queue: &mut Queue, items: Items<'_>, hot: &[u32]) -> Result<Self> {
        let program = text(queue.body());
        let table = queue.buffer_from("table of hot keys", &table_of(hot))?;
        let digit = Digit {
            table: Some(&table),
            by: table.len() as u32 / 2,
        };
        let n = items.keys.len();
        let pass = Pass::new(queue, &program, n);
        let places = pass.places(queue, items.keys, digit)?;
        let rest = places.before(queue, 1)?;
        let rest_keys = queue.allocate("keys that are not hot", rest)?;
        let rows = queue.allocate("rows by hot key", n)?;
        pass.scatter(queue, items, digit, &places, (&rest_keys, &rows))?;
        let hot_keys = queue.buffer_from("hot keys", hot)?;
        Ok(Self {
            program,
            hot_keys,
            places,
            rest_keys,
            rows,
        })
    }

    /// Distinct keys and offsets as they are if no other key is there twice; the rows are
    /// [`rows`](Self::rows).
    pub fn single_rows(&self, queue: &mut Queue) -> Result<(Buffer<u32>, Buffer<u32>)> {
        let rest = self.rest_keys.len();
        let size = Size {
            groups: rest,
            rows: rest,
        };
        let (unique_keys, offsets) = Groups::allocate_keys(queue, size.and(self.size()))?;
        let args = [
            Arg::Words(&self.rest_keys),
            Arg::Words(&unique_keys),
            Arg::Words(&offsets),
            Arg::U32(rest as u32),
        ];
        queue.launch(&self.program, "emit_single_rows", (rest, GROUP), &args)?;
        let to = Target {
            unique_keys: &unique_keys,
            offsets: &offsets,
            rows: None,
        };
        self.emit_to(queue, to, size)?;
        Ok((unique_keys, offsets))
    }

    fn emit_to(&self, queue: &mut Queue, to: Target<'_>, first: Size) -> Result<()> {
        let size = self.size();
        let args = [
            Arg::Words(&self.hot_keys),
            Arg::Words(&self.places.words),
            Arg::Words(&self.rows),
            Arg::Words(to.unique_keys),
            Arg::Words(to.offsets),
            to.rows.map_or(Arg::Null, Arg::Words),
            Arg::U32(first.groups as u32),
            Arg::U32(first.rows as u32),
            Arg::U32(self.rest_keys.len() as u32),
            Arg::U32(size.rows as u32),
            Arg::U32(self.places.tiles as u32),
            Arg::U32(size.groups as u32),
        ];
        let moved = to.rows.map_or(0, |_| size.rows);
        let grid = (moved.max(size.groups), GROUP);
        queue.launch(&self.program, "emit_hot", grid, &args)
    }
}

impl Part for Parted {
    fn size(&self) -> Size {
        Size {
            groups: self.hot_keys.len(),
            rows: self.rows.len() - self.rest_keys.len(),
        }
    }

    fn emit(&self, queue: &mut Queue, to: &Groups, first: Size) -> Result<()> {
        let to = Target {
            unique_keys: &to.unique_keys,
            offsets: &to.offsets,
            rows: Some(&to.rows),
        };
        self.emit_to(queue, to, first)
    }
}

/// The table that `cl/primitives/group/digit_of_hot.cl` looks keys up in: the i-th key has number i
/// + 1.
fn table_of(hot: &[u32]) -> Vec<u32> {
    let slots = (SLOTS_A_KEY * hot.len()).next_power_of_two();
    let mut table = vec![0; 2 * slots];
    for (key, number) in hot.iter().zip(1..) {
        let home = hash::jenkins(*key) as usize;
        let free = (home..home + slots)
            .map(|slot| 2 * (slot % slots))
            .find(|&at| table[at + 1] == 0);
        if let Some(at) = free {
            (table[at], table[at + 1]) = (*key, number);
        }
    }
    table
}
