//! Figures 12 and 13: lookups per second and bytes moved per lookup, by size of the table.

use horton_tables::error::Result;
use horton_tables::table::horton::BucketSize;
use horton_tables::table::horton::tuning::Kind;
use horton_tables::table::primitives::hash::Reduction;

use crate::plot::{Axes, Figure, Series, Style};
use horton_tables_test_support::lookups::equations::Model;
use horton_tables_test_support::lookups::tables::{Bench, Plan};

/// Bytes of a cache line, and those of a key and its answer.
const LINE: f64 = 64.0;
const KEY_AND_VALUE: f64 = 8.0;

/// A table that is measured in every kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// Bytes of the table.
    pub bytes: usize,
    pub load: f64,
    pub reduction: Reduction,
}

impl Case {
    fn slots(&self) -> usize {
        self.bytes / size_of::<u64>()
    }

    /// Items that fill the table to its load.
    pub fn items(&self) -> usize {
        (self.slots() as f64 * self.load) as usize
    }
}

/// Times of lookups in one table.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    pub kind: Kind,
    pub case: Case,
    pub hits: bool,
    /// Lookups per second.
    pub rate: f64,
    pub buckets: f64,
    /// Bytes moved per lookup, if no line stays in a cache.
    pub moved: f64,
}

/// Looks `probes` keys up in tables of 8 slots per bucket of every kind, in each case.
pub fn measure(bench: &Bench, cases: &[Case], probes: usize) -> Result<Vec<Rate>> {
    let mut rates = Vec::new();
    for &case in cases {
        let count = case.items();
        for kind in Kind::ALL {
            let plan = Plan {
                kind,
                bucket_size: BucketSize::Eight,
                slots: case.slots(),
                reduction: case.reduction,
            };
            let table = bench.build(plan, count)?;
            for hits in [true, false] {
                let asked = match hits {
                    true => bench.workload.hits(count, probes),
                    false => bench.workload.misses(probes),
                }?;
                let time = bench.look_up(&table, &asked)?;
                let reads = bench.count(&table, &asked)?;
                let rate = Rate {
                    kind,
                    case,
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

/// Figures that the paper states of lookups that hit or miss (section 8).
struct Stated {
    hits: bool,
    /// Figures of rates, and of bytes moved: file and number.
    figures: [(&'static str, &'static str); 2],
    what: &'static str,
    /// Bytes per lookup in a Horton table, load 0.9.
    bytes: f64,
    /// Cache lines that a lookup in a load-balanced table reads, in those of a Horton table.
    more_lines: f64,
    /// Horton's gain over load-balanced tables, least and most.
    gains: [f64; 2],
    /// Buckets that a lookup in a Horton table reads by the model.
    model: fn(&Model) -> f64,
}

const STATED: [Stated; 2] = [
    Stated {
        hits: true,
        figures: [
            ("figure_12a_hit_rate", "Figure 12a"),
            ("figure_12b_hit_bytes", "Figure 12b"),
        ],
        what: "hit",
        bytes: 82.0,
        more_lines: 1.3,
        gains: [1.17, 1.35],
        model: Model::hit,
    },
    Stated {
        hits: false,
        figures: [
            ("figure_13a_miss_rate", "Figure 13a"),
            ("figure_13b_miss_bytes", "Figure 13b"),
        ],
        what: "miss",
        bytes: 75.0,
        more_lines: 1.9,
        gains: [1.73, 1.89],
        model: Model::miss,
    },
];

/// The paper's largest table.
pub const PAPER_TABLE: usize = 512 << 20;

/// Colors of load-balanced and of Horton tables, by their places in `Kind::ALL`.
const BALANCED: usize = 0;
const HORTON: usize = 2;

/// Figures 12 (hits) and 13 (misses) of what was measured on a device at one load: a throughput, b
/// bytes moved.
pub fn figures(rates: &[Rate], load: f64, device: &str) -> Vec<Figure> {
    let of = |stated: &Stated| {
        let chosen = rates.iter().filter(|rate| rate.hits == stated.hits);
        let chosen: Vec<Rate> = chosen.copied().collect();
        let largest = chosen.iter().filter(|rate| rate.kind == Kind::LoadBalanced);
        let largest = largest.filter(|rate| rate.case.bytes <= PAPER_TABLE);
        let largest = largest.max_by_key(|rate| rate.case.bytes);
        let figure = |i: usize, quantity: &str, y, series| Figure {
            file: stated.figures[i].0,
            title: format!(
                "{}: {quantity} that all {}, load {load}",
                stated.figures[i].1, stated.what
            ),
            subtitle: device.to_owned(),
            x: "size of the table",
            y,
            axes: Axes::Sizes,
            series,
        };
        let mut throughput = by_kind(&chosen, |rate| rate.rate / 1e9);
        throughput.extend(largest.map(|rate| gains(stated, rate)));
        let mut bytes = by_kind(&chosen, |rate| rate.moved);
        bytes.push(modelled(stated, &chosen, load));
        bytes.extend(largest.into_iter().flat_map(|rate| moved(stated, rate)));
        [
            figure(0, "lookups", "billions of lookups a second", throughput),
            figure(
                1,
                "bytes moved by lookups",
                "bytes a lookup (lines counted, no cache)",
                bytes,
            ),
        ]
    };
    STATED.iter().flat_map(of).collect()
}

fn by_kind(rates: &[Rate], value: impl Fn(&Rate) -> f64) -> Vec<Series> {
    let kinds = Kind::ALL.into_iter().enumerate();
    let series = |(color, kind): (usize, Kind)| {
        let mut series = Series::new(kind.name(), Style::Joined, color);
        let of_kind = rates.iter().filter(|rate| rate.kind == kind);
        series.points = of_kind
            .map(|rate| (rate.case.bytes as f64, value(rate)))
            .collect();
        series
    };
    kinds.map(series).collect()
}

/// Returns what Horton tables would do, were their gains those that the paper states.
fn gains(stated: &Stated, balanced: &Rate) -> Series {
    let mut marks = Series::new("Horton, by the paper's gains", Style::Paper, HORTON);
    let x = balanced.case.bytes as f64;
    marks.points = stated
        .gains
        .map(|gain| (x, gain * balanced.rate / 1e9))
        .into();
    marks
}

/// Bytes that a lookup in a Horton table moves by the model.
fn modelled(stated: &Stated, rates: &[Rate], load: f64) -> Series {
    let mut curve = Series::new("Horton, model", Style::Curve, HORTON);
    let bytes = (stated.model)(&Model::new(8, load)) * LINE + KEY_AND_VALUE;
    let of_horton = rates.iter().filter(|rate| rate.kind == Kind::Horton);
    curve.points = of_horton
        .map(|rate| (rate.case.bytes as f64, bytes))
        .collect();
    curve
}

/// Bytes that the paper states.
fn moved(stated: &Stated, balanced: &Rate) -> [Series; 2] {
    let x = balanced.case.bytes as f64;
    let of_balanced = (stated.bytes - KEY_AND_VALUE) * stated.more_lines + KEY_AND_VALUE;
    let mark = |name, color, y| {
        let mut series = Series::new(name, Style::Paper, color);
        series.points = vec![(x, y)];
        series
    };
    [
        mark("load-balanced, the paper", BALANCED, of_balanced),
        mark("Horton, the paper", HORTON, stated.bytes),
    ]
}
