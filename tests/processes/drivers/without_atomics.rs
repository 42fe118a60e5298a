//! Devices without 64-bit atomics: joins run there, tables that change do not.

use horton_join::device::Device;
use horton_join::error::DeviceError;
use horton_join::table::baselines::linear::{LinearConfig, LinearTable};
use horton_join::table::baselines::slab::{SlabConfig, SlabHash};
use horton_join::table::horton::{BucketSize, HortonTable, TableConfig};
use horton_join::table::multimap::IndexKind;
use horton_join::table::{Items, Table};

use super::child::{QUERIES, check_rows, is_child, metric, session_over};

const EXTENSION: &str = "cl_khr_int64_base_atomics";
const WITHOUT: &str = "without=cl_khr_int64_base_atomics";

#[tokio::test]
async fn joins_run_there() {
    if !is_child("without_atomics::joins_run_there", WITHOUT) {
        return;
    }
    assert!(!Device::open("auto").unwrap().info().has_int64_atomics());
    for index in [IndexKind::Auto, IndexKind::Horton, IndexKind::Direct] {
        let session = session_over(index).await;
        check_rows(&session).await;
        for query in QUERIES {
            assert!(
                metric(&session, query, "kernel_launches").await > 0,
                "{query}"
            );
        }
    }
}

#[test]
fn tables_that_change_answer_with_one_error_that_names_it() {
    let test = "without_atomics::tables_that_change_answer_with_one_error_that_names_it";
    if !is_child(test, WITHOUT) {
        return;
    }
    let device = Device::open("auto").unwrap();
    let keys: Vec<u32> = (0..1000).collect();
    let linear = device.run_blocking({
        let keys = keys.clone();
        move |queue| {
            let keys = queue.buffer_from("keys", &keys)?;
            let items = Items {
                keys: &keys,
                values: None,
            };
            LinearTable::build(queue, &LinearConfig::default(), items).map(drop)
        }
    });
    let slab = device.run_blocking({
        let keys = keys.clone();
        move |queue| {
            let keys = queue.buffer_from("keys", &keys)?;
            let items = Items {
                keys: &keys,
                values: None,
            };
            SlabHash::build(queue, &SlabConfig::default(), items).map(drop)
        }
    });
    // A Horton table is built, and looked up, but takes no more items.
    let update = device.run_blocking(move |queue| {
        let keys = queue.buffer_from("keys", &keys)?;
        let items = Items {
            keys: &keys,
            values: None,
        };
        let mut table = HortonTable::build(queue, &TableConfig::default(), items)?;
        let inserted = Table::insert(&mut table, queue, items).map(drop);
        assert_eq!(table.len(), 1000);
        inserted
    });
    for answer in [linear, slab, update] {
        match answer {
            Err(DeviceError::MissingExtension { extension, .. }) => {
                assert_eq!(extension, EXTENSION)
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(device.budget().used(), 0);
}

#[test]
fn loads_that_leave_stragglers_are_capped() {
    if !is_child(
        "without_atomics::loads_that_leave_stragglers_are_capped",
        WITHOUT,
    ) {
        return;
    }
    let device = Device::open("auto").unwrap();
    let keys: Vec<u32> = (0..200_000u32)
        .map(|key| key.wrapping_mul(0x9e37_79b9))
        .collect();
    let values: Vec<u32> = (0..200_000).collect();
    for (bucket_size, most) in [
        (BucketSize::Four, 0.6),
        (BucketSize::Eight, 0.85),
        (BucketSize::Sixteen, 0.9),
    ] {
        for wanted in [0.5, 0.95, 1.0] {
            let config = TableConfig {
                bucket_size,
                load_factor: wanted,
                ..TableConfig::default()
            };
            let table = HortonTable::from_pairs(&device, &keys, &values, &config).unwrap();
            let load = table.load_factor();
            assert!(
                (load - f64::min(wanted, most)).abs() < 0.001,
                "{bucket_size} {wanted} {load}"
            );
            let found = table.lookup_blocking(&device, &keys).unwrap();
            assert!(
                found
                    .iter()
                    .zip(&values)
                    .all(|(found, value)| *found == Some(*value))
            );
        }
    }
}
