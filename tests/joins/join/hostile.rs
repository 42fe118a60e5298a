//! Keys chosen against the table's hash functions cost what random keys do.
//!
//! The functions and the default seed are known, so an attacker can choose keys that share a
//! primary bucket or a tag; against a seed drawn for each join such a set is an ordinary one. Work
//! is counted (launches, buckets read), not timed.

use horton_join::table::horton::build::{Built, build};
use horton_join::table::horton::{Items, TableConfig};
use horton_join::table::primitives::hash::{primary_bucket, tag_of};
use rand_mt::Mt;

use horton_join::table::multimap::IndexKind;
use horton_test_support::joins::*;

const KEYS: usize = 5000;

/// Kernel launches of an attempt that uses up its rounds of displacement: 800 of four launches.
const LAUNCHES_OF_ALL_ROUNDS: u64 = 4 * 800;

/// The buckets of a table of [`KEYS`] keys by default.
fn buckets() -> u32 {
    let config = TableConfig::default();
    (KEYS as f64 / (8.0 * config.load_factor)).ceil() as u32
}

/// The first keys for which `chosen` holds.
fn keys_where(chosen: impl Fn(u32) -> bool) -> Vec<u32> {
    (0..u32::MAX)
        .filter(|key| chosen(*key))
        .take(KEYS)
        .collect()
}

/// Keys of one primary bucket, and of one tag, under the default seed.
fn hostile() -> [(&'static str, Vec<u32>); 2] {
    let seed = TableConfig::default().seed;
    let buckets = buckets();
    [
        (
            "a primary bucket",
            keys_where(|key| primary_bucket(key, seed, buckets) == 3),
        ),
        ("a tag", keys_where(|key| tag_of(key, seed) == 5)),
    ]
}

fn random() -> Vec<u32> {
    let mut random = Mt::new(5);
    let mut keys: Vec<u32> = (0..KEYS).map(|_| random.next_u32() >> 8).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn case(keys: &[u32]) -> Case {
    // 0 and the largest number: the normalized keys are the keys themselves.
    let ends = [0, u32::MAX];
    let keys = ends.iter().chain(keys.iter().filter(|key| **key != 0));
    let keys: Vec<Option<i64>> = keys.map(|key| Some(i64::from(*key))).collect();
    let side = Side::new(vec![("k", ints(&keys)), ("v", payload(keys.len()))]);
    Case::new(side.clone(), side.in_batches_of(700))
}

#[test]
fn joins_of_keys_chosen_against_the_known_seed_cost_what_random_keys_do() {
    let cost = |keys: &[u32]| {
        // Lookups of other tables read no buckets.
        let mut case = case(keys);
        set_engine(&mut case.config, IndexKind::Horton);
        let run = case.check();
        let (read, lookups) = run.ratio("buckets_per_lookup");
        let launches = run.metric("kernel_launches");
        (launches, read as f64 / lookups as f64)
    };
    let (launches, reads) = cost(&random());
    for (shared, keys) in hostile() {
        assert_eq!(keys.len(), KEYS);
        // The rows, over the table that suits the device.
        case(&keys).check();
        let (chosen, chosen_reads) = cost(&keys);
        assert!(
            chosen <= 2 * launches,
            "{shared}: {chosen} launches, not {launches}"
        );
        assert!(
            chosen_reads <= 1.1 * reads,
            "{shared}: {chosen_reads} buckets, not {reads}"
        );
    }
}

#[test]
fn a_table_built_with_the_known_seed_survives_keys_chosen_against_it() {
    side_by_side();
    let build_all = |keys: Vec<u32>| {
        let built = device().run_blocking(move |queue| {
            let (n, keys) = (keys.len(), queue.buffer_from("keys", &keys)?);
            let items = Items {
                keys: &keys,
                values: None,
            };
            let Built::Table(table) = build(queue, &TableConfig::default(), items)? else {
                panic!("keys repeat");
            };
            let values = queue.allocate("values", n)?;
            let reads = queue.buffer_from("reads", &[0])?;
            table.lookup(queue, &keys, &values, &reads, n)?;
            let values = queue.read(&values, n)?;
            assert!(values.into_iter().eq(0..n as u32));
            let second = queue.read(&reads, 1)?[0];
            Ok((table.layout(), second as f64 / n as f64))
        });
        let built = built.unwrap();
        (built.cost.launches, built.value)
    };
    let (launches, (layout, _)) = build_all(random());
    assert_eq!(layout.seed, TableConfig::default().seed);
    for (shared, keys) in hostile() {
        let (chosen, (hostile_layout, second)) = build_all(keys);
        // Keys of one bucket cost another attempt, with another seed. Under one tag all that
        // overflows a bucket goes to one other. If the order of claims is unlucky, items are
        // displaced for as many rounds as an attempt may take; the next seed is an ordinary one.
        let most = match shared {
            "a tag" => LAUNCHES_OF_ALL_ROUNDS + 3 * launches,
            _ => 4 * launches,
        };
        assert!(
            chosen <= most,
            "{shared}: {chosen} launches, not {launches}"
        );
        assert!(hostile_layout.buckets <= layout.buckets * 3 / 2);
        assert!(second <= 0.5, "{shared}: {second} secondary buckets a key");
    }
}
