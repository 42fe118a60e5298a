//! Finds how lookups use a device best, for every kind of table apart, and remembers it.
//!
//! ```text
//! cargo run --release --example tune -- --device auto
//!
//!  for each of: Horton, load-balanced, first-fit × 4, 8, 16 slots × in the cache, beyond it
//!    the defaults ─▶ other body? ─▶ other lanes? ─▶ … ─▶ best ─▶ against the defaults once more
//! ```
//!
//! One parameter after another is tried with the best of those before it, as each value costs a
//! compilation; what seems better is measured once more beside what it would replace. A time is that of all hits and of all misses together, on the device's event clock.
//! Every answer of every candidate is checked. Winners are stored beside the compiled kernels
//! (`HORTON_CACHE_DIR`) and used by lookups from then on.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use horton_join::device::{Device, DeviceInfo, DeviceKind};
use horton_join::error::Result;
use horton_join::table::hash::Reduction;
use horton_join::table::horton::BucketSize;
use horton_join::table::tuning::{Kind, Parameter, Residence, Tuning, Workload, store};

use horton_test_support::lookups::keys::Keys;
use horton_test_support::lookups::tables::{AnyTable, Bench, Plan};
use horton_test_support::lookups::workload::{self, Asked};

/// What is better is faster by this much, or it is noise.
const NOTICEABLE: f64 = 1.01;

#[derive(Parser)]
#[command(about = "Finds how lookups use a device best, and remembers it")]
struct Options {
    /// The device, as in horton.device
    #[arg(long, default_value = "auto")]
    device: String,
    /// Slots per bucket
    #[arg(long, value_delimiter = ',', default_values_t = [4, 8, 16])]
    slots: Vec<usize>,
    /// Keys looked up at once, as a power of two [default: 26 on GPUs, 21 on CPUs]
    #[arg(long)]
    probes_log2: Option<u32>,
    /// Bytes of the table beyond the cache [default: 512 MiB on GPUs, 64 MiB on CPUs]
    #[arg(long)]
    table_bytes: Option<usize>,
    /// Load factor of the tables
    #[arg(long, default_value_t = 0.9)]
    load: f64,
    /// Runs of each measurement, of which the best counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Only print what is best
    #[arg(long)]
    dry_run: bool,
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
    let is_cpu = info.kind == DeviceKind::Cpu;
    let probes = 1usize << options.probes_log2.unwrap_or(if is_cpu { 21 } else { 26 });
    let largest = options
        .table_bytes
        .unwrap_or(if is_cpu { 64 << 20 } else { 512 << 20 });
    let most = ((largest / size_of::<u64>()) as f64 * options.load) as usize + 1;
    let keys = Keys::draw(most, most.min(probes));
    let bench = Bench {
        workload: workload::Workload::new(&device, &keys)?,
        repeat: options.repeat.max(1),
        device,
    };
    println!("{probes} lookups, load {}\n", options.load);
    println!(
        "| table | slots | where | default, G/s hits, misses | best, G/s hits, misses | ratio | best |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut winners = Vec::new();
    for slots in &options.slots {
        let bucket_size = BucketSize::try_from(*slots)?;
        for residence in Residence::ALL {
            let bytes = match residence {
                Residence::Cached => (Residence::most_cached(&info) / 4) as usize,
                Residence::Memory => largest,
            };
            for kind in Kind::ALL {
                let workload = Workload {
                    kind,
                    slots: bucket_size.slots(),
                    residence,
                };
                let plan = Plan {
                    kind,
                    bucket_size,
                    slots: bytes / size_of::<u64>(),
                    reduction: Reduction::MultiplyHigh,
                };
                let contest = Contest::new(&bench, plan, options.load, probes)?;
                let tuning = contest.decide(&info, &workload)?;
                winners.push((workload, tuning));
            }
        }
    }
    if !options.dry_run {
        println!("\n{}", store(&info, &winners)?.display());
    }
    Ok(())
}

/// A table, and what is looked up there by every candidate.
struct Contest<'a> {
    bench: &'a Bench,
    table: AnyTable,
    asked: [Asked; 2],
}

/// Times of hits and of misses.
#[derive(Clone, Copy)]
struct Times([Duration; 2]);

impl Times {
    fn total(self) -> f64 {
        self.0.iter().map(Duration::as_secs_f64).sum()
    }

    fn or_better(self, other: Self) -> Self {
        Self([self.0[0].min(other.0[0]), self.0[1].min(other.0[1])])
    }
}

impl<'a> Contest<'a> {
    fn new(bench: &'a Bench, plan: Plan, load: f64, probes: usize) -> Result<Self> {
        let count = (plan.slots as f64 * load) as usize;
        Ok(Self {
            bench,
            table: bench.build(plan, count)?,
            asked: [
                bench.workload.hits(count, probes)?,
                bench.workload.misses(probes)?,
            ],
        })
    }

    fn time(&self, tuning: Tuning) -> Result<Times> {
        let [hits, misses] = &self.asked;
        let time = |asked| self.bench.look_up(&self.table, asked, Some(tuning));
        Ok(Times([time(hits)?, time(misses)?]))
    }

    /// Tries one parameter after another, prints a line, and returns the winner.
    fn decide(&self, info: &DeviceInfo, workload: &Workload) -> Result<Tuning> {
        let default = Tuning::default_for(info, info.body(), workload);
        let (mut best, mut best_times) = (default, self.time(default)?);
        for parameter in Parameter::ALL {
            for tuning in best.others(parameter, info, workload) {
                let mut times = self.time(tuning)?;
                log::info!("{:.4} {tuning}", times.total() / best_times.total());
                if times.total() < best_times.total() {
                    // Once more, in the other order: the machine may just have been busy.
                    times = times.or_better(self.time(tuning)?);
                    best_times = best_times.or_better(self.time(best)?);
                }
                if NOTICEABLE * times.total() < best_times.total() {
                    (best, best_times) = (tuning, times);
                }
            }
        }
        // By turns, as other work on the machine comes and goes.
        let mut default_times = self.time(default)?;
        for _ in 0..2 {
            best_times = best_times.or_better(self.time(best)?);
            default_times = default_times.or_better(self.time(default)?);
        }
        if default_times.total() < NOTICEABLE * best_times.total() {
            (best, best_times) = (default, default_times);
        }
        let n = self.asked[0].keys.len() as f64;
        let rates = |times: Times| {
            let [hits, misses] = times.0.map(|time| n / time.as_secs_f64() / 1e9);
            format!("{hits:.3}, {misses:.3}")
        };
        println!(
            "| {} | {} | {:?} | {} | {} | {:.3} | {} |",
            workload.kind.name(),
            workload.slots,
            workload.residence,
            rates(default_times),
            rates(best_times),
            default_times.total() / best_times.total(),
            if best == default {
                "default".to_owned()
            } else {
                best.to_string()
            }
        );
        Ok(best)
    }
}
