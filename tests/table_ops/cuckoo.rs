//! Bucketized cuckoo tables, load-balanced and first-fit.

use horton_join::device::Queue;
use horton_join::error::Result;
use horton_join::table::cuckoo::{CuckooConfig, CuckooModel, CuckooTable, Placement};
use horton_join::table::horton::{BucketSize, Layout, MAX_VALUE, MISS};
use horton_join::table::{Table, WhenFull};

use crate::harness::{
    Beside, Checked, Shape, bodies, device, distinct_keys, on_device, scaled, small, with_items,
};

const BOTH: [Placement; 2] = [Placement::LoadBalanced, Placement::FirstFit];

fn config(shape: Shape, placement: Placement) -> CuckooConfig {
    CuckooConfig {
        bucket_size: shape.bucket_size,
        load_factor: shape.load_factor,
        seed: shape.seed,
        reduction: shape.reduction,
        min_capacity: shape.min_capacity,
        when_full: shape.when_full,
        placement,
    }
}

impl Checked for CuckooTable {
    fn config(shape: Shape) -> CuckooConfig {
        config(shape, BOTH[usize::from(shape.lazy)])
    }

    fn check(&self, queue: &mut Queue, keys: &[u32]) -> Result<Vec<Option<u32>>> {
        let model = self.download(queue)?;
        model.check().unwrap();
        assert_eq!(model.census(), self.census());
        Ok(keys.iter().map(|k| model.lookup(*k)).collect())
    }
}

/// Placed in a shape by `lazy`, which for these tables means first fit.
fn shape_of(placement: Placement, bucket_size: BucketSize, load_factor: f64) -> Shape {
    let mut shape = Shape::new(bucket_size, 0);
    shape.load_factor = load_factor;
    shape.lazy = placement == Placement::FirstFit;
    shape
}

fn items(keys: &[u32]) -> Vec<(u32, u32)> {
    keys.iter().map(|k| (*k, !k.rotate_left(3))).collect()
}

#[test]
fn tables_fill_to_high_loads_without_growing() {
    for placement in BOTH {
        for bucket_size in BucketSize::ALL {
            on_device(move |queue| {
                let mut shape = shape_of(placement, bucket_size, 0.95);
                shape.when_full = WhenFull::Reject;
                let keys = distinct_keys(31, scaled(50_000));
                let beside = Beside::<CuckooTable>::build(queue, shape, &items(&keys))?;
                beside.compare(queue, &[1, 2, 3])?;
                let reads = beside.table.statistics(queue)?.reads_per_hit;
                let expected = match placement {
                    Placement::LoadBalanced => 1.45..1.55,
                    Placement::FirstFit => 1.05..1.4,
                };
                assert!(
                    small() || expected.contains(&reads),
                    "{placement:?}: {reads}"
                );
                Ok(())
            });
        }
    }
}

#[test]
fn batches_go_in_and_out_with_every_body() {
    for body in bodies(&device()) {
        for placement in BOTH {
            on_device(move |queue| {
                queue.use_body(body)?;
                let keys = distinct_keys(32, scaled(6_000));
                let mut shape = shape_of(placement, BucketSize::Eight, 0.9);
                shape.min_capacity = keys.len() * 10 / 9;
                let mut beside = Beside::<CuckooTable>::build(queue, shape, &[])?;
                for batch in items(&keys).chunks(keys.len() / 3 + 1) {
                    beside.insert(queue, batch)?;
                    beside.compare(queue, &[])?;
                }
                beside.remove(queue, &keys[keys.len() / 4..])?;
                beside.compare(queue, &keys)?;
                let again: Vec<(u32, u32)> = keys.iter().copied().zip(0..).collect();
                beside.insert(queue, &again)?;
                beside.compare(queue, &[])
            });
        }
    }
}

#[test]
fn host_built_tables_go_on_on_the_device() {
    for placement in BOTH {
        for bucket_size in BucketSize::ALL {
            on_device(move |queue| {
                let keys = distinct_keys(33, scaled(8_000));
                let (first, second) = keys.split_at(keys.len() * 7 / 8);
                let slots = bucket_size.slots();
                let layout = Layout {
                    bucket_size,
                    buckets: (keys.len() as f64 / (slots as f64 * 0.92)).ceil() as u32,
                    seed: 5,
                    reduction: Default::default(),
                };
                let first = items(first);
                let model = CuckooModel::build(layout, placement, &first).unwrap();
                model.check().unwrap();
                let config = config(shape_of(placement, bucket_size, 0.92), placement);
                let mut beside = Beside {
                    table: CuckooTable::upload(queue, &model, config)?,
                    expected: first.into_iter().collect(),
                };
                beside.insert(queue, &items(second))?;
                beside.compare(queue, &[])
            });
        }
    }
}

#[test]
fn the_item_that_looks_like_an_empty_slot_is_an_item_like_any_other() {
    for placement in BOTH {
        on_device(move |queue| {
            let twin = (u32::MAX, MAX_VALUE + 1);
            let shape = shape_of(placement, BucketSize::Eight, 0.8);
            let mut beside = Beside::<CuckooTable>::build(queue, shape, &[twin, (0, u32::MAX)])?;
            beside.compare(queue, &[])?;
            for value in [5, twin.1, u32::MAX, twin.1] {
                beside.insert(queue, &[(u32::MAX, value), (7, value)])?;
                beside.compare(queue, &[])?;
            }
            let model = beside.table.download(queue)?;
            let config = CuckooTable::config(shape);
            beside.table = CuckooTable::upload(queue, &model, config)?;
            beside.compare(queue, &[])?;
            beside.remove(queue, &[u32::MAX, 0, u32::MAX])?;
            beside.compare(queue, &[0])
        });
    }
}

#[test]
fn the_fast_lookup_reads_what_the_model_reads() {
    for placement in BOTH {
        let (table, model, keys) = on_device(move |queue| {
            let keys = distinct_keys(34, scaled(20_000));
            let values: Vec<(u32, u32)> = keys.iter().copied().zip(0..).collect();
            let shape = shape_of(placement, BucketSize::Eight, 0.9);
            let table = with_items(queue, &values, |queue, items| {
                CuckooTable::build(queue, &CuckooTable::config(shape), items)
            })?;
            let model = table.download(queue)?;
            Ok((table, model, keys))
        });
        let mut probes = keys.clone();
        probes.extend(keys.iter().map(|k| k ^ 0x5555));
        let expected: Vec<u32> = probes
            .iter()
            .map(|k| model.lookup(*k).unwrap_or(MISS))
            .collect();
        let second_reads: u32 = probes.iter().map(|k| model.find(*k).1 - 1).sum();
        for body in bodies(&device()) {
            let (table, probes) = (table.clone(), probes.clone());
            let (values, reads) = on_device(move |queue| {
                queue.use_body(body)?;
                let n = probes.len();
                let keys = queue.buffer_from("keys", &probes)?;
                let values = queue.allocate("values", n)?;
                let reads = queue.buffer_from("reads", &[0])?;
                table.lookup(queue, &keys, &values, &reads, n)?;
                Ok((queue.read(&values, n)?, queue.read(&reads, 1)?[0]))
            });
            assert_eq!(values, expected, "{body}");
            assert_eq!(reads, second_reads, "{body}");
        }
    }
}
