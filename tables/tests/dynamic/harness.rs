//! Devices, keys, and the tables that do mixed batches behind one face.

use std::collections::HashSet;

use horton_tables::device::{Device, Queue};
use horton_tables::error::Result;
use horton_tables::table::baselines::batch::{Batch, Kind};
use horton_tables::table::baselines::linear::{Deletion, Inserted, LinearConfig, LinearTable};
use horton_tables::table::baselines::slab::{Entries, PoolLayout, SlabConfig, SlabHash};
use horton_tables::table::{Items, Table as _};
pub use horton_tables_test_support::env::{device, small};
pub use horton_tables_test_support::tables::{bodies, distinct_keys};

/// `large`, or little under oclgrind.
pub fn scaled(large: usize) -> usize {
    horton_tables_test_support::env::scaled(large, 200)
}

/// Runs a job and checks that the device took part.
pub fn run<T: Send + 'static>(
    device: &Device,
    job: impl FnOnce(&mut Queue) -> Result<T> + Send + 'static,
) -> T {
    horton_tables_test_support::tables::run(device, job).value
}

/// One operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Op {
    pub kind: Kind,
    pub key: u32,
    pub value: u32,
}

/// The kinds of tables under test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Family {
    Linear(Deletion),
    /// A slab hash with SlabAlloc-light, or SlabAlloc.
    Slab {
        light: bool,
    },
    /// A slab hash of keys alone, with SlabAlloc-light.
    Keys,
}

impl Family {
    pub const ALL: [Family; 5] = [
        Family::Linear(Deletion::KeepsKey),
        Family::Linear(Deletion::LeavesTombstone),
        Family::Slab { light: true },
        Family::Slab { light: false },
        Family::Keys,
    ];

    /// Returns what is stored for a key that is given with a value.
    pub fn stored(self, key: u32, value: u32) -> u32 {
        match self {
            Family::Keys => key,
            _ => value,
        }
    }

    /// Returns whether `Insert` replaces the value of a key that is there.
    pub fn insert_replaces(self) -> bool {
        !matches!(self, Family::Slab { .. } | Family::Keys)
    }

    /// A table with room for `items` items.
    pub fn create(self, queue: &mut Queue, items: usize) -> Result<Table> {
        match self {
            Family::Linear(deletion) => {
                let config = LinearConfig {
                    deletion,
                    ..LinearConfig::default()
                };
                LinearTable::with_capacity(queue, &config, 2 * items).map(Table::Linear)
            }
            Family::Slab { light } => {
                SlabHash::with_room(queue, &slab_config(light), items).map(Table::Slab)
            }
            Family::Keys => {
                let config = SlabConfig {
                    entries: Entries::Keys,
                    ..slab_config(true)
                };
                SlabHash::with_room(queue, &config, items).map(Table::Slab)
            }
        }
    }
}

/// Lists of two slabs in the mean, so that most operations see more than the base slab.
pub fn slab_config(light: bool) -> SlabConfig {
    SlabConfig {
        slabs_per_bucket: 2.0,
        pool: PoolLayout {
            light,
            super_blocks: if light && !small() { 8 } else { 1 },
            blocks: if small() { 1 } else { 2 },
        },
        ..SlabConfig::default()
    }
}

/// A table under test.
pub enum Table {
    Linear(LinearTable),
    Slab(SlabHash),
}

impl Table {
    /// Does all operations, in one launch if the table can; their answers.
    pub fn apply(&mut self, queue: &mut Queue, ops: &[Op]) -> Result<Vec<u32>> {
        let column = |of: fn(&Op) -> u32| ops.iter().map(of).collect::<Vec<u32>>();
        let kinds = queue.buffer_from("kinds", &column(|op| op.kind as u32))?;
        let keys = queue.buffer_from("keys", &column(|op| op.key))?;
        let values = queue.buffer_from("values", &column(|op| op.value))?;
        // Poisoned, so that an answer nobody gave shows.
        let answers = queue.buffer_from("answers", &vec![0xdead_beef; ops.len()])?;
        let batch = Batch {
            kinds: &kinds,
            keys: &keys,
            values: &values,
        };
        match self {
            Table::Linear(table) => table.apply(queue, batch, &answers)?,
            Table::Slab(table) => table.apply(queue, batch, &answers)?,
        }
        queue.read(&answers, ops.len())
    }

    pub fn len(&self) -> usize {
        match self {
            Table::Linear(table) => table.len(),
            Table::Slab(table) => table.len(),
        }
    }

    pub fn items(&self, queue: &mut Queue) -> Result<Vec<(u32, u32)>> {
        match self {
            Table::Linear(table) => table.items(queue),
            Table::Slab(table) => table.items(queue),
        }
    }

    /// Checks the words; what the host finds for `keys` in them.
    pub fn check(&self, queue: &mut Queue, keys: &[u32]) -> Result<Vec<Option<u32>>> {
        match self {
            Table::Linear(table) => {
                let model = table.to_model(queue)?;
                model.check().unwrap();
                assert_eq!(model.pairs().len(), table.len());
                assert_eq!(model.probe_lengths(), table.probe_lengths(queue)?);
                Ok(keys.iter().map(|key| model.lookup(*key)).collect())
            }
            Table::Slab(table) => {
                let model = table.to_model(queue)?;
                model.check().unwrap();
                let pairs = model.pairs();
                let keys_of = pairs.iter().map(|(key, _)| *key);
                assert_eq!(keys_of.collect::<HashSet<_>>().len(), pairs.len());
                assert_eq!(pairs.len(), table.len());
                assert_eq!(model.census(), table.census(queue)?);
                Ok(keys.iter().map(|key| model.search(*key)).collect())
            }
        }
    }
}

/// [`LinearTable::put`] for pairs in host memory.
pub fn put(
    queue: &mut Queue,
    table: &mut LinearTable,
    keys: &[u32],
    values: &[u32],
) -> Result<Inserted> {
    let keys = queue.buffer_from("keys", keys)?;
    let values = queue.buffer_from("values", values)?;
    let items = Items {
        keys: &keys,
        values: Some(&values),
    };
    table.put(queue, items)
}

/// [`SlabHash::replace`] for pairs in host memory.
pub fn replace(
    queue: &mut Queue,
    table: &mut SlabHash,
    keys: &[u32],
    values: &[u32],
) -> Result<usize> {
    let keys = queue.buffer_from("keys", keys)?;
    let values = queue.buffer_from("values", values)?;
    let items = Items {
        keys: &keys,
        values: Some(&values),
    };
    table.replace(queue, items)
}
