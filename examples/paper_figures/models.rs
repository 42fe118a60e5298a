//! Figures 8 to 11 and 14: the paper's models, and what tables here come to.

use horton_join::error::Result;
use horton_join::table::hash::{self, Reduction};
use horton_join::table::horton::BucketSize;
use horton_join::table::tuning::Kind;

use crate::equations::Model;
use crate::keys::Keys;
use crate::plot::{Figure, Series, Style};
use crate::tables::{Bench, Plan};

/// Seed of figure 8's hash function.
const SEED: u32 = 0x4854_4a31;

/// What was measured at one load.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    pub slots: usize,
    pub load: f64,
    pub entry_space: f64,
    pub hit: f64,
    pub miss: f64,
}

impl Point {
    pub fn model(&self) -> Model {
        Model::new(self.slots, self.load)
    }

    /// The largest relative difference of buckets read from the model's.
    pub fn deviation(&self) -> f64 {
        let hit = (self.hit / self.model().hit() - 1.0).abs();
        let miss = (self.miss / self.model().miss() - 1.0).abs();
        hit.max(miss)
    }
}

/// The highest load that the paper expects for a bucket size (section 6.3).
pub fn highest_load(bucket_size: BucketSize) -> f64 {
    match bucket_size {
        BucketSize::Four => 0.91,
        BucketSize::Eight => 0.95,
        BucketSize::Sixteen => 0.96,
    }
}

/// Loads in steps, and the highest.
fn loads(bucket_size: BucketSize) -> Vec<f64> {
    let highest = highest_load(bucket_size);
    let steps = (1..19).map(|i| 0.05 * f64::from(i));
    steps
        .filter(|load| *load < highest)
        .chain([highest])
        .collect()
}

/// Horton tables of `slots` slots at every load and bucket size; `most` keys are looked up.
pub fn measure(
    bench: &Bench,
    (slots, most): (usize, usize),
    reduction: Reduction,
) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for bucket_size in BucketSize::ALL {
        for load in loads(bucket_size) {
            let plan = Plan {
                kind: Kind::Horton,
                bucket_size,
                slots,
                reduction,
            };
            let count = (slots as f64 * load) as usize;
            let table = bench.build(plan, count)?;
            let hits = bench.workload.hits(count, most.min(count))?;
            let misses = bench.workload.misses(most)?;
            let buckets = slots / bucket_size.slots();
            points.push(Point {
                slots: bucket_size.slots(),
                load,
                entry_space: f64::from(table.census().type_b)
                    / (buckets * bucket_size.slots()) as f64,
                hit: bench.count(&table, &hits)?.buckets,
                miss: bench.count(&table, &misses)?.buckets,
            });
            println!("{:?}", points[points.len() - 1]);
        }
    }
    Ok(points)
}

/// Figure 8: items per bucket at two loads, and the Poisson distribution.
pub fn items_per_bucket(keys: &Keys, buckets: u32) -> Figure {
    let mut series = Vec::new();
    for (color, load) in [0.75, 0.95].into_iter().enumerate() {
        let count = (f64::from(buckets) * 8.0 * load) as usize;
        let mut held = vec![0u8; buckets as usize];
        for key in keys.first(count) {
            let bucket = &mut held[hash::primary_bucket(*key, SEED, buckets) as usize];
            *bucket = bucket.saturating_add(1);
        }
        let mut histogram = [0u32; 256];
        held.iter().for_each(|n| histogram[usize::from(*n)] += 1);
        let mut curve = Series::new(format!("equation 3, load {load}"), Style::Curve, color);
        let mut measured = Series::new(format!("measured, load {load}"), Style::Measured, color);
        for (x, found) in histogram.iter().enumerate().take(31) {
            let expected = Model::new(8, load).poisson(x) * f64::from(buckets);
            curve.points.push((x as f64, expected));
            measured.points.push((x as f64, f64::from(*found)));
        }
        series.extend([curve, measured]);
    }
    Figure {
        file: "figure_08_items_per_bucket",
        title: format!("Items per bucket, {buckets} buckets of 8 slots"),
        x: "items that hash to a bucket",
        y: "buckets",
        log_x: false,
        series,
    }
}

/// Curves of a quantity for 1 to 16 slots, and its measured points.
fn quantity(
    points: &[Point],
    sizes: &[usize],
    model: impl Fn(Model) -> f64,
    measured: impl Fn(&Point) -> f64,
) -> Vec<Series> {
    let mut series = Vec::new();
    for (color, &slots) in sizes.iter().enumerate() {
        let mut curve = Series::new(format!("model, {slots} slots"), Style::Curve, color);
        let loads = (1..=98).map(|i| 0.01 * f64::from(i));
        curve.points = loads
            .map(|load| (load, model(Model::new(slots, load))))
            .collect();
        series.push(curve);
        let mut found = Series::new(format!("measured, {slots} slots"), Style::Measured, color);
        let of_size = points.iter().filter(|point| point.slots == slots);
        found.points = of_size.map(|point| (point.load, measured(point))).collect();
        if !found.points.is_empty() {
            series.push(found);
        }
    }
    series
}

fn paper(marks: &[(f64, f64)]) -> Series {
    let mut series = Series::new("the paper states", Style::Paper, 0);
    series.points = marks.to_vec();
    series
}

/// Figures 9, 10, 11 and 14.
pub fn figures(points: &[Point]) -> Vec<Figure> {
    let all = [1, 2, 4, 8, 16];
    let eight = [8];
    let figure = |file, title: &str, y, series| Figure {
        file,
        title: title.to_owned(),
        x: "load factor",
        y,
        log_x: false,
        series,
    };
    let space = |sizes: &[usize]| quantity(points, sizes, |m| m.entry_space(), |p| p.entry_space);
    let hit = |sizes: &[usize]| quantity(points, sizes, |m| m.hit(), |p| p.hit);
    let miss = |sizes: &[usize]| quantity(points, sizes, |m| m.miss(), |p| p.miss);
    let with = |mut series: Vec<Series>, marks: &[(f64, f64)]| {
        series.push(paper(marks));
        series
    };
    vec![
        figure(
            "figure_09_entry_space",
            "Space for remap entries",
            "share of the table",
            // Section 6.3: loads beyond which entries leave no room.
            with(space(&all), &[(0.91, 0.09), (0.95, 0.05), (0.96, 0.04)]),
        ),
        figure(
            "figure_10_hits",
            "Buckets read by a lookup that hits",
            "buckets",
            with(hit(&all), &[(0.6, 1.1), (0.95, 1.18), (0.95, 1.10)]),
        ),
        figure(
            "figure_11_misses",
            "Buckets read by a lookup that misses",
            "buckets",
            with(miss(&all), &[(0.95, 1.06), (0.95, 1.08)]),
        ),
        figure(
            "figure_14a_entry_space",
            "Space for remap entries, 8 slots",
            "share of the table",
            space(&eight),
        ),
        figure(
            "figure_14b_hits",
            "Buckets read by a lookup that hits, 8 slots",
            "buckets",
            with(hit(&eight), &[(0.55, 1.0), (0.9, 1.15)]),
        ),
        figure(
            "figure_14c_misses",
            "Buckets read by a lookup that misses, 8 slots",
            "buckets",
            with(miss(&eight), &[(0.55, 1.0), (0.9, 1.05)]),
        ),
    ]
}
