//! What every table that changes must do.

use std::collections::{HashMap, HashSet};

use horton_join::device::{Device, KernelBody};
use horton_join::table::batch::Kind;
use horton_join::table::hash::jenkins;
use horton_join::table::linear::MAX_VALUE;
use rand_mt::Mt;

use super::harness::{Family, Op, bodies, device, distinct_keys, run, scaled, small};
use super::history;

const MISS: u32 = u32::MAX;

/// Families that run on every body of the device.
fn each(test: impl Fn(&Device, Family, KernelBody)) {
    each_of(Family::ALL, test);
}

fn each_of(families: impl IntoIterator<Item = Family>, test: impl Fn(&Device, Family, KernelBody)) {
    let device = device();
    for family in families {
        for body in bodies(&device) {
            test(&device, family, body);
        }
    }
}

#[test]
fn tables_built_here_and_there_are_looked_up_here_and_there() {
    each(|device, family, body| {
        let n = scaled(20_000);
        let keys = distinct_keys(1, n);
        let limit = family.max_model_value();
        let values: Vec<u32> = keys.iter().map(|k| jenkins(*k) % limit).collect();
        run(device, move |queue| {
            queue.use_body(body)?;
            let mut table = family.create(queue, n)?;
            assert_eq!(table.insert(queue, &keys, &values)?, n);
            assert_eq!(table.len(), n);
            let pairs: Vec<(u32, u32)> = keys.iter().copied().zip(values).collect();
            let on_host = table.rebuilt_on_host(queue, &pairs)?;
            let stored: HashMap<u32, u32> = pairs.into_iter().collect();
            let absent = keys.iter().map(|k| k.wrapping_add(1));
            let asked: Vec<u32> = keys.iter().copied().chain(absent).collect();
            let expected: Vec<_> = asked.iter().map(|k| stored.get(k).copied()).collect();
            for table in [&table, &on_host] {
                assert!(table.check(queue, &asked)? == expected, "{family:?} {body}");
                assert!(
                    table.get_many(queue, &asked)? == expected,
                    "{family:?} {body}"
                );
                let found: HashMap<u32, u32> = table.download(queue)?.into_iter().collect();
                assert_eq!(found, stored);
                assert_eq!(table.len(), n);
            }
            Ok(())
        });
    });
}

#[test]
fn the_extreme_keys_and_values_are_like_any_other() {
    each(|device, family, body| {
        let keys = [0, 1, u32::MAX, u32::MAX - 1, u32::MAX - 2, 0x8000_0000];
        let values = [MAX_VALUE, 0, MAX_VALUE, 7, 1, 2];
        run(device, move |queue| {
            queue.use_body(body)?;
            let mut table = family.create(queue, 64)?;
            assert_eq!(table.get_many(queue, &keys)?, [None; 6]);
            assert_eq!(table.insert(queue, &keys, &values)?, 6);
            let expected = values.map(Some);
            assert_eq!(table.get_many(queue, &keys)?, expected);
            assert_eq!(table.check(queue, &keys)?, expected);
            assert_eq!(table.remove_many(queue, &keys)?, 6);
            assert_eq!(table.remove_many(queue, &keys)?, 0);
            assert_eq!(table.get_many(queue, &keys)?, [None; 6]);
            assert_eq!(table.check(queue, &keys)?, [None; 6]);
            assert_eq!(table.insert(queue, &keys, &[5; 6])?, 6);
            assert_eq!(table.get_many(queue, &keys)?, [Some(5); 6]);
            if family.max_value() == MAX_VALUE {
                assert!(table.insert(queue, &[9], &[MAX_VALUE + 1]).is_err());
            }
            assert_eq!(table.len(), 6);
            Ok(())
        });
    });
}

#[test]
fn nothing_at_all_is_no_error() {
    each(|device, family, body| {
        let job = move |queue: &mut horton_join::device::Queue| {
            queue.use_body(body)?;
            let mut table = family.create(queue, 0)?;
            assert_eq!(table.insert(queue, &[], &[])?, 0);
            assert_eq!(table.remove_many(queue, &[])?, 0);
            assert_eq!(table.get_many(queue, &[])?, []);
            assert_eq!(table.download(queue)?, []);
            assert!(table.apply(queue, &[])?.is_empty());
            Ok(())
        };
        device.run_blocking(job).unwrap();
    });
}

#[test]
fn sizes_around_work_group_boundaries() {
    each(|device, family, body| {
        for n in [1, 2, 15, 16, 17, 31, 33, 255, 256, 257, 1025] {
            if small() && ![1, 17, 257].contains(&n) {
                continue;
            }
            let keys = distinct_keys(n as u32, n);
            run(device, move |queue| {
                queue.use_body(body)?;
                let mut table = family.create(queue, n)?;
                assert_eq!(
                    table.insert(
                        queue,
                        &keys,
                        &keys.iter().map(|k| k >> 1).collect::<Vec<_>>()
                    )?,
                    n
                );
                let expected: Vec<_> = keys.iter().map(|k| Some(k >> 1)).collect();
                assert_eq!(table.get_many(queue, &keys)?, expected);
                assert_eq!(table.check(queue, &keys)?, expected);
                Ok(())
            });
        }
    });
}

/// A random operation on a key that every table knows.
fn random_op(random: &mut Mt, family: Family, key: u32) -> Op {
    let kind = match random.next_u32() % 8 {
        0..3 => Kind::Replace,
        3..5 => Kind::Delete,
        5 if family.insert_replaces() => Kind::Insert,
        5 => Kind::Replace,
        _ => Kind::Search,
    };
    Op {
        kind,
        key,
        value: family.stored(key, random.next_u32() % (MAX_VALUE + 1)),
    }
}

/// What a batch of different keys does to a map, and its answers.
fn apply_to_map(map: &mut HashMap<u32, u32>, ops: &[Op]) -> Vec<u32> {
    let answer = |op: &Op| match op.kind {
        Kind::Replace | Kind::Insert => map.insert(op.key, op.value),
        Kind::Delete => map.remove(&op.key),
        _ => map.get(&op.key).copied(),
    };
    ops.iter()
        .map(answer)
        .map(|old| old.unwrap_or(MISS))
        .collect()
}

#[test]
fn a_million_random_operations_answer_as_a_hash_map_does() {
    let device = device();
    let wanted = std::env::var("HORTON_TEST_OPERATIONS");
    let wanted = wanted.map_or(1_000_000, |n| n.parse().unwrap());
    let (total, batch) = match small() {
        true => (1_200, 300),
        false => (wanted, 20_000),
    };
    for family in Family::all_and_keys() {
        run(&device, move |queue| {
            let mut random = Mt::new(77);
            let mut map = HashMap::new();
            // The plain variant never gets the slots of deleted keys back: all keys fit.
            let universe = 2 * batch as u32;
            let mut table = family.create(queue, universe as usize)?;
            for round in 0..total / batch {
                let mut named = HashSet::new();
                let mut ops = Vec::with_capacity(batch);
                while ops.len() < batch {
                    let key = jenkins(random.next_u32() % universe);
                    if !named.insert(key) {
                        continue;
                    }
                    ops.push(random_op(&mut random, family, key));
                }
                let expected = apply_to_map(&mut map, &ops);
                let answers = table.apply(queue, &ops)?;
                assert!(answers == expected, "{family:?}, batch {round}");
                assert_eq!(table.len(), map.len());
            }
            let keys: Vec<u32> = map.keys().copied().collect();
            let expected: Vec<_> = map.values().copied().map(Some).collect();
            assert!(table.check(queue, &keys)? == expected);
            let found: HashMap<u32, u32> = table.download(queue)?.into_iter().collect();
            assert!(found == map);
            Ok(())
        });
    }
}

#[test]
fn concurrent_histories_have_an_order() {
    let families = Family::all_and_keys().filter(|family| family.is_concurrent());
    each_of(families, |device, family, body| {
        let (rounds, n) = if small() { (2, 200) } else { (30, 4096) };
        run(device, move |queue| {
            queue.use_body(body)?;
            let mut random = Mt::new(5);
            // Four operations a key and launch on average, 20 at most.
            let keys = distinct_keys(3, n / 4);
            let mut table = family.create(queue, 2 * keys.len())?;
            let mut before = HashMap::new();
            for round in 0..rounds {
                let mut named: HashMap<u32, usize> = HashMap::new();
                let mut ops = Vec::with_capacity(n);
                while ops.len() < n {
                    let key = keys[random.next_u32() as usize % keys.len()];
                    let times = named.entry(key).or_default();
                    *times += 1;
                    if *times > 20 {
                        continue;
                    }
                    ops.push(random_op(&mut random, family, key));
                }
                let answers = table.apply(queue, &ops)?;
                table.check(queue, &[])?;
                let pairs = table.download(queue)?;
                assert_eq!(pairs.len(), table.len());
                let after: HashMap<u32, u32> = pairs.into_iter().collect();
                if let Err(why) = history::check(&before, &ops, &answers, &after) {
                    panic!("{family:?}, {body}, round {round}: {why}");
                }
                before = after;
            }
            Ok(())
        });
    });
}

#[test]
fn insertions_of_one_key_in_one_launch_leave_one_of_their_values() {
    each(|device, family, body| {
        let n = scaled(5_000);
        run(device, move |queue| {
            queue.use_body(body)?;
            let keys: Vec<u32> = (0..n as u32).map(|i| jenkins(i % 16)).collect();
            let values: Vec<u32> = (0..n as u32).collect();
            let mut table = family.create(queue, 64)?;
            assert_eq!(table.insert(queue, &keys, &values)?, 16);
            assert_eq!(table.len(), 16);
            let distinct: Vec<u32> = keys[..16].to_vec();
            for (i, value) in table.get_many(queue, &distinct)?.into_iter().enumerate() {
                assert_eq!(value.unwrap() % 16, i as u32, "{family:?} {body}");
            }
            table.check(queue, &[])?;
            Ok(())
        });
    });
}
