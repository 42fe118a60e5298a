//! Horton tables: {built on the host, built on the device} × {looked up on the host, on the
//! device}. All of it for every bucket size, load and lookup body, with the model's `check()` over
//! every table. `HORTON_TEST_SMALL=1` keeps the sizes fit for oclgrind (`make oclgrind`).

use std::collections::HashMap;

use horton_tables::device::{Answer, Cost, Device, KernelBody, Queue};
use horton_tables::error::{Error, Result};
use horton_tables::table::horton::{
    BucketSize, Built, HortonModel, HortonTable, Items, Layout, MAX_VALUE, MISS, TableConfig, build,
};
use horton_tables::table::primitives::hash;
use horton_tables_test_support::env::{device, small};
use horton_tables_test_support::tables::{bodies, distinct_keys, run};

/// `large` items, or few under oclgrind.
pub fn scaled(large: usize) -> usize {
    horton_tables_test_support::env::scaled(large, 1500)
}

fn build_unique(queue: &mut Queue, config: &TableConfig, keys: &[u32]) -> Result<HortonTable> {
    let keys = queue.buffer_from("keys", keys)?;
    let items = Items {
        keys: &keys,
        values: None,
    };
    match build::build(queue, config, items)? {
        Built::Table(table) => Ok(table),
        Built::Repeats => panic!("distinct keys were taken for repeating ones"),
    }
}

fn look_up(
    device: &Device,
    body: KernelBody,
    table: &HortonTable,
    keys: &[u32],
) -> (Vec<u32>, u32, Cost) {
    let (table, keys) = (table.clone(), keys.to_vec());
    let answer = device
        .run_blocking(move |queue| {
            queue.use_body(body)?;
            let n = keys.len();
            let keys = queue.buffer_from("keys", &keys)?;
            // Poisoned, so that a value nobody wrote shows.
            let values = queue.buffer_from("values", &vec![0xdead_beef; n])?;
            let reads = queue.buffer_from("reads", &[0])?;
            table.lookup(queue, &keys, &values, &reads, n)?;
            Ok((queue.read(&values, n)?, queue.read(&reads, 1)?[0]))
        })
        .unwrap();
    (answer.value.0, answer.value.1, answer.cost)
}

/// Hits and misses of a table of `keys[i]` → i, on the host and with every body on the device.
fn check_table(device: &Device, table: &HortonTable, keys: &[u32]) {
    let on_host = table.clone();
    let model = device
        .run_blocking(move |queue| on_host.download(queue))
        .unwrap()
        .value;
    model.check().unwrap();
    assert_eq!(model.census(), table.census());
    assert_eq!(table.len(), keys.len());

    let present: HashMap<u32, u32> = keys.iter().copied().zip(0..).collect();
    let probes: Vec<u32> = keys
        .iter()
        .flat_map(|k| [*k, k.wrapping_add(1), hash::jenkins(*k)])
        .chain([0, 1, u32::MAX])
        .collect();
    let expected: Vec<u32> = probes
        .iter()
        .map(|k| present.get(k).copied().unwrap_or(MISS))
        .collect();
    let mut second_reads = 0;
    for (probe, expected) in probes.iter().zip(&expected) {
        let (value, reads) = model.lookup_counted(*probe);
        assert_eq!(value.unwrap_or(MISS), *expected, "key {probe} on the host");
        second_reads += reads - 1;
    }
    for body in bodies(device) {
        let (values, reads, cost) = look_up(device, body, table, &probes);
        assert!(cost.launches > 0);
        assert_eq!(values, expected, "{body}");
        assert_eq!(reads, second_reads, "{body}");
    }
}

/// Returns the configuration of tables of so many slots per bucket, filled to `load_factor`.
pub fn config(bucket_size: BucketSize, load_factor: f64) -> TableConfig {
    TableConfig {
        bucket_size,
        load_factor,
        ..TableConfig::default()
    }
}

#[test]
fn device_built_tables_hold_every_key_at_every_load() {
    let device = device();
    for bucket_size in BucketSize::ALL {
        let highest = match bucket_size {
            BucketSize::Four => 0.91,
            _ => 0.95,
        };
        for load in [0.5, 0.8, 0.9, highest] {
            let keys = distinct_keys(1, scaled(50_000));
            let build_keys = keys.clone();
            let config = config(bucket_size, load);
            let table = run(&device, move |q| build_unique(q, &config, &build_keys)).value;
            check_table(&device, &table, &keys);
            if !small() {
                let reached = table.load_factor();
                assert!(
                    reached > load - 0.001,
                    "{bucket_size} slots grew from {load} to {reached}"
                );
            }
        }
    }
}

#[test]
fn every_body_builds_the_same_items() {
    let device = device();
    for bucket_size in BucketSize::ALL {
        for body in bodies(&device) {
            // One level of splitting, then two.
            for (n, load) in [(scaled(3_000), 0.9), (scaled(700_000), 0.6)] {
                let keys = distinct_keys(12, n);
                let build_keys = keys.clone();
                let config = config(bucket_size, load);
                let table = run(&device, move |queue| {
                    queue.use_body(body)?;
                    build_unique(queue, &config, &build_keys)
                });
                let table = table.value;
                assert!(small() || table.load_factor() > load - 0.01, "{body} grew");
                check_table(&device, &table, &keys);
            }
        }
    }
}

#[test]
fn host_built_tables_are_found_on_the_device() {
    let device = device();
    for bucket_size in BucketSize::ALL {
        for load in [0.5, 0.8, 0.9] {
            let keys = distinct_keys(2, scaled(20_000));
            let slots = bucket_size.slots() as f64;
            let layout = Layout {
                bucket_size,
                buckets: (keys.len() as f64 / (slots * load)).ceil() as u32,
                seed: 99,
                reduction: Default::default(),
            };
            let items: Vec<(u32, u32)> = keys.iter().copied().zip(0..).collect();
            let model = HortonModel::build(layout, &items).unwrap();
            model.check().unwrap();
            let table = device
                .run_blocking(move |queue| HortonTable::upload(queue, &model))
                .unwrap()
                .value;
            check_table(&device, &table, &keys);
        }
    }
}

#[test]
fn type_b_share_and_remapped_items_follow_the_papers_model() {
    if small() {
        return;
    }
    let device = device();
    let keys = distinct_keys(3, 1_000_000);
    let build_keys = keys.clone();
    let config = config(BucketSize::Eight, 0.95);
    let table = run(&device, move |q| build_unique(q, &config, &build_keys)).value;
    // Equations 4 and 5 at λ = 7.6: 35 % of the buckets, 16.5 % of the items.
    let type_b = table.type_b_share();
    assert!((0.34..0.37).contains(&type_b), "{type_b}");
    let remapped = f64::from(table.census().secondary) / table.len() as f64;
    assert!((0.155..0.175).contains(&remapped), "{remapped}");
}

#[test]
fn twenty_seeds_reach_the_papers_load_without_losing_a_key() {
    let device = device();
    let keys = distinct_keys(11, scaled(31_000));
    for seed in 0..if small() { 2 } else { 20 } {
        let (build_keys, keys) = (keys.clone(), &keys);
        let config = TableConfig {
            seed,
            ..config(BucketSize::Eight, 0.95)
        };
        let table = run(&device, move |q| build_unique(q, &config, &build_keys)).value;
        let found = table.lookup_blocking(&device, keys).unwrap();
        assert!(found.into_iter().eq((0..keys.len() as u32).map(Some)));
        assert!(small() || table.load_factor() > 0.94, "seed {seed} grew");
    }
}

#[test]
fn sizes_around_work_group_and_chunk_boundaries() {
    let device = device();
    let sizes = [
        0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 127, 255, 256, 257, 511, 512, 513, 1023,
        1025, 4095, 4097,
    ];
    for n in sizes.into_iter().filter(|n| !small() || *n < 600) {
        let keys = distinct_keys(4 + n as u32, n);
        let build_keys = keys.clone();
        let table = device
            .run_blocking(move |q| build_unique(q, &TableConfig::default(), &build_keys))
            .unwrap()
            .value;
        check_table(&device, &table, &keys);
    }
}

#[test]
fn an_empty_probe_launches_nothing() {
    let device = device();
    let table = HortonTable::from_pairs(&device, &[1], &[1], &TableConfig::default()).unwrap();
    let (values, reads, cost) = look_up(&device, device.info().body(), &table, &[]);
    assert!(values.is_empty());
    assert_eq!((reads, cost.launches), (0, 0));
    assert_eq!(table.lookup_blocking(&device, &[]).unwrap(), []);
}

#[test]
fn the_extreme_keys_are_keys_like_any_other() {
    let device = device();
    for bucket_size in BucketSize::ALL {
        let config = config(bucket_size, 0.8);
        let keys = [0, 1, u32::MAX, u32::MAX - 1, 0x7fff_ffff, 0x8000_0000];
        let values = [5, 0, MAX_VALUE, 7, 1, 2];
        let table = HortonTable::from_pairs(&device, &keys, &values, &config).unwrap();
        let expected: Vec<Option<u32>> = values.iter().copied().map(Some).collect();
        assert_eq!(table.lookup_blocking(&device, &keys).unwrap(), expected);
        let without = HortonTable::from_pairs(&device, &[3], &[4], &config).unwrap();
        assert_eq!(
            without.lookup_blocking(&device, &[u32::MAX, 3, 0]).unwrap(),
            [None, Some(4), None]
        );
    }
}

#[test]
fn keys_crafted_to_share_a_bucket_and_a_tag_need_another_seed() {
    let device = device();
    let config = TableConfig::default();
    let wanted = 40;
    let buckets = (wanted as f64 / (8.0 * config.load_factor)).ceil() as u32;
    let keys: Vec<u32> = (0..u32::MAX)
        .filter(|&k| {
            hash::primary_bucket(k, config.seed, buckets) == 1 && hash::tag_of(k, config.seed) == 4
        })
        .take(wanted)
        .collect();
    let build_keys = keys.clone();
    let table = run(&device, move |q| build_unique(q, &config, &build_keys)).value;
    assert_ne!(table.layout().seed, config.seed);
    check_table(&device, &table, &keys);
}

#[test]
fn keys_sharing_a_remap_entry_share_its_secondary_bucket() {
    let device = device();
    let config = config(BucketSize::Eight, 0.5);
    // 12 keys of one bucket and one tag: 7 primary, 5 behind one remap entry.
    let buckets = 64;
    let crafted = (0..u32::MAX)
        .filter(|&k| {
            hash::primary_bucket(k, config.seed, buckets) == 9 && hash::tag_of(k, config.seed) == 20
        })
        .take(12);
    let others = (0..u32::MAX)
        .filter(|&k| hash::primary_bucket(k, config.seed, buckets) != 9)
        .take(256 - 12);
    let keys: Vec<u32> = crafted.chain(others).collect();
    let build_keys = keys.clone();
    let table = run(&device, move |q| build_unique(q, &config, &build_keys)).value;
    assert_eq!(table.layout().buckets, buckets);
    assert_eq!(table.layout().seed, config.seed);
    assert!(table.census().secondary >= 5);
    check_table(&device, &table, &keys);
}

#[test]
fn a_load_that_cannot_fit_grows() {
    let device = device();
    let keys = distinct_keys(5, scaled(20_000));
    let build_keys = keys.clone();
    let config = config(BucketSize::Four, 1.0);
    let table = run(&device, move |q| build_unique(q, &config, &build_keys)).value;
    assert!(table.load_factor() < 0.96);
    check_table(&device, &table, &keys);
}

#[test]
fn bad_input_is_named() {
    let device = device();
    let config = TableConfig::default();
    let lengths = HortonTable::from_pairs(&device, &[1, 2], &[1], &config);
    assert!(matches!(lengths, Err(Error::Invalid(_))));
    let value = HortonTable::from_pairs(&device, &[1], &[MAX_VALUE + 1], &config);
    assert!(matches!(value, Err(Error::Invalid(_))));
    let twice = HortonTable::from_pairs(&device, &[1, 1], &[1, 2], &config);
    assert!(matches!(twice, Err(Error::DuplicateKeys)));
    for load_factor in [0.0, -1.0, 1.1, f64::NAN] {
        let config = TableConfig {
            load_factor,
            ..config
        };
        let built = HortonTable::from_pairs(&device, &[1], &[1], &config);
        assert!(matches!(built, Err(Error::Invalid(_))), "{load_factor}");
    }
    assert!(BucketSize::try_from(5).is_err());
}

#[test]
fn memory_returns_to_the_budget() {
    let device = device();
    // Other tests use the same device at the same time, so only a lower bound can be asked of it.
    let table = HortonTable::from_pairs(&device, &[1], &[1], &TableConfig::default()).unwrap();
    assert!(device.budget().used() >= table.bytes());
    let refused = device.run_blocking(|queue| {
        queue.limit_memory(1);
        queue.allocate::<u32>("a test", 1000)
    });
    assert!(matches!(refused, Err(Error::DeviceMemory { .. })));
    let oversized = device.info().max_allocation as usize / 4 + 1;
    let refused = device.run_blocking(move |queue| queue.allocate::<u32>("a test", oversized));
    assert!(matches!(refused, Err(Error::DeviceMemory { .. })));
}

#[test]
fn a_panicking_job_is_an_error_and_the_device_lives_on() {
    let device = device();
    let result: Result<Answer<()>> = device.run_blocking(|_| panic!("on purpose"));
    assert!(matches!(result, Err(Error::QueueStopped { reason, .. }) if reason == "on purpose"));
    HortonTable::from_pairs(&device, &[1], &[1], &TableConfig::default()).unwrap();
}
