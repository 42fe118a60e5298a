//! Devices, keys, and the tables under test behind one face.

use std::collections::HashSet;

use horton_join::device::{Answer, Buffer, Device, KernelBody, Queue};
use horton_join::error::Result;
use horton_join::table::Items;
use horton_join::table::batch::{Batch, Kind};
use horton_join::table::cuckoo::{CuckooConfig, CuckooModel, CuckooTable, Placement};
use horton_join::table::hash::jenkins;
use horton_join::table::horton::{self, HortonModel, HortonTable, TableConfig};
use horton_join::table::linear::{Deletion, LinearConfig, LinearTable, MAX_VALUE, MISS};
use horton_join::table::slab::{Entries, PoolLayout, SlabConfig, SlabHash, SlabModel};
use rand_mt::Mt;

pub fn device() -> Device {
    let asked = std::env::var("HORTON_TEST_DEVICE").unwrap_or_else(|_| "auto".to_owned());
    Device::open(&asked).unwrap()
}

pub fn small() -> bool {
    std::env::var_os("HORTON_TEST_SMALL").is_some()
}

/// `large`, or little under oclgrind.
pub fn scaled(large: usize) -> usize {
    if small() { large.min(200) } else { large }
}

/// Kernel bodies that run on the device under test.
pub fn bodies(device: &Device) -> Vec<KernelBody> {
    let all = KernelBody::ALL.into_iter();
    all.filter(|body| device.info().supports(*body)).collect()
}

pub fn distinct_keys(seed: u32, n: usize) -> Vec<u32> {
    let mut random = Mt::new(seed);
    let mut seen = HashSet::with_capacity(n);
    while seen.len() < n {
        seen.insert(random.next_u32());
    }
    let mut keys: Vec<u32> = seen.into_iter().collect();
    keys.sort_unstable_by_key(|k| jenkins(k ^ seed));
    keys
}

/// Runs a job and checks that the device took part.
pub fn run<T: Send + 'static>(
    device: &Device,
    job: impl FnOnce(&mut Queue) -> Result<T> + Send + 'static,
) -> T {
    let Answer { value, cost } = device.run_blocking(job).unwrap();
    assert!(cost.launches > 0, "no kernel was launched");
    value
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
    /// With SlabAlloc-light, or SlabAlloc.
    Slab {
        light: bool,
    },
    /// A slab hash of keys alone, with SlabAlloc-light.
    Keys,
    Horton,
    Cuckoo,
}

impl Family {
    pub const ALL: [Family; 6] = [
        Family::Linear(Deletion::KeepsKey),
        Family::Linear(Deletion::LeavesTombstone),
        Family::Slab { light: true },
        Family::Slab { light: false },
        Family::Horton,
        Family::Cuckoo,
    ];

    /// Those, and the one whose values are its keys.
    pub fn all_and_keys() -> impl Iterator<Item = Family> {
        Self::ALL.into_iter().chain([Family::Keys])
    }

    /// What is stored for a key that is given with a value.
    pub fn stored(self, key: u32, value: u32) -> u32 {
        match self {
            Family::Keys => key,
            _ => value,
        }
    }

    /// Whether operations of several kinds run in one launch, on one key too; else they run in phases.
    pub fn is_concurrent(self) -> bool {
        !matches!(self, Family::Horton | Family::Cuckoo)
    }

    /// The largest value of a table built on the host: models of tables of buckets are those of joins.
    pub fn max_model_value(self) -> u32 {
        match self.is_concurrent() {
            true => MAX_VALUE,
            false => horton::MAX_VALUE,
        }
    }

    /// The largest value.
    pub fn max_value(self) -> u32 {
        match self.is_concurrent() {
            true => MAX_VALUE,
            false => u32::MAX,
        }
    }

    /// Whether `Insert` replaces the value of a key that is there.
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
            Family::Horton => {
                let config = TableConfig {
                    min_capacity: 2 * items,
                    ..TableConfig::default()
                };
                let none = queue.buffer_from("no keys", &[])?;
                buckets::build(queue, &config, items_of(&none)).map(Table::Horton)
            }
            Family::Cuckoo => {
                let config = CuckooConfig {
                    min_capacity: 2 * items,
                    ..CuckooConfig::default()
                };
                let none = queue.buffer_from("no keys", &[])?;
                buckets::build(queue, &config, items_of(&none)).map(Table::Cuckoo)
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
    Horton(HortonTable),
    Cuckoo(CuckooTable),
}

/// Keys whose values are their positions.
fn items_of(keys: &Buffer<u32>) -> Items<'_> {
    Items { keys, values: None }
}

/// What tables of buckets do through the trait of all of them.
mod buckets {
    use horton_join::table::{Answers, Table};

    use super::*;

    pub fn build<T: Table>(queue: &mut Queue, config: &T::Config, items: Items<'_>) -> Result<T> {
        T::build(queue, config, items)
    }

    pub fn insert<T: Table>(
        table: &mut T,
        queue: &mut Queue,
        (keys, values): (&[u32], &[u32]),
    ) -> Result<usize> {
        let keys = queue.buffer_from("keys", keys)?;
        let values = queue.buffer_from("values", values)?;
        let items = Items {
            keys: &keys,
            values: Some(&values),
        };
        table.insert(queue, items)
    }

    pub fn get<T: Table>(table: &T, queue: &mut Queue, keys: &[u32]) -> Result<Vec<Option<u32>>> {
        let answers = Answers::with_room(queue, keys.len())?;
        let on_device = queue.buffer_from("keys", keys)?;
        table.lookup(queue, &on_device, &answers, keys.len())?;
        answers.read(queue, keys.len())
    }

    pub fn remove<T: Table>(table: &mut T, queue: &mut Queue, keys: &[u32]) -> Result<usize> {
        let on_device = queue.buffer_from("keys", keys)?;
        table.remove(queue, &on_device, keys.len())
    }

    /// A batch whose keys are distinct, in phases: lookups, which answer all operations, then insertions, then
    /// removals.
    pub fn apply<T: Table>(table: &mut T, queue: &mut Queue, ops: &[Op]) -> Result<Vec<u32>> {
        let all: Vec<u32> = ops.iter().map(|op| op.key).collect();
        let distinct: HashSet<u32> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len(), "a key twice in phases");
        let before = get(table, queue, &all)?;
        let stored = ops
            .iter()
            .filter(|op| matches!(op.kind, Kind::Insert | Kind::Replace));
        let (keys, values): (Vec<u32>, Vec<u32>) = stored.map(|op| (op.key, op.value)).unzip();
        insert(table, queue, (&keys, &values))?;
        let removed = ops.iter().filter(|op| op.kind == Kind::Delete);
        let removed: Vec<u32> = removed.map(|op| op.key).collect();
        remove(table, queue, &removed)?;
        Ok(before
            .into_iter()
            .map(|value| value.unwrap_or(MISS))
            .collect())
    }
}

impl Table {
    /// Does all operations, in one launch if the table can; their answers.
    pub fn apply(&mut self, queue: &mut Queue, ops: &[Op]) -> Result<Vec<u32>> {
        match self {
            Table::Horton(table) => return buckets::apply(table, queue, ops),
            Table::Cuckoo(table) => return buckets::apply(table, queue, ops),
            Table::Linear(_) | Table::Slab(_) => {}
        }
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
            Table::Horton(_) | Table::Cuckoo(_) => {}
        }
        queue.read(&answers, ops.len())
    }

    pub fn insert(&mut self, queue: &mut Queue, keys: &[u32], values: &[u32]) -> Result<usize> {
        match self {
            Table::Linear(table) => Ok(table.insert_pairs(queue, keys, values)?.new),
            Table::Slab(table) => table.replace_pairs(queue, keys, values),
            Table::Horton(table) => buckets::insert(table, queue, (keys, values)),
            Table::Cuckoo(table) => buckets::insert(table, queue, (keys, values)),
        }
    }

    pub fn get_many(&self, queue: &mut Queue, keys: &[u32]) -> Result<Vec<Option<u32>>> {
        match self {
            Table::Linear(table) => table.get_many(queue, keys),
            Table::Slab(table) => table.get_many(queue, keys),
            Table::Horton(table) => buckets::get(table, queue, keys),
            Table::Cuckoo(table) => buckets::get(table, queue, keys),
        }
    }

    pub fn remove_many(&mut self, queue: &mut Queue, keys: &[u32]) -> Result<usize> {
        match self {
            Table::Linear(table) => table.remove_many(queue, keys),
            Table::Slab(table) => table.remove_many(queue, keys),
            Table::Horton(table) => buckets::remove(table, queue, keys),
            Table::Cuckoo(table) => buckets::remove(table, queue, keys),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Table::Linear(table) => table.len(),
            Table::Slab(table) => table.len(),
            Table::Horton(table) => table.len(),
            Table::Cuckoo(table) => horton_join::table::Table::len(table),
        }
    }

    pub fn download(&self, queue: &mut Queue) -> Result<Vec<(u32, u32)>> {
        match self {
            Table::Linear(table) => table.download(queue),
            Table::Slab(table) => table.download(queue),
            Table::Horton(table) => horton_join::table::Table::items(table, queue),
            Table::Cuckoo(table) => horton_join::table::Table::items(table, queue),
        }
    }

    /// Checks the words; what the host finds for `keys` in them.
    pub fn check(&self, queue: &mut Queue, keys: &[u32]) -> Result<Vec<Option<u32>>> {
        match self {
            Table::Linear(table) => {
                let model = table.to_model(queue)?;
                model.check().unwrap();
                assert_eq!(model.pairs().len(), table.len());
                assert_eq!(model.statistics(), table.statistics(queue)?);
                Ok(keys.iter().map(|key| model.lookup(*key)).collect())
            }
            Table::Slab(table) => {
                let model = table.to_model(queue)?;
                model.check().unwrap();
                let pairs = model.pairs();
                let keys_of = pairs.iter().map(|(key, _)| *key);
                assert_eq!(keys_of.collect::<HashSet<_>>().len(), pairs.len());
                assert_eq!(pairs.len(), table.len());
                assert_eq!(model.census(), table.statistics(queue)?);
                Ok(keys.iter().map(|key| model.search(*key)).collect())
            }
            Table::Horton(table) => {
                let model = table.download(queue)?;
                model.check().unwrap();
                assert_eq!(model.census(), table.census());
                Ok(keys.iter().map(|key| model.lookup(*key)).collect())
            }
            Table::Cuckoo(table) => {
                let model = table.download(queue)?;
                model.check().unwrap();
                assert_eq!(model.census(), table.census());
                Ok(keys.iter().map(|key| model.lookup(*key)).collect())
            }
        }
    }

    /// The same table, built anew on the host and sent to the device.
    pub fn rebuilt_on_host(&self, queue: &mut Queue, pairs: &[(u32, u32)]) -> Result<Self> {
        match self {
            Table::Linear(table) => {
                let mut model = table.to_model(queue)?;
                model.words.fill(u64::MAX);
                for (key, value) in pairs {
                    model.insert(*key, *value).unwrap();
                }
                LinearTable::from_model(queue, &model).map(Table::Linear)
            }
            Table::Slab(table) => {
                let old = table.to_model(queue)?;
                let mut model = SlabModel::empty(old.layout, old.pool_layout);
                for (key, value) in pairs {
                    model.replace(*key, *value).unwrap();
                }
                SlabHash::from_model(queue, &model).map(Table::Slab)
            }
            Table::Horton(table) => {
                let model = HortonModel::build(table.layout(), pairs).unwrap();
                HortonTable::upload(queue, &model).map(Table::Horton)
            }
            Table::Cuckoo(table) => {
                let model =
                    CuckooModel::build(table.layout(), Placement::LoadBalanced, pairs).unwrap();
                CuckooTable::upload(queue, &model, CuckooConfig::default()).map(Table::Cuckoo)
            }
        }
    }
}
