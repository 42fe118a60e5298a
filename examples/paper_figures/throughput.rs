//! Figures 12 and 13: lookups per second and bytes moved per lookup, by size of the table.

use horton_join::error::Result;
use horton_join::table::hash::Reduction;
use horton_join::table::horton::BucketSize;

use crate::keys::{Keys, Probe};
use crate::plot::{Figure, Series, Style};
use crate::tables::{Bench, Kind, Plan};

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

/// Measures tables of 8 slots a bucket of every kind and size at one load.
pub fn measure(
    bench: &Bench,
    keys: &Keys,
    sizes: &[usize],
    (load, probes): (f64, usize),
    reduction: Reduction,
) -> Result<Vec<Rate>> {
    let mut rates = Vec::new();
    for &bytes in sizes {
        let slots = bytes / size_of::<u64>();
        let count = (slots as f64 * load) as usize;
        let workloads = [
            (true, keys.hits(count, probes)),
            (false, keys.misses(probes)),
        ];
        let workloads: Vec<(bool, Probe)> = workloads.into_iter().collect();
        for kind in Kind::ALL {
            let plan = Plan {
                kind,
                bucket_size: BucketSize::Eight,
                slots,
                reduction,
            };
            let table = bench.build(plan, keys.first(count))?;
            for (hits, probe) in &workloads {
                let resident = bench.upload(&probe.keys)?;
                let time = bench.look_up(&table, &resident, probe)?;
                let reads = bench.count(&table, &resident)?;
                let rate = Rate {
                    kind,
                    bytes,
                    load,
                    hits: *hits,
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

/// Figures 12 (hits) and 13 (misses): a throughput, b bytes moved.
pub fn figures(rates: &[Rate]) -> Vec<Figure> {
    let names = [
        (
            true,
            "figure_12a_hit_rate",
            "figure_12b_hit_bytes",
            "hit",
            82.0,
        ),
        (
            false,
            "figure_13a_miss_rate",
            "figure_13b_miss_bytes",
            "miss",
            75.0,
        ),
    ];
    names
        .into_iter()
        .flat_map(|(hits, rate_file, bytes_file, what, paper_bytes)| {
            let chosen: Vec<Rate> = rates.iter().copied().filter(|r| r.hits == hits).collect();
            let load = chosen.first().map_or(0.0, |rate| rate.load);
            let mut moved = by_kind(&chosen, |rate| rate.moved);
            if let Some(largest) = chosen.iter().map(|rate| rate.bytes).max() {
                let mut mark = Series::new("the paper states, Horton", Style::Paper, 0);
                mark.points = vec![(largest as f64, paper_bytes)];
                moved.push(mark);
            }
            [
                Figure {
                    file: rate_file,
                    title: format!("Lookups that all {what}, load {load}"),
                    x: "table",
                    y: "billions of lookups a second",
                    log_x: true,
                    series: by_kind(&chosen, |rate| rate.rate / 1e9),
                },
                Figure {
                    file: bytes_file,
                    title: format!("Bytes moved by lookups that all {what}, load {load}"),
                    x: "table",
                    y: "bytes a lookup (lines counted, no cache)",
                    log_x: true,
                    series: moved,
                },
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
