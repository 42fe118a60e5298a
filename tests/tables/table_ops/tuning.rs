//! Whatever parameters a lookup kernel has, its answers are the same; and which it has is remembered.

use std::process::Stdio;

use horton_join::device::{Buffer, Device, DeviceInfo, KernelBody, Queue};
use horton_join::error::{Error, Result};
use horton_join::table::cuckoo::{CuckooConfig, CuckooTable, Placement};
use horton_join::table::horton::{BucketSize, HortonTable, MISS, TableConfig};
use horton_join::table::tuning::{
    Kind, Parameter, Residence, Second, Tuning, Workload, remembered, store,
};
use horton_join::table::{Items, Table};

use horton_test_support::{child, test_name};

use super::harness::{bodies, device, distinct_keys, on_device, small};

enum AnyTable {
    Horton(HortonTable),
    Cuckoo(CuckooTable),
}

impl AnyTable {
    fn build(queue: &mut Queue, workload: &Workload, keys: &[u32]) -> Result<Self> {
        let bucket_size = BucketSize::try_from(workload.slots)?;
        let keys = queue.buffer_from("keys", keys)?;
        let items = Items {
            keys: &keys,
            values: None,
        };
        let placement = match workload.kind {
            Kind::Horton => {
                let config = TableConfig {
                    bucket_size,
                    load_factor: 0.9,
                    ..TableConfig::default()
                };
                return Ok(Self::Horton(HortonTable::build(queue, &config, items)?));
            }
            Kind::LoadBalanced => Placement::LoadBalanced,
            Kind::FirstFit => Placement::FirstFit,
        };
        let config = CuckooConfig {
            bucket_size,
            load_factor: 0.9,
            placement,
            ..CuckooConfig::default()
        };
        Ok(Self::Cuckoo(CuckooTable::build(queue, &config, items)?))
    }

    /// The answers, and the second buckets read.
    fn look_up(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        tuning: &Tuning,
    ) -> Result<(Vec<u32>, u32)> {
        let n = keys.len();
        let values = queue.allocate("values", n)?;
        // Poisoned, so that an answer nobody wrote shows.
        queue.fill(&values, 0xdead_beef)?;
        let reads = queue.buffer_from("reads", &[0])?;
        match self {
            Self::Horton(table) => table.lookup_tuned(queue, (keys, n), (&values, &reads), tuning),
            Self::Cuckoo(table) => table.lookup_tuned(queue, (keys, n), (&values, &reads), tuning),
        }?;
        Ok((queue.read(&values, n)?, queue.read(&reads, 1)?[0]))
    }
}

/// A body's defaults, and every other value of each of its parameters; with other buckets than
/// those of 8 slots, of the parameters that depend on them.
fn tunings(info: &DeviceInfo, body: KernelBody, workload: &Workload) -> Vec<Tuning> {
    let default = Tuning::default_for(info, body, workload);
    let tried = |parameter: &Parameter| match parameter {
        Parameter::Body => false,
        Parameter::Lanes | Parameter::Unroll => true,
        _ => workload.slots == 8,
    };
    let parameters = Parameter::ALL.into_iter().filter(tried);
    let others = parameters.flat_map(|parameter| default.others(parameter, info, workload));
    std::iter::once(default).chain(others).collect()
}

fn all_workloads(kinds: &[Kind], slots: &[usize]) -> Vec<Workload> {
    let of_kind = |kind: &Kind| {
        let kind = *kind;
        slots.iter().map(move |slots| Workload {
            kind,
            slots: *slots,
            residence: Residence::Memory,
        })
    };
    kinds.iter().flat_map(of_kind).collect()
}

fn compare(workload: Workload) {
    let mut tried = 0;
    for body in bodies(&device()) {
        tried += on_device(move |queue| {
            // So many that a work-item gets several, with one compute unit under oclgrind, too.
            let keys = distinct_keys(41, if small() { 4_500 } else { 20_000 });
            let (present, absent) = keys.split_at(keys.len() / 2);
            let table = AnyTable::build(queue, &workload, present)?;
            let mut probe: Vec<u32> = keys.clone();
            probe.extend([u32::MAX, 0]);
            let expected: Vec<u32> = (0..present.len() as u32)
                .chain(absent.iter().map(|_| MISS))
                .collect();
            let probe = queue.buffer_from("keys", &probe)?;
            let mut reads = None;
            let tunings = tunings(queue.info(), body, &workload);
            for tuning in &tunings {
                let (values, second) = table.look_up(queue, &probe, tuning)?;
                assert_eq!(values[..keys.len()], expected, "{workload:?}: {tuning}");
                assert_eq!(
                    *reads.get_or_insert(second),
                    second,
                    "{workload:?}: {tuning}"
                );
            }
            assert!(reads > Some(0), "no second bucket was read");
            Ok(tunings.len())
        });
    }
    assert!(tried > bodies(&device()).len());
}

#[test]
fn every_tuning_of_eight_slots_gives_the_same_answers() {
    all_workloads(&[Kind::Horton, Kind::LoadBalanced], &[8])
        .into_iter()
        .for_each(compare);
}

#[test]
fn every_tuning_of_four_and_sixteen_slots_gives_the_same_answers() {
    let slots: &[usize] = if small() { &[16] } else { &[4, 16] };
    all_workloads(&[Kind::Horton], slots)
        .into_iter()
        .for_each(compare);
}

#[test]
fn a_tuning_that_does_not_fit_is_an_error() {
    let workload = all_workloads(&[Kind::Horton], &[4])[0];
    let lanes = Tuning::Tile {
        body: KernelBody::LocalTile,
        lanes: 4,
        unroll: 4,
        registers: 0,
        group: 256,
        keys: 1,
        second: Second::Direct,
    };
    let result = on_device(move |queue| {
        let table = AnyTable::build(queue, &workload, &[1, 2, 3])?;
        let keys = queue.buffer_from("keys", &[1])?;
        Ok(table.look_up(queue, &keys, &lanes))
    });
    assert!(matches!(result, Err(Error::Invalid(_))), "{result:?}");
    let result = store(device().info(), &[(workload, lanes)]);
    assert!(matches!(result, Err(Error::Invalid(_))), "{result:?}");
}

#[test]
fn a_stored_tuning_is_used_and_a_torn_file_is_not() {
    if child::role().is_some() {
        return remember();
    }
    let folder = tempfile::tempdir().unwrap();
    for step in ["store", "find", "torn"] {
        let test = test_name!("a_stored_tuning_is_used_and_a_torn_file_is_not");
        let done = child::command(&test, step)
            .env("HORTON_CACHE_DIR", folder.path())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(done.success(), "{step}");
        if step == "find" {
            let files = std::fs::read_dir(folder.path()).unwrap();
            let files = files.map(|entry| entry.unwrap().path());
            let file = files
                .filter(|file| file.extension().is_some_and(|e| e == "tuning"))
                .collect::<Vec<_>>();
            let text = std::fs::read(&file[0]).unwrap();
            std::fs::write(&file[0], &text[..text.len() - 3]).unwrap();
        }
    }
}

/// What each step of the test above does in a process with a cache of its own.
fn remember() {
    let device: Device = device();
    let workload = Workload {
        kind: Kind::Horton,
        slots: 8,
        residence: Residence::Cached,
    };
    let tuning = Tuning::Tile {
        body: KernelBody::LocalTile,
        lanes: 2,
        unroll: 1,
        registers: 0,
        group: 64,
        keys: 4,
        second: Second::Direct,
    };
    let step = child::role().unwrap();
    if step == "store" {
        assert_eq!(remembered(device.info(), &workload), None);
        store(device.info(), &[(workload, tuning)]).unwrap();
    }
    let expected = (step != "torn").then_some(tuning);
    assert_eq!(remembered(device.info(), &workload), expected);
    // Lookups with it, values of 31 and of 32 bits.
    let keys = distinct_keys(42, 5_000);
    let values: Vec<u32> = (0..5_000).collect();
    let table = HortonTable::from_pairs(&device, &keys, &values, &TableConfig::default()).unwrap();
    let found = table.get_many(&device, &keys).unwrap();
    assert!(
        found
            .iter()
            .zip(&values)
            .all(|(found, v)| *found == Some(*v))
    );
}
