//! The Horton table.

use std::collections::HashSet;

use horton_tables::device::Queue;
use horton_tables::error::Result;
use horton_tables::table::Table;
use horton_tables::table::horton::{
    BucketSize, HortonModel, HortonTable, Layout, MAX_VALUE, TableConfig, Upkeep,
};
use horton_tables::table::primitives::bucket;

use super::harness::{Beside, Checked, Shape, distinct_keys, on_device, scaled, small};

impl Checked for HortonTable {
    const LAST_COUNTS: bool = true;

    fn config(shape: Shape) -> TableConfig {
        TableConfig {
            bucket_size: shape.bucket_size,
            load_factor: shape.load_factor,
            min_capacity: shape.min_capacity,
            when_full: shape.when_full,
            reduction: shape.reduction,
            seed: shape.seed,
            upkeep: match shape.lazy {
                true => Upkeep::Lazy,
                false => Upkeep::Eager,
            },
        }
    }

    fn check(&self, queue: &mut Queue, keys: &[u32]) -> Result<Vec<Option<u32>>> {
        let model = self.download(queue)?;
        model.check().unwrap();
        assert_eq!(model.census(), self.census());
        Ok(keys.iter().map(|k| model.lookup(*k)).collect())
    }

    fn on_host(&self, queue: &mut Queue, items: &[(u32, u32)]) -> Result<Self> {
        let model = HortonModel::build(self.layout(), items).unwrap();
        HortonTable::upload(queue, &model)
    }
}

/// Values of all 32 bits, many of them those with a meaning.
fn value(i: usize, key: u32) -> u32 {
    match i % 7 {
        0 => u32::MAX,
        1 => MAX_VALUE + 1,
        2 => MAX_VALUE,
        3 => 1 << 31,
        _ => key.rotate_left(9) ^ i as u32,
    }
}

fn items(keys: &[u32]) -> Vec<(u32, u32)> {
    let values = keys.iter().enumerate().map(|(i, k)| value(i, *k));
    keys.iter().copied().zip(values).collect()
}

#[test]
fn batches_fill_a_table_to_a_high_load() {
    for bucket_size in BucketSize::ALL {
        // Below the largest loads, which vary from keys to keys in a table as small as this.
        let load = match bucket_size {
            BucketSize::Four => 0.88,
            BucketSize::Eight => 0.94,
            BucketSize::Sixteen => 0.95,
        };
        on_device(move |queue| {
            let capacity = scaled(32_768);
            let keys = distinct_keys(21, (capacity as f64 * load) as usize);
            let shape = Shape::new(bucket_size, capacity);
            let mut beside = Beside::<HortonTable>::build(queue, shape, &[])?;
            for batch in items(&keys).chunks(capacity / 7 + 1) {
                beside.insert(queue, batch)?;
                beside.compare(queue, &[])?;
            }
            if scaled(usize::MAX) == usize::MAX {
                assert_eq!(
                    beside.table.capacity(),
                    capacity,
                    "{bucket_size} slots grew"
                );
            }
            Ok(())
        });
    }
}

#[test]
fn removing_brings_items_home_and_turns_buckets_back() {
    for bucket_size in BucketSize::ALL {
        on_device(move |queue| {
            let keys = distinct_keys(22, scaled(20_000));
            let mut shape = Shape::new(bucket_size, 0);
            shape.load_factor = 0.9;
            let mut beside = Beside::<HortonTable>::build(queue, shape, &items(&keys))?;
            let full = beside.table.census();
            assert!(full.secondary > 0 && full.type_b > 0);
            for part in keys.chunks(keys.len() / 4 + 1).take(3) {
                beside.remove(queue, part)?;
                beside.compare(queue, part)?;
                beside.table.download(queue)?.check_upkeep().unwrap();
            }
            // A quarter of the load: hardly a bucket overflows.
            let census = beside.table.census();
            assert!(census.secondary * 20 < full.secondary, "{census:?}");
            assert!(census.type_b * 20 < full.type_b, "{census:?}");
            beside.remove(queue, &keys)?;
            beside.compare(queue, &keys)?;
            assert_eq!(beside.table.census().type_b, 0);
            Ok(())
        });
    }
}

#[test]
fn lazy_upkeep_waits_until_it_is_due() {
    on_device(|queue| {
        let keys = distinct_keys(23, scaled(20_000));
        let mut shape = Shape::new(BucketSize::Eight, 0);
        (shape.load_factor, shape.lazy) = (0.9, true);
        let mut beside = Beside::<HortonTable>::build(queue, shape, &items(&keys))?;
        let before = beside.table.census();
        beside.remove(queue, &keys[..keys.len() / 20])?;
        beside.compare(queue, &keys)?;
        assert_eq!(beside.table.census().type_b, before.type_b);
        beside.table.repatriate(queue)?;
        beside.compare(queue, &keys)?;
        beside.table.download(queue)?.check_upkeep().unwrap();
        assert!(beside.table.census().type_b < before.type_b);
        beside.remove(queue, &keys[..keys.len() / 2])?;
        beside.table.download(queue)?.check_upkeep().unwrap();
        beside.compare(queue, &keys)
    });
}

#[test]
fn of_a_repeated_key_the_last_value_stays() {
    on_device(|queue| {
        let keys = [5u32, 9, 5, 5, u32::MAX, 9, u32::MAX, 5];
        let repeated: Vec<(u32, u32)> = keys.into_iter().zip(0..).collect();
        let shape = Shape::new(BucketSize::Four, 0);
        let mut beside = Beside::<HortonTable>::build(queue, shape, &repeated)?;
        beside.compare(queue, &[])?;
        let hot: Vec<(u32, u32)> = (0..scaled(50_000) as u32)
            .map(|i| (i / 40_000, i))
            .collect();
        beside.insert(queue, &hot)?;
        beside.compare(queue, &[])?;
        beside.remove(queue, &[5, 5, 5, 9])?;
        beside.compare(queue, &[5, 9])
    });
}

#[test]
fn the_item_that_looks_like_an_empty_slot_is_an_item_like_any_other() {
    for bucket_size in BucketSize::ALL {
        on_device(move |queue| {
            let sentinel = (u32::MAX, MAX_VALUE + 1);
            let shape = Shape::new(bucket_size, 64);
            let mut beside = Beside::<HortonTable>::build(queue, shape, &[sentinel, (1, 2)])?;
            beside.compare(queue, &[])?;
            for value in [5, sentinel.1, sentinel.1, u32::MAX, sentinel.1] {
                beside.insert(queue, &[(u32::MAX, value), (7, value)])?;
                beside.compare(queue, &[])?;
            }
            beside.remove(queue, &[u32::MAX, u32::MAX])?;
            beside.compare(queue, &[])?;
            beside.insert(queue, &[sentinel])?;
            let many: Vec<(u32, u32)> = (0..2_000).map(|k| (k, k | 1 << 31)).collect();
            let fit = if small() { 30 } else { many.len() };
            beside.insert(queue, &many[..fit])?;
            beside.compare(queue, &[])
        });
    }
}

/// Returns so many keys that share a bucket and a tag; and others, none of that bucket.
fn crafted(layout: Layout, sharing: usize, others: usize) -> (Vec<u32>, Vec<u32>) {
    let (bucket, tag) = (layout.buckets / 3, 20);
    let there = |key: &u32| layout.primary_bucket(*key) == bucket;
    let shared = (0..u32::MAX).filter(|key| there(key) && layout.tag_of(*key) == tag);
    let elsewhere = (0..u32::MAX).filter(|key| !there(key));
    (
        shared.take(sharing).collect(),
        elsewhere.take(others).collect(),
    )
}

#[test]
fn an_entry_goes_with_the_last_item_behind_it() {
    on_device(|queue| {
        // Lazy: nothing comes home by itself.
        let mut shape = Shape::new(BucketSize::Eight, 64 * 8);
        shape.lazy = true;
        let layout = Beside::<HortonTable>::build(queue, shape, &[])?
            .table
            .layout();
        let (mut shared, others) = crafted(layout, 13, 200);
        // Never there: reads a second bucket as long as there is the entry.
        let absent = shared.pop().unwrap();
        let all = [&shared[..], &others].concat();
        let mut beside = Beside::<HortonTable>::build(queue, shape, &items(&all))?;
        assert_eq!(beside.table.layout(), layout);
        let model = beside.table.download(queue)?;
        let (away, home): (Vec<u32>, Vec<u32>) = shared
            .iter()
            .partition(|key| model.lookup_counted(**key).1 == 2);
        assert_eq!((home.len(), away.len()), (7, 5));
        for (i, key) in away.iter().enumerate() {
            let reads = beside.table.download(queue)?.lookup_counted(absent).1;
            assert_eq!(reads, 2, "{i} of {} items removed", away.len());
            beside.remove(queue, &[*key])?;
            beside.compare(queue, &shared)?;
        }
        assert_eq!(beside.table.download(queue)?.lookup_counted(absent).1, 1);
        Ok(())
    });
}

#[test]
fn items_behind_an_entry_move_together_when_their_bucket_fills() {
    on_device(|queue| {
        let capacity = 64 * 8;
        let mut shape = Shape::new(BucketSize::Eight, capacity);
        shape.load_factor = 0.9;
        let layout = Beside::<HortonTable>::build(queue, shape, &[])?
            .table
            .layout();
        let (shared, others) = crafted(layout, 13, capacity * 7 / 8);
        let mut beside = Beside::<HortonTable>::build(queue, shape, &items(&others))?;
        let mut seconds = HashSet::new();
        for key in shared {
            beside.insert(queue, &[(key, !key)])?;
            beside.compare(queue, &[])?;
            let model = beside.table.download(queue)?;
            if model.lookup_counted(key).1 == 2 {
                let holds = |word: &u64| bucket::key_of(*word) == key;
                let slot = model.words.iter().position(holds).unwrap();
                seconds.insert(slot / layout.slots());
            }
        }
        assert_eq!(beside.table.layout(), layout, "it grew");
        // One secondary bucket at a time, but not always the same.
        assert!(seconds.len() > 1, "{seconds:?}");
        Ok(())
    });
}

#[test]
fn tables_go_to_the_host_and_back() {
    for bucket_size in BucketSize::ALL {
        on_device(move |queue| {
            let keys = distinct_keys(30, scaled(8_000));
            let mut shape = Shape::new(bucket_size, 0);
            shape.load_factor = 0.9;
            let mut beside = Beside::<HortonTable>::build(queue, shape, &items(&keys))?;
            beside.insert(queue, &[(u32::MAX, MAX_VALUE + 1)])?;
            for part in keys.chunks(keys.len() / 3) {
                let model = beside.table.download(queue)?;
                beside.table = HortonTable::upload(queue, &model)?;
                assert_eq!(beside.table.download(queue)?.words, model.words);
                beside.compare(queue, &[])?;
                beside.remove(queue, &part[part.len() / 2..])?;
                beside.insert(queue, &[(part[0], u32::MAX), (!part[0], 1)])?;
                beside.compare(queue, part)?;
            }
            Ok(())
        });
    }
}

#[test]
fn values_with_the_top_bit_fill_buckets_too() {
    on_device(|queue| {
        let keys = distinct_keys(27, scaled(20_000));
        let wide: Vec<(u32, u32)> = keys.iter().map(|k| (*k, k | 1 << 31)).collect();
        let mut shape = Shape::new(BucketSize::Eight, 0);
        // Without a 31-bit value, no last slot holds an item: 7 of 8 at best.
        shape.load_factor = 0.75;
        let mut beside = Beside::<HortonTable>::build(queue, shape, &wide)?;
        beside.compare(queue, &[])?;
        // Values that gain and lose the top bit.
        let flipped: Vec<(u32, u32)> = wide.iter().step_by(2).map(|(k, v)| (*k, !v)).collect();
        beside.insert(queue, &flipped)?;
        beside.compare(queue, &[])?;
        beside.insert(queue, &wide)?;
        beside.compare(queue, &[])?;
        beside.remove(queue, &keys[..keys.len() / 2])?;
        beside.compare(queue, &keys)
    });
}

#[test]
fn clones_keep_what_they_had() {
    on_device(|queue| {
        let keys = distinct_keys(28, 500);
        let shape = Shape::new(BucketSize::Eight, 0);
        let mut beside = Beside::<HortonTable>::build(queue, shape, &items(&keys))?;
        let before = Beside {
            table: beside.table.clone(),
            expected: beside.expected.clone(),
        };
        beside.remove(queue, &keys[..250])?;
        beside.insert(queue, &[(keys[3], 3), (keys[300], 4)])?;
        before.compare(queue, &[])?;
        beside.compare(queue, &keys)
    });
}
