//! A table beside a `HashMap`: every operation is done to both, then all answers are compared.

use std::collections::HashMap;

use horton_tables::device::{Device, Queue};
use horton_tables::error::Result;
use horton_tables::table::horton::BucketSize;
use horton_tables::table::primitives::hash::Reduction;
use horton_tables::table::{Answers, Items, Table, WhenFull};
pub use horton_tables_test_support::env::{number, small};
use horton_tables_test_support::tables::run;
pub use horton_tables_test_support::tables::{bodies, distinct_keys};

/// Settings of a table of any kind.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub bucket_size: BucketSize,
    pub load_factor: f64,
    pub min_capacity: usize,
    pub when_full: WhenFull,
    pub reduction: Reduction,
    pub seed: u32,
    /// A choice that only some kinds have.
    pub lazy: bool,
}

impl Shape {
    pub fn new(bucket_size: BucketSize, min_capacity: usize) -> Self {
        Self {
            bucket_size,
            load_factor: 0.8,
            min_capacity,
            when_full: WhenFull::Grow,
            reduction: Reduction::MultiplyHigh,
            seed: 7,
            lazy: false,
        }
    }
}

/// A kind of table with a model that knows its invariants.
pub trait Checked: Table {
    /// The largest value.
    const MAX_VALUE: u32 = u32::MAX;
    /// True if the last value counts of a key that a batch has more than once; any counts
    /// otherwise.
    const LAST_COUNTS: bool = false;
    /// Slots that no test under oclgrind has the time to fill.
    const ROOMY: bool = false;

    fn config(shape: Shape) -> Self::Config;
    /// Every invariant, on the words brought back; and what the model finds for each key.
    fn check(&self, queue: &mut Queue, keys: &[u32]) -> Result<Vec<Option<u32>>>;
    /// A table of this one's shape, built on the host of items whose values are at most 2^31 - 2.
    fn on_host(&self, queue: &mut Queue, items: &[(u32, u32)]) -> Result<Self>;

    /// A value, made one that can be stored.
    fn value(value: u32) -> u32 {
        value.min(Self::MAX_VALUE)
    }
}

pub fn device() -> Device {
    // RUST_LOG=horton_tables=trace says what each round of displacement left.
    drop(env_logger::try_init());
    horton_tables_test_support::env::device()
}

/// `large` items, or few under oclgrind.
pub fn scaled(large: usize) -> usize {
    horton_tables_test_support::env::scaled(large, 600)
}

/// Runs a job whose kernels must have run.
pub fn on_device<T: Send + 'static>(
    job: impl FnOnce(&mut Queue) -> Result<T> + Send + 'static,
) -> T {
    run(&device(), job).value
}

/// A table and what must be in it.
pub struct Beside<T> {
    pub table: T,
    pub expected: HashMap<u32, u32>,
}

impl<T: Checked> Beside<T> {
    pub fn build(queue: &mut Queue, shape: Shape, items: &[(u32, u32)]) -> Result<Self> {
        let table = with_items(queue, items, |queue, items| {
            T::build(queue, &T::config(shape), items)
        })?;
        let mut beside = Self {
            table,
            expected: items.iter().copied().collect(),
        };
        if !T::LAST_COUNTS {
            beside.accept_any(queue, items)?;
        }
        Ok(beside)
    }

    pub fn insert(&mut self, queue: &mut Queue, items: &[(u32, u32)]) -> Result<()> {
        let before = self.expected.len();
        let table = &mut self.table;
        let new = with_items(queue, items, |queue, items| table.insert(queue, items))?;
        self.expected.extend(items.iter().copied());
        assert_eq!(new, self.expected.len() - before, "new keys");
        match T::LAST_COUNTS {
            true => Ok(()),
            false => self.accept_any(queue, items),
        }
    }

    /// Takes over which of a repeated key's values the table has, if it is one of them.
    fn accept_any(&mut self, queue: &mut Queue, items: &[(u32, u32)]) -> Result<()> {
        let mut values: HashMap<u32, Vec<u32>> = HashMap::new();
        for (key, value) in items {
            values.entry(*key).or_default().push(*value);
        }
        values.retain(|_, values| values.len() > 1);
        let keys: Vec<u32> = values.keys().copied().collect();
        for (key, value) in keys.iter().zip(look_up(queue, &self.table, &keys)?) {
            let value = value.expect("a key that was inserted");
            assert!(values[key].contains(&value), "{value} of key {key}");
            self.expected.insert(*key, value);
        }
        Ok(())
    }

    pub fn remove(&mut self, queue: &mut Queue, keys: &[u32]) -> Result<()> {
        let buffer = queue.buffer_from("keys", keys)?;
        let gone = self.table.remove(queue, &buffer, keys.len())?;
        let there = keys.iter().filter(|k| self.expected.remove(k).is_some());
        assert_eq!(gone, there.count(), "removed keys");
        Ok(())
    }

    /// Everything that can be asked, in the table and in its model; `others` are asked for, too.
    pub fn compare(&self, queue: &mut Queue, others: &[u32]) -> Result<()> {
        assert_eq!(self.table.len(), self.expected.len(), "items");
        let statistics = self.table.statistics(queue)?;
        assert_eq!(statistics.items, self.expected.len());
        assert!(self.table.load_factor() <= 1.0);

        let mut keys: Vec<u32> = self.expected.keys().copied().collect();
        keys.extend(others);
        keys.extend([0, 1, u32::MAX, u32::MAX - 1]);
        let expected: Vec<Option<u32>> =
            keys.iter().map(|k| self.expected.get(k).copied()).collect();
        assert_eq!(look_up(queue, &self.table, &keys)?, expected, "looked up");
        assert_eq!(self.table.check(queue, &keys)?, expected, "in the model");

        let mut items = self.table.items(queue)?;
        items.sort_unstable();
        let mut wanted: Vec<(u32, u32)> = self.expected.iter().map(|(k, v)| (*k, *v)).collect();
        wanted.sort_unstable();
        assert_eq!(items, wanted, "all items");
        Ok(())
    }
}

pub fn with_items<R>(
    queue: &mut Queue,
    items: &[(u32, u32)],
    f: impl FnOnce(&mut Queue, Items<'_>) -> Result<R>,
) -> Result<R> {
    let (keys, values): (Vec<u32>, Vec<u32>) = items.iter().copied().unzip();
    let (keys, values) = (
        queue.buffer_from("keys", &keys)?,
        queue.buffer_from("values", &values)?,
    );
    let items = Items {
        keys: &keys,
        values: Some(&values),
    };
    f(queue, items)
}

pub fn look_up<T: Table>(queue: &mut Queue, table: &T, keys: &[u32]) -> Result<Vec<Option<u32>>> {
    let n = keys.len();
    let keys = queue.buffer_from("keys", keys)?;
    let answers = Answers::with_room(queue, n)?;
    // Poisoned, so that an answer nobody wrote shows.
    queue.fill(&answers.values, 0xdead_beef)?;
    queue.fill(&answers.found, 1)?;
    table.lookup(queue, &keys, &answers, n)?;
    answers.read(queue, n)
}
