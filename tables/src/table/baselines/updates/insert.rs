//! Bulk insert and update in a Horton table on the device; the host side of
//! `cl/baselines/updates/merge.cl`.
//!
//! ```text
//!  items ─store─▶ keys that are there: new values in place (items.rs)
//!          └ new ─split─▶ by range ─merge_range─▶ primary slots, overflow, guests put out
//!                         ─place, displace─▶ no stragglers (phases.rs)  ─sweep─▶ no idle entries
//! ```
//!
//! Horton paper, section 5.3, for a batch of distinct keys at once, on a copy of the table
//! (`insert_common`). Cost: copying, reading and writing the table in order, and what a build costs
//! for the new items. Scratch memory: two tables, 40 bytes per new key and 5 per bucket.

use crate::device::{Arg, Buffer, Queue};
use crate::error::Result;
use crate::table::api::Items;
use crate::table::launch::local_group;
use crate::table::primitives::bucket::{Layout, key_of};
use crate::table::primitives::radix_partition::{COUNTERS, Counter, Split};

use crate::table::baselines::updates::insert_common::empty_words;
use crate::table::baselines::updates::items::{ItemsOf, Stored};
use crate::table::baselines::updates::remove::sweep;
use crate::table::horton::build::shape;
use crate::table::horton::displace::Stragglers;
use crate::table::horton::model::Census;
use crate::table::horton::phases::{Overflow, Phases};
use crate::table::horton::table::{HortonTable, TableConfig};

impl HortonTable {
    /// Returns a table without items.
    pub(super) fn empty(queue: &mut Queue, layout: Layout, config: TableConfig) -> Result<Self> {
        let words = empty_words::<Self>(queue, layout)?;
        Ok(Self {
            config,
            ..Self::new(layout, words, Census::default())
        })
    }
}

/// The copy of a table into which new items go.
pub(super) struct Inserter<'a>(pub &'a ItemsOf<'a>);

impl Inserter<'_> {
    fn phases<'b>(&'b self, counters: &'b Buffer<u32>) -> Phases<'b> {
        Phases {
            program: self.0.program,
            layout: self.0.layout,
            wide: true,
            words: self.0.words,
            counters,
        }
    }

    /// Inserts what was not there; returns the keys that found no slot.
    pub fn insert(&self, queue: &mut Queue, stored: &Stored) -> Result<Vec<u32>> {
        let counters = queue.buffer_from("insert counters", &[0; COUNTERS])?;
        let mut displaced = false;
        if !stored.keys.is_empty() {
            let (overflow, mut stragglers) = self.merge(queue, stored, &counters)?;
            let counts = queue.read(&counters, COUNTERS)?;
            if counts[Counter::Crowded as usize] > 0 {
                return queue.read(&stored.keys, stored.keys.len());
            }
            let phases = self.phases(&counters);
            let overflowing = counts[Counter::Overflowing as usize] as usize;
            phases.place(queue, &overflow, overflowing, &mut stragglers)?;
            displaced = stragglers.count > 0;
            let left = phases.displace(queue, stragglers, &overflow.fill)?;
            if left.count > 0 {
                let words = queue.read(&left.words, left.count.min(left.capacity))?;
                return Ok(words.into_iter().map(key_of).collect());
            }
        }
        // Guests that left, and items that were taken out, may have left idle entries.
        if displaced || stored.cleared > 0 {
            sweep(queue, self.0.program, &self.0.layout, self.0.words, true)?;
        }
        Ok(Vec::new())
    }

    /// Splits the new items by range and merges each range's with what is there.
    fn merge(
        &self,
        queue: &mut Queue,
        stored: &Stored,
        counters: &Buffer<u32>,
    ) -> Result<(Overflow, Stragglers)> {
        let (n, buckets) = (stored.keys.len(), self.0.layout.buckets as usize);
        let shape = shape(&self.0.layout, n);
        let items = Items {
            keys: &stored.keys,
            values: Some(&stored.values),
        };
        let spare = queue.allocate("coarse bins", shape.spare_words())?;
        let split = Split::new(queue, self.0.program, shape, items, (&spare, counters))?;
        split.finish(queue, 0..split.bins())?;
        // A bucket that turns Type B has one item more that overflows.
        let overflowing = n.min(buckets);
        let overflow = Overflow::with_room(queue, buckets, n + overflowing, overflowing)?;
        let stragglers = Stragglers::new(queue, 2 * n + 1024)?;
        let args = [
            Arg::Longs(self.0.words),
            Arg::Words(&overflow.fill),
            Arg::Longs(&split.ranges.items),
            Arg::Words(&split.ranges.counts),
            Arg::Longs(&overflow.items),
            Arg::Words(&overflow.buckets),
            Arg::Longs(&stragglers.words),
            Arg::Words(counters),
            Arg::U32(shape.capacity as u32),
            Arg::U32(stragglers.capacity as u32),
            Arg::U32(self.0.layout.buckets),
            Arg::U32(self.0.layout.seed),
        ];
        let group = local_group(queue);
        let grid = (shape.ranges() * group, group);
        queue.launch(self.0.program, "merge_range", grid, &args)?;
        Ok((overflow, stragglers))
    }
}
