//! Phases that a bulk build and a bulk insert share: from items that overflow their primary buckets
//! to a table that holds them all.
//!
//! ```text
//!  overflow by bucket ─place─▶ remapped items, stragglers
//!                     ─displace─▶ no stragglers ─census─▶ counts
//! ```

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::Result;
use crate::table::launch::{elements_per_item, grid_of, local_group};
use crate::table::primitives::bucket::Layout;
use crate::table::primitives::radix_partition::Counter;

use super::displace::{Displacement, Stragglers};
use super::model::Census;

/// 32-bit words of an overflowing bucket's record in [`Overflow::buckets`].
pub(crate) const RECORD_WORDS: usize = 4;

/// The items that overflow their primary buckets, by bucket.
pub(crate) struct Overflow {
    /// Items of four buckets per word, a byte each.
    pub fill: Buffer<u32>,
    pub items: Buffer<u64>,
    /// [`RECORD_WORDS`] per bucket: its number, its first item, its items.
    pub buckets: Buffer<u32>,
}

impl Overflow {
    /// Returns room for so many `items` of so many `overflowing` buckets, in a table of `buckets`.
    pub fn with_room(
        queue: &mut Queue,
        buckets: usize,
        items: usize,
        overflowing: usize,
    ) -> Result<Self> {
        Ok(Self {
            fill: queue.allocate("bucket fill counts", buckets.div_ceil(4))?,
            items: queue.allocate("overflowing items", items)?,
            buckets: queue.allocate("overflowing buckets", RECORD_WORDS * overflowing)?,
        })
    }
}

/// A table in the making.
pub(crate) struct Phases<'a> {
    pub program: &'a ProgramText,
    pub layout: Layout,
    /// True if values have 32 bits.
    pub wide: bool,
    pub words: &'a Buffer<u64>,
    pub counters: &'a Buffer<u32>,
}

impl Phases<'_> {
    /// Turns `overflowing` buckets Type B and remaps their overflow; what finds no slot joins the
    /// stragglers.
    pub fn place(
        &self,
        queue: &mut Queue,
        overflow: &Overflow,
        overflowing: usize,
        stragglers: &mut Stragglers,
    ) -> Result<()> {
        let room = overflow.buckets.len() / RECORD_WORDS;
        if overflowing > room {
            return Err(queue.wrong_answer(format!("{overflowing} overflowing buckets of {room}")));
        }
        let args = [
            Arg::Longs(self.words),
            Arg::Words(&overflow.fill),
            Arg::Longs(&overflow.items),
            Arg::Words(&overflow.buckets),
            Arg::Longs(&stragglers.words),
            Arg::Words(self.counters),
            Arg::U32(overflowing as u32),
            Arg::U32(stragglers.capacity as u32),
            Arg::U32(self.layout.buckets),
            Arg::U32(self.layout.seed),
        ];
        queue.launch(self.program, "place", grid_of(overflowing), &args)?;
        let mut count = [0u32];
        queue.download(self.counters, Counter::Stragglers as usize, &mut count)?;
        stragglers.count = count[0] as usize;
        Ok(())
    }

    /// Finds slots for the stragglers; returns those that are left.
    pub fn displace(
        &self,
        queue: &mut Queue,
        stragglers: Stragglers,
        fill: &Buffer<u32>,
    ) -> Result<Stragglers> {
        let displacement = Displacement {
            layout: self.layout,
            wide: self.wide,
            table: self.words,
            fill,
            counters: self.counters,
        };
        displacement.run(queue, stragglers)
    }
}

/// Counts the Type B buckets, items and secondary items of the table.
pub(crate) fn census(
    queue: &mut Queue,
    program: &ProgramText,
    layout: &Layout,
    words: &Buffer<u64>,
) -> Result<Census> {
    let sums = queue.allocate("census sums", 3)?;
    queue.fill(&sums, 0)?;
    let (group, pairs) = (local_group(queue), layout.words() / 2);
    let per_item = elements_per_item(queue.info(), pairs).div_ceil(group);
    let args = [
        Arg::Longs(words),
        Arg::Words(&sums),
        Arg::U32(layout.buckets),
        Arg::U32(layout.seed),
    ];
    let groups = pairs.div_ceil(per_item * group);
    queue.launch(program, "census", (groups * group, group), &args)?;
    let sums = queue.read(&sums, 3)?;
    Ok(Census {
        type_b: sums[0],
        items: sums[1],
        secondary: sums[2],
    })
}
