//! Bulk insert and update in a Horton table on the device; the driver of `cl/merge.cl`.
//!
//! ```text
//!  items ─store─▶ keys that are there: new values in place (items.rs)
//!          └ new ─split─▶ by range ─merge_range─▶ primary slots, overflow, guests put out
//!                         ─place, displace─▶ no stragglers (phases.rs)  ─sweep─▶ no idle entries
//! ```
//!
//! Horton paper, section 5.3, for a batch of distinct keys at once. It works on a copy of the table,
//! so that keys without a slot leave the table as it was, and so that clones of the handle keep what
//! they had. Cost: copying, reading and writing the table in order, and what a build costs for the new
//! items. Scratch memory: two tables, 40 bytes a new key and 5 a bucket.

use std::sync::Arc;

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::Items;
use crate::table::insert::{Full, Insertion};
use crate::table::items::{ItemsOf, Stored};
use crate::table::scan::local_group;
use crate::table::split::{COUNTERS, Counter, Split};

use super::build::shape;
use super::displace::Stragglers;
use super::layout::{EMPTY_WORD, Layout, key_of};
use super::model::Census;
use super::phases::{Overflow, Phases, census};
use super::remove::sweep;
use super::{HortonTable, TableConfig, kernels};

impl HortonTable {
    /// A table without items.
    pub(super) fn empty(queue: &mut Queue, layout: Layout, config: TableConfig) -> Result<Self> {
        let words = queue.allocate_table("a Horton table", layout.words())?;
        queue.fill(&words, EMPTY_WORD)?;
        Ok(Self {
            config,
            ..Self::new(layout, words, Census::default())
        })
    }

    /// Inserts or updates items with distinct keys.
    pub(super) fn insert_or_update(
        &mut self,
        queue: &mut Queue,
        items: Items<'_>,
    ) -> Result<Insertion> {
        let program = kernels::update_program(queue, self.layout.variant(true));
        let words = queue.allocate_table("a Horton table", self.words.len())?;
        queue.copy(&self.words, &words)?;
        let inserter = Inserter {
            program: &program,
            layout: self.layout,
            words: &words,
        };
        let stored = inserter.items().store(queue, items)?;
        let wanted = self.census.items as usize - stored.cleared + stored.keys.len();
        let too_many = wanted.saturating_sub(self.layout.words());
        let left = match too_many {
            0 => inserter.insert(queue, &stored)?,
            _ => Vec::new(),
        };
        if too_many > 0 || !left.is_empty() {
            return Ok(Insertion::Full(Full {
                fresh: stored.keys,
                count: too_many.max(left.len()),
                left,
                wanted,
            }));
        }
        let census = census(queue, &program, &self.layout, &words)?;
        if census.items as usize != wanted {
            return Err(Error::Invalid(format!(
                "an insert left {} of {wanted} items in a Horton table; please report this",
                census.items
            )));
        }
        let before = self.len();
        self.words = Arc::new(words);
        self.census = census;
        self.twin = stored.twin || (self.twin && !stored.twin_key);
        self.wide |= stored.wide;
        Ok(Insertion::Done(self.len() - before))
    }
}

/// The copy of a table into which new items go.
struct Inserter<'a> {
    program: &'a ProgramText,
    layout: Layout,
    words: &'a Buffer<u64>,
}

impl<'a> Inserter<'a> {
    fn items(&self) -> ItemsOf<'a> {
        ItemsOf {
            program: self.program,
            layout: self.layout,
            words: self.words,
        }
    }

    fn phases<'b>(&self, counters: &'b Buffer<u32>) -> Phases<'b>
    where
        'a: 'b,
    {
        Phases {
            program: self.program,
            layout: self.layout,
            words: self.words,
            counters,
        }
    }

    /// Inserts what was not there; returns the keys that found no slot.
    fn insert(&self, queue: &mut Queue, stored: &Stored) -> Result<Vec<u32>> {
        let counters = queue.buffer_from("insert counters", &[0; COUNTERS])?;
        let mut displaced = false;
        if !stored.keys.is_empty() {
            let (overflow, mut stragglers) = self.merge(queue, stored, &counters)?;
            let counts = queue.read(&counters, COUNTERS)?;
            if counts[Counter::Crowded as usize] > 0 {
                return queue.read(&stored.keys, stored.keys.len());
            }
            let phases = self.phases(&counters);
            let homes = counts[Counter::Homes as usize] as usize;
            phases.place(queue, &overflow, homes, &mut stragglers)?;
            displaced = stragglers.count > 0;
            let left = phases.displace(queue, stragglers, &overflow.fill)?;
            if left.count > 0 {
                let words = queue.read(&left.words, left.count.min(left.capacity))?;
                return Ok(words.into_iter().map(key_of).collect());
            }
        }
        // Guests that left, and items that were taken out, may have left idle entries.
        if displaced || stored.cleared > 0 {
            sweep(queue, self.program, &self.layout, self.words, true)?;
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
        let (n, buckets) = (stored.keys.len(), self.layout.buckets as usize);
        let shape = shape(&self.layout, n);
        let items = Items {
            keys: &stored.keys,
            values: Some(&stored.values),
        };
        let spare = queue.allocate("coarse bins", shape.spare_words())?;
        let split = Split::new(queue, self.program, shape, items, (&spare, counters))?;
        split.finish(queue, 0..split.bins())?;
        // A bucket that turns Type B has one item more that overflows.
        let homes = n.min(buckets);
        let overflow = Overflow::with_room(queue, buckets, n + homes, homes)?;
        let stragglers = Stragglers::new(queue, 2 * n + 1024)?;
        let args = [
            Arg::Longs(self.words),
            Arg::Words(&overflow.fill),
            Arg::Longs(&split.ranges.items),
            Arg::Words(&split.ranges.counts),
            Arg::Longs(&overflow.items),
            Arg::Words(&overflow.homes),
            Arg::Longs(&stragglers.words),
            Arg::Words(counters),
            Arg::U32(shape.capacity as u32),
            Arg::U32(stragglers.capacity as u32),
            Arg::U32(self.layout.buckets),
            Arg::U32(self.layout.seed),
        ];
        let group = local_group(queue);
        let grid = (shape.ranges() * group, group);
        queue.launch(self.program, "merge_range", grid, &args)?;
        Ok((overflow, stragglers))
    }
}
