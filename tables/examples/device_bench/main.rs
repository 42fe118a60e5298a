//! Rates of a Horton table on one device, each beside the limit of the device's memory.
//!
//! ```text
//! cargo run --release -p horton-tables --example device_bench -- --device auto --csv rates.csv
//! ```
//!
//! Per table size and load factor: lookups that all hit and that all miss, beside one random
//! bucket read per key on the same table (`gather`, the limit); bulk build of unique keys, and of
//! as many rows with four per key; device-resident joins, with one match and with four per
//! probe row, whose pairs come in probe order. Then builds with one hot key. On CPUs also the
//! lookup loop in plain Rust. Times are the device's event clock, transfers not counted, the
//! best of `--repeat` runs. Keys are distinct MT19937 draws; repeats in the probe array stand a
//! whole table apart. Every answer is checked. `RUST_LOG=horton_tables=trace` says what each kernel
//! took.
//!
//! `--elements 2.1e9` builds one table of so many, and looks each of them up.

mod billions;
mod host;
mod measure;

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use horton_tables::device::{Device, DeviceKind};
use horton_tables::error::{Error, Result};

use horton_tables_test_support::lookups::keys::{self, Keys};
use measure::{Bench, horton};

#[derive(Parser)]
#[command(about = "Rates of a Horton table on one device, each beside the memory's limit")]
struct Options {
    /// The device, as in horton.device
    #[arg(long, default_value = "auto")]
    device: String,
    /// Keys looked up at once, as a power of two [default: 27 on GPUs, 23 on CPUs]
    #[arg(long)]
    probes_log2: Option<u32>,
    /// Table sizes in MiB [default: 16,128,512,2048,8192 on GPUs, 16,128,256,512 on CPUs]
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<u64>,
    /// Load factors of the tables, in (0, 1]
    #[arg(long, value_delimiter = ',', default_values_t = [0.5, 0.8, 0.9, 0.95])]
    loads: Vec<f64>,
    /// Slots per bucket: 4, 8 or 16
    #[arg(long, default_value_t = 8)]
    bucket_size: usize,
    /// Rows of the builds with a hot key
    #[arg(long, default_value = "10000000")]
    hot_rows: NonZeroUsize,
    /// Only one table of so many elements (such as 2.1e9), filled to the last of the loads
    #[arg(long)]
    elements: Option<f64>,
    /// Runs of each measurement, of which the best counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Also write the figures to this file
    #[arg(long)]
    csv: Option<std::path::PathBuf>,
}

/// One column: a rate in operations per second, and its ratio to what it is compared with.
struct Column {
    name: &'static str,
    rate: f64,
    ratio: Option<f64>,
}

impl Column {
    fn new(name: &'static str, rate: f64, limit: f64) -> Self {
        let ratio = Some(rate / limit);
        Self { name, rate, ratio }
    }
}

/// One row of figures.
struct Figures {
    mib: u64,
    /// The table's own load: devices without 64-bit atomics cap the load that is asked for.
    load: f64,
    columns: Vec<Column>,
    wrong: usize,
}

fn main() -> ExitCode {
    env_logger::init();
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
    let bench = Bench {
        device: Device::open(&options.device)?,
        repeat: options.repeat.max(1),
    };
    let info = bench.device.info();
    let is_cpu = info.kind == DeviceKind::Cpu;
    let probes = 1usize << options.probes_log2.unwrap_or(if is_cpu { 23 } else { 27 });
    println!("device: {info}");
    if let Some(elements) = options.elements {
        let load = options.loads.last().copied().unwrap_or(0.95);
        return billions::run(&bench.device, elements as usize, load, options.bucket_size);
    }
    println!("{probes} keys looked up at once; rates in millions a second, each with its ratio");
    println!("to gather; builds x4 and with a hot key to the unique build; beside plain Rust,");
    println!("the device's rate in terms of Rust's");
    let sizes = sizes(options, &bench, probes);
    let load = options.loads.iter().copied().fold(0.0, f64::max);
    let most = sizes.iter().map(|mib| items_of(*mib, load)).max();
    let keys = Keys::draw(most.unwrap_or(0).max(options.hot_rows.get()), probes);
    let mut rows = Vec::new();
    for mib in sizes {
        for &load in &options.loads {
            let figures = measure(options, &bench, &keys, (mib, load, probes))?;
            print_figures(&figures, rows.is_empty());
            rows.push(figures);
        }
    }
    let mut wrong: usize = rows.iter().map(|row| row.wrong).sum();
    if let Some(path) = &options.csv {
        std::fs::write(path, csv(&rows))
            .map_err(|e| Error::Invalid(format!("cannot write {}: {e}", path.display())))?;
    }
    wrong += hot_keys(options, &bench, &keys)?;
    Ok(wrong)
}

/// Table sizes that leave room for the probe array and the build's scratch memory.
fn sizes(options: &Options, bench: &Bench, probes: usize) -> Vec<u64> {
    let default: &[u64] = match bench.device.info().kind {
        DeviceKind::Cpu => &[16, 128, 256, 512],
        _ => &[16, 128, 512, 2048, 8192],
    };
    let asked = match options.sizes.is_empty() {
        true => default,
        false => &options.sizes,
    };
    let room = bench
        .device
        .budget()
        .limit()
        .saturating_sub(24 * probes as u64);
    let largest = bench.device.info().max_allocation;
    let fits = |mib: &u64| (mib << 20) * 5 <= room && (mib << 20) * 3 / 2 <= largest;
    asked.iter().copied().filter(fits).collect()
}

fn items_of(mib: u64, load: f64) -> usize {
    ((mib << 20) as f64 / 8.0 * load) as usize
}

fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

fn measure(
    options: &Options,
    bench: &Bench,
    keys: &Keys,
    (mib, load, probes): (u64, f64, usize),
) -> Result<Figures> {
    let count = items_of(mib, load);
    let (build_time, built) = bench.build(keys.first(count).to_vec(), load, options.bucket_size)?;
    let table = horton(&built)?;
    let actual_load = table.load_factor();
    let hits = keys.hits(count, probes);
    let hit_keys = bench.upload(hits.keys.clone())?;
    let gather = rate(probes, bench.gather(table, &hit_keys)?);
    let hit = bench.look_up(table, &hit_keys, &hits)?;
    let join = bench.join(&built, &hit_keys, probes, |i| (i as u32, hits.answer(i)))?;
    drop(hit_keys);
    let misses = keys.misses(probes);
    let miss_keys = bench.upload(misses.keys.clone())?;
    let miss = bench.look_up(table, &miss_keys, &misses)?;
    drop(miss_keys);

    let mut wrong = hit.wrong + miss.wrong + join.wrong;
    let build = rate(count, build_time);
    let mut columns = vec![
        Column {
            name: "gather",
            rate: gather,
            ratio: None,
        },
        Column::new("hits", rate(probes, hit.time), gather),
        Column::new("misses", rate(probes, miss.time), gather),
        Column::new("build", build, gather),
    ];
    if bench.device.info().kind == DeviceKind::Cpu {
        let table = table.clone();
        let model = bench
            .device
            .run_blocking(move |queue| table.download(queue))?;
        let host = host::Host::new(&model.value);
        for (name, probe) in [("rust hits", &hits), ("rust misses", &misses)] {
            let (column, rust_wrong) = beside_rust(bench, (&built, &host), name, probe)?;
            columns.push(column);
            wrong += rust_wrong;
        }
    }
    drop(built);
    let (four, four_wrong) = four_a_key(options, bench, keys, (count / 4, load, probes / 4))?;
    wrong += four_wrong;
    columns.extend([
        Column::new("build x4", four.0, build),
        Column::new("join", rate(probes, join.time), gather),
        Column::new("join x4 pairs", four.1, gather),
    ]);
    Ok(Figures {
        mib,
        load: actual_load,
        columns,
        wrong,
    })
}

/// The same lookups on the device and in plain Rust by turns, as other work on the machine comes
/// and goes; the best of each.
fn beside_rust(
    bench: &Bench,
    (built, host): (&measure::Built, &host::Host<'_>),
    name: &'static str,
    probe: &keys::Probe,
) -> Result<(Column, usize)> {
    let once = Bench {
        device: bench.device.clone(),
        repeat: 1,
    };
    let resident = bench.upload(probe.keys.clone())?;
    let (mut device, mut rust) = (Duration::MAX, Duration::MAX);
    let mut wrong = 0;
    for _ in 0..2 * bench.repeat {
        let looked_up = once.look_up(horton(built)?, &resident, probe)?;
        device = device.min(looked_up.time);
        let (time, values) = host.look_up(&probe.keys);
        rust = rust.min(time);
        wrong += looked_up.wrong + measure::wrong_answers(&values, probe);
    }
    let n = probe.keys.len();
    let column = Column {
        name,
        rate: rate(n, rust),
        ratio: Some(rate(n, device) / rate(n, rust)),
    };
    Ok((column, wrong))
}

/// Rows per second of a build with four rows per key, pairs per second of a join with it, and wrong
/// answers.
fn four_a_key(
    options: &Options,
    bench: &Bench,
    keys: &Keys,
    (distinct, load, probes): (usize, f64, usize),
) -> Result<((f64, f64), usize)> {
    let rows = keys.four_times(distinct);
    let (build_time, built) = bench.build(rows, load, options.bucket_size)?;
    let hits = keys.hits(distinct, probes);
    let hit_keys = bench.upload(hits.keys.clone())?;
    let join = bench.join(&built, &hit_keys, 4 * probes, |i| {
        let row = hits.answer(i / 4) as usize + i % 4 * distinct;
        ((i / 4) as u32, row as u32)
    })?;
    let rates = (rate(4 * distinct, build_time), rate(4 * probes, join.time));
    Ok((rates, join.wrong))
}

/// Builds of ten million rows of which a share has one key.
fn hot_keys(options: &Options, bench: &Bench, keys: &Keys) -> Result<usize> {
    let count = options.hot_rows.get();
    println!("\nbuild of {count} rows, load 0.8, by the share of one hot key");
    let mut unique = None;
    let mut wrong = 0;
    for share in [0.0, 0.0001, 0.001, 0.01, 0.1, 0.3, 0.5, 1.0] {
        let rows = keys.with_hot_key(count, share);
        let hot = rows[0];
        let expected = rows.iter().filter(|key| **key == hot).count();
        let (time, built) = bench.build(rows, 0.8, options.bucket_size)?;
        let probe = bench.upload(vec![hot])?;
        // The hot key's pairs are its rows, ascending; how many says enough here.
        let counted = bench
            .device
            .run_blocking(move |queue| Ok(built.join(queue, &probe, 1)?.build.len()))?;
        wrong += counted.value.abs_diff(expected);
        let rate = rate(count, time);
        let unique = *unique.get_or_insert(rate);
        println!("{share:>9} {:>9.1} {:>6.3}", rate / 1e6, rate / unique);
    }
    Ok(wrong)
}

fn print_figures(figures: &Figures, first: bool) {
    let mut line = String::new();
    if first {
        line.push_str("table MiB  load");
        for column in &figures.columns {
            let width = if column.ratio.is_some() { 20 } else { 11 };
            let _ = write!(line, "{:>width$}", column.name);
        }
        line.push_str("  wrong\n");
    }
    let _ = write!(line, "{:>9} {:>5.3}", figures.mib, figures.load);
    for column in &figures.columns {
        let _ = write!(line, "{:>11.1}", column.rate / 1e6);
        if let Some(ratio) = column.ratio {
            let _ = write!(line, " {ratio:>8.3}");
        }
    }
    println!("{line} {:>6}", figures.wrong);
}

fn csv(rows: &[Figures]) -> String {
    let mut text = String::new();
    for row in rows {
        if text.is_empty() {
            let names = row
                .columns
                .iter()
                .map(|c| c.name.replace(' ', "_") + "_per_s");
            let names: Vec<String> = names.collect();
            let _ = writeln!(text, "table_mib,load,{},wrong", names.join(","));
        }
        let rates = row.columns.iter().map(|c| format!("{:.0}", c.rate));
        let rates: Vec<String> = rates.collect();
        let _ = writeln!(
            text,
            "{},{:.3},{},{}",
            row.mib,
            row.load,
            rates.join(","),
            row.wrong
        );
    }
    text
}
