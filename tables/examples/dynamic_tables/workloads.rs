//! Every kind of table under every kind of work, for choosing among them.
//!
//! ```text
//!   table                  build   hits   misses   insert   remove   mixed   bytes per key
//!   Horton, cuckoo         load 0.8                                     mixed: in phases
//!   linear probing (2)     load 0.5
//!   slab hash              60 % utilisation                             mixed: in one launch
//! ```
//!
//! Each at the load that its source or its default recommends, since a table's load is part of what
//! it costs.

use std::time::Duration;

use horton_tables::device::{Buffer, Queue};
use horton_tables::error::Result;
use horton_tables::table::baselines::batch::{Batch, Kind};
use horton_tables::table::baselines::cuckoo::{CuckooConfig, CuckooTable};
use horton_tables::table::baselines::linear::{Deletion, LinearConfig, LinearTable};
use horton_tables::table::baselines::slab::SlabHash;
use horton_tables::table::horton::{HortonTable, TableConfig};
use horton_tables::table::{Items, Table};
use rand_mt::Mt;

use crate::chart::Figure;
use crate::measure::{Bench, Words, keys, rate};
use crate::slab::{DISTRIBUTIONS, config, key_number, operations};

/// Keys: tables of one size within a GPU's L2, and of one far beyond.
const SIZES: [usize; 2] = [1 << 20, 1 << 26];

/// Operations that are measured, each in a table of n keys.
const COLUMNS: [&str; 6] = [
    "build",
    "hits",
    "misses",
    "insert n/16",
    "remove n/16",
    "mixed n/4",
];

#[derive(Clone, Copy)]
enum Kinds {
    Horton,
    Cuckoo,
    Linear(Deletion),
    Slab,
}

const KINDS: [(Kinds, &str); 5] = [
    (Kinds::Horton, "Horton, load 0.8"),
    (Kinds::Cuckoo, "cuckoo, load 0.8"),
    (
        Kinds::Linear(Deletion::KeepsKey),
        "linear, load 0.5, deleted keys stay",
    ),
    (
        Kinds::Linear(Deletion::LeavesTombstone),
        "linear, load 0.5, slots reused",
    ),
    (Kinds::Slab, "slab hash, 60 %"),
];

/// A table of any kind.
enum Subject {
    Horton(HortonTable),
    Cuckoo(CuckooTable),
    Linear(LinearTable),
    Slab(SlabHash),
}

impl Subject {
    /// Returns an empty table where it grows as it is filled, else none yet.
    fn prepare(kind: Kinds, queue: &mut Queue, n: usize) -> Result<Option<Self>> {
        Ok(match kind {
            Kinds::Linear(deletion) => {
                let config = LinearConfig {
                    deletion,
                    ..LinearConfig::default()
                };
                Some(Self::Linear(LinearTable::with_capacity(
                    queue,
                    &config,
                    2 * n,
                )?))
            }
            Kinds::Slab => Some(Self::Slab(SlabHash::with_room(queue, &config(n, 0.7), n)?)),
            Kinds::Horton | Kinds::Cuckoo => None,
        })
    }

    fn build(
        prepared: Option<Self>,
        kind: Kinds,
        queue: &mut Queue,
        items: Items<'_>,
    ) -> Result<Self> {
        match (prepared, kind) {
            (Some(mut table), _) => {
                table.insert(queue, items)?;
                Ok(table)
            }
            (None, Kinds::Cuckoo) => {
                CuckooTable::build(queue, &CuckooConfig::default(), items).map(Self::Cuckoo)
            }
            (None, _) => {
                HortonTable::build(queue, &TableConfig::default(), items).map(Self::Horton)
            }
        }
    }

    fn lookup(&self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<Buffer<u32>> {
        let values = queue.allocate("values", n)?;
        let reads = queue.buffer_from("reads", &[0])?;
        match self {
            Self::Horton(table) => table.lookup(queue, keys, &values, &reads, n),
            Self::Cuckoo(table) => table.lookup(queue, keys, &values, &reads, n),
            Self::Linear(table) => table.lookup(queue, keys, &values, n),
            Self::Slab(table) => table.search(queue, keys, &values, n),
        }?;
        Ok(values)
    }

    fn insert(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<usize> {
        match self {
            Self::Horton(table) => Table::insert(table, queue, items),
            Self::Cuckoo(table) => Table::insert(table, queue, items),
            Self::Linear(table) => Ok(table.put(queue, items)?.new),
            Self::Slab(table) => table.replace(queue, items),
        }
    }

    fn remove(&mut self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<usize> {
        match self {
            Self::Horton(table) => Table::remove(table, queue, keys, n),
            Self::Cuckoo(table) => Table::remove(table, queue, keys, n),
            Self::Linear(table) => table.remove(queue, keys, n),
            Self::Slab(table) => table.remove(queue, keys, n),
        }
    }

    /// All operations: in one launch where the table can, else searches, insertions, removals.
    fn mixed(&mut self, queue: &mut Queue, work: &Mixed) -> Result<()> {
        let batch = Batch {
            kinds: &work.kinds,
            keys: &work.keys,
            values: &work.values,
        };
        let answers = queue.allocate("answers", work.keys.len())?;
        match self {
            Self::Linear(table) => table.apply(queue, batch, &answers),
            Self::Slab(table) => table.apply(queue, batch, &answers),
            Self::Horton(_) | Self::Cuckoo(_) => {
                let [searched, stored, removed] = &work.phases;
                self.lookup(queue, searched, searched.len())?;
                let items = Items {
                    keys: stored,
                    values: None,
                };
                self.insert(queue, items)?;
                self.remove(queue, removed, removed.len())?;
                Ok(())
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Horton(table) => table.len(),
            Self::Cuckoo(table) => Table::len(table),
            Self::Linear(table) => table.len(),
            Self::Slab(table) => table.len(),
        }
    }

    /// Bytes in use; of a slab hash those of slabs, not of the whole pool.
    fn bytes(&self, queue: &mut Queue) -> Result<f64> {
        Ok(match self {
            Self::Horton(table) => table.bytes() as f64,
            Self::Cuckoo(table) => table.bytes() as f64,
            Self::Linear(table) => table.bytes() as f64,
            Self::Slab(table) => 8.0 * table.len() as f64 / table.utilisation(queue)?,
        })
    }
}

/// A mixed batch on the device, and its operations by kind.
struct Mixed {
    kinds: Words,
    keys: Words,
    values: Words,
    phases: [Words; 3],
    /// By how much the table grows.
    grown: usize,
    shrunk: usize,
}

impl Mixed {
    /// Γ1: 40 % updates, on a table of n keys.
    fn new(bench: &Bench, n: usize) -> Result<Self> {
        let (_, shares) = DISTRIBUTIONS[1];
        let [kinds, numbers] = operations(&mut Mt::new(3), (n, (n / 4).max(1), 0), shares);
        let keys: Vec<u32> = numbers
            .iter()
            .map(|number| key_number(number >> 1))
            .collect();
        let of = |kind: Kind| -> Vec<u32> {
            let all = kinds.iter().zip(&keys);
            all.filter(|(k, _)| **k == kind as u32)
                .map(|(_, key)| *key)
                .collect()
        };
        let phases = [of(Kind::Search), of(Kind::Replace), of(Kind::Delete)];
        let [_, grown, shrunk] = phases.each_ref().map(Vec::len);
        let [searched, stored, removed] = phases.map(|keys| bench.upload(keys));
        Ok(Self {
            values: bench.upload(vec![1; keys.len()])?,
            kinds: bench.upload(kinds)?,
            keys: bench.upload(keys)?,
            phases: [searched?, stored?, removed?],
            grown,
            shrunk,
        })
    }
}

/// Keys on the device for one size.
struct Inputs {
    present: Words,
    absent: Words,
    new: Words,
    old: Words,
    mixed: std::sync::Arc<Mixed>,
}

/// Runs all work once on a fresh table; times in the order of [`COLUMNS`], and bytes per key.
fn run(
    bench: &mut Bench,
    kind: Kinds,
    inputs: &Inputs,
    checks: bool,
) -> Result<([Duration; 6], f64)> {
    let n = inputs.present.len();
    let (_, prepared) = bench.timed(move |queue| Subject::prepare(kind, queue, n))?;
    let all = inputs.present.clone();
    let (build, mut table) = bench.timed(move |queue| {
        let items = Items {
            keys: &all,
            values: None,
        };
        Subject::build(prepared, kind, queue, items)
    })?;
    let mut times = [build; 6];
    for (i, asked, expected) in [(1, &inputs.present, n), (2, &inputs.absent, 0)] {
        let keys = asked.clone();
        let (took, (values, returned)) =
            bench.timed(move |queue| Ok((table.lookup(queue, &keys, n)?, table)))?;
        (table, times[i]) = (returned, took);
        if checks {
            bench.expect_found(values, n, expected)?;
        }
    }
    let (_, (bytes, mut table)) = bench.timed(move |queue| Ok((table.bytes(queue)?, table)))?;
    let step = inputs.new.len();
    let new = inputs.new.clone();
    let (took, (inserted, mut table)) = bench.timed(move |queue| {
        let items = Items {
            keys: &new,
            values: None,
        };
        Ok((table.insert(queue, items)?, table))
    })?;
    times[3] = took;
    bench.expect("keys inserted", inserted, step);
    let old = inputs.old.clone();
    let (took, (removed, mut table)) =
        bench.timed(move |queue| Ok((table.remove(queue, &old, step)?, table)))?;
    times[4] = took;
    bench.expect("keys removed", removed, step);
    let work = inputs.mixed.clone();
    let (took, len) = bench.timed(move |queue| {
        table.mixed(queue, &work)?;
        Ok(table.len())
    })?;
    times[5] = took;
    let mixed = &inputs.mixed;
    bench.expect("keys at the end", len + mixed.shrunk, n + mixed.grown);
    Ok((times, bytes / n as f64))
}

/// Prints the table of tables.
pub fn workloads(bench: &mut Bench) -> Result<Vec<Figure>> {
    for size in SIZES {
        let n = bench.scaled(size).max(64);
        let step = n / 16;
        let inputs = Inputs {
            present: bench.upload(keys(0..n))?,
            absent: bench.upload(keys(4 * n..5 * n))?,
            new: bench.upload(keys(5 * n..5 * n + step))?,
            old: bench.upload(keys(n / 4..n / 4 + step))?,
            mixed: std::sync::Arc::new(Mixed::new(bench, n)?),
        };
        println!(
            "\n| {n} keys, M/s | {} | bytes a key |",
            COLUMNS.join(" | ")
        );
        println!("|---|{}", "---|".repeat(COLUMNS.len() + 1));
        let counts = [n, n, n, step, step, inputs.mixed.keys.len()];
        for (kind, name) in KINDS {
            let mut best = [Duration::MAX; 6];
            let mut bytes_a_key = 0.0;
            for i in 0..=bench.repeat {
                let (times, bytes) = run(bench, kind, &inputs, i == 0)?;
                bytes_a_key = bytes;
                for (best, time) in best.iter_mut().zip(times) {
                    *best = (*best).min(time);
                }
            }
            let rates = best.iter().zip(counts);
            let rates = rates.map(|(time, count)| format!("{:.0}", rate(count, *time)));
            let rates = rates.collect::<Vec<_>>().join(" | ");
            println!("| {name} | {rates} | {bytes_a_key:.1} |");
        }
    }
    Ok(Vec::new())
}
