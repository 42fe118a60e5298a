//! The three kinds of tables that the paper compares, filled and measured alike.

use std::time::Duration;

use horton_tables::device::{Buffer, Device, Queue};
use horton_tables::error::{Error, Result};
use horton_tables::table::baselines::cuckoo::{CuckooConfig, CuckooTable, Placement};
use horton_tables::table::horton::tuning::Kind;
use horton_tables::table::horton::{BucketSize, Census, HortonTable, TableConfig};
use horton_tables::table::primitives::hash::Reduction;
use horton_tables::table::{Items, Reads, Table};

use super::workload::{Asked, Resident, Workload, count_wrong};

/// The load that a table is filled to, and how.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub kind: Kind,
    pub bucket_size: BucketSize,
    /// Slots of the table.
    pub slots: usize,
    pub reduction: Reduction,
}

/// A table on the device.
#[derive(Debug, Clone)]
pub enum AnyTable {
    Horton(HortonTable),
    Cuckoo(CuckooTable),
}

impl AnyTable {
    fn build(queue: &mut Queue, plan: Plan, keys: &Buffer<u32>) -> Result<Self> {
        let items = Items { keys, values: None };
        if plan.kind == Kind::Horton {
            let config = TableConfig {
                bucket_size: plan.bucket_size,
                load_factor: 1.0,
                min_capacity: plan.slots,
                reduction: plan.reduction,
                ..TableConfig::default()
            };
            return Ok(Self::Horton(HortonTable::build(queue, &config, items)?));
        }
        let config = CuckooConfig {
            bucket_size: plan.bucket_size,
            load_factor: 1.0,
            min_capacity: plan.slots,
            reduction: plan.reduction,
            placement: match plan.kind {
                Kind::FirstFit => Placement::FirstFit,
                _ => Placement::LoadBalanced,
            },
            ..CuckooConfig::default()
        };
        Ok(Self::Cuckoo(CuckooTable::build(queue, &config, items)?))
    }

    /// Looks `n` keys up.
    fn lookup(
        &self,
        queue: &mut Queue,
        (keys, n): (&Buffer<u32>, usize),
        (values, reads): (&Buffer<u32>, &Buffer<u32>),
    ) -> Result<()> {
        match self {
            Self::Horton(table) => table.lookup(queue, keys, values, reads, n),
            Self::Cuckoo(table) => table.lookup(queue, keys, values, reads, n),
        }
    }

    fn count_reads(&self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<Reads> {
        match self {
            Self::Horton(table) => table.count_reads(queue, keys, n),
            Self::Cuckoo(table) => table.count_reads(queue, keys, n),
        }
    }

    pub fn census(&self) -> Census {
        match self {
            Self::Horton(table) => table.census(),
            Self::Cuckoo(table) => table.census(),
        }
    }

    pub fn capacity(&self) -> usize {
        match self {
            Self::Horton(table) => table.capacity(),
            Self::Cuckoo(table) => table.capacity(),
        }
    }
}

/// The work that looking keys up takes, for one key.
#[derive(Debug, Clone, Copy)]
pub struct PerLookup {
    pub buckets: f64,
    pub lines: f64,
}

/// A device with its keys, and how often a time is taken; the best counts.
pub struct Bench {
    pub device: Device,
    pub workload: Workload,
    pub repeat: usize,
}

impl Bench {
    /// Fills a table with the first `count` keys; it must have come out as large as planned.
    pub fn build(&self, plan: Plan, count: usize) -> Result<AnyTable> {
        let keys = self.workload.first(count)?;
        let job = move |queue: &mut Queue| AnyTable::build(queue, plan, &keys);
        let table = self.device.run_blocking(job)?.value;
        let planned = plan.slots.next_multiple_of(plan.bucket_size.slots());
        match table.capacity() == planned {
            true => Ok(table),
            false => Err(Error::Invalid(format!(
                "a {} table of {planned} slots grew to {}",
                plan.kind.name(),
                table.capacity()
            ))),
        }
    }

    /// Returns the best kernel time of looking all keys up, whose answers are checked.
    pub fn look_up(&self, table: &AnyTable, asked: &Asked) -> Result<Duration> {
        let n = asked.keys.len();
        let mut best = Duration::MAX;
        let mut last = None;
        for _ in 0..=self.repeat {
            drop(last.take());
            let (table, keys) = (table.clone(), Resident::clone(&asked.keys));
            let answer = self.device.run_blocking(move |queue| {
                let values = queue.allocate("values", n)?;
                let reads = queue.buffer_from("reads", &[0])?;
                table.lookup(queue, (&keys, n), (&values, &reads))?;
                Ok(values)
            })?;
            best = best.min(answer.cost.kernel);
            last = Some(answer.value);
        }
        let values = last.ok_or_else(|| Error::Invalid("nothing was measured".to_owned()))?;
        let expected = asked.answers;
        let job = move |queue: &mut Queue| count_wrong(queue, &values, expected, n);
        match self.device.run_blocking(job)?.value {
            0 => Ok(best),
            wrong => Err(Error::Invalid(format!("{wrong} of {n} answers are wrong"))),
        }
    }

    /// Buckets and cache lines a lookup of these keys reads.
    pub fn count(&self, table: &AnyTable, asked: &Asked) -> Result<PerLookup> {
        let (table, keys) = (table.clone(), Resident::clone(&asked.keys));
        let n = keys.len();
        let job = move |queue: &mut Queue| table.count_reads(queue, &keys, n);
        let reads = self.device.run_blocking(job)?.value;
        Ok(PerLookup {
            buckets: reads.buckets as f64 / n as f64,
            lines: reads.lines as f64 / n as f64,
        })
    }
}
