//! The Horton table as a [`Table`].

use std::sync::Arc;

use crate::device::program::ProgramText;
use crate::device::{Buffer, Queue};
use crate::error::Result;
use crate::table::api::{Answers, Items, Statistics, Table};
use crate::table::horton::kernels;
use crate::table::primitives::bucket::Layout;

use crate::table::baselines::updates::insert::Inserter;
use crate::table::baselines::updates::insert_common::{self, Buckets, Growth};
use crate::table::baselines::updates::items::{ItemsOf, Stored};
use crate::table::horton::build::{self, Built};
use crate::table::horton::lookup::Out;
use crate::table::horton::model::Census;
use crate::table::horton::table::{HortonTable, TableConfig};

/// Any 32-bit keys to any 32-bit values.
///
/// ```
/// use horton_tables::device::Device;
/// use horton_tables::table::horton::{HortonTable, TableConfig};
/// use horton_tables::table::{Answers, Items, Table};
///
/// # fn main() -> horton_tables::Result<()> {
/// let found = Device::open("auto")?.run_blocking(|queue| {
///     let keys = queue.buffer_from("keys", &[7, 3, 9])?;
///     let values = queue.buffer_from("values", &[70, u32::MAX, 90])?;
///     let items = Items { keys: &keys, values: Some(&values) };
///     let mut table = HortonTable::build(queue, &TableConfig::default(), items)?;
///
///     let keys = queue.buffer_from("keys", &[9, 5])?;
///     let new = table.insert(queue, Items { keys: &keys, values: None })?; // 9 ─▶ 0, 5 ─▶ 1
///     assert_eq!((new, table.len()), (1, 4));
///     let gone = queue.buffer_from("keys", &[7, 8])?;
///     assert_eq!(table.remove(queue, &gone, 2)?, 1);
///
///     let asked = queue.buffer_from("keys", &[3, 5, 7, 9])?;
///     let answers = Answers::with_room(queue, 4)?;
///     Table::lookup(&table, queue, &asked, &answers, 4)?;
///     answers.read(queue, 4)
/// })?;
/// assert_eq!(found.value, [Some(u32::MAX), Some(1), None, Some(0)]);
/// # Ok(())
/// # }
/// ```
impl Table for HortonTable {
    type Config = TableConfig;

    /// Builds a table as [`Table::build`] does; of a key that is given more than once, the last
    /// value counts. Distinct keys to their positions are built as a join's table is, and
    /// [`Error::TableFull`](crate::error::Error::TableFull) says how many found no slot; other
    /// items are inserted into an empty table.
    fn build(queue: &mut Queue, config: &TableConfig, items: Items<'_>) -> Result<Self> {
        config.check()?;
        let n = items.count()?;
        if items.values.is_none()
            && let Built::Table(table) = build::build(queue, config, items)?
        {
            return Ok(Self {
                config: *config,
                ..table
            });
        }
        let layout = build::layout(config, n, 0)?;
        let mut table = Self::empty(queue, layout, *config)?;
        Table::insert(&mut table, queue, items)?;
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
        self.remove_keys(queue, keys, n)
    }

    fn len(&self) -> usize {
        self.len()
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

impl Buckets for HortonTable {
    const NAME: &'static str = "a Horton table";

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
        kernels::update_program(queue, self.layout.variant(true))
    }

    fn place(queue: &mut Queue, slots: &ItemsOf<'_>, stored: &Stored) -> Result<Vec<u32>> {
        Inserter(slots).insert(queue, stored)
    }

    fn take_over(&mut self, words: Buffer<u64>, census: Census, stored: &Stored) {
        self.words = Arc::new(words);
        self.census = census;
        self.sentinel = stored.sentinel || (self.sentinel && !stored.sentinel_key);
        self.wide |= stored.wide;
    }
}
