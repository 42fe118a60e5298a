//! Linear probing: the measurements of "A Simple GPU Hash Table", and what reuse of slots changes.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use horton_tables::device::Queue;
use horton_tables::error::Result;
use horton_tables::table::baselines::linear::{Deletion, LinearConfig, LinearTable};
use horton_tables::table::{Items, Table};
use rand_mt::Mt;

use crate::chart::{Axis, Figure, Series};
use crate::measure::{Bench, Words, keys, rate};

/// Slots of the source's table.
const SLOTS: usize = 1 << 27;

/// Keys of one of its kernel calls.
const BATCH: usize = 1 << 22;

/// Its times in milliseconds on a GTX 1060, for each batch from load 0 to 0.94.
const SOURCE_MS: [f64; 31] = [
    11.608448, 11.751424, 11.942592, 12.081120, 12.242560, 12.396448, 12.533024, 12.703328,
    12.884512, 13.033472, 13.239296, 13.392448, 13.624000, 13.875520, 14.126528, 14.399328,
    14.690304, 15.039136, 15.478656, 15.985664, 16.668673, 17.587200, 18.690048, 20.278816,
    22.545408, 26.053312, 31.895008, 42.103294, 61.849056, 105.695999, 240.204636,
];

fn table(queue: &mut Queue, slots: usize, deletion: Deletion) -> Result<LinearTable> {
    let config = LinearConfig {
        deletion,
        ..LinearConfig::default()
    };
    LinearTable::with_capacity(queue, &config, slots)
}

fn insert(queue: &mut Queue, table: &mut LinearTable, keys: &Words) -> Result<usize> {
    let items = Items { keys, values: None };
    Ok(table.put(queue, items)?.new)
}

/// Random keys, with repeats, as the source draws them.
fn random_keys(random: &mut Mt, n: usize) -> Vec<u32> {
    (0..n).map(|_| random.next_u32()).collect()
}

/// Insertion by load, and in bulk.
pub fn insertion(bench: &mut Bench) -> Result<Vec<Figure>> {
    let (slots, batch) = (bench.scaled(SLOTS), bench.scaled(BATCH));
    let mut time = Series::new("this device");
    let mut speed = Series::new("this device");
    let mut rust = Series::new("Rust's HashMap, one thread");
    let mut map = HashMap::with_capacity(SOURCE_MS.len() * batch);
    let mut random = Mt::new(1);
    // Compiles the kernels.
    let first = bench.upload(random_keys(&mut Mt::new(2), batch))?;
    bench.timed(move |queue| {
        let mut warm = table(queue, slots, Deletion::KeepsKey)?;
        insert(queue, &mut warm, &first)
    })?;
    let (_, mut filling) = bench.timed(move |queue| table(queue, slots, Deletion::KeepsKey))?;
    println!("\nlinear probing, {slots} slots, {batch} random keys at a time");
    for (i, source_ms) in SOURCE_MS.into_iter().enumerate() {
        let load = (i * batch) as f64 / slots as f64;
        let data = random_keys(&mut random, batch);
        rust.points
            .push((load, rate(batch, insert_map(&mut map, &data))));
        let new = bench.upload(data)?;
        let (took, returned) = bench.timed(move |queue| {
            insert(queue, &mut filling, &new)?;
            Ok(filling)
        })?;
        filling = returned;
        time.points.push((load, took.as_secs_f64() * 1e3));
        speed.points.push((load, rate(batch, took)));
        let names = ["this device", "Rust's HashMap"];
        if [0, 15, 30].contains(&i) {
            for (name, series) in names.iter().zip([&speed, &rust]) {
                let source = (BATCH as f64 / source_ms / 1e3, "the source's GTX 1060");
                let what = format!("inserting at load {load:.2}, {name}");
                bench.beside(&what, series.points[i].1, source);
            }
        }
        let source = match i + 1 {
            16 => "0.4774 and 60",
            31 => "10.1757 and 6474",
            _ => continue,
        };
        let (_, (statistics, returned)) =
            bench.timed(move |queue| Ok((filling.probe_lengths(queue)?, filling)))?;
        filling = returned;
        println!(
            "probe length after {} of {slots} slots were asked for ({} different keys): mean {:.4}, longest {}; \
             the source: {source}",
            (i + 1) * batch,
            filling.len(),
            statistics.mean(),
            statistics.max
        );
    }
    bench.expect("keys in the table", filling.len(), map.len());
    drop((filling, map));
    bulk(bench)?;
    let loads = |i: usize| (i * BATCH) as f64 / SLOTS as f64;
    let source_time = SOURCE_MS.iter().enumerate();
    let source_time: Vec<_> = source_time.map(|(i, ms)| (loads(i), *ms)).collect();
    let per_ms = |(x, ms): &(f64, f64)| (*x, BATCH as f64 / ms / 1e3);
    let source_speed = source_time.iter().map(per_ms).collect();
    Ok(vec![
        Figure {
            name: "linear_insertion_time",
            title: "Linear probing: time to insert a batch of keys, by load",
            x: Axis::linear("load factor before"),
            y: Axis::log("ms"),
            series: vec![
                time,
                Series::source("GTX 1060, CUDA, 4194304 keys", source_time),
            ],
        },
        Figure {
            name: "linear_insertion_rate",
            title: "Linear probing: keys inserted a second, by load",
            x: Axis::linear("load factor before"),
            y: Axis::log("M keys/s"),
            series: vec![speed, rust, Series::source("GTX 1060, CUDA", source_speed)],
        },
    ])
}

fn insert_map(map: &mut HashMap<u32, u32>, keys: &[u32]) -> Duration {
    let started = Instant::now();
    for (key, value) in keys.iter().zip(0..) {
        map.insert(*key, value);
    }
    black_box(&map);
    started.elapsed()
}

/// 64 M different keys into an empty table at once, lookups, and removal of half of them.
fn bulk(bench: &mut Bench) -> Result<()> {
    let (slots, n) = (bench.scaled(SLOTS), bench.scaled(SLOTS) / 2);
    let (present, absent) = (bench.upload(keys(0..n))?, bench.upload(keys(n..2 * n))?);
    for deletion in Deletion::ALL {
        let mut best = [Duration::MAX; 4];
        for run in 0..=bench.repeat {
            let (_, mut full) = bench.timed(move |queue| table(queue, slots, deletion))?;
            let all = present.clone();
            let (inserted, (new, mut full)) =
                bench.timed(move |queue| Ok((insert(queue, &mut full, &all)?, full)))?;
            bench.expect("keys inserted", new, n);
            let mut times = [inserted, Duration::ZERO, Duration::ZERO, Duration::ZERO];
            for (i, asked, expected) in [(1, &present, n), (2, &absent, 0)] {
                let keys = asked.clone();
                let (took, (values, returned)) = bench.timed(move |queue| {
                    let values = queue.allocate("values", n)?;
                    full.lookup(queue, &keys, &values, n)?;
                    Ok((values, full))
                })?;
                (full, times[i]) = (returned, took);
                if run == 0 {
                    bench.expect_found(values, n, expected)?;
                }
            }
            let half = present.clone();
            let (took, removed) = bench.timed(move |queue| full.remove(queue, &half, n / 2))?;
            bench.expect("keys removed", removed, n / 2);
            times[3] = took;
            for (best, time) in best.iter_mut().zip(times) {
                *best = (*best).min(time);
            }
        }
        let source = (13_500.0, "the same algorithm in CUDA on an H200");
        let what = format!("{n} keys into {slots} slots, {deletion:?}, insert");
        bench.beside(&what, rate(n, best[0]), source);
        println!(
            "    hits {:.0} M/s, misses {:.0}, remove half {:.0}",
            rate(n, best[1]),
            rate(n, best[2]),
            rate(n / 2, best[3])
        );
    }
    Ok(())
}

/// Slots of 32 that may be taken before a table counts as full: the most that the source fills. A
/// key that meets no empty slot reads all slots. A batch of keys for a table without any would take
/// n times its size.
const FULL_OF_32: usize = 31;

/// Constant size at load 0.5: every round a sixteenth of the keys is replaced by new ones.
pub fn reuse(bench: &mut Bench) -> Result<Vec<Figure>> {
    let slots = bench.scaled(1 << 24);
    let series = [
        (Deletion::KeepsKey, "deleted keys stay"),
        (Deletion::LeavesTombstone, "slots are used again"),
    ]
    .map(|(deletion, name)| {
        let mut lengths = Series::new(name);
        replace_rounds(bench, slots, deletion, &mut lengths)?;
        Ok(lengths)
    });
    Ok(vec![Figure {
        name: "linear_reuse",
        title: "Linear probing at constant size, load 0.5: mean probe length",
        x: Axis::linear("rounds, each replacing a sixteenth of the keys"),
        y: Axis::log("slots beyond the home slot"),
        series: series.into_iter().collect::<Result<_>>()?,
    }])
}

/// Mean probe lengths after each of 64 rounds, or until the table is full.
fn replace_rounds(
    bench: &mut Bench,
    slots: usize,
    deletion: Deletion,
    lengths: &mut Series,
) -> Result<()> {
    let (size, step) = (slots / 2, slots / 32);
    let all = bench.upload(keys(0..size))?;
    let (_, mut table) = bench.timed(move |queue| {
        let mut table = table(queue, slots, deletion)?;
        insert(queue, &mut table, &all)?;
        Ok(table)
    })?;
    for round in 0..64 {
        let old = bench.upload(keys(round * step..(round + 1) * step))?;
        let new = bench.upload(keys(size + round * step..size + (round + 1) * step))?;
        let (_, (removed, added, statistics, returned)) = bench.timed(move |queue| {
            let removed = table.remove(queue, &old, step)?;
            let added = insert(queue, &mut table, &new)?;
            Ok((removed, added, table.probe_lengths(queue)?, table))
        })?;
        table = returned;
        bench.expect("keys removed", removed, step);
        bench.expect("keys inserted", added, step);
        bench.expect("items", statistics.items as usize, size);
        lengths.points.push((round as f64, statistics.mean()));
        let taken = match deletion {
            Deletion::KeepsKey => (statistics.items + statistics.deleted) as usize,
            Deletion::LeavesTombstone => table.len(),
        };
        if taken + step > slots / 32 * FULL_OF_32 {
            println!("{deletion:?}: full after {} rounds", round + 1);
            break;
        }
    }
    Ok(())
}
