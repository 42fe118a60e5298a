//! Single operations of Horton and cuckoo tables, by the device's event clock.
//!
//! ```text
//! cargo bench -p horton-tables --bench tables                      HORTON_BENCH_DEVICE=auto
//! cargo bench -p horton-tables --bench tables -- Horton/insert
//!                                       HORTON_BENCH_SLOTS_LOG2=26 (20 on CPUs)
//! ```

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use horton_tables::device::{Device, DeviceKind, Queue};
use horton_tables::error::Result;
use horton_tables::table::baselines::cuckoo::{CuckooConfig, CuckooTable, Placement};
use horton_tables::table::horton::{HortonTable, TableConfig, Upkeep};
use horton_tables::table::primitives::hash::jenkins;
use horton_tables::table::{Answers, Items, Table};

type Group<'a> = BenchmarkGroup<'a, criterion::measurement::WallTime>;

/// Load factor of the tables.
const LOAD: f64 = 0.9;

/// Part of the items that an insert brings, and that a remove takes.
const BATCH: usize = 16;

struct Setting {
    device: Device,
    slots: usize,
}

impl Setting {
    fn new() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let asked = variable("HORTON_BENCH_DEVICE").unwrap_or_else(|| "auto".to_owned());
        let device = Device::open(&asked).expect("an OpenCL device");
        let default = match device.info().kind {
            DeviceKind::Cpu => 20,
            _ => 26,
        };
        let log2 = variable("HORTON_BENCH_SLOTS_LOG2").and_then(|text| text.parse().ok());
        Self {
            device,
            slots: 1 << log2.unwrap_or(default),
        }
    }

    fn items(&self) -> usize {
        (self.slots as f64 * LOAD) as usize
    }

    /// Kernel time of `job`, `iterations` times.
    fn time<T: Send + 'static>(
        &self,
        iterations: u64,
        job: impl Fn(&mut Queue) -> Result<T> + Clone + Send + 'static,
    ) -> Duration {
        let once = || {
            let answer = self
                .device
                .run_blocking(job.clone())
                .expect("a job that succeeds");
            black_box(answer.value);
            answer.cost.kernel
        };
        (0..iterations).map(|_| once()).sum()
    }
}

/// Distinct keys: the hash is invertible.
fn keys(from: usize, count: usize) -> Vec<u32> {
    (from..from + count).map(|i| jenkins(i as u32)).collect()
}

/// A table of the first `n` keys; values are positions.
fn filled<T: Table>(queue: &mut Queue, config: &T::Config, n: usize) -> Result<T> {
    let keys = queue.buffer_from("keys", &keys(0, n))?;
    let items = Items {
        keys: &keys,
        values: None,
    };
    T::build(queue, config, items)
}

/// Builds, then inserts into and removes from a copy of a table with room for the batch.
fn bench_table<T>(criterion: &mut Criterion, name: &str, config: T::Config)
where
    T: Table + Clone + Send + Sync + 'static,
    T::Config: Clone + Send + Sync + 'static,
{
    let setting = Setting::new();
    let (n, batch) = (setting.items(), setting.items() / BATCH);
    let mut group: Group<'_> = criterion.benchmark_group(name);
    group.sample_size(10);

    group.throughput(Throughput::Elements(n as u64));
    let build_config = config.clone();
    group.bench_function("build", |bencher| {
        let config = build_config.clone();
        let job = move |queue: &mut Queue| filled::<T>(queue, &config, n);
        bencher.iter_custom(|iterations| setting.time(iterations, job.clone()));
    });

    let make = move |queue: &mut Queue| filled::<T>(queue, &config, n - batch);
    let table = setting.device.run_blocking(make).expect("a table").value;
    for (workload, from) in [("lookup hits", 0), ("lookup misses", n)] {
        let table = table.clone();
        let count = n - batch;
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(workload, |bencher| {
            let table = table.clone();
            let job = move |queue: &mut Queue| {
                let keys = queue.buffer_from("keys", &keys(from, count))?;
                let answers = Answers::with_room(queue, count)?;
                Table::lookup(&table, queue, &keys, &answers, count)?;
                Ok(answers)
            };
            bencher.iter_custom(|iterations| setting.time(iterations, job.clone()));
        });
    }

    group.throughput(Throughput::Elements(batch as u64));
    let full = table.clone();
    group.bench_function("insert", |bencher| {
        let table = table.clone();
        let job = move |queue: &mut Queue| {
            let mut table = table.clone();
            let keys = queue.buffer_from("keys", &keys(n - batch, batch))?;
            let items = Items {
                keys: &keys,
                values: None,
            };
            table.insert(queue, items)?;
            Ok(table)
        };
        bencher.iter_custom(|iterations| setting.time(iterations, job.clone()));
    });
    group.bench_function("remove", |bencher| {
        let table = full.clone();
        let job = move |queue: &mut Queue| {
            let mut table = table.clone();
            let keys = queue.buffer_from("keys", &keys(0, batch))?;
            table.remove(queue, &keys, batch)?;
            Ok(table)
        };
        bencher.iter_custom(|iterations| setting.time(iterations, job.clone()));
    });
    group.finish();
}

fn tables(criterion: &mut Criterion) {
    let slots = Setting::new().slots;
    for (name, upkeep) in [("Horton", Upkeep::Eager), ("Horton, lazy", Upkeep::Lazy)] {
        let config = TableConfig {
            load_factor: LOAD,
            min_capacity: slots,
            upkeep,
            ..TableConfig::default()
        };
        bench_table::<HortonTable>(criterion, name, config);
    }
    for (name, placement) in [
        ("load-balanced", Placement::LoadBalanced),
        ("first-fit", Placement::FirstFit),
    ] {
        let config = CuckooConfig {
            load_factor: LOAD,
            min_capacity: slots,
            placement,
            ..CuckooConfig::default()
        };
        bench_table::<CuckooTable>(criterion, name, config);
    }
}

/// Batches that the upkeep benchmarks remove, each of a 64th of the items: fewer than make lazy
/// upkeep due, so that all the difference there is shows.
const REMOVALS: usize = 7;

/// The time at which remapped items return to their primary buckets: what removals cost, what
/// lookups cost after them, and a mixture.
fn upkeep(criterion: &mut Criterion) {
    let setting = Setting::new();
    let (n, batch) = (setting.items(), setting.items() / 64);
    for (name, upkeep) in [("eager", Upkeep::Eager), ("lazy", Upkeep::Lazy)] {
        let config = TableConfig {
            load_factor: LOAD,
            min_capacity: setting.slots,
            upkeep,
            ..TableConfig::default()
        };
        let make = move |queue: &mut Queue| filled::<HortonTable>(queue, &config, n);
        let table = setting.device.run_blocking(make).expect("a table").value;
        let mut group: Group<'_> = criterion.benchmark_group(format!("upkeep, {name}"));
        group.sample_size(10);

        let full = table.clone();
        let removals = move |queue: &mut Queue| {
            let mut table = full.clone();
            for i in 0..REMOVALS {
                let keys = queue.buffer_from("keys", &keys(i * batch, batch))?;
                table.remove(queue, &keys, batch)?;
            }
            Ok(table)
        };
        group.throughput(Throughput::Elements((REMOVALS * batch) as u64));
        group.bench_function("removals", |bencher| {
            bencher.iter_custom(|iterations| setting.time(iterations, removals.clone()));
        });

        let thinned = setting
            .device
            .run_blocking(removals)
            .expect("a table")
            .value;
        let left = n - REMOVALS * batch;
        let lookups = move |queue: &mut Queue| {
            let keys = queue.buffer_from("keys", &keys(REMOVALS * batch, left))?;
            let answers = Answers::with_room(queue, left)?;
            Table::lookup(&thinned, queue, &keys, &answers, left)?;
            Ok(answers)
        };
        group.throughput(Throughput::Elements(left as u64));
        group.bench_function("lookups after removals", |bencher| {
            bencher.iter_custom(|iterations| setting.time(iterations, lookups.clone()));
        });

        // Of every batch: removed, as many looked up twice over, as many new ones inserted.
        let mixture = move |queue: &mut Queue| {
            let mut table = table.clone();
            for i in 0..REMOVALS {
                let old = queue.buffer_from("keys", &keys(i * batch, batch))?;
                table.remove(queue, &old, batch)?;
                let asked = queue.buffer_from("keys", &keys(n / 2, 2 * batch))?;
                let answers = Answers::with_room(queue, 2 * batch)?;
                Table::lookup(&table, queue, &asked, &answers, 2 * batch)?;
                let new = queue.buffer_from("keys", &keys(n + i * batch, batch))?;
                let items = Items {
                    keys: &new,
                    values: None,
                };
                table.insert(queue, items)?;
            }
            Ok(table)
        };
        group.throughput(Throughput::Elements((4 * REMOVALS * batch) as u64));
        group.bench_function("mixture", |bencher| {
            bencher.iter_custom(|iterations| setting.time(iterations, mixture.clone()));
        });
        group.finish();
    }
}

criterion_group!(benches, tables, upkeep);
criterion_main!(benches);
