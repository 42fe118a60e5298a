//! Rates of a Horton table on one device, each beside the limit of the device's memory.
//!
//! ```text
//! cargo run --release --example device_bench -- --device auto --csv rates.csv
//! ```
//!
//! Per table size and load factor: bulk build, lookups that all hit and that all miss, and
//! the rate of one random bucket read per key on the same table. Times are the device's
//! event clock, transfers not counted, the best of `--repeat` runs. Keys are distinct MT19937
//! draws; repeats in the probe array stand a whole table apart. Every answer is checked.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use horton_join::device::{Device, Queue};
use horton_join::error::{Error, Result};
use horton_join::table::horton::{
    BucketSize, Built, HortonTable, Items, MISS, TableConfig, build::build,
};
use rand_mt::Mt;

#[derive(Parser)]
#[command(about = "Rates of a Horton table on one device, each beside the memory's limit")]
struct Options {
    /// The device, as in horton.device
    #[arg(long, default_value = "auto")]
    device: String,
    /// Keys looked up at once, as a power of two (default: 27 on GPUs, 23 on CPUs)
    #[arg(long)]
    probes_log2: Option<u32>,
    /// Table sizes in MiB
    #[arg(long, value_delimiter = ',', default_values_t = [16, 128, 512, 2048])]
    sizes: Vec<u64>,
    /// Load factors
    #[arg(long, value_delimiter = ',', default_values_t = [0.5, 0.7, 0.8, 0.9, 0.95])]
    loads: Vec<f64>,
    /// Slots per bucket: 4, 8 or 16
    #[arg(long, default_value_t = 8)]
    bucket_size: usize,
    /// Runs of each measurement, of which the best counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Also write the figures to this file
    #[arg(long)]
    csv: Option<std::path::PathBuf>,
}

/// One row of figures: rates in operations a second.
struct Figures {
    mib: u64,
    load: f64,
    gather: f64,
    hits: f64,
    misses: f64,
    build: f64,
    wrong: usize,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(wrong) => {
            eprintln!("error: {wrong} wrong answers");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<usize> {
    let device = Device::open(&options.device)?;
    let info = device.info();
    let is_cpu = info.kind == horton_join::device::DeviceKind::Cpu;
    let probes = 1usize << options.probes_log2.unwrap_or(if is_cpu { 23 } else { 27 });
    println!("device: {info}");
    println!("{probes} keys looked up at once; rates in millions a second");
    println!(
        "{:>9} {:>5} {:>9} {:>9} {:>6} {:>9} {:>6} {:>9} {:>6}",
        "table MiB", "load", "gather", "hits", "ratio", "misses", "ratio", "build", "wrong"
    );
    let keys = Keys::draw(options, &device, probes);
    let mut rows = Vec::new();
    for mib in fitting(options, &device, probes) {
        for &load in &options.loads {
            let figures = measure(options, &device, &keys, mib, load, probes)?;
            println!(
                "{:>9} {:>5} {:>9.1} {:>9.1} {:>6.3} {:>9.1} {:>6.3} {:>9.1} {:>6}",
                figures.mib,
                figures.load,
                figures.gather / 1e6,
                figures.hits / 1e6,
                figures.hits / figures.gather,
                figures.misses / 1e6,
                figures.misses / figures.gather,
                figures.build / 1e6,
                figures.wrong
            );
            rows.push(figures);
        }
    }
    if let Some(path) = &options.csv {
        write_csv(path, &rows)
            .map_err(|e| Error::Invalid(format!("cannot write {}: {e}", path.display())))?;
    }
    Ok(rows.iter().map(|row| row.wrong).sum())
}

/// Table sizes that leave room for the probe array and the build's scratch memory.
fn fitting(options: &Options, device: &Device, probes: usize) -> Vec<u64> {
    let room = device.budget().limit().saturating_sub(8 * probes as u64);
    let fits = |mib: &u64| (mib << 20) * 3 <= room && (mib << 20) <= device.info().max_allocation;
    options.sizes.iter().copied().filter(fits).collect()
}

fn items_of(mib: u64, load: f64) -> usize {
    ((mib << 20) as f64 / 8.0 * load) as usize
}

/// Distinct keys for the largest table, and others that are in none.
struct Keys {
    present: Vec<u32>,
    absent: Vec<u32>,
}

impl Keys {
    fn draw(options: &Options, device: &Device, probes: usize) -> Self {
        let largest = fitting(options, device, probes).into_iter().max();
        let load = options.loads.iter().copied().fold(0.0, f64::max);
        let count = largest.map_or(0, |mib| items_of(mib, load));
        let mut random = Mt::new(5489);
        let mut seen = vec![0u64; 1 << 26];
        let mut draw = |count: usize| {
            let mut keys = Vec::with_capacity(count);
            while keys.len() < count {
                let key = random.next_u32();
                let (word, bit) = (&mut seen[key as usize / 64], 1u64 << (key % 64));
                if *word & bit == 0 {
                    *word |= bit;
                    keys.push(key);
                }
            }
            keys
        };
        Self {
            present: draw(count),
            absent: draw(probes.min(1 << 24)),
        }
    }
}

fn measure(
    options: &Options,
    device: &Device,
    keys: &Keys,
    mib: u64,
    load: f64,
    probes: usize,
) -> Result<Figures> {
    let present = keys.present[..items_of(mib, load)].to_vec();
    let absent = keys.absent.clone();
    let repeat = options.repeat.max(1);
    let config = TableConfig {
        bucket_size: BucketSize::try_from(options.bucket_size)?,
        load_factor: load,
        ..TableConfig::default()
    };
    let (table, build_time) = build_table(device, &config, &present, repeat)?;
    let hit_keys: Vec<u32> = present.iter().cycle().take(probes).copied().collect();
    let miss_keys: Vec<u32> = absent.iter().cycle().take(probes).copied().collect();
    let count = present.len() as u32;
    let (hits, gather, wrong_hits) =
        look_up(device, &table, hit_keys, repeat, move |i| i as u32 % count)?;
    let (misses, _, wrong_misses) = look_up(device, &table, miss_keys, repeat, |_| MISS)?;
    let rate = |count: usize, time: Duration| count as f64 / time.as_secs_f64();
    Ok(Figures {
        mib,
        load,
        gather: rate(probes, gather),
        hits: rate(probes, hits),
        misses: rate(probes, misses),
        build: rate(present.len(), build_time),
        wrong: wrong_hits + wrong_misses,
    })
}

fn build_table(
    device: &Device,
    config: &TableConfig,
    keys: &[u32],
    repeat: usize,
) -> Result<(HortonTable, Duration)> {
    let mut best = Duration::MAX;
    let mut built = None;
    // Uploads and allocations happen in a job too, but only kernels are counted.
    for _ in 0..=repeat {
        drop(built.take());
        let (keys, config) = (keys.to_vec(), *config);
        let answer = device.run_blocking(move |queue: &mut Queue| {
            let keys = queue.buffer_from("keys", &keys)?;
            let items = Items {
                keys: &keys,
                values: None,
            };
            match build(queue, &config, items)? {
                Built::Table(table) => Ok(table),
                Built::Repeats => Err(Error::DuplicateKeys),
            }
        })?;
        best = best.min(answer.cost.kernel);
        built = Some(answer.value);
    }
    built
        .map(|table| (table, best))
        .ok_or_else(|| Error::Invalid("nothing was built".to_owned()))
}

/// Best times of looking `keys` up and of merely gathering their buckets, and how many answers
/// differ from `expected`.
fn look_up(
    device: &Device,
    table: &HortonTable,
    keys: Vec<u32>,
    repeat: usize,
    expected: impl Fn(usize) -> u32,
) -> Result<(Duration, Duration, usize)> {
    let n = keys.len();
    let resident = device.run_blocking(move |queue| {
        let reads = queue.buffer_from("reads", &[0])?;
        let values = queue.allocate::<u32>("values", n)?;
        Ok((queue.buffer_from("probe keys", &keys)?, values, reads))
    })?;
    let (keys, values, reads) = resident.value;
    let buffers = std::sync::Arc::new((keys, values, reads));
    let mut lookup = Duration::MAX;
    let mut gather = Duration::MAX;
    let mut answers = Vec::new();
    for _ in 0..=repeat {
        let (table_copy, shared) = (table.clone(), std::sync::Arc::clone(&buffers));
        let limit =
            device.run_blocking(move |queue| table_copy.gather(queue, &shared.0, &shared.1, n))?;
        gather = gather.min(limit.cost.kernel);
        let (table_copy, shared) = (table.clone(), std::sync::Arc::clone(&buffers));
        let answer = device.run_blocking(move |queue| {
            table_copy.lookup(queue, &shared.0, &shared.1, &shared.2, n)?;
            queue.read(&shared.1, n)
        })?;
        lookup = lookup.min(answer.cost.kernel);
        answers = answer.value;
    }
    let wrong = answers
        .iter()
        .enumerate()
        .filter(|(i, answer)| **answer != expected(*i))
        .count();
    Ok((lookup, gather, wrong))
}

fn write_csv(path: &std::path::Path, rows: &[Figures]) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    writeln!(
        file,
        "table_mib,load,gather_per_s,hits_per_s,misses_per_s,build_keys_per_s,wrong"
    )?;
    for row in rows {
        writeln!(
            file,
            "{},{},{:.0},{:.0},{:.0},{:.0},{}",
            row.mib, row.load, row.gather, row.hits, row.misses, row.build, row.wrong
        )?;
    }
    Ok(())
}
