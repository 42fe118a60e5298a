//! The slab hash: figures 4 to 7 and section V of its paper.

use std::sync::Arc;
use std::time::Duration;

use horton_tables::device::Queue;
use horton_tables::error::{Error, Result};
use horton_tables::table::baselines::batch::{Batch, Kind};
use horton_tables::table::baselines::cuckoo::{CuckooConfig, CuckooTable};
use horton_tables::table::baselines::slab::{MISS, PoolLayout, SlabConfig, SlabHash, SlabPool};
use horton_tables::table::horton::{Built, TableConfig, build};
use horton_tables::table::{Items, Table};
use rand_mt::Mt;

use crate::chart::{Axis, Figure, Series};
use crate::measure::{Bench, Words, geometric_mean, keys, rate};

/// Elements of the paper's tables.
const ELEMENTS: usize = 1 << 22;

/// Average slab counts of figure 4.
const SLAB_COUNTS: [f64; 12] = [0.1, 0.2, 0.3, 0.45, 0.6, 0.7, 0.85, 1.0, 1.3, 2.0, 3.0, 5.0];

/// Slabs of a super block of the paper.
const SUPER_BLOCK: usize = 256 * 1024;

/// Returns a table for `n` items at `slabs_per_bucket`, over a SlabAlloc-light that holds them at
/// any number.
pub fn config(n: usize, slabs_per_bucket: f64) -> SlabConfig {
    let super_blocks = (n / 15 * 3 / 2).div_ceil(SUPER_BLOCK) + 1;
    let small = n < 1 << 20;
    SlabConfig {
        slabs_per_bucket,
        pool: PoolLayout {
            light: true,
            super_blocks: if small { 4 } else { super_blocks },
            blocks: if small { 32 } else { 256 },
        },
        ..SlabConfig::default()
    }
}

fn replace(queue: &mut Queue, table: &mut SlabHash, keys: &Words) -> Result<usize> {
    table.replace(queue, Items { keys, values: None })
}

/// Utilisation, and millions per second of a build, of searches that hit and that miss.
struct Rates {
    utilisation: f64,
    build: f64,
    hits: f64,
    misses: f64,
}

/// Keys that are in a table, and as many that are not, on the device.
struct Asked {
    present: Words,
    absent: Words,
}

impl Asked {
    fn new(bench: &Bench, n: usize) -> Result<Self> {
        Ok(Self {
            present: bench.upload(keys(0..n))?,
            absent: bench.upload(keys(n..2 * n))?,
        })
    }
}

/// Builds a table of the keys with REPLACE, and searches it.
fn measure(bench: &mut Bench, asked: &Asked, slabs_per_bucket: f64) -> Result<Rates> {
    let n = asked.present.len();
    let config = config(n, slabs_per_bucket);
    let mut best = [Duration::MAX; 3];
    let mut utilisation = 0.0;
    for run in 0..=bench.repeat {
        let (_, mut table) = bench.timed(move |queue| SlabHash::with_room(queue, &config, n))?;
        let all = asked.present.clone();
        let (took, (new, mut table)) =
            bench.timed(move |queue| Ok((replace(queue, &mut table, &all)?, table)))?;
        bench.expect("keys inserted", new, n);
        best[0] = best[0].min(took);
        for (i, keys, expected) in [(1, &asked.present, n), (2, &asked.absent, 0)] {
            let keys = keys.clone();
            let (took, (values, returned)) = bench.timed(move |queue| {
                let values = queue.allocate("values", n)?;
                table.search(queue, &keys, &values, n)?;
                Ok((values, table))
            })?;
            table = returned;
            best[i] = best[i].min(took);
            if run == 0 {
                bench.expect_found(values, n, expected)?;
            }
        }
        (_, utilisation) = bench.timed(move |queue| table.utilisation(queue))?;
    }
    let [build, hits, misses] = best.map(|time| rate(n, time));
    Ok(Rates {
        utilisation,
        build,
        hits,
        misses,
    })
}

/// Measures the same for a static table: bucketized cuckoo hashing, as CUDPP's in the paper is
/// cuckoo hashing.
fn measure_cuckoo(bench: &mut Bench, asked: &Asked, load_factor: f64) -> Result<Rates> {
    let n = asked.present.len();
    let config = CuckooConfig {
        load_factor,
        ..CuckooConfig::default()
    };
    let mut best = [Duration::MAX; 3];
    for run in 0..=bench.repeat {
        let all = asked.present.clone();
        let (took, mut table) = bench.timed(move |queue| {
            let items = Items {
                keys: &all,
                values: None,
            };
            CuckooTable::build(queue, &config, items)
        })?;
        best[0] = best[0].min(took);
        for (i, keys, expected) in [(1, &asked.present, n), (2, &asked.absent, 0)] {
            let keys = keys.clone();
            let (took, (values, returned)) = bench.timed(move |queue| {
                let values = queue.allocate("values", n)?;
                let reads = queue.buffer_from("reads", &[0])?;
                table.lookup(queue, &keys, &values, &reads, n)?;
                Ok((values, table))
            })?;
            table = returned;
            best[i] = best[i].min(took);
            if run == 0 {
                bench.expect_found(values, n, expected)?;
            }
        }
    }
    let [build, hits, misses] = best.map(|time| rate(n, time));
    Ok(Rates {
        utilisation: load_factor,
        build,
        hits,
        misses,
    })
}

/// Prints how many times as fast cuckoo hashing is, beside the paper's factors.
fn compare(what: &str, slab: &Lines, cuckoo: &Lines, source: [f64; 3]) {
    println!();
    for ((s, c), source) in slab.0.iter().zip(&cuckoo.0).zip(source) {
        let pairs = s.points.iter().zip(&c.points);
        let factor = geometric_mean(pairs.map(|((_, s), (_, c))| c / s));
        println!(
            "{what}, {}: cuckoo hashing is {factor:.2} times as fast; the paper's is {source}",
            s.name
        );
    }
}

/// Three lines: builds, searches that hit, searches that miss.
struct Lines([Series; 3]);

impl Lines {
    fn new(of: &str) -> Self {
        let names = ["build", "search all", "search none"];
        Self(names.map(|name| Series::new(format!("{name}{of}"))))
    }

    fn push(&mut self, x: f64, rates: &Rates) {
        let values = [rates.build, rates.hits, rates.misses];
        for (line, y) in self.0.iter_mut().zip(values) {
            line.points.push((x, y));
        }
    }
}

/// Returns a rate that the source states as a peak, or a mean, over a range of x.
fn stated(name: &str, range: [f64; 2], y: f64) -> Series {
    Series::source(name, range.map(|x| (x, y)).to_vec())
}

/// Figure 4: rates by memory utilisation, for 2^22 elements and 2^26.
pub fn utilisation(bench: &mut Bench) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (elements, name) in [
        (ELEMENTS, "slab_utilisation_2_22"),
        (1 << 26, "slab_utilisation_2_26"),
    ] {
        let n = bench.scaled(elements);
        let asked = Asked::new(bench, n)?;
        let (mut lines, mut cuckoo) = (Lines::new(""), Lines::new(", cuckoo table"));
        for slabs_per_bucket in SLAB_COUNTS {
            let rates = measure(bench, &asked, slabs_per_bucket)?;
            lines.push(rates.utilisation, &rates);
            let load = rates.utilisation.clamp(0.05, 0.95);
            cuckoo.push(rates.utilisation, &measure_cuckoo(bench, &asked, load)?);
        }
        for (line, source) in lines.0.iter().zip([512.0, 937.0, 937.0]) {
            let peak = line.points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
            bench.beside(
                &format!("{n} elements, peak {}", line.name),
                peak,
                (source, "the paper's, K40c"),
            );
        }
        compare(
            &format!("{n} elements"),
            &lines,
            &cuckoo,
            [1.33, 2.08, 2.04],
        );
        let mut series = Vec::from(lines.0);
        series.extend(cuckoo.0);
        series.push(stated("paper's peak build, K40c", [0.19, 0.6], 512.0));
        series.push(stated("paper's peak search, K40c", [0.19, 0.6], 937.0));
        figures.push(Figure {
            name,
            title: "Slab hash: rates by memory utilisation",
            x: Axis::linear("memory utilisation"),
            y: Axis::linear("M operations/s"),
            series,
        });
    }
    Ok(figures)
}

/// Figure 5: rates by size, at 60 % utilisation.
pub fn size(bench: &mut Bench) -> Result<Vec<Figure>> {
    let (mut lines, mut cuckoo) = (Lines::new(""), Lines::new(", cuckoo table"));
    for log2 in 16..=27u32 {
        let Some(log2) = log2.checked_sub(bench.scale).filter(|log2| *log2 >= 10) else {
            continue;
        };
        let n = 1 << log2;
        let asked = Asked::new(bench, n)?;
        lines.push(n as f64, &measure(bench, &asked, 0.7)?);
        cuckoo.push(n as f64, &measure_cuckoo(bench, &asked, 0.65)?);
    }
    compare("all sizes", &lines, &cuckoo, [1.19, 1.19, 0.94]);
    let mut series = Vec::from(lines.0);
    series.extend(cuckoo.0);
    let range = [65536.0, 134_217_728.0];
    series.push(stated("paper's mean search, all there, K40c", range, 861.0));
    series.push(stated(
        "paper's mean search, none there, K40c",
        range,
        793.0,
    ));
    Ok(vec![Figure {
        name: "slab_size",
        title: "Slab hash: rates by number of elements, 60 % utilisation",
        x: Axis::log("elements"),
        y: Axis::linear("M operations/s"),
        series,
    }])
}

/// Figure 6: batches are added until there are 2 M elements; compared with rebuilding a static
/// table.
pub fn batches(bench: &mut Bench) -> Result<Vec<Figure>> {
    let total = bench.scaled(1 << 21);
    let mut series = Vec::new();
    for batch in [32, 64, 128] {
        let step = bench.scaled(batch << 10);
        let mut slab = Series::new(format!("slab hash, {batch} K"));
        let mut horton = Series::new(format!("Horton table built anew, {batch} K"));
        // 65 % at the end (the paper's mean slab count there is about 0.8).
        let config = config(total, 0.8);
        let (_, mut table) =
            bench.timed(move |queue| SlabHash::with_room(queue, &config, total))?;
        let (mut added, mut rebuilt) = (Duration::ZERO, Duration::ZERO);
        warm(bench, step)?;
        for end in (step..=total).step_by(step) {
            let new = bench.upload(keys(end - step..end))?;
            let (took, returned) = bench.timed(move |queue| {
                replace(queue, &mut table, &new)?;
                Ok(table)
            })?;
            table = returned;
            added += took;
            slab.points.push((end as f64, added.as_secs_f64() * 1e3));
            rebuilt += rebuild(bench, end)?;
            horton
                .points
                .push((end as f64, rebuilt.as_secs_f64() * 1e3));
        }
        bench.expect("keys in the table", table.len(), total);
        let gain = rebuilt.as_secs_f64() / added.as_secs_f64();
        let source = [17.3, 10.4, 6.4][batch.trailing_zeros() as usize - 5];
        println!(
            "batches of {batch} K: {gain:.1} times as fast as building a Horton table anew; the paper, with CUDPP's: {source}"
        );
        series.extend([slab, horton]);
    }
    Ok(vec![Figure {
        name: "slab_batches",
        title: "Incremental batches: time so far",
        x: Axis::linear("elements"),
        y: Axis::log("ms"),
        series,
    }])
}

/// Compiles the kernels of `batches`.
fn warm(bench: &Bench, n: usize) -> Result<()> {
    let config = config(bench.scaled(1 << 21), 0.8);
    let new = bench.upload(keys(0..n))?;
    bench.timed(move |queue| {
        let mut table = SlabHash::with_room(queue, &config, n)?;
        replace(queue, &mut table, &new)
    })?;
    rebuild(bench, n)?;
    Ok(())
}

/// Returns the time to build a static table of the first `n` keys at load 0.65.
fn rebuild(bench: &Bench, n: usize) -> Result<Duration> {
    let all = bench.upload(keys(0..n))?;
    let config = TableConfig {
        load_factor: 0.65,
        ..TableConfig::default()
    };
    let (took, built) = bench.timed(move |queue| {
        let items = Items {
            keys: &all,
            values: None,
        };
        build::build(queue, &config, items)
    })?;
    match built {
        Built::Table(_) => Ok(took),
        Built::Repeats => Err(Error::DuplicateKeys),
    }
}

/// Γ of section VI-C: shares of insertions, deletions, searches that hit and that miss.
pub const DISTRIBUTIONS: [(&str, [f64; 4]); 3] = [
    ("Γ0: updates only", [0.5, 0.5, 0.0, 0.0]),
    ("Γ1: 40 % updates", [0.2, 0.2, 0.3, 0.3]),
    ("Γ2: 20 % updates", [0.1, 0.1, 0.4, 0.4]),
];

/// Figure 7a: mixed batches, by the utilisation before.
pub fn mixed(bench: &mut Bench) -> Result<Vec<Figure>> {
    let n = bench.scaled(ELEMENTS);
    let mut series = Vec::new();
    for (name, shares) in DISTRIBUTIONS {
        let mut line = Series::new(name);
        for slabs_per_bucket in SLAB_COUNTS {
            line.points
                .push(mixed_batch(bench, n, slabs_per_bucket, shares)?);
        }
        let peak = line.points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
        println!("{name}: {peak:.1} M operations/s at best");
        series.push(line);
    }
    series.push(Series::source(
        "paper, K40c, at about 90 %",
        vec![(0.85, 100.0), (0.9, 100.0)],
    ));
    Ok(vec![Figure {
        name: "slab_mixed",
        title: "Slab hash: mixed batches by memory utilisation before",
        x: Axis::linear("memory utilisation before"),
        y: Axis::linear("M operations/s"),
        series,
    }])
}

/// Utilisation, and millions of operations per second of batches of a quarter of `n` operations.
fn mixed_batch(
    bench: &mut Bench,
    n: usize,
    slabs_per_bucket: f64,
    shares: [f64; 4],
) -> Result<(f64, f64)> {
    let config = config(2 * n, slabs_per_bucket);
    let first = bench.upload(keys(0..n))?;
    let (_, (utilisation, mut table)) = bench.timed(move |queue| {
        let mut table = SlabHash::with_room(queue, &config, n)?;
        replace(queue, &mut table, &first)?;
        Ok((table.utilisation(queue)?, table))
    })?;
    let size = n / 4;
    let mut best = Duration::MAX;
    let mut random = Mt::new(3);
    for round in 0..=bench.repeat {
        let [kinds, op_keys] = operations(&mut random, (n, size, round), shares);
        let answers_expected = (0..size).filter(|i| kinds[*i] != Kind::Replace as u32);
        let hits = answers_expected.filter(|i| (op_keys[*i] & 1) == 1).count();
        let expected = hits + kinds.iter().filter(|k| **k == Kind::Replace as u32).count();
        let op_keys: Vec<u32> = op_keys.iter().map(|key| key_number(key >> 1)).collect();
        let (kinds, op_keys) = (bench.upload(kinds)?, bench.upload(op_keys)?);
        let (took, (answers, returned)) = bench.timed(move |queue| {
            let answers: Words = Arc::new(queue.allocate("answers", size)?);
            let batch = Batch {
                kinds: &kinds,
                keys: &op_keys,
                values: &op_keys_as_values(queue, size)?,
            };
            table.apply(queue, batch, &answers)?;
            Ok((queue.read(&answers, size)?, table))
        })?;
        table = returned;
        // Insertions are of new keys: they answer MISS.
        let missed = answers.iter().filter(|answer| **answer == MISS).count();
        let inserted = expected - hits;
        bench.expect(
            "operations that found their key",
            size - missed,
            expected - inserted,
        );
        best = if round == 0 { best } else { best.min(took) };
    }
    Ok((utilisation, rate(size, best)))
}

/// Values that any table takes.
fn op_keys_as_values(queue: &mut Queue, n: usize) -> Result<horton_tables::device::Buffer<u32>> {
    let values = queue.allocate("values", n)?;
    queue.fill(&values, 1u32)?;
    Ok(values)
}

/// Returns the key `number` of [`keys`].
pub fn key_number(number: u32) -> u32 {
    horton_tables::table::primitives::hash::jenkins(number)
}

/// Kinds, and numbers of keys, twice, plus 1 where the key is there. Each round deletes other keys,
/// and searches for none that it deletes, so that every answer is known.
pub fn operations(
    random: &mut Mt,
    (n, size, round): (usize, usize, usize),
    shares: [f64; 4],
) -> [Vec<u32>; 2] {
    let until = |i: usize| shares[..=i].iter().sum::<f64>();
    let (mut kinds, mut numbers) = (Vec::new(), Vec::new());
    let share = n / 2 / 16;
    let (mut deleted, mut inserted) = ((round * share) as u32, (n + round * size) as u32);
    for _ in 0..size {
        let draw = f64::from(random.next_u32()) / 4_294_967_296.0;
        let any = random.next_u32() as usize;
        let (kind, number) =
            if draw < until(0) || draw < until(1) && deleted as usize >= (round + 1) * share {
                inserted += 1;
                (Kind::Replace, 2 * (inserted - 1))
            } else if draw < until(1) {
                deleted += 1;
                (Kind::Delete, 2 * (deleted - 1) + 1)
            } else if draw < until(2) {
                (Kind::Search, 2 * (n / 2 + any % (n / 2)) as u32 + 1)
            } else {
                (Kind::Search, 2 * (3 * n + any % n) as u32)
            };
        kinds.push(kind as u32);
        numbers.push(number);
    }
    [kinds, numbers]
}

/// Section V: a million slabs, one for each thread.
pub fn allocation(bench: &mut Bench) -> Result<Vec<Figure>> {
    let n = bench.scaled(1 << 20);
    println!(
        "\nallocation of {n} slabs, one a thread; the paper: 600 M/s (K40c), Halloc 16.1, CUDA's malloc 0.8"
    );
    let mut line = Series::new("slabs allocated");
    for (x, (light, name)) in [(true, "SlabAlloc-light"), (false, "SlabAlloc")]
        .into_iter()
        .enumerate()
    {
        let layout = PoolLayout {
            light,
            super_blocks: 32,
            blocks: (256 >> bench.scale.min(6)).max(1),
        };
        let n = n.min(layout.slabs());
        let mut best = Duration::MAX;
        let mut failed = 0;
        for _ in 0..=bench.repeat {
            let (_, pool) = bench.timed(move |queue| SlabPool::new(queue, layout))?;
            let (took, missing) = bench.timed(move |queue| Ok(pool.allocate_many(queue, n)?.1))?;
            (best, failed) = (best.min(took), failed + missing);
        }
        bench.expect("slabs that were not given", failed, 0);
        bench.beside(name, rate(n, best), (600.0, "the paper's, K40c"));
        line.points.push((x as f64, rate(n, best)));
    }
    Ok(vec![Figure {
        name: "slab_alloc",
        title: "Slabs allocated a second: SlabAlloc-light (0) and SlabAlloc (1)",
        x: Axis::linear("allocator"),
        y: Axis::linear("M slabs/s"),
        series: vec![line, stated("paper, K40c", [0.0, 1.0], 600.0)],
    }])
}
