//! Whatever parameters a lookup kernel has, its answers are the same.

use horton_tables::device::{Buffer, DeviceInfo, KernelBody, Queue};
use horton_tables::error::{Error, Result};
use horton_tables::table::baselines::cuckoo::{CuckooConfig, CuckooTable, Placement};
use horton_tables::table::horton::tuning::{Kind, Residence, Second, Tuning, Workload};
use horton_tables::table::horton::{BucketSize, HortonTable, MISS, NarrowAnswers, TableConfig};
use horton_tables::table::{Items, Table};

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
        let answers = NarrowAnswers {
            values: &values,
            reads: &reads,
            n,
        };
        match self {
            Self::Horton(table) => table.lookup_tuned(queue, keys, answers, tuning),
            Self::Cuckoo(table) => table.lookup_tuned(queue, keys, answers, tuning),
        }?;
        Ok((queue.read(&values, n)?, queue.read(&reads, 1)?[0]))
    }
}

/// A body's tuning, and every other value of each of its parameters. With other buckets than those
/// of 8 slots, only the parameters are varied that depend on them.
fn tunings(info: &DeviceInfo, body: KernelBody, workload: &Workload) -> Vec<Tuning> {
    let first = Tuning::for_device(info, body, workload);
    let mut tunings = vec![first];
    let mut others = |tuning: Tuning| {
        if tuning.fits(info, workload.slots) && !tunings.contains(&tuning) {
            tunings.push(tuning);
        }
    };
    let seconds = [Second::Direct, Second::Buffered];
    match first {
        Tuning::Chunk {
            look_ahead,
            items_per_unit,
            second,
        } if workload.slots == 8 => {
            for second in seconds {
                others(Tuning::Chunk {
                    look_ahead,
                    items_per_unit,
                    second,
                });
            }
            for look_ahead in [8, 16, 32, 64, 128] {
                others(Tuning::Chunk {
                    look_ahead,
                    items_per_unit,
                    second,
                });
            }
            for items_per_unit in [4, 16, 64, 256, 1024] {
                others(Tuning::Chunk {
                    look_ahead,
                    items_per_unit,
                    second,
                });
            }
        }
        Tuning::Chunk { .. } => {}
        Tuning::Tile {
            body,
            lanes,
            unroll,
            group,
            keys,
            second,
        } => {
            let tile = |lanes, unroll, group, keys, second| Tuning::Tile {
                body,
                lanes,
                unroll,
                group,
                keys,
                second,
            };
            for lanes in [1, 2, 4, 8] {
                others(tile(lanes, lanes, group, keys, second));
            }
            for unroll in [1, 2, 4, 8] {
                others(tile(lanes, unroll, group, keys, second));
            }
            if workload.slots == 8 {
                for group in [64, 128, 256, 512] {
                    others(tile(lanes, unroll, group, keys, second));
                }
                for keys in [1, 2, 4, 8, 16, 32] {
                    for second in seconds {
                        others(tile(lanes, unroll, group, keys, second));
                    }
                }
            }
        }
    }
    tunings
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
}
