//! The suite that every kind of table must pass, on every body of the device.
//!
//! ```text
//!  test   × Horton (eager, lazy) · cuckoo (load-balanced, first fit)
//!         · linear probing (kept keys, tombstones) · slab hash (SlabAlloc-light, SlabAlloc) × body
//! ```

use std::collections::HashMap;

use horton_tables::device::Queue;
use horton_tables::error::{Error, Result};
use horton_tables::table::baselines::cuckoo::CuckooTable;
use horton_tables::table::baselines::linear::LinearTable;
use horton_tables::table::baselines::slab::SlabHash;
use horton_tables::table::horton::{BucketSize, HortonTable};
use horton_tables::table::primitives::hash::jenkins;
use horton_tables::table::{Answers, Items, WhenFull};

use super::harness::{
    Beside, Checked, Shape, bodies, device, distinct_keys, look_up, on_device, scaled, small,
    with_items,
};

/// Runs a test with both variants of a kind and all bodies.
fn each(test: fn(&mut Queue, Shape) -> Result<()>) {
    for body in bodies(&device()) {
        for lazy in [false, true] {
            on_device(move |queue| {
                queue.use_body(body)?;
                let shape = Shape {
                    lazy,
                    ..Shape::new(BucketSize::Eight, 0)
                };
                println!("{body}, {shape:?}");
                test(queue, shape)
            });
        }
    }
}

/// Every test for every kind.
macro_rules! suite {
    ($($test:ident)*) => {
        suite! { @ horton HortonTable $($test)* }
        suite! { @ cuckoo CuckooTable $($test)* }
        suite! { @ linear LinearTable $($test)* }
        suite! { @ slab SlabHash $($test)* }
    };
    (@ $kind:ident $table:ident $($test:ident)*) => {
        mod $kind {
            use super::*;
            $(
                #[test]
                fn $test() {
                    each(super::$test::<$table>);
                }
            )*
        }
    };
}

suite! {
    sizes_around_work_group_boundaries
    extreme_keys_and_values_are_like_any_other
    nothing_at_all_is_no_error
    batches_go_in_and_out
    of_a_repeated_key_one_value_stays
    tables_built_on_the_host_go_on_on_the_device
    a_full_table_rejects_a_batch_and_stays_as_it_was
    a_full_table_grows
    values_that_cannot_be_stored_change_nothing
    buffers_that_do_not_fit_together_are_refused
}

fn items<T: Checked>(keys: &[u32]) -> Vec<(u32, u32)> {
    let values = keys.iter().map(|k| T::value(!k.rotate_left(3)));
    keys.iter().copied().zip(values).collect()
}

fn sizes_around_work_group_boundaries<T: Checked>(queue: &mut Queue, shape: Shape) -> Result<()> {
    for n in [1, 2, 15, 16, 17, 31, 33, 255, 256, 257, 1025] {
        if small() && ![1, 17, 257].contains(&n) {
            continue;
        }
        let keys = distinct_keys(n as u32, n);
        let mut beside = Beside::<T>::build(queue, shape, &items::<T>(&keys))?;
        beside.compare(queue, &[5, 6, 7])?;
        beside.remove(queue, &keys)?;
        beside.compare(queue, &keys)?;
    }
    Ok(())
}

fn extreme_keys_and_values_are_like_any_other<T: Checked>(
    queue: &mut Queue,
    mut shape: Shape,
) -> Result<()> {
    shape.min_capacity = 64;
    let keys = [0, 1, u32::MAX, u32::MAX - 1, u32::MAX - 2, 0x8000_0000];
    let values = [T::MAX_VALUE, 0, T::MAX_VALUE, 7, 1, T::MAX_VALUE - 1];
    let extremes: Vec<(u32, u32)> = keys.into_iter().zip(values).collect();
    let mut beside = Beside::<T>::build(queue, shape, &[])?;
    beside.compare(queue, &keys)?;
    beside.insert(queue, &extremes)?;
    beside.compare(queue, &keys)?;
    // A key counts once, however often it is given.
    beside.remove(queue, &[u32::MAX, 5, u32::MAX, 0])?;
    beside.compare(queue, &keys)?;
    beside.insert(queue, &keys.map(|key| (key, 5)))?;
    beside.compare(queue, &[])
}

fn nothing_at_all_is_no_error<T: Checked>(queue: &mut Queue, shape: Shape) -> Result<()> {
    let mut beside = Beside::<T>::build(queue, shape, &[])?;
    assert!(beside.table.is_empty());
    beside.insert(queue, &[])?;
    beside.remove(queue, &[])?;
    beside.remove(queue, &[1, 2])?;
    assert_eq!(look_up(queue, &beside.table, &[])?, []);
    assert_eq!(beside.table.statistics(queue)?.reads_per_hit, 0.0);
    beside.compare(queue, &[])
}

fn batches_go_in_and_out<T: Checked>(queue: &mut Queue, mut shape: Shape) -> Result<()> {
    let keys = distinct_keys(32, scaled(6_000));
    shape.min_capacity = keys.len() * 10 / 9;
    let mut beside = Beside::<T>::build(queue, shape, &[])?;
    for batch in items::<T>(&keys).chunks(keys.len() / 3 + 1) {
        beside.insert(queue, batch)?;
        beside.compare(queue, &[])?;
    }
    beside.remove(queue, &keys[keys.len() / 4..])?;
    beside.compare(queue, &keys)?;
    let again: Vec<(u32, u32)> = keys.iter().copied().zip(0..).collect();
    beside.insert(queue, &again)?;
    beside.compare(queue, &[])
}

fn of_a_repeated_key_one_value_stays<T: Checked>(queue: &mut Queue, shape: Shape) -> Result<()> {
    let n = scaled(5_000) as u32;
    let repeated: Vec<(u32, u32)> = (0..n).map(|i| (jenkins(i % 16), i)).collect();
    let mut beside = Beside::<T>::build(queue, shape, &repeated)?;
    assert_eq!(beside.table.len(), 16);
    beside.compare(queue, &[])?;
    // Some new, some there, all repeated.
    let more: Vec<(u32, u32)> = (0..n).map(|i| (jenkins(8 + i % 16), n + i)).collect();
    beside.insert(queue, &more)?;
    assert_eq!(beside.table.len(), 24);
    beside.compare(queue, &[])
}

fn tables_built_on_the_host_go_on_on_the_device<T: Checked>(
    queue: &mut Queue,
    mut shape: Shape,
) -> Result<()> {
    let keys = distinct_keys(33, scaled(8_000));
    let (first, second) = keys.split_at(keys.len() * 7 / 8);
    shape.min_capacity = keys.len() * 10 / 9;
    let first: Vec<(u32, u32)> = first.iter().copied().zip(0..).collect();
    let shaped = Beside::<T>::build(queue, shape, &[])?.table;
    let mut beside = Beside {
        table: shaped.on_host(queue, &first)?,
        expected: first.into_iter().collect::<HashMap<u32, u32>>(),
    };
    beside.compare(queue, second)?;
    beside.insert(queue, &items::<T>(second))?;
    beside.compare(queue, &[])?;
    beside.remove(queue, &keys[..keys.len() / 2])?;
    beside.compare(queue, &keys)
}

type Pairs = Vec<(u32, u32)>;

/// A table of a few items, and more than it has room for, some of them there.
fn too_many<T: Checked>(queue: &mut Queue, shape: Shape) -> Result<(Beside<T>, Pairs)> {
    // Short lists in a slab hash: its memory is many times what other tables have here.
    let shape = Shape {
        min_capacity: if T::ROOMY { 8_192 } else { 1_024 },
        load_factor: 0.9,
        ..shape
    };
    let keys = distinct_keys(25, 900);
    let beside = Beside::<T>::build(queue, shape, &items::<T>(&keys))?;
    let mut more = distinct_keys(26, beside.table.capacity() + 100);
    more.extend(&keys[..200]);
    let more = more.iter().map(|key| (*key, 3)).collect();
    Ok((beside, more))
}

fn a_full_table_rejects_a_batch_and_stays_as_it_was<T: Checked>(
    queue: &mut Queue,
    mut shape: Shape,
) -> Result<()> {
    // A SlabAlloc has half a million entries before it is full.
    if T::ROOMY && (small() || shape.lazy) {
        return Beside::<T>::build(queue, shape, &[(1, 2)])?.compare(queue, &[]);
    }
    shape.when_full = WhenFull::Reject;
    let (mut beside, more) = too_many::<T>(queue, shape)?;
    let (len, capacity) = (beside.table.len(), beside.table.capacity());
    for _ in 0..2 {
        let table = &mut beside.table;
        let result = with_items(queue, &more, |queue, items| table.insert(queue, items));
        let Err(Error::Rejected {
            keys, len: items, ..
        }) = result
        else {
            panic!("{result:?}");
        };
        assert_eq!(items, len);
        let missing = len + more.len() - 200 - capacity;
        assert!(keys.is_sorted() && keys.len() >= missing, "{}", keys.len());
        let given = |key: &u32| more.iter().any(|(k, _)| k == key);
        assert!(keys.iter().step_by(97).all(given));
        assert_eq!(table.capacity(), capacity);
        beside.compare(queue, &keys)?;
    }
    // What is there can still be changed, and a few keys more have room.
    beside.insert(queue, &more[more.len() - 200..])?;
    beside.insert(queue, &more[..10])?;
    beside.compare(queue, &[])
}

fn a_full_table_grows<T: Checked>(queue: &mut Queue, shape: Shape) -> Result<()> {
    if T::ROOMY && small() {
        return Beside::<T>::build(queue, shape, &[(1, 2)])?.compare(queue, &[]);
    }
    let (mut beside, more) = too_many::<T>(queue, shape)?;
    let capacity = beside.table.capacity();
    beside.insert(queue, &more)?;
    assert!(beside.table.capacity() > capacity);
    beside.compare(queue, &[1, 2, 3])?;
    let keys: Vec<u32> = more.iter().map(|(key, _)| *key).collect();
    beside.remove(queue, &keys)?;
    beside.compare(queue, &keys)
}

fn values_that_cannot_be_stored_change_nothing<T: Checked>(
    queue: &mut Queue,
    shape: Shape,
) -> Result<()> {
    let keys = distinct_keys(27, 600);
    let mut beside = Beside::<T>::build(queue, shape, &items::<T>(&keys[..300]))?;
    let Some(first) = T::MAX_VALUE.checked_add(1) else {
        beside.insert(queue, &[(9, u32::MAX)])?;
        return beside.compare(queue, &[]);
    };
    for value in [first, u32::MAX] {
        let mut bad: Vec<(u32, u32)> = keys[200..].iter().map(|key| (*key, 4)).collect();
        bad[50].1 = value;
        bad[150].1 = value;
        let table = &mut beside.table;
        let result = with_items(queue, &bad, |queue, items| table.insert(queue, items));
        let text = result.unwrap_err().to_string();
        let limit = T::MAX_VALUE.to_string();
        assert!(
            text.starts_with("2 of 400") && text.contains(&limit),
            "{text}"
        );
        beside.compare(queue, &keys)?;
        let built = with_items(queue, &bad, |queue, items| {
            T::build(queue, &T::config(shape), items)
        });
        assert!(matches!(built, Err(Error::Invalid(_))));
    }
    Ok(())
}

fn buffers_that_do_not_fit_together_are_refused<T: Checked>(
    queue: &mut Queue,
    shape: Shape,
) -> Result<()> {
    let mut beside = Beside::<T>::build(queue, shape, &[(1, 10), (2, 20)])?;
    let three = queue.buffer_from("three", &[1, 2, 3])?;
    let two = queue.buffer_from("two", &[1, 2])?;
    let items = Items {
        keys: &three,
        values: Some(&two),
    };
    let table = &mut beside.table;
    assert!(T::build(queue, &T::config(shape), items).is_err());
    assert!(table.insert(queue, items).is_err());
    assert!(table.remove(queue, &two, 3).is_err());
    let (narrow, wide) = (Answers::with_room(queue, 2)?, Answers::with_room(queue, 3)?);
    assert!(table.lookup(queue, &two, &wide, 3).is_err());
    assert!(table.lookup(queue, &three, &narrow, 3).is_err());
    let mixed = Answers {
        values: wide.values,
        found: narrow.found,
    };
    assert!(table.lookup(queue, &three, &mixed, 3).is_err());
    beside.compare(queue, &[3])
}
