//! The cost of lookups: the buckets that a Horton table's lookups read, counted on the device,
//! beside the models of the Horton paper (section 6) at every load.

use horton_tables::device::Queue;
use horton_tables::error::Result;
use horton_tables::table::WhenFull;
use horton_tables::table::horton::{BucketSize, HortonTable};

use super::harness::{Beside, Shape, distinct_keys, on_device, small};
use super::load::load_of;
use horton_tables_test_support::lookups::equations::Model;

/// Slots of the tables that are filled, so many that chance moves a cost by two thousandths at
/// most.
const SLOTS: usize = 1 << 17;

/// Buckets read by a lookup.
#[derive(Debug, Clone, Copy)]
struct Cost {
    hit: f64,
    miss: f64,
}

fn slots() -> usize {
    if small() { 1 << 9 } else { SLOTS }
}

/// Every twentieth up to the highest that the paper expects of a bucket size.
fn loads(bucket_size: BucketSize) -> Vec<f64> {
    let highest = load_of(bucket_size);
    let steps = (1..19).map(|i| 0.05 * f64::from(i));
    steps
        .filter(|load| *load < highest)
        .chain([highest])
        .collect()
}

/// The mean over all of `keys`, as two kernels count it: the one that also counts lines, and the
/// lookup that is used.
fn mean_cost(queue: &mut Queue, table: &HortonTable, keys: &[u32]) -> Result<f64> {
    let n = keys.len();
    let keys = queue.buffer_from("keys", keys)?;
    let counted = table.count_reads(queue, &keys, n)?;
    let (values, second) = (
        queue.allocate("values", n)?,
        queue.buffer_from("reads", &[0])?,
    );
    HortonTable::lookup(table, queue, &keys, &values, &second, n)?;
    let second = u64::from(queue.read(&second, 1)?[0]);
    assert_eq!(counted.buckets, n as u64 + second, "buckets read");
    Ok(counted.buckets as f64 / n as f64)
}

/// Fills a table in so many batches, the first of them a bulk build; then looks all of its keys up,
/// and others that it does not have.
fn cost(bucket_size: BucketSize, load: f64, batches: usize) -> Cost {
    on_device(move |queue| {
        let n = (slots() as f64 * load) as usize;
        let keys = distinct_keys(51, n + slots());
        let (present, absent) = keys.split_at(n);
        let items: Vec<(u32, u32)> = present.iter().copied().zip(0..).collect();
        let (first, rest) = items.split_at(n / batches);
        let mut shape = Shape::new(bucket_size, slots());
        (shape.load_factor, shape.when_full) = (1.0, WhenFull::Reject);
        if small() {
            shape.when_full = WhenFull::Grow;
        }
        let mut beside = Beside::<HortonTable>::build(queue, shape, first)?;
        for batch in rest.chunks(n / batches) {
            beside.insert(queue, batch)?;
        }
        assert_eq!(beside.table.len(), n);
        Ok(Cost {
            hit: mean_cost(queue, &beside.table, present)?,
            miss: mean_cost(queue, &beside.table, absent)?,
        })
    })
}

fn assert_within(bucket_size: BucketSize, load: f64, found: Cost, tolerance: f64) {
    let model = Model::new(bucket_size.slots(), load);
    let off = |found: f64, model: f64| (found / model - 1.0).abs();
    let (hit, miss) = (off(found.hit, model.hit()), off(found.miss, model.miss()));
    assert!(
        small() || hit.max(miss) < tolerance,
        "{bucket_size} slots, load {load}: {found:?}, by the model {} and {}",
        model.hit(),
        model.miss()
    );
}

#[test]
fn lookups_read_what_the_models_say_at_every_load() {
    for bucket_size in BucketSize::ALL {
        for load in loads(bucket_size) {
            if small() && (bucket_size, load) != (BucketSize::Eight, 0.95) {
                continue;
            }
            assert_within(bucket_size, load, cost(bucket_size, load, 1), 0.01);
        }
    }
}

#[test]
fn lookups_in_buckets_of_eight_read_what_the_paper_promises() {
    if small() {
        return;
    }
    for (load, most) in [(0.55, (1.03, 1.01)), (0.95, (1.18, 1.065))] {
        let found = cost(BucketSize::Eight, load, 1);
        assert!(
            found.hit <= most.0 && found.miss <= most.1,
            "load {load}: {found:?}"
        );
        // It can fail: buckets do overflow at these loads.
        assert!(
            found.hit > 1.01 && found.miss > 1.002,
            "load {load}: {found:?}"
        );
    }
}

#[test]
fn a_table_filled_in_batches_costs_what_one_built_at_once_does() {
    for load in [0.5, 0.8, 0.95] {
        if small() && load != 0.8 {
            continue;
        }
        assert_within(
            BucketSize::Eight,
            load,
            cost(BucketSize::Eight, load, 8),
            0.01,
        );
    }
}
