//! The operations that only linear probing has.

use std::collections::HashSet;

use horton_tables::error::Error;
use horton_tables::table::baselines::batch::{Batch, Kind};
use horton_tables::table::baselines::linear::{Deletion, LinearConfig, LinearTable};
use horton_tables::table::{Items, Table};
use rand_mt::Mt;

use super::harness::{bodies, device, distinct_keys, put, run, scaled, small};

fn config(deletion: Deletion) -> LinearConfig {
    LinearConfig {
        deletion,
        ..LinearConfig::default()
    }
}

#[test]
fn a_full_table_rejects_what_does_not_fit_and_keeps_the_rest() {
    let device = device();
    for deletion in Deletion::ALL {
        run(&device, move |queue| {
            let mut table = LinearTable::with_capacity(queue, &config(deletion), 256)?;
            let keys = distinct_keys(8, 300);
            let values: Vec<u32> = (0..300).collect();
            match put(queue, &mut table, &keys, &values) {
                Err(Error::NoRoom { rejected, keys, .. }) => {
                    assert_eq!((rejected, keys), (44, 300))
                }
                other => panic!("{other:?}"),
            }
            assert_eq!((table.len(), table.layout().capacity), (256, 256));
            table.to_model(queue)?.check().unwrap();
            let found = table.lookup_many(queue, &keys)?;
            assert_eq!(found.iter().flatten().count(), 256);
            assert!(found.iter().zip(0..).all(|(v, i)| v.is_none_or(|v| v == i)));
            // Values of keys that are there can still be replaced.
            let present: Vec<u32> = keys
                .iter()
                .zip(&found)
                .filter(|(_, v)| v.is_some())
                .map(|(k, _)| *k)
                .collect();
            assert_eq!(put(queue, &mut table, &present, &[3; 256])?.replaced, 256);
            // Deleted slots make room for other keys with tombstones only.
            assert_eq!(table.remove_many(queue, &present[..100])?, 100);
            let others = distinct_keys(9, 100);
            let again = put(
                queue,
                &mut table,
                &others,
                &others.iter().map(|k| k >> 1).collect::<Vec<_>>(),
            );
            match deletion {
                Deletion::KeepsKey => {
                    assert!(matches!(again, Err(Error::NoRoom { rejected: 100, .. })))
                }
                Deletion::LeavesTombstone => assert_eq!(again?.new, 100),
            }
            table.to_model(queue)?.check().unwrap();
            // A rehash makes room for both, and one that cannot hold the items is refused.
            let items = table.len();
            assert!(matches!(table.rehash(queue, 64), Err(Error::NoRoom { .. })));
            table.rehash(queue, 1024)?;
            assert_eq!((table.len(), table.layout().capacity), (items, 1024));
            assert_eq!(table.probe_lengths(queue)?.deleted, 0);
            table.to_model(queue)?.check().unwrap();
            assert_eq!(table.lookup_many(queue, &present[100..])?, [Some(3); 156]);
            Ok(())
        });
    }
}

#[test]
fn rehash_keeps_every_pair_and_drops_deleted_keys() {
    let device = device();
    for deletion in Deletion::ALL {
        for body in bodies(&device) {
            run(&device, move |queue| {
                queue.use_body(body)?;
                let n = scaled(30_000);
                let keys = distinct_keys(4, n);
                let values: Vec<u32> = (0..n as u32).collect();
                let mut table = LinearTable::with_capacity(queue, &config(deletion), n + n / 10)?;
                put(queue, &mut table, &keys, &values)?;
                table.remove_many(queue, &keys[..n / 2])?;
                let before = table.probe_lengths(queue)?;
                let larger = 4 * table.layout().capacity;
                table.rehash(queue, larger)?;
                let after = table.probe_lengths(queue)?;
                assert_eq!((after.items, after.deleted), (before.items, 0));
                assert!(after.mean() < before.mean());
                let expected: Vec<_> = (0..n as u32)
                    .map(|i| (i >= n as u32 / 2).then_some(i))
                    .collect();
                assert!(table.lookup_many(queue, &keys)? == expected);
                table.to_model(queue)?.check().unwrap();
                Ok(())
            });
        }
    }
}

#[test]
fn a_key_beyond_a_tombstone_is_replaced_where_it_stands() {
    let device = device();
    run(&device, |queue| {
        let mut table = LinearTable::with_capacity(queue, &config(Deletion::LeavesTombstone), 16)?;
        let layout = table.layout();
        let mut one_home = (0..).filter(|key| layout.home(*key) == 5);
        let (a, b, c) = (
            one_home.next().unwrap(),
            one_home.next().unwrap(),
            one_home.next().unwrap(),
        );
        for key in [a, b, c] {
            put(queue, &mut table, &[key], &[1])?;
        }
        table.remove_many(queue, &[a])?;
        assert_eq!(table.probe_lengths(queue)?.deleted, 1);
        // Inserting into the first tombstone would leave an older b behind it.
        put(queue, &mut table, &[b], &[2])?;
        assert_eq!((table.len(), table.probe_lengths(queue)?.deleted), (2, 1));
        table.to_model(queue)?.check().unwrap();
        table.remove_many(queue, &[b])?;
        assert_eq!(table.lookup_many(queue, &[b, c])?, [None, Some(1)]);
        // The slot of a or b is taken by the next one.
        put(queue, &mut table, &[a], &[3])?;
        assert_eq!(table.probe_lengths(queue)?.deleted, 1);
        // A tombstone stays while c's probe passes it.
        let mut model = table.to_model(queue)?;
        for left in [1, 0] {
            table.sweep(queue)?;
            model.sweep();
            assert_eq!(table.to_model(queue)?.words, model.words);
            assert_eq!(table.probe_lengths(queue)?.deleted, left);
            assert_eq!(table.remove_many(queue, &[c])?, left as usize);
            assert_eq!(model.remove(c).is_some(), left == 1);
            model.check().unwrap();
        }
        Ok(())
    });
}

#[test]
fn reuse_keeps_probes_short_for_many_rounds_where_kept_keys_fill_the_table() {
    let device = device();
    let (size, rounds) = if small() { (256, 6) } else { (8192, 60) };
    run(&device, move |queue| {
        let mut random = Mt::new(6);
        let mut tables = Vec::new();
        for deletion in Deletion::ALL {
            tables.push(LinearTable::with_capacity(
                queue,
                &config(deletion),
                2 * size,
            )?);
        }
        // Half full for ever: each round an eighth of the keys makes room for new ones.
        let mut keys = distinct_keys(2, size);
        let values: Vec<u32> = (0..size as u32).collect();
        for table in &mut tables {
            put(queue, table, &keys, &values)?;
        }
        let first = tables[1].probe_lengths(queue)?;
        let mut full_after = None;
        let mut worst = 0f64;
        for round in 0..rounds {
            let leaving: Vec<u32> = keys.drain(..size / 8).collect();
            let coming: Vec<u32> = (0..size / 8).map(|_| random.next_u32()).collect();
            for table in &mut tables {
                table.remove_many(queue, &leaving)?;
                let inserted = put(queue, table, &coming, &values[..size / 8]);
                match table.layout().deletion {
                    Deletion::LeavesTombstone => _ = inserted?,
                    Deletion::KeepsKey if inserted.is_err() => {
                        full_after = full_after.or(Some(round))
                    }
                    Deletion::KeepsKey => {}
                }
            }
            worst = worst.max(tables[0].probe_lengths(queue)?.mean());
            keys.extend(coming);
        }
        tables[1].to_model(queue)?.check().unwrap();
        let last = tables[1].probe_lengths(queue)?;
        // A table at load 0.5 with as many tombstones as items at most.
        assert!(last.mean() < 3.0 * first.mean() + 1.0, "{first:?} {last:?}");
        assert!(last.max < 20 * first.max.max(16), "{first:?} {last:?}");
        let empty = tables[1].layout().capacity as u64 - last.items - last.deleted;
        assert!(empty > tables[1].layout().capacity as u64 / 4, "{last:?}");
        // Where deleted keys stay, the table is full of them before long; until then its probes
        // grow.
        if !small() {
            assert!(full_after.is_some_and(|round| round < 12), "{full_after:?}");
            assert!(worst > 3.0 * last.mean(), "{worst} {last:?}");
        }
        Ok(())
    });
}

#[test]
fn probe_lengths_follow_knuths_formula() {
    if small() {
        return;
    }
    let device = device();
    run(&device, |queue| {
        let mut table = LinearTable::with_capacity(queue, &config(Deletion::KeepsKey), 1 << 18)?;
        let keys = distinct_keys(10, 1 << 18);
        for load in [0.5, 0.75, 0.9] {
            let n = (load * f64::from(1 << 18)) as usize;
            let new = &keys[table.len()..n];
            put(queue, &mut table, new, &vec![1; new.len()])?;
            let expected = 0.5 * (1.0 + 1.0 / (1.0 - load)) - 1.0;
            let mean = table.probe_lengths(queue)?.mean();
            assert!(
                (mean / expected - 1.0).abs() < 0.05,
                "{load}: {mean}, not {expected}"
            );
        }
        Ok(())
    });
}

#[test]
fn keys_split_by_ranges_are_all_inserted_and_repeats_are_no_obstacle() {
    if small() {
        return;
    }
    let device = device();
    for deletion in Deletion::ALL {
        for body in bodies(&device) {
            run(&device, move |queue| {
                queue.use_body(body)?;
                let n = 1 << 19;
                // 8 MiB, over the size from which CPUs split; GPUs split from 32 MiB on.
                let mut table = LinearTable::with_capacity(queue, &config(deletion), 5 << 20)?;
                let keys = distinct_keys(20, n);
                let values: Vec<u32> = (0..n as u32).collect();
                assert_eq!(put(queue, &mut table, &keys, &values)?.new, n);
                // By position, with keys that are there and a hot one.
                let mut more = distinct_keys(21, n / 2);
                more.extend(&keys[..n / 4]);
                more.extend(std::iter::repeat_n(keys[7], n / 4));
                let on_device = queue.buffer_from("keys", &more)?;
                let items = Items {
                    keys: &on_device,
                    values: None,
                };
                let inserted = table.put(queue, items)?;
                assert_eq!(inserted.new + inserted.replaced, n);
                let model = table.to_model(queue)?;
                model.check().unwrap();
                assert_eq!(model.pairs().len(), table.len());
                for (i, key) in more[..n / 2].iter().enumerate().step_by(7) {
                    assert_eq!(model.lookup(*key), Some(i as u32));
                }
                let new: HashSet<u32> = more[..n / 2].iter().copied().collect();
                for (i, key) in keys.iter().enumerate().skip(n / 4).step_by(7) {
                    assert!(new.contains(key) || model.lookup(*key) == Some(i as u32));
                }
                Ok(())
            });
        }
    }
}

#[test]
fn buffers_that_do_not_fit_together_are_refused() {
    let device = device();
    run(&device, |queue| {
        let mut table = LinearTable::with_capacity(queue, &LinearConfig::default(), 16)?;
        let three = queue.buffer_from("three", &[1, 2, 3])?;
        let two = queue.buffer_from("two", &[1, 2])?;
        let items = Items {
            keys: &three,
            values: Some(&two),
        };
        assert!(table.put(queue, items).is_err());
        assert!(table.lookup(queue, &two, &three, 3).is_err());
        assert!(table.lookup(queue, &three, &two, 3).is_err());
        assert!(table.remove(queue, &two, 3).is_err());
        let batch = Batch {
            kinds: &two,
            keys: &three,
            values: &three,
        };
        assert!(table.apply(queue, batch, &three).is_err());
        let batch = Batch {
            kinds: &three,
            ..batch
        };
        assert!(table.apply(queue, batch, &two).is_err());
        assert!(table.is_empty());
        // Kinds that the table does not know do nothing.
        let kinds =
            queue.buffer_from("kinds", &[Kind::DeleteAll as u32, 99, Kind::Insert as u32])?;
        let answers = queue.buffer_from("answers", &[5, 5, 5])?;
        table.apply(
            queue,
            Batch {
                kinds: &kinds,
                ..batch
            },
            &answers,
        )?;
        assert_eq!(queue.read(&answers, 3)?, [5, 5, u32::MAX]);
        assert_eq!(table.len(), 1);
        let config = LinearConfig {
            load_factor: 0.0,
            ..LinearConfig::default()
        };
        assert!(
            LinearTable::build(
                queue,
                &config,
                Items {
                    keys: &two,
                    values: None
                }
            )
            .is_err()
        );
        let built = LinearTable::build(
            queue,
            &LinearConfig::default(),
            Items {
                keys: &two,
                values: None,
            },
        )?;
        assert_eq!((built.len(), built.layout().capacity), (2, 4));
        Ok(())
    });
}
