//! Figures 12 and 13: lookups per second and bytes moved per lookup, by size of the table.

use horton_join::error::Result;
use horton_join::table::hash::Reduction;
use horton_join::table::horton::BucketSize;
use horton_join::table::tuning::Kind;

use crate::plot::{Figure, Series, Style};
use crate::tables::{Bench, Plan};

/// Bytes of a cache line, and those of a key and its answer.
const LINE: f64 = 64.0;
const KEY_AND_VALUE: f64 = 8.0;

/// What lookups in one table took.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    pub kind: Kind,
    /// Bytes of the table.
    pub bytes: usize,
    pub load: f64,
    pub hits: bool,
    /// Lookups a second.
    pub rate: f64,
    pub buckets: f64,
    /// Bytes moved a lookup, if no line stays in a cache.
    pub moved: f64,
}

/// Measures tables of 8 slots a bucket of every kind, each of so many bytes filled to a load.
pub fn measure(
    bench: &Bench,
    tables: &[(usize, f64)],
    probes: usize,
    reduction: Reduction,
) -> Result<Vec<Rate>> {
    let mut rates = Vec::new();
    for &(bytes, load) in tables {
        let slots = bytes / size_of::<u64>();
        let count = (slots as f64 * load) as usize;
        for kind in Kind::ALL {
            let plan = Plan {
                kind,
                bucket_size: BucketSize::Eight,
                slots,
                reduction,
            };
            let table = bench.build(plan, count)?;
            for hits in [true, false] {
                let asked = match hits {
                    true => bench.workload.hits(count, probes),
                    false => bench.workload.misses(probes),
                }?;
                let time = bench.look_up(&table, &asked, None)?;
                let reads = bench.count(&table, &asked)?;
                let rate = Rate {
                    kind,
                    bytes,
                    load,
                    hits,
                    rate: probes as f64 / time.as_secs_f64(),
                    buckets: reads.buckets,
                    moved: reads.lines * LINE + KEY_AND_VALUE,
                };
                println!("{rate:?}");
                rates.push(rate);
            }
        }
    }
    Ok(rates)
}

/// What the paper states of lookups that hit or miss (section 8).
struct Stated {
    hits: bool,
    files: [&'static str; 2],
    what: &'static str,
    /// Bytes a lookup in a Horton table, load 0.9.
    bytes: f64,
    /// Horton's gain over load-balanced tables, least and most.
    gains: [f64; 2],
}

const STATED: [Stated; 2] = [
    Stated {
        hits: true,
        files: ["figure_12a_hit_rate", "figure_12b_hit_bytes"],
        what: "hit",
        bytes: 82.0,
        gains: [1.17, 1.35],
    },
    Stated {
        hits: false,
        files: ["figure_13a_miss_rate", "figure_13b_miss_bytes"],
        what: "miss",
        bytes: 75.0,
        gains: [1.73, 1.89],
    },
];

/// The paper's largest table.
pub const PAPER_TABLE: usize = 512 << 20;

/// Figures 12 (hits) and 13 (misses) at one load: a throughput, b bytes moved.
pub fn figures(rates: &[Rate], load: f64) -> Vec<Figure> {
    let at_load = rates.iter().copied().filter(|rate| rate.load == load);
    let at_load: Vec<Rate> = at_load.collect();
    STATED
        .iter()
        .flat_map(|stated| {
            let chosen = at_load.iter().copied().filter(|r| r.hits == stated.hits);
            let chosen: Vec<Rate> = chosen.collect();
            let largest = chosen.iter().map(|rate| rate.bytes);
            let largest = largest.filter(|bytes| *bytes <= PAPER_TABLE).max();
            let balanced = chosen
                .iter()
                .find(|r| Some(r.bytes) == largest && r.kind == Kind::LoadBalanced);
            let mut gains = Series::new("the paper's gains over load-balanced", Style::Paper, 0);
            let mut bytes = Series::new("the paper states, Horton", Style::Paper, 0);
            if let Some(balanced) = balanced {
                let x = balanced.bytes as f64;
                gains.points = stated.gains.map(|g| (x, g * balanced.rate / 1e9)).into();
                bytes.points = vec![(x, stated.bytes)];
            }
            let figure = |file, title: String, y, series: Vec<Series>| Figure {
                file,
                title,
                x: "table",
                y,
                log_x: true,
                series,
            };
            let with = |mut series: Vec<Series>, marks: Series| {
                series.push(marks);
                series
            };
            [
                figure(
                    stated.files[0],
                    format!("Lookups that all {}, load {load}", stated.what),
                    "billions of lookups a second",
                    with(by_kind(&chosen, |rate| rate.rate / 1e9), gains),
                ),
                figure(
                    stated.files[1],
                    format!(
                        "Bytes moved by lookups that all {}, load {load}",
                        stated.what
                    ),
                    "bytes a lookup (lines counted, no cache)",
                    with(by_kind(&chosen, |rate| rate.moved), bytes),
                ),
            ]
        })
        .collect()
}

fn by_kind(rates: &[Rate], value: impl Fn(&Rate) -> f64) -> Vec<Series> {
    Kind::ALL
        .into_iter()
        .enumerate()
        .map(|(color, kind)| {
            let mut series = Series::new(kind.name(), Style::Measured, color);
            let of_kind = rates.iter().filter(|rate| rate.kind == kind);
            series.points = of_kind
                .map(|rate| (rate.bytes as f64, value(rate)))
                .collect();
            series
        })
        .collect()
}
