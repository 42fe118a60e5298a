//! Measured costs in a file beside the compiled kernels.
//!
//! ```text
//!  <cache>/<sha-256 of device, driver, cores, version>.costs
//!      device.Number 0.812 1.2e-5 …       one line a join and kind of keys
//! ```
//!
//! A file that is missing, torn or of another version is measured anew; one that cannot be
//! written costs that second again in the next process.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::device::DeviceInfo;
use crate::device::program::{cache_file, read_text, store_file};

use super::{Costs, Keys, Line};

/// Another layout, another way of measuring, joins that cost something else: another number.
const VERSION: u32 = 14;

fn file(info: &DeviceInfo) -> Option<PathBuf> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let debug = cfg!(debug_assertions);
    let what = format!(
        "costs {VERSION} {} {cores} {debug}",
        env!("CARGO_PKG_VERSION")
    );
    cache_file(info, &what, "costs")
}

/// The remembered costs on a device.
pub(super) fn load(info: &DeviceInfo) -> Option<Costs> {
    parse(&read_text(&file(info)?)?)
}

/// Remembers them.
pub(super) fn store(info: &DeviceInfo, costs: &Costs) {
    let Some(file) = file(info) else { return };
    if let Err(error) = store_file(&file, &[print(costs).as_bytes()]) {
        log::debug!("costs {} not written: {error}", file.display());
    }
}

fn print(costs: &Costs) -> String {
    let mut text = String::new();
    for (side, lines) in [("device", &costs.device), ("stock", &costs.stock)] {
        for (keys, line) in Keys::ALL.into_iter().zip(lines) {
            let [probe_few, probe_many] = line.probe;
            let [few, many] = line.sizes;
            let _ = writeln!(
                text,
                "{side}.{keys:?} {} {} {probe_few} {probe_many} {few} {many} .",
                line.fixed, line.build
            );
        }
    }
    for (name, number) in [("moved", costs.moved), ("collected", costs.collected)] {
        let _ = writeln!(text, "{name} {number} .");
    }
    for (name, [device, stock]) in [("texts", costs.texts), ("repeated", costs.repeated)] {
        let _ = writeln!(text, "{name} {device} {stock} .");
    }
    text
}

fn parse(text: &str) -> Option<Costs> {
    let numbers = |name: &str| -> Option<Vec<f64>> {
        let fields = text.lines().find_map(|line| line.strip_prefix(name))?;
        let fields = fields.strip_suffix(" .")?.trim_start().split(' ');
        let finite = |field: &str| field.parse().ok().filter(|n: &f64| n.is_finite());
        fields.map(finite).collect()
    };
    let line = |side: &str, keys: Keys| match numbers(&format!("{side}.{keys:?}"))?[..] {
        [fixed, build, probe_few, probe_many, few, many] if few < many => Some(Line {
            fixed,
            build,
            probe: [probe_few, probe_many],
            sizes: [few, many],
        }),
        _ => None,
    };
    let number = |name: &str| match numbers(name)?[..] {
        [number] => Some(number),
        _ => None,
    };
    let side = |side: &str| Some([line(side, Keys::Number)?, line(side, Keys::Hashed)?]);
    Some(Costs {
        device: side("device")?,
        stock: side("stock")?,
        moved: number("moved")?,
        collected: number("collected")?,
        texts: numbers("texts")?.try_into().ok()?,
        repeated: numbers("repeated")?.try_into().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_come_back_as_they_were_and_torn_files_do_not() {
        let line = |x: f64| Line {
            fixed: x,
            build: x / 3.0,
            probe: [x / 7.0, x * 1e-9],
            sizes: [10.0, 1e6],
        };
        let costs = Costs {
            device: [line(1.0), line(2.5)],
            stock: [line(0.1), line(0.3)],
            moved: 1.5e-6,
            texts: [7e-6, 2e-7],
            repeated: [3e-6, 4e-7],
            collected: 5e-8,
        };
        let text = print(&costs);
        assert_eq!(parse(&text), Some(costs));
        for end in 0..text.len() - 1 {
            assert_eq!(parse(&text[..end]), None, "{end}");
        }
        assert_eq!(parse(&text.replace("1000000", "NaN")), None);
    }
}
