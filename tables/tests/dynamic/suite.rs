//! Mixed batches, in every table that does them in one launch. (What all tables do:
//! `tables/tests/table_ops`.)

use std::collections::{HashMap, HashSet};

use horton_tables::device::{Device, KernelBody, Queue};
use horton_tables::table::baselines::batch::Kind;
use horton_tables::table::baselines::linear::MAX_VALUE;
use horton_tables::table::primitives::hash::jenkins;
use rand_mt::Mt;

use super::harness::{Family, Op, bodies, device, distinct_keys, run, small};
use super::history;

const MISS: u32 = u32::MAX;

/// Seed of the million operations.
const SEED: u32 = 77;

/// Families that run on every body of the device.
fn each(test: impl Fn(&Device, Family, KernelBody)) {
    let device = device();
    for family in Family::ALL {
        for body in bodies(&device) {
            test(&device, family, body);
        }
    }
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

/// Applies a batch of different keys to a map; returns its answers.
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
    for family in Family::ALL {
        println!("{family:?}: {total} operations, seed {SEED}");
        run(&device, move |queue| {
            let mut random = Mt::new(SEED);
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
            let found: HashMap<u32, u32> = table.items(queue)?.into_iter().collect();
            assert!(found == map);
            Ok(())
        });
    }
}

#[test]
fn concurrent_histories_have_an_order() {
    each(|device, family, body| {
        let (rounds, n) = if small() { (2, 200) } else { (30, 4096) };
        run(device, move |queue| {
            queue.use_body(body)?;
            let mut random = Mt::new(5);
            // Four operations per key and launch on average, 20 at most.
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
                let pairs = table.items(queue)?;
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
fn empty_batches_are_no_error() {
    each(|device, family, body| {
        let job = move |queue: &mut Queue| {
            queue.use_body(body)?;
            let mut table = family.create(queue, 0)?;
            assert!(table.apply(queue, &[])?.is_empty());
            assert_eq!(table.len(), 0);
            Ok(())
        };
        device.run_blocking(job).unwrap();
    });
}
