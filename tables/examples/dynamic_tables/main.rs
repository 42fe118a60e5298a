//! Repeats the evaluations of the sources of the tables that change, on any OpenCL device.
//!
//! ```text
//!   linear      insertion time for each 4 M keys up to load 0.94, Rust's HashMap beside it; probe
//!               lengths at 0.5 and 0.97; one bulk insertion at load 0.5    (Simple GPU Hash Table)
//!   reuse       probe lengths round by round, with and without reuse       (Reusing Deleted Slots)
//!   utilisation, size, batches, mixed, alloc               (slab hash, figures 4 to 7, section V)
//!   workloads   every kind of table, Horton and cuckoo tables too, under every kind of work
//! ```
//!
//! ```sh
//! cargo run --release -p horton-tables --example dynamic_tables -- --out DIR   # CSV and SVG files
//! cargo run --release -p horton-tables --example dynamic_tables -- --scale 5 --only linear,alloc
//! ```
//!
//! At scale 0 sizes are the sources' and larger (2^27 slots, 2^22 and 2^26 elements), for which a
//! device has `FULL_MEMORY` bytes; scale s divides them by 2^s. Figure 7b needs another author's
//! CUDA program and is not repeated. Times are those of the device's clock, kernels alone, as in
//! the sources. Every figure's answers are checked; the exit status says whether all were right.

mod chart;
mod linear;
mod measure;
mod slab;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use horton_tables::device::{Device, DeviceInfo, DeviceKind};
use horton_tables::error::{Error, Result};

use chart::Figure;
use measure::Bench;

/// Device memory from which sizes are the sources'.
const FULL_MEMORY: u64 = 12 << 30;

/// Divisor of sizes on CPUs: everything ends in a minute on two cores.
const CPU_SCALE: u32 = 6;

/// The largest divisor: a table of 2^15 slots is left.
const MAX_SCALE: u32 = 12;

#[derive(Parser)]
struct Options {
    /// The device: auto, PLATFORM:DEVICE or part of a name
    #[arg(long, default_value = "auto")]
    device: String,
    /// Divides every size by 2^SCALE [default: what the device's memory allows; 6 on CPUs]
    #[arg(long)]
    scale: Option<u32>,
    /// Experiments to run: linear, reuse, utilisation, size, batches, mixed, alloc, workloads
    /// [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Runs of each measurement that can be repeated, of which the best counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Writes a CSV and an SVG file for each figure into this folder
    #[arg(long)]
    out: Option<PathBuf>,
}

/// An experiment: its name, and what makes its figures.
type Experiment = (&'static str, fn(&mut Bench) -> Result<Vec<Figure>>);

const EXPERIMENTS: [Experiment; 8] = [
    ("linear", linear::insertion),
    ("reuse", linear::reuse),
    ("utilisation", slab::utilisation),
    ("size", slab::size),
    ("batches", slab::batches),
    ("mixed", slab::mixed),
    ("alloc", slab::allocation),
    ("workloads", workloads::workloads),
];

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
    let unknown = |name: &&String| EXPERIMENTS.iter().all(|(known, _)| known != name);
    if let Some(name) = options.only.iter().find(unknown) {
        return Err(Error::Invalid(format!("there is no experiment '{name}'")));
    }
    let device = Device::open(&options.device)?;
    println!("device: {}", device.info());
    let scale = options
        .scale
        .unwrap_or_else(|| default_scale(device.info()));
    let mut bench = Bench {
        device,
        scale: scale.min(MAX_SCALE),
        repeat: options.repeat.max(1),
        wrong: 0,
    };
    println!("sizes divided by {}", 1 << bench.scale);
    for (name, experiment) in EXPERIMENTS {
        if !options.only.is_empty() && !options.only.iter().any(|asked| asked == name) {
            continue;
        }
        for figure in experiment(&mut bench)? {
            figure.print();
            if let Some(folder) = &options.out {
                figure
                    .write(folder)
                    .map_err(|e| Error::Invalid(format!("{}: {e}", folder.display())))?;
            }
        }
    }
    Ok(bench.wrong)
}

fn default_scale(info: &DeviceInfo) -> u32 {
    match info.kind {
        DeviceKind::Cpu => CPU_SCALE,
        _ => {
            let enough = |scale: &u32| info.global_memory >= FULL_MEMORY >> scale;
            (0..MAX_SCALE).find(enough).unwrap_or(MAX_SCALE)
        }
    }
}
