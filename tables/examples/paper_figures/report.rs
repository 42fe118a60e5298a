//! `report.md`: device, driver, workload, what the paper states and what was found.

use std::fmt::Write as _;

use horton_tables::device::DeviceInfo;
use horton_tables::table::horton::TableConfig;
use horton_tables::table::horton::tuning::{Kind, Residence, Tuning, Workload};
use horton_tables::table::primitives::hash::Reduction;

use crate::models::Point;
use crate::plot::Figure;
use crate::throughput::Rate;

/// The making of the figures.
pub struct Setting {
    pub load: f64,
    pub high_load: f64,
    pub probes: usize,
    /// Distinct keys among those that miss.
    pub distinct_misses: usize,
    pub repeat: usize,
    pub model_slots: usize,
    pub reduction: Reduction,
}

pub fn report(
    info: &DeviceInfo,
    setting: &Setting,
    (points, rates): (&[Point], &[Rate]),
    figures: &[Figure],
) -> String {
    let mut text = String::new();
    let reduction = match setting.reduction {
        Reduction::Modulo => "the remainder of a division, as in the paper",
        Reduction::MultiplyHigh => "multiply-high instead of the paper's `%`",
    };
    let _ = writeln!(
        text,
        "# The evaluation of \"Horton Tables\" (USENIX ATC 2016), repeated\n\n\
         * Device: {info}\n\
         * Keys: distinct MT19937 draws of seed 5489 over all 32 bits; values: their positions; hash \
         functions of seed {:#x}\n\
         * {} lookups a run in tables filled to {}, repeats as far apart as there are keys (of misses \
         {}), the best of {} runs; device-event times, transfers not counted; every answer checked\n\
         * Hashes become buckets by {reduction}\n\
         * Buckets and lines are counted by a kernel, not by hardware counters, which no portable OpenCL \
         tool reads; tables of figures 9 \
         to 11 and 14 have {} slots\n",
        TableConfig::default().seed,
        setting.probes,
        setting.load,
        setting.distinct_misses,
        setting.repeat,
        setting.model_slots
    );
    deviations(&mut text);
    tunings(&mut text, info);
    let of = |case: &dyn Fn(&Rate) -> bool| -> Vec<Rate> {
        rates.iter().filter(|rate| case(rate)).copied().collect()
    };
    for load in [setting.load, setting.high_load] {
        let at_load = |r: &Rate| r.case.load == load && r.case.reduction == setting.reduction;
        gains(&mut text, &of(&at_load), &format!("load {load}"));
    }
    let other = match setting.reduction {
        Reduction::MultiplyHigh => "`%`",
        Reduction::Modulo => "multiply-high",
    };
    let reduced = of(&|rate| rate.case.reduction != setting.reduction);
    gains(
        &mut text,
        &reduced,
        &format!("load {}, hashes reduced by {other}", setting.load),
    );
    models(&mut text, points);
    let _ = writeln!(text, "## Figures\n");
    for figure in figures {
        let _ = writeln!(text, "![{}]({}.svg)\n", figure.title, figure.file);
    }
    text
}

fn deviations(text: &mut String) {
    text.push_str(
        "Deviations from the paper:\n\n\
         * a seed enters the hash functions, and a hash becomes a bucket as said above;\n\
         * values have 31 bits in these runs, as a join's have;\n\
         * tables are filled on the device, items in parallel, instead of one after the other on the \
         CPU; secondary items displace primary ones as a last resort;\n\
         * bytes moved are lines counted, so that none of figures 12b and 13b is saved by a cache, where \
         the paper's counters see small tables move next to nothing;\n\
         * the paper's marks in figures 12a and 13a are its gains, times what load-balanced tables do \
         here, as it states no rates.\n\n",
    );
}

/// The work that each kind of table's lookups do on the device.
fn tunings(text: &mut String, info: &DeviceInfo) {
    text.push_str(
        "Lookups of tables of 8 slots are tuned for each kind of table apart, in the cache and beyond:\n\n\
         | table | where | parameters |\n|---|---|---|\n",
    );
    for kind in Kind::ALL {
        for residence in Residence::ALL {
            let workload = Workload {
                kind,
                slots: 8,
                residence,
            };
            let tuning = Tuning::for_device(info, info.body(), &workload);
            let _ = writeln!(text, "| {} | {residence:?} | {tuning} |", kind.name());
        }
    }
    text.push('\n');
}

/// Horton's lookups beside the others' at each size.
fn gains(text: &mut String, rates: &[Rate], what: &str) {
    let find = |kind: Kind, of: &Rate| {
        let same = |r: &&Rate| r.kind == kind && r.case == of.case && r.hits == of.hits;
        rates.iter().find(same).copied()
    };
    for (hits, title, paper) in [
        (
            true,
            "Lookups that hit",
            "1.17 to 1.35 over load-balanced, up to 1.29 over first-fit",
        ),
        (false, "Lookups that miss", "1.73 to 1.89 over both"),
    ] {
        let _ = writeln!(
            text,
            "## {title}, {what}\n\nThe paper: {paper}.\n\n\
             | table KiB | load-balanced G/s | first-fit G/s | Horton G/s | over load-balanced | \
             over first-fit | buckets read, each |\n|---|---|---|---|---|---|---|"
        );
        let horton = rates
            .iter()
            .filter(|r| r.kind == Kind::Horton && r.hits == hits);
        for rate in horton {
            let others = (find(Kind::LoadBalanced, rate), find(Kind::FirstFit, rate));
            let (Some(balanced), Some(first_fit)) = others else {
                continue;
            };
            let _ = writeln!(
                text,
                "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.3}, {:.3}, {:.3} |",
                rate.case.bytes / 1024,
                balanced.rate / 1e9,
                first_fit.rate / 1e9,
                rate.rate / 1e9,
                rate.rate / balanced.rate,
                rate.rate / first_fit.rate,
                balanced.buckets,
                first_fit.buckets,
                rate.buckets
            );
        }
        text.push('\n');
    }
}

fn models(text: &mut String, points: &[Point]) {
    let worst = points.iter().map(Point::deviation).fold(0.0, f64::max);
    let _ = writeln!(
        text,
        "## Buckets read, measured and by the model\n\nThe largest difference is {:.2} %.\n\n\
         | slots | load | hit | model | miss | model | entries' space | model |\n\
         |---|---|---|---|---|---|---|---|",
        worst * 100.0
    );
    for point in points {
        let model = point.model();
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.4} | {:.4} | {:.4} | {:.4} | {:.4} | {:.4} |",
            point.slots,
            point.load,
            point.hit,
            model.hit(),
            point.miss,
            model.miss(),
            point.entry_space,
            model.entry_space()
        );
    }
    text.push('\n');
    stated(text, points);
}

/// Figures that the paper states of 8 slots, and the most that was found up to those loads.
fn stated(text: &mut String, points: &[Point]) {
    let _ = writeln!(
        text,
        "Buckets of 8 slots, at most:\n\n\
         | load up to | hit | the paper | miss | the paper |\n|---|---|---|---|---|"
    );
    for (load, hit, miss) in [
        (0.55, "1.0", "1.0"),
        (0.9, "1.15", "1.05"),
        (0.95, "1.18", "1.06"),
    ] {
        let below = points
            .iter()
            .filter(|p| p.slots == 8 && p.load < load + 1e-6);
        let most = below.fold((0.0f64, 0.0f64), |most, p| {
            (most.0.max(p.hit), most.1.max(p.miss))
        });
        let _ = writeln!(
            text,
            "| {load} | {:.4} | {hit} | {:.4} | {miss} |",
            most.0, most.1
        );
    }
    text.push('\n');
}
