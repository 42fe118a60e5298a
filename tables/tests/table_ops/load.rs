//! The loads that Horton tables reach without growing, over many seeds.
//! `HORTON_LOAD_SEEDS=200` tries them all, from `HORTON_TABLE_SEED` on (`make seeds`);
//! `HORTON_LOAD_SLOTS=4` only buckets of 4 slots.

use horton_tables::device::Queue;
use horton_tables::error::Result;
use horton_tables::table::Table;
use horton_tables::table::horton::{BucketSize, HortonModel, HortonTable, Layout, TableConfig};
use horton_tables::table::{Items, WhenFull};

use super::harness::{distinct_keys, number, on_device, scaled, small};

/// The load factor of the paper's figure 9, to which a table of so many slots per bucket is filled.
pub fn load_of(bucket_size: BucketSize) -> f64 {
    match bucket_size {
        BucketSize::Four => 0.91,
        BucketSize::Eight => 0.95,
        BucketSize::Sixteen => 0.96,
    }
}

fn seeds(default: usize) -> std::ops::Range<u32> {
    let first = number("HORTON_TABLE_SEED", 1) as u32;
    first..first + number("HORTON_LOAD_SEEDS", default) as u32
}

fn buckets() -> usize {
    scaled(1 << 17)
}

fn keys_of(bucket_size: BucketSize, seed: u32) -> Vec<u32> {
    let slots = buckets() * bucket_size.slots();
    distinct_keys(seed, (slots as f64 * load_of(bucket_size)) as usize)
}

fn build(queue: &mut Queue, bucket_size: BucketSize, seed: u32) -> Result<HortonTable> {
    let keys = queue.buffer_from("keys", &keys_of(bucket_size, seed))?;
    let config = TableConfig {
        bucket_size,
        load_factor: 1.0,
        min_capacity: buckets() * bucket_size.slots(),
        when_full: WhenFull::Reject,
        seed,
        ..TableConfig::default()
    };
    let items = Items {
        keys: &keys,
        values: None,
    };
    HortonTable::build(queue, &config, items)
}

fn sizes() -> impl Iterator<Item = BucketSize> {
    let asked = number("HORTON_LOAD_SLOTS", 0);
    let asked_for = move |size: &BucketSize| asked == 0 || asked == size.slots();
    BucketSize::ALL.into_iter().filter(asked_for)
}

/// Nothing, or an objection.
type Filled = std::result::Result<(), String>;

/// Tries every seed and size; those that `fill` has an objection to fail the test at the end.
fn all_fill(seeds: std::ops::Range<u32>, fill: impl Fn(u32, BucketSize) -> Filled) {
    let mut failed = Vec::new();
    let mut tried = 0;
    for seed in seeds {
        for bucket_size in sizes() {
            tried += 1;
            if let Err(why) = fill(seed, bucket_size) {
                failed.push(format!("seed {seed}, {bucket_size} slots: {why}"));
            }
        }
    }
    println!("{} of {tried} tables were filled", tried - failed.len());
    assert!(tried > 0 && failed.is_empty(), "{failed:#?}");
}

#[test]
fn the_device_fills_tables_to_the_papers_loads() {
    let default = if small() { 1 } else { 2 };
    all_fill(seeds(default), |seed, bucket_size| {
        let (table, model) = on_device(move |queue| {
            let table = build(queue, bucket_size, seed);
            let model = table.as_ref().ok().map(|table| table.download(queue));
            Ok((table, model.transpose()?))
        });
        let table = table.map_err(|error| error.to_string())?;
        println!("seed {seed}, {bucket_size} slots: {:?}", table.census());
        if table.layout().seed != seed {
            return Err("another seed was needed".to_owned());
        }
        if table.layout().buckets as usize != buckets() {
            return Err("it grew".to_owned());
        }
        model.map_or(Ok(()), |model| model.check())
    });
}

#[test]
fn the_model_fills_tables_to_the_papers_loads() {
    all_fill(seeds(1), |seed, bucket_size| {
        let layout = Layout {
            bucket_size,
            buckets: buckets() as u32,
            seed,
            reduction: Default::default(),
        };
        let keys = keys_of(bucket_size, seed);
        let items: Vec<(u32, u32)> = keys.into_iter().zip(0..).collect();
        let model = HortonModel::build(layout, &items);
        model.map_err(|left| format!("{left} items left"))?.check()
    });
}
