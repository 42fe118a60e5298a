//! The cuckoo table as a [`Table`].

use std::sync::Arc;

use crate::device::program::ProgramText;
use crate::device::{Buffer, Queue};
use crate::error::Result;
use crate::table::api::{Answers, Items, Statistics, Table};
use crate::table::baselines::updates::insert_common::{
    self, Buckets, Growth, copy_of_words, empty_words,
};
use crate::table::baselines::updates::items::{ItemsOf, Stored, check_keys};
use crate::table::horton::lookup::Out;
use crate::table::horton::model::Census;
use crate::table::horton::phases::census;
use crate::table::primitives::bucket::Layout;

use super::config::CuckooConfig;
use super::place::{Placing, program};
use super::table::CuckooTable;

/// Any 32-bit keys to any 32-bit values.
///
/// ```
/// use horton_tables::device::Device;
/// use horton_tables::table::baselines::cuckoo::{CuckooConfig, CuckooTable, Placement};
/// use horton_tables::table::{Answers, Items, Table};
///
/// # fn main() -> horton_tables::Result<()> {
/// let found = Device::open("auto")?.run_blocking(|queue| {
///     let keys = queue.buffer_from("keys", &[7, 3, 9])?;
///     let config = CuckooConfig { placement: Placement::FirstFit, ..CuckooConfig::default() };
///     let items = Items { keys: &keys, values: None };
///     let mut table = CuckooTable::build(queue, &config, items)?; // key ─▶ position
///     let gone = queue.buffer_from("keys", &[3])?;
///     assert_eq!(table.remove(queue, &gone, 1)?, 1);
///
///     let asked = queue.buffer_from("keys", &[9, 3])?;
///     let answers = Answers::with_room(queue, 2)?;
///     Table::lookup(&table, queue, &asked, &answers, 2)?;
///     answers.read(queue, 2)
/// })?;
/// assert_eq!(found.value, [Some(2), None]);
/// # Ok(())
/// # }
/// ```
impl Table for CuckooTable {
    type Config = CuckooConfig;

    /// Builds a table as [`Table::build`] does; of a key that is given more than once, the last
    /// value counts.
    fn build(queue: &mut Queue, config: &CuckooConfig, items: Items<'_>) -> Result<Self> {
        let layout = config.layout(items.count()?)?;
        let mut table = Self::empty(queue, layout, *config)?;
        table.insert(queue, items)?;
        Ok(table)
    }

    /// Inserts as [`Table::insert`] does; of a key that is given more than once, the last value
    /// counts.
    fn insert(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<usize> {
        insert_common::insert(self, queue, items)
    }

    fn lookup(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        answers: &Answers,
        n: usize,
    ) -> Result<()> {
        let reads = queue.buffer_from("bucket reads", &[0])?;
        let out = Out::wide(answers, self.sentinel, &reads);
        self.as_lookup(true).run(queue, keys, &out, n)
    }

    fn remove(&mut self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<usize> {
        check_keys(keys, n)?;
        if n == 0 || self.is_empty() {
            return Ok(0);
        }
        let before = self.len();
        if Arc::get_mut(&mut self.words).is_none() {
            self.words = Arc::new(copy_of_words(self, queue)?);
        }
        let program = self.program(queue);
        let items = ItemsOf {
            program: &program,
            layout: self.layout,
            words: &self.words,
        };
        let erased = items.erase(queue, keys, n)?;
        self.sentinel &= !erased.sentinel_key;
        self.census = census(queue, &program, &self.layout, &self.words)?;
        Ok(before - self.len())
    }

    fn len(&self) -> usize {
        self.census.items as usize + usize::from(self.sentinel)
    }

    fn capacity(&self) -> usize {
        self.layout.words()
    }

    fn statistics(&self, _queue: &mut Queue) -> Result<Statistics> {
        Ok(insert_common::statistics(self))
    }

    fn items(&self, queue: &mut Queue) -> Result<Vec<(u32, u32)>> {
        insert_common::items(self, queue)
    }
}

impl CuckooTable {
    fn empty(queue: &mut Queue, layout: Layout, config: CuckooConfig) -> Result<Self> {
        let words = empty_words::<Self>(queue, layout)?;
        Ok(Self {
            layout,
            words: Arc::new(words),
            census: Census::default(),
            config,
            wide: false,
            sentinel: false,
        })
    }
}

impl Buckets for CuckooTable {
    const NAME: &'static str = "a cuckoo table";

    fn layout(&self) -> Layout {
        self.layout
    }

    fn growth(&self) -> Growth {
        Growth {
            when_full: self.config.when_full,
            load_factor: self.config.load_factor,
        }
    }

    fn census(&self) -> &Census {
        &self.census
    }

    fn words(&self) -> &Arc<Buffer<u64>> {
        &self.words
    }

    fn has_sentinel_item(&self) -> bool {
        self.sentinel
    }

    fn empty_like(&self, queue: &mut Queue, layout: Layout) -> Result<Self> {
        Ok(Self {
            sentinel: self.sentinel,
            ..Self::empty(queue, layout, self.config)?
        })
    }

    fn program(&self, queue: &Queue) -> ProgramText {
        program(queue, self.variant(true), self.config.placement)
    }

    fn place(queue: &mut Queue, slots: &ItemsOf<'_>, stored: &Stored) -> Result<Vec<u32>> {
        let placing = Placing {
            program: slots.program,
            layout: slots.layout,
            words: slots.words,
        };
        placing.insert(queue, stored)
    }

    fn take_over(&mut self, words: Buffer<u64>, census: Census, stored: &Stored) {
        self.words = Arc::new(words);
        self.census = census;
        self.sentinel = stored.sentinel || (self.sentinel && !stored.sentinel_key);
        self.wide |= stored.wide;
    }
}
