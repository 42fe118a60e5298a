//! The cuckoo table as a [`Table`].

use std::sync::Arc;

use crate::device::{Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::horton::Census;
use crate::table::horton::layout::{EMPTY_WORD, Layout};
use crate::table::horton::lookup::Out;
use crate::table::horton::phases::census;
use crate::table::insert::{self, Buckets, Full, Growth, Insertion};
use crate::table::items::{ItemsOf, check_keys};
use crate::table::{Answers, Items, Statistics, Table};

use super::place::{Placing, program};
use super::{CuckooConfig, CuckooTable};

/// Any 32-bit keys to any 32-bit values.
///
/// ```
/// use horton_join::device::Device;
/// use horton_join::table::cuckoo::{CuckooConfig, CuckooTable, Placement};
/// use horton_join::table::{Answers, Items, Table};
///
/// # fn main() -> horton_join::error::Result<()> {
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

    /// As [`Table::build`]; of a key that is there more than once, the last value counts.
    fn build(queue: &mut Queue, config: &CuckooConfig, items: Items<'_>) -> Result<Self> {
        let layout = config.layout(items.count()?)?;
        let mut table = Self::empty(queue, layout, *config)?;
        table.insert(queue, items)?;
        Ok(table)
    }

    /// As [`Table::insert`]; of a key that is there more than once, the last value counts.
    fn insert(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<usize> {
        insert::insert(self, queue, items)
    }

    fn lookup(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        answers: &Answers,
        n: usize,
    ) -> Result<()> {
        let reads = queue.buffer_from("bucket reads", &[0])?;
        let out = Out::wide(answers, self.twin, &reads);
        self.as_lookup(true).run(queue, keys, &out, n)
    }

    fn remove(&mut self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<usize> {
        check_keys(keys, n)?;
        if n == 0 || self.is_empty() {
            return Ok(0);
        }
        let before = self.len();
        if Arc::get_mut(&mut self.words).is_none() {
            self.words = Arc::new(self.copy_of_words(queue)?);
        }
        let program = program(queue, self.variant(true), self.config.placement);
        let items = ItemsOf {
            program: &program,
            layout: self.layout,
            words: &self.words,
        };
        let erased = items.erase(queue, keys, n)?;
        self.twin &= !erased.twin_key;
        self.census = census(queue, &program, &self.layout, &self.words)?;
        Ok(before - self.len())
    }

    fn len(&self) -> usize {
        self.census.items as usize + usize::from(self.twin)
    }

    fn capacity(&self) -> usize {
        self.layout.words()
    }

    fn statistics(&self, _queue: &mut Queue) -> Result<Statistics> {
        let second = f64::from(self.census.secondary);
        Ok(Statistics {
            items: self.len(),
            capacity: self.capacity(),
            bytes: self.bytes(),
            reads_per_hit: match self.len() {
                0 => 0.0,
                items => 1.0 + second / items as f64,
            },
        })
    }

    fn items(&self, queue: &mut Queue) -> Result<Vec<(u32, u32)>> {
        insert::items(self, queue)
    }
}

impl CuckooTable {
    fn empty(queue: &mut Queue, layout: Layout, config: CuckooConfig) -> Result<Self> {
        let words = queue.allocate_table("a cuckoo table", layout.words())?;
        queue.fill(&words, EMPTY_WORD)?;
        Ok(Self {
            layout,
            words: Arc::new(words),
            census: Census::default(),
            config,
            wide: false,
            twin: false,
        })
    }

    fn copy_of_words(&self, queue: &mut Queue) -> Result<Buffer<u64>> {
        let words = queue.allocate_table("a cuckoo table", self.words.len())?;
        queue.copy(&self.words, &words)?;
        Ok(words)
    }
}

impl Buckets for CuckooTable {
    fn layout(&self) -> Layout {
        self.layout
    }

    fn growth(&self) -> Growth {
        Growth {
            when_full: self.config.when_full,
            load_factor: self.config.load_factor,
        }
    }

    fn has_twin(&self) -> bool {
        self.twin
    }

    fn empty_like(&self, queue: &mut Queue, layout: Layout) -> Result<Self> {
        Ok(Self {
            twin: self.twin,
            ..Self::empty(queue, layout, self.config)?
        })
    }

    /// Works on a copy, so that keys without a slot leave the table as it was.
    fn insert_distinct(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<Insertion> {
        let program = program(queue, self.variant(true), self.config.placement);
        let words = self.copy_of_words(queue)?;
        let placing = Placing {
            program: &program,
            layout: self.layout,
            words: &words,
        };
        let stored = ItemsOf {
            program: &program,
            layout: self.layout,
            words: &words,
        }
        .store(queue, items)?;
        let wanted = self.census.items as usize - stored.cleared + stored.keys.len();
        let too_many = wanted.saturating_sub(self.capacity());
        let left = match too_many {
            0 => placing.insert(queue, &stored)?,
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
                "an insert left {} of {wanted} items in a cuckoo table; please report this",
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

    fn extract(&self, queue: &mut Queue) -> Result<(Buffer<u32>, Buffer<u32>)> {
        let program = program(queue, self.variant(true), self.config.placement);
        let items = ItemsOf {
            program: &program,
            layout: self.layout,
            words: &self.words,
        };
        items.extract(queue, self.census.items as usize)
    }
}
