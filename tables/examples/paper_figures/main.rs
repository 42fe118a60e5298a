//! The evaluation of the Horton paper (sections 6 to 8) on one device: figures 8 to 14 as CSV and
//! SVG, and a report.
//!
//! ```text
//! cargo run --release -p horton-tables --example paper_figures -- --device auto --out DIR
//! ```
//!
//! Lookups in load-balanced and first-fit cuckoo tables and in Horton tables, all hitting and all
//! missing, by size of the table; what they read, counted by a kernel, beside the paper's models
//! and the figures it states. Arrays to look up are made, and every answer is checked, on the
//! device. Each kind of table is looked up as its tuning says (`table::horton::tuning`).

mod models;
mod plot;
mod report;
mod throughput;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use horton_tables::device::{Device, DeviceKind};
use horton_tables::error::{Error, Result};
use horton_tables::table::primitives::hash::Reduction;

use horton_tables_test_support::lookups::keys::Keys;
use horton_tables_test_support::lookups::tables::Bench;
use horton_tables_test_support::lookups::workload::Workload;
use report::Setting;
use throughput::{Case, PAPER_TABLE, Rate};

#[derive(Parser)]
#[command(about = "The evaluation of the Horton paper, repeated on one device")]
struct Options {
    /// The device, as in horton.device
    #[arg(long, default_value = "auto")]
    device: String,
    /// The folder that figures and report are written to
    #[arg(long)]
    out: PathBuf,
    /// Bytes of the probe array [default: 1 GiB on GPUs, 16 MiB on CPUs]
    #[arg(long)]
    probe_bytes: Option<usize>,
    /// Table sizes in KiB, as far as the device has room [default: 16 to 8388608, each twice the
    /// one before; on CPUs to 131072]
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Load factor of figures 12 and 13
    #[arg(long, default_value_t = 0.9)]
    load: f64,
    /// Load factor to which the largest table is filled, too
    #[arg(long, default_value_t = 0.95)]
    high_load: f64,
    /// Slots of the tables of figures 9 to 11 and 14, as a power of two [default: 24; on CPUs 20]
    #[arg(long)]
    model_slots_log2: Option<u32>,
    /// Buckets of figure 8, as a power of two
    #[arg(long, default_value_t = 22)]
    buckets_log2: u32,
    /// Runs of each measurement, of which the best counts
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Reduce hashes by %, as the paper does
    #[arg(long)]
    modulo: bool,
}

impl Options {
    fn reduction(&self) -> Reduction {
        match self.modulo {
            true => Reduction::Modulo,
            false => Reduction::MultiplyHigh,
        }
    }
}

fn main() -> ExitCode {
    env_logger::init();
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let device = Device::open(&options.device)?;
    let info = device.info().clone();
    println!("device: {info}");
    std::fs::create_dir_all(&options.out)
        .map_err(|e| Error::Invalid(format!("cannot create {}: {e}", options.out.display())))?;
    let is_cpu = info.kind == DeviceKind::Cpu;
    let default_bytes = if is_cpu { 16 << 20 } else { 1 << 30 };
    let probes = options.probe_bytes.unwrap_or(default_bytes) / size_of::<u32>();
    let default_slots = if is_cpu { 20 } else { 24 };
    let model_slots = 1usize << options.model_slots_log2.unwrap_or(default_slots);
    let cases = cases(options, &sizes(options, &device, probes));

    let figure_8 = (8usize << options.buckets_log2) as f64 * 0.95;
    let most = cases.iter().map(Case::items).max().unwrap_or(0);
    let most = most.max(model_slots).max(figure_8 as usize);
    println!("drawing {most} keys and {} others", most.min(probes));
    let keys = Keys::draw(most, most.min(probes));
    let bench = Bench {
        workload: Workload::new(&device, &keys)?,
        repeat: options.repeat.max(1),
        device,
    };
    let reduction = options.reduction();
    let points = models::measure(&bench, (model_slots, probes.min(1 << 22)), reduction)?;
    let rates = throughput::measure(&bench, &cases, probes)?;

    let mut figures = vec![models::items_per_bucket(&keys, 1 << options.buckets_log2)];
    figures.extend(models::figures(&points, &info.name));
    let drawn = |rate: &&Rate| rate.case.load == options.load && rate.case.reduction == reduction;
    let drawn: Vec<Rate> = rates.iter().filter(drawn).copied().collect();
    figures.extend(throughput::figures(&drawn, options.load, &info.name));
    figures.sort_by_key(|figure| figure.file);
    for figure in &figures {
        figure.write(&options.out)?;
    }
    let setting = Setting {
        load: options.load,
        high_load: options.high_load,
        probes,
        distinct_misses: most.min(probes),
        repeat: bench.repeat,
        model_slots,
        reduction,
    };
    let text = report::report(&info, &setting, (&points, &rates), &figures);
    let path = options.out.join("report.md");
    std::fs::write(&path, text)
        .map_err(|e| Error::Invalid(format!("cannot write {}: {e}", path.display())))?;
    println!("{}", path.display());
    Ok(())
}

/// Returns every size; and the paper's largest fuller, and with hashes reduced the other way.
fn cases(options: &Options, sizes: &[usize]) -> Vec<Case> {
    let case = |bytes: usize| Case {
        bytes,
        load: options.load,
        reduction: options.reduction(),
    };
    let mut cases: Vec<Case> = sizes.iter().map(|bytes| case(*bytes)).collect();
    let paper = sizes.iter().filter(|bytes| **bytes <= PAPER_TABLE).max();
    if let Some(paper) = paper {
        cases.push(Case {
            load: options.high_load,
            ..case(*paper)
        });
        cases.push(Case {
            reduction: match options.reduction() {
                Reduction::MultiplyHigh => Reduction::Modulo,
                Reduction::Modulo => Reduction::MultiplyHigh,
            },
            ..case(*paper)
        });
    }
    cases
}

/// Sizes in bytes that leave room for the probe array, its answers and what a build needs.
fn sizes(options: &Options, device: &Device, probes: usize) -> Vec<usize> {
    let is_cpu = device.info().kind == DeviceKind::Cpu;
    let doubling = |to: u32| (4..=to).map(|log2| 1usize << log2);
    let default: Vec<usize> = match is_cpu {
        true => doubling(17).collect(),
        false => doubling(23).collect(),
    };
    let asked = match options.sizes.is_empty() {
        true => default,
        false => options.sizes.clone(),
    };
    let budget = device.budget().limit();
    let room = budget.saturating_sub(12 * probes as u64) as usize;
    let largest = device.info().max_allocation as usize;
    let fits = |bytes: &usize| bytes * 8 <= room && bytes * 2 <= largest;
    let sizes = asked.into_iter().map(|kib| kib << 10);
    sizes.filter(fits).collect()
}
