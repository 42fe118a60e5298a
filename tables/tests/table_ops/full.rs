//! Tables of buckets without room, of every bucket size, where items are too many or cannot be
//! placed: what is rejected is named and nothing has changed, or the table has grown, as was asked.
//! (All kinds: `suite.rs`.)

use horton_tables::device::Queue;
use horton_tables::error::{Error, Result};
use horton_tables::table::WhenFull;
use horton_tables::table::baselines::cuckoo::CuckooTable;
use horton_tables::table::horton::{BucketSize, HortonTable};

use super::harness::{Beside, Checked, Shape, distinct_keys, on_device, small, with_items};

/// Slots of the tables, items that fill them, and the load factor of those that grow. Far from
/// full under oclgrind, where displacement to the last slot takes minutes.
fn slots() -> usize {
    if small() { 128 } else { 1_024 }
}

fn filled() -> usize {
    if small() { 80 } else { slots() * 7 / 8 }
}

fn load_factor() -> f64 {
    if small() { 0.65 } else { 0.9 }
}

/// Each kind, Horton eager and lazy, cuckoo load-balanced and first fit; and each bucket size.
fn every_kind(test: impl Fn(Kind, Shape)) {
    for kind in [Kind::Horton, Kind::Cuckoo] {
        let sizes = BucketSize::ALL.into_iter();
        for bucket_size in sizes.filter(|size| !small() || *size == BucketSize::Eight) {
            for lazy in [false, true] {
                let mut shape = Shape::new(bucket_size, slots());
                (shape.load_factor, shape.lazy) = (load_factor(), lazy);
                test(kind, shape);
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Horton,
    Cuckoo,
}

fn items(keys: &[u32]) -> Vec<(u32, u32)> {
    keys.iter().map(|k| (*k, k.rotate_left(7))).collect()
}

/// `inserted` does not fit beside what is there: an error names those without room, and all is as
/// it was.
fn rejects<T: Checked>(
    queue: &mut Queue,
    beside: &mut Beside<T>,
    inserted: &[(u32, u32)],
) -> Result<()> {
    let mut before = beside.table.items(queue)?;
    before.sort_unstable();
    let capacity = beside.table.capacity();
    let table = &mut beside.table;
    let result = with_items(queue, inserted, |queue, items| table.insert(queue, items));
    let Err(error) = result else {
        panic!("{} items were inserted: {result:?}", inserted.len());
    };
    let text = error.to_string();
    let Error::Rejected { keys, len, .. } = error else {
        panic!("{text}");
    };
    // Counted, named, each once, and of those that were to be inserted.
    assert!(
        text.contains(&format!(" has no room for {} keys;", keys.len())),
        "{text}"
    );
    assert!(!keys.is_empty() && keys.is_sorted_by(|a, b| a < b));
    let is_inserted = |key: &u32| inserted.iter().any(|item| item.0 == *key);
    assert!(keys.iter().all(is_inserted), "{keys:?}");
    assert_eq!((len, beside.table.capacity()), (before.len(), capacity));
    let mut after = beside.table.items(queue)?;
    after.sort_unstable();
    assert!(after == before, "the table has changed");
    beside.compare(queue, &keys)
}

fn full_table_rejects<T: Checked + 'static>(mut shape: Shape, too_many: usize) {
    shape.when_full = WhenFull::Reject;
    on_device(move |queue| {
        let keys = distinct_keys(61, 2 * slots());
        let there = filled();
        let mut beside = Beside::<T>::build(queue, shape, &items(&keys[..there]))?;
        // More than there are slots; more than can be placed; and those beside some that are there.
        rejects(queue, &mut beside, &items(&keys[there..]))?;
        rejects(queue, &mut beside, &items(&keys[there..too_many]))?;
        rejects(queue, &mut beside, &items(&keys[there / 2..too_many]))?;
        // What is there gets its new values all the same, and a few more fit.
        let updates: Vec<(u32, u32)> = keys[..there].iter().map(|k| (*k, !k)).collect();
        beside.insert(queue, &updates)?;
        beside.compare(queue, &[])?;
        beside.insert(queue, &items(&keys[there..there + 3]))?;
        beside.compare(queue, &[])
    });
}

fn full_table_grows<T: Checked + 'static>(shape: Shape) {
    on_device(move |queue| {
        let keys = distinct_keys(62, 2 * slots());
        let mut beside = Beside::<T>::build(queue, shape, &items(&keys[..filled()]))?;
        assert_eq!(beside.table.capacity(), slots());
        // Some that are there, too.
        let batch = if small() { 2 * slots() } else { slots() / 2 };
        for batch in keys[slots() / 2..].chunks(batch) {
            beside.insert(queue, &items(batch))?;
            beside.compare(queue, &[])?;
        }
        assert!(beside.table.capacity() > 2 * slots());
        assert!(beside.table.load_factor() > 0.5, "it grew too far");
        Ok(())
    });
}

fn full_build_is_an_error<T: Checked + 'static>(mut shape: Shape) {
    (shape.when_full, shape.load_factor) = (WhenFull::Reject, 1.0);
    let error = on_device(move |queue| {
        let keys = distinct_keys(63, slots());
        Ok(Beside::<T>::build(queue, shape, &items(&keys)).map(|beside| beside.table.len()))
    });
    let rejected = match error {
        Err(Error::Rejected { keys, .. }) => keys.len(),
        Err(Error::TableFull { rejected, .. }) => rejected,
        other => panic!("{other:?}"),
    };
    assert!((1..slots()).contains(&rejected), "{rejected}");
}

#[test]
fn a_full_table_names_the_keys_it_rejects_and_stays_as_it_was() {
    every_kind(|kind, shape| {
        // Fewer than there are slots, where it is certain that those cannot all be taken.
        let too_many = match (kind, shape.bucket_size) {
            (Kind::Horton, _) | (_, BucketSize::Four) if !small() => slots() - 4,
            _ => slots() + 1,
        };
        match kind {
            Kind::Horton => full_table_rejects::<HortonTable>(shape, too_many),
            Kind::Cuckoo => full_table_rejects::<CuckooTable>(shape, too_many),
        }
    });
}

#[test]
fn a_full_table_grows_when_it_may() {
    every_kind(|kind, shape| match kind {
        Kind::Horton => full_table_grows::<HortonTable>(shape),
        Kind::Cuckoo => full_table_grows::<CuckooTable>(shape),
    });
}

#[test]
fn a_build_that_may_not_grow_says_how_many_keys_found_no_room() {
    // Displacement gives up late: minutes under oclgrind.
    if small() {
        return;
    }
    every_kind(|kind, shape| match kind {
        Kind::Horton => full_build_is_an_error::<HortonTable>(shape),
        // A cuckoo table can be filled to the last slot of 8 and 16, or nearly so.
        Kind::Cuckoo if shape.bucket_size == BucketSize::Four => {
            full_build_is_an_error::<CuckooTable>(shape)
        }
        Kind::Cuckoo => {}
    });
}
