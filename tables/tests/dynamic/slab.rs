//! The operations that only the slab hash has.

use std::collections::HashMap;

use horton_tables::device::{Device, KernelBody, Queue};
use horton_tables::error::{Error, Result};
use horton_tables::table::baselines::batch::{Batch, Kind};
use horton_tables::table::baselines::slab::{
    Entries, MAX_KEY, PoolLayout, SlabConfig, SlabHash, SlabModel,
};
use horton_tables::table::{Items, Table};
use rand_mt::Mt;

use super::harness::{bodies, device, distinct_keys, replace, run, scaled, slab_config, small};

const MISS: u32 = u32::MAX;

/// Pairs and keys, both allocators, on every body of the device.
fn each(test: impl Fn(&Device, SlabConfig, KernelBody)) {
    let device = device();
    for entries in Entries::ALL {
        for light in [true, false] {
            // Under oclgrind, each of both allocators with one kind of entries.
            if small() && light == (entries == Entries::Keys) {
                continue;
            }
            for body in bodies(&device) {
                let config = SlabConfig {
                    entries,
                    ..slab_config(light)
                };
                test(&device, config, body);
            }
        }
    }
}

/// The value that a table holds for a key.
fn value_of(config: &SlabConfig, key: u32, value: u32) -> u32 {
    match config.entries {
        Entries::Pairs => value,
        Entries::Keys => key,
    }
}

fn insert(queue: &mut Queue, table: &mut SlabHash, pairs: &[(u32, u32)]) -> Result<usize> {
    let (keys, values): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
    let keys = queue.buffer_from("keys", &keys)?;
    let values = queue.buffer_from("values", &values)?;
    let items = Items {
        keys: &keys,
        values: Some(&values),
    };
    table.insert_instances(queue, items)
}

/// The values of every instance of each key, sorted.
fn search_all(queue: &mut Queue, table: &SlabHash, keys: &[u32]) -> Result<Vec<Vec<u32>>> {
    let buffer = queue.buffer_from("keys", keys)?;
    let (offsets, values) = table.search_all(queue, &buffer)?;
    let offsets = queue.read(&offsets, keys.len() + 1)?;
    let values = queue.read(&values, values.len())?;
    assert_eq!(offsets.last().copied(), Some(values.len() as u32));
    let instances = |range: &[u32]| {
        let mut found = values[range[0] as usize..range[1] as usize].to_vec();
        found.sort_unstable();
        found
    };
    Ok(offsets.windows(2).map(instances).collect())
}

#[test]
fn keys_may_be_there_many_times() {
    each(|device, config, body| {
        run(device, move |queue| {
            queue.use_body(body)?;
            let n = scaled(3000) as u32;
            let keys: Vec<u32> = distinct_keys(1, 100);
            let mut expected: HashMap<u32, Vec<u32>> = HashMap::new();
            let pairs: Vec<(u32, u32)> = (0..n).map(|i| (keys[(i * i % 90) as usize], i)).collect();
            for (key, value) in &pairs {
                let value = value_of(&config, *key, *value);
                expected.entry(*key).or_default().push(value);
            }
            let of = |key: &u32| expected.get(key).cloned().unwrap_or_default();
            let mut table = SlabHash::with_room(queue, &config, n as usize)?;
            assert_eq!(insert(queue, &mut table, &pairs)?, n as usize);
            table.to_model(queue)?.check().unwrap();
            let found = search_all(queue, &table, &keys)?;
            assert!(
                found == keys.iter().map(of).collect::<Vec<_>>(),
                "{config:?} {body}"
            );
            // DELETE takes one instance, DELETEALL the rest.
            let present = expected.len();
            assert_eq!(table.remove_many(queue, &keys)?, present);
            assert_eq!(table.len(), n as usize - present);
            let on_device = queue.buffer_from("keys", &keys)?;
            let counts = queue.allocate("counts", keys.len())?;
            table.count(queue, &on_device, &counts, keys.len())?;
            let left = keys
                .iter()
                .map(|key| of(key).len().saturating_sub(1) as u32);
            assert!(queue.read(&counts, keys.len())? == left.collect::<Vec<_>>());
            assert_eq!(
                table.delete_all(queue, &on_device, 100)?,
                n as usize - present
            );
            assert!(table.is_empty() && search_all(queue, &table, &keys)?.concat().is_empty());
            // INSERT takes deleted entries: no slab is added.
            let before = table.census(queue)?;
            assert_eq!((before.items, before.deleted), (0, u64::from(n)));
            insert(queue, &mut table, &pairs)?;
            let after = table.census(queue)?;
            assert_eq!((after.deleted, after.slabs), (0, before.slabs));
            table.to_model(queue)?.check().unwrap();
            Ok(())
        });
    });
}

#[test]
fn flush_keeps_every_item_and_gives_all_other_slabs_back() {
    each(|device, config, body| {
        run(device, move |queue| {
            queue.use_body(body)?;
            let keys = distinct_keys(2, if small() { 150 } else { 5000 });
            let values: Vec<u32> = (0..keys.len() as u32).collect();
            let mut table = SlabHash::with_room(queue, &config, keys.len() / 4)?;
            replace(queue, &mut table, &keys, &values)?;
            let (mut kept_from, mut slabs) = (0, u64::MAX);
            // Nothing deleted; some; nearly all; all.
            for from in [0, keys.len() / 3, keys.len() - 5, keys.len()] {
                table.remove_many(queue, &keys[kept_from..from])?;
                kept_from = from;
                let mut model = table.to_model(queue)?;
                table.flush(queue)?;
                model.flush();
                let flushed = table.to_model(queue)?;
                flushed.check().unwrap();
                assert!(
                    flushed.base == model.base && flushed.pool == model.pool,
                    "{body}"
                );
                let census = table.census(queue)?;
                assert_eq!(
                    (census.items, census.deleted),
                    ((keys.len() - from) as u64, 0)
                );
                assert!(census.slabs <= slabs);
                slabs = census.slabs;
                let expected: Vec<_> = (0..keys.len())
                    .map(|i| (i >= from).then(|| value_of(&config, keys[i], i as u32)))
                    .collect();
                assert!(table.lookup_many(queue, &keys)? == expected);
            }
            assert_eq!(slabs, 0);
            // What was given back is as good as new.
            assert_eq!(replace(queue, &mut table, &keys, &values)?, keys.len());
            table.to_model(queue)?.check().unwrap();
            Ok(())
        });
    });
}

#[test]
fn exhaustion_is_an_error_that_loses_nothing() {
    // Memory blocks have 1024 slabs: filling one takes more than oclgrind has time for.
    if small() {
        return;
    }
    let device = device();
    for body in bodies(&device) {
        run(&device, move |queue| {
            queue.use_body(body)?;
            // One bucket list a thousand slabs long would take long: 64 lists.
            let config = SlabConfig {
                slabs_per_bucket: 1.0,
                pool: PoolLayout {
                    light: true,
                    super_blocks: 1,
                    blocks: 1,
                },
                ..SlabConfig::default()
            };
            let room = 15 * (64 + 1024);
            let mut table = SlabHash::with_room(queue, &config, 15 * 64)?;
            assert_eq!((table.layout().buckets, table.capacity()), (64, room));
            let keys = distinct_keys(5, room + 2000);
            let values: Vec<u32> = (0..keys.len() as u32).collect();
            let rejected = match replace(queue, &mut table, &keys, &values) {
                Err(Error::NoRoom { rejected, keys, .. }) => {
                    assert_eq!(keys, room + 2000);
                    rejected
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(table.len(), keys.len() - rejected);
            assert_eq!(table.census(queue)?.slabs, 1024);
            table.to_model(queue)?.check().unwrap();
            let found = table.lookup_many(queue, &keys)?;
            assert_eq!(found.iter().flatten().count(), table.len());
            assert!(found.iter().zip(0..).all(|(v, i)| v.is_none_or(|v| v == i)));
            // In a mixed batch the others are answered.
            let absent: Vec<u32> = (0..keys.len())
                .filter(|i| found[*i].is_none())
                .map(|i| keys[i])
                .collect();
            let present: Vec<u32> = (0..keys.len())
                .filter(|i| found[*i].is_some())
                .map(|i| keys[i])
                .collect();
            let half = 500;
            let ops: Vec<(u32, u32)> = (0..half)
                .map(|i| match i % 2 {
                    0 => (Kind::Search as u32, present[i]),
                    _ => (Kind::Replace as u32, absent[i]),
                })
                .collect();
            let (kinds, op_keys): (Vec<u32>, Vec<u32>) = ops.into_iter().unzip();
            let kinds = queue.buffer_from("kinds", &kinds)?;
            let op_keys = queue.buffer_from("keys", &op_keys)?;
            let op_values = queue.buffer_from("values", &vec![1; half])?;
            let answers = queue.buffer_from("answers", &vec![7; half])?;
            let batch = Batch {
                kinds: &kinds,
                keys: &op_keys,
                values: &op_values,
            };
            let before = table.len();
            let outcome = table.apply(queue, batch, &answers);
            let stored = table.len() - before;
            assert!(
                matches!(outcome, Err(Error::NoRoom { rejected, .. }) if rejected + stored == half / 2)
            );
            let answers = queue.read(&answers, half)?;
            let expected = table.lookup_many(queue, &present[..half])?;
            assert!(
                (0..half)
                    .step_by(2)
                    .all(|i| Some(answers[i]) == expected[i])
            );
            // Deleting and flushing makes room.
            table.remove_many(queue, &present)?;
            table.flush(queue)?;
            replace(queue, &mut table, &absent, &vec![3; absent.len()])?;
            assert_eq!(
                table.lookup_many(queue, &absent)?,
                vec![Some(3); absent.len()]
            );
            table.to_model(queue)?.check().unwrap();
            Ok(())
        });
    }
}

#[test]
fn a_slab_alloc_grows_under_a_mixed_batch() {
    // Memory blocks have 1024 slabs: filling one takes more than oclgrind has time for.
    if small() {
        return;
    }
    let device = device();
    for body in bodies(&device) {
        run(&device, move |queue| {
            queue.use_body(body)?;
            let config = SlabConfig {
                pool: PoolLayout {
                    light: false,
                    super_blocks: 1,
                    blocks: 1,
                },
                ..SlabConfig::default()
            };
            let mut table = SlabHash::with_room(queue, &config, 10_000)?;
            let keys = distinct_keys(6, 100_000);
            let values: Vec<u32> = (0..keys.len() as u32).collect();
            assert_eq!(replace(queue, &mut table, &keys, &values)?, keys.len());
            assert!(table.pool().layout().super_blocks > 1);
            let expected: Vec<_> = values.iter().copied().map(Some).collect();
            assert!(table.lookup_many(queue, &keys)? == expected);
            table.to_model(queue)?.check().unwrap();
            Ok(())
        });
    }
}

#[test]
fn memory_utilisation_follows_the_papers_formula() {
    if small() {
        return;
    }
    let device = device();
    run(&device, |queue| {
        let keys = distinct_keys(7, 100_000);
        // Figure 4's foot: 19 % to 60 % utilisation at 0.2 to 0.7 slabs per bucket.
        for (slabs_per_bucket, expected) in [(0.2, 0.19), (0.7, 0.60)] {
            let config = SlabConfig {
                slabs_per_bucket,
                ..SlabConfig::default()
            };
            let mut table = SlabHash::with_room(queue, &config, keys.len())?;
            replace(queue, &mut table, &keys, &vec![1; keys.len()])?;
            let found = table.utilisation(queue)?;
            assert!(
                (found - expected).abs() < 0.04,
                "{slabs_per_bucket}: {found}"
            );
        }
        Ok(())
    });
}

#[test]
fn batches_of_every_kind_add_up() {
    each(|device, config, body| {
        let (rounds, n) = if small() { (2, 128) } else { (10, 4096) };
        run(device, move |queue| {
            queue.use_body(body)?;
            let mut random = Mt::new(12);
            let keys = distinct_keys(8, n / 8);
            let mut table = SlabHash::with_room(queue, &config, n)?;
            for _ in 0..rounds {
                let mut column = |below: u32| -> Vec<u32> {
                    (0..n).map(|_| random.next_u32() % below).collect()
                };
                let kinds = column(Kind::ALL.len() as u32);
                let op_keys = column(keys.len() as u32).into_iter();
                let op_keys: Vec<u32> = op_keys.map(|i| keys[i as usize]).collect();
                let values = column(1000);
                let before = table.len();
                let instances: Vec<usize> = search_all(queue, &table, &op_keys)?
                    .iter()
                    .map(Vec::len)
                    .collect();
                let buffers =
                    [&kinds, &op_keys, &values].map(|data| queue.buffer_from("column", data));
                let [kind_buffer, key_buffer, value_buffer] = buffers;
                let (kind_buffer, key_buffer, value_buffer) =
                    (kind_buffer?, key_buffer?, value_buffer?);
                let answers = queue.buffer_from("answers", &vec![MISS - 1; n])?;
                let batch = Batch {
                    kinds: &kind_buffer,
                    keys: &key_buffer,
                    values: &value_buffer,
                };
                table.apply(queue, batch, &answers)?;
                let answers = queue.read(&answers, n)?;
                let with = |kind: Kind| {
                    kinds
                        .iter()
                        .zip(&answers)
                        .filter(move |(k, _)| **k == kind as u32)
                        .map(|(_, a)| *a)
                };
                let missed = |kind: Kind| with(kind).filter(|a| *a == MISS).count();
                let count = |kind: Kind| with(kind).count();
                // Whatever their order, every insertion adds one, every deletion that answers takes
                // one.
                let added = count(Kind::Insert) + missed(Kind::Replace);
                let deleted = count(Kind::Delete) - missed(Kind::Delete);
                let all: usize = with(Kind::DeleteAll).map(|a| a as usize).sum();
                assert_eq!(
                    table.len() + deleted + all,
                    before + added,
                    "{config:?} {body}"
                );
                assert_eq!(missed(Kind::Insert), count(Kind::Insert));
                for i in (0..n).filter(|i| kinds[*i] == Kind::SearchAll as u32) {
                    let stored = (0..n).filter(|j| op_keys[*j] == op_keys[i]).count();
                    assert!(answers[i] as usize <= instances[i] + stored);
                }
                let model = table.to_model(queue)?;
                model.check().unwrap();
                assert_eq!(model.census(), table.census(queue)?);
                assert_eq!(model.pairs().len(), table.len());
            }
            Ok(())
        });
    });
}

#[test]
fn tables_of_keys_reserve_two() {
    let device = device();
    run(&device, |queue| {
        let config = SlabConfig {
            entries: Entries::Keys,
            ..slab_config(true)
        };
        let mut table = SlabHash::with_room(queue, &config, 100)?;
        let keys = [0, MAX_KEY, MAX_KEY - 1];
        assert_eq!(replace(queue, &mut table, &keys, &[9, 9, 9])?, 3);
        assert_eq!(table.lookup_many(queue, &keys)?, keys.map(Some));
        let reserved = [MAX_KEY + 1, MAX_KEY + 2];
        assert_eq!(table.lookup_many(queue, &reserved)?, [None, None]);
        assert_eq!(table.remove_many(queue, &reserved)?, 0);
        assert!(matches!(
            replace(queue, &mut table, &reserved, &[0, 0]),
            Err(Error::Invalid(_))
        ));
        assert_eq!(table.len(), 3);
        table.to_model(queue)?.check().unwrap();
        Ok(())
    });
}

#[test]
fn a_model_of_repeating_keys_is_searched_on_the_device() {
    let device = device();
    for light in [true, false] {
        run(&device, move |queue| {
            let empty = SlabHash::with_room(queue, &slab_config(light), 50)?;
            let mut model: SlabModel = empty.to_model(queue)?;
            for i in 0..300 {
                model.insert(i % 7, i).unwrap();
            }
            assert_eq!(model.delete_all(3), 43);
            model.check().unwrap();
            let table = SlabHash::from_model(queue, &model)?;
            let keys: Vec<u32> = (0..8).collect();
            let expected: Vec<Vec<u32>> = keys.iter().map(|key| model.search_all(*key)).collect();
            assert_eq!(search_all(queue, &table, &keys)?, expected);
            assert_eq!(table.len(), 300 - 43);
            Ok(())
        });
    }
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    let device = device();
    let job = |queue: &mut Queue| {
        for slabs_per_bucket in [0.0, -1.0, f64::NAN, 1e-12] {
            let config = SlabConfig {
                slabs_per_bucket,
                ..SlabConfig::default()
            };
            assert!(SlabHash::with_room(queue, &config, 1000).is_err());
        }
        let mut table = SlabHash::with_room(queue, &slab_config(true), 10)?;
        let (two, three) = (
            queue.buffer_from("two", &[1, 2])?,
            queue.buffer_from("three", &[1, 2, 3])?,
        );
        assert!(table.search(queue, &two, &three, 3).is_err());
        assert!(table.search(queue, &three, &two, 3).is_err());
        assert!(table.delete(queue, &two, 3).is_err());
        let batch = Batch {
            kinds: &two,
            keys: &three,
            values: &three,
        };
        assert!(table.apply(queue, batch, &three).is_err());
        Ok(())
    };
    device.run_blocking(job).unwrap();
}
