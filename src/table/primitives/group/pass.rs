//! One pass of a stable radix sort; the driver of `cl/primitives/group/pass.cl`.
//!
//! ```text
//!  keys, rows ─histogram─▶ counts by (digit, tile) ─scan─▶ places ─scatter─▶ keys, rows by digit
//! ```
//!
//! The same pass sorts by bits of the keys, sets hot keys apart and picks the rows of crowded
//! ranges: what a digit is differs, nothing else. Scratch: a quarter of a byte a row.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, KernelBody, Queue};
use crate::error::Result;
use crate::sources;
use crate::table::api::Items;
use crate::table::launch::{group_of, local_group};
use crate::table::primitives::scan;

/// Bits of a digit.
pub(super) const RADIX_BITS: u32 = 8;

/// Items that a work-group sorts in local memory: 26 KiB in all.
const TILE: usize = 4096;

/// A file name and its text.
type Part = (&'static str, &'static str);

/// What makes a program of a pass: the definition of a digit, and what comes with it.
pub(super) struct Kernels<'a> {
    pub name: &'static str,
    pub defines: &'a [(&'static str, String)],
    /// Up to the definition of `digit_of`.
    pub digit: &'a [Part],
    /// What comes after the pass.
    pub rest: &'a [Part],
}

impl Kernels<'_> {
    /// The program for a kernel body.
    pub fn text(&self, body: KernelBody) -> ProgramText {
        let mut defines = vec![
            ("WORD", "uint".to_owned()),
            ("ONE_ITEM", u8::from(group_of(body) == 1).to_string()),
            ("PASS_GROUP", group_of(body).to_string()),
            ("PASS_TILE", TILE.to_string()),
            ("RADIX", (1 << RADIX_BITS).to_string()),
        ];
        defines.extend_from_slice(self.defines);
        let mut parts = self.digit.to_vec();
        parts.extend([sources::LOCAL, sources::RADIX_PASS]);
        parts.extend_from_slice(self.rest);
        ProgramText::new(self.name, &defines, &parts)
    }
}

/// What digits are read from: the two arguments of `digit_of` besides the key.
#[derive(Clone, Copy)]
pub(super) struct Digit<'a> {
    pub table: Option<&'a Buffer<u32>>,
    pub by: u32,
}

/// Where `rows` rows go: those of a digit in tile t from `words[digit * tiles + t]` on.
pub(super) struct Places {
    pub words: Buffer<u32>,
    pub tiles: usize,
    rows: usize,
}

impl Places {
    /// Rows before those of a digit.
    pub fn before(&self, queue: &mut Queue, digit: usize) -> Result<usize> {
        let at = digit * self.tiles;
        queue.count((&self.words, at), ("rows of lower digits", self.rows))
    }
}

/// Passes over so many rows.
pub(super) struct Pass<'a> {
    program: &'a ProgramText,
    group: usize,
    n: usize,
    tile: usize,
}

impl<'a> Pass<'a> {
    pub fn new(queue: &Queue, program: &'a ProgramText, n: usize) -> Self {
        Self {
            program,
            group: local_group(queue),
            n,
            tile: tile(queue, n),
        }
    }

    /// Counts digits.
    pub fn places(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        digit: Digit<'_>,
    ) -> Result<Places> {
        let tiles = self.n.div_ceil(self.tile);
        let words = queue.allocate("digit counts", tiles << RADIX_BITS)?;
        let args = [
            Arg::Words(keys),
            Arg::Words(&words),
            Arg::U32(self.n as u32),
            Arg::U32(self.tile as u32),
            Arg::U32(tiles as u32),
            digit.table.map_or(Arg::Null, Arg::Words),
            Arg::U32(digit.by),
        ];
        let grid = (tiles * self.group, self.group);
        queue.launch(self.program, "histogram", grid, &args)?;
        scan::exclusive(queue, &words, words.len())?;
        Ok(Places {
            words,
            tiles,
            rows: self.n,
        })
    }

    /// Moves rows to their places; those beyond the end of an output are left out of it.
    pub fn scatter(
        &self,
        queue: &mut Queue,
        items: Items<'_>,
        digit: Digit<'_>,
        places: &Places,
        (keys_out, rows_out): (&Buffer<u32>, &Buffer<u32>),
    ) -> Result<()> {
        let mut args = vec![
            Arg::Words(items.keys),
            items.values.map_or(Arg::Null, Arg::Words),
            Arg::Words(keys_out),
            Arg::Words(rows_out),
            Arg::U32(keys_out.len() as u32),
            Arg::U32(rows_out.len() as u32),
            Arg::Words(&places.words),
            Arg::U32(self.n as u32),
        ];
        let kernel = match self.group {
            1 => {
                args.push(Arg::U32(self.tile as u32));
                "scatter"
            }
            _ => "scatter_tile",
        };
        args.extend([
            Arg::U32(places.tiles as u32),
            digit.table.map_or(Arg::Null, Arg::Words),
            Arg::U32(digit.by),
        ]);
        let grid = (places.tiles * self.group, self.group);
        queue.launch(self.program, kernel, grid, &args)
    }
}

/// Items of a tile: what a work-group sorts at once; on a CPU a few long tiles a core.
fn tile(queue: &Queue, n: usize) -> usize {
    let cores = queue.info().compute_units.max(1) as usize;
    match queue.body() {
        KernelBody::Chunk => n.div_ceil(cores * 16).max(256),
        _ => TILE,
    }
}
