//! Time and memory against the size of one side, the other held.
//!
//! ```text
//!   build:  1000, 3000, 10 000, … 10^8 build rows  x  a fixed probe side ┐
//!   probe:  a fixed build side  x  1000, … 10^8 probe rows               ┴▶ CSV, SVG
//! ```
//!
//! Half decades, because what matters are the bends: where the stock table leaves a cache, where a
//! device's fixed cost stops to matter. Dense and sparse keys, all probe rows hit, a column summed
//! from each side. The planner may not swap sides here, or the larger half of a study would
//! measure the other one. Cost: 22 pairs of tables, the largest of 10^8 rows per side, and each is
//! joined as often as a case is; `--scale` cuts the upper end off.

use std::path::{Path, PathBuf};

use horton_test_support::plot::{Legend, Line, plot};
use horton_test_support::sql_bench::Result;
use horton_test_support::sql_bench::cases::{Case, Preset};
use horton_test_support::sql_bench::keys::Keys;
use horton_test_support::sql_bench::measure::Outcome;
use horton_test_support::sql_bench::query::Query;
use horton_test_support::sql_bench::report::Figures;

/// The side that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Study {
    /// The build side
    Build,
    /// The probe side
    Probe,
}

/// Rows of the smallest tables.
const LEAST: u64 = 1000;

/// Rows of the largest ones, at scale 1.
const MOST: f64 = 1e8;

const KEYS: [(Keys, &str); 2] = [(Keys::Dense, "dense"), (Keys::Sparse, "sparse")];

impl Study {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Study::Build => "build",
            Study::Probe => "probe",
        }
    }

    /// Its joins, to be run at scale 1: `scale` is in their sizes.
    pub fn cases(self, preset: Preset, scale: f64) -> Vec<Case> {
        let fixed = match (self, preset) {
            (Study::Build, Preset::Host) => 1e8,
            (Study::Probe, Preset::Host) => 1e7,
            (Study::Build, Preset::Small | Preset::Wide) => 1e7,
            (Study::Probe, Preset::Small | Preset::Wide) => 1e6,
        };
        let fixed = (fixed * scale).round().max(1.0) as u64;
        let mut cases = vec![];
        // Sizes ascend, so that most device peaks are the process's own and exact.
        for rows in sizes((MOST * scale) as u64) {
            let (build, probe) = match self {
                Study::Build => (rows, fixed),
                Study::Probe => (fixed, rows),
            };
            cases.extend(KEYS.map(|(keys, _)| Case::new(build, probe, keys, Query::Sum, 100)));
        }
        cases
    }

    /// Draws the study's plots beside `csv`: `…-time.svg`, and `…-memory.svg` of a build study.
    /// Returns their paths.
    ///
    /// # Errors
    /// Of the file system.
    pub fn draw(self, csv: &Path, outcomes: &[Outcome]) -> Result<Vec<PathBuf>> {
        let beside = |what: &str| {
            let stem = csv.file_stem().unwrap_or_default().to_string_lossy();
            csv.with_file_name(format!("{stem}-{what}.svg"))
        };
        let x = format!("{} rows", self.name());
        let title = format!("Join against {x}, a column summed from each side");
        let mut drawn = vec![];
        let ms = |time: std::time::Duration| Some(time.as_secs_f64() * 1e3);
        let times = self.lines(
            outcomes,
            &[
                ("stock", &|f| ms(f.stock.time)),
                ("horton", &|f| ms(f.horton.time)),
            ],
        );
        if plot(&beside("time"), &title, (&x, "ms"), &times, Legend::Left)? {
            drawn.push(beside("time"));
        }
        if self == Study::Build {
            let row = |f: &Figures<'_>, bytes: usize| Some(f.per_build_row(bytes as f64));
            let bytes = self.lines(
                outcomes,
                &[
                    ("stock, host", &|f| row(f, f.stock.join.build_bytes)),
                    ("horton, host", &|f| row(f, f.host_bytes())),
                    ("horton, table", &|f| row(f, f.horton.join.table_bytes)),
                    ("horton, device peak", &|f| {
                        row(f, f.device_peak()? as usize)
                    }),
                ],
            );
            let title = "Memory of the build side";
            if plot(
                &beside("memory"),
                title,
                (&x, "bytes a build row"),
                &bytes,
                Legend::Right,
            )? {
                drawn.push(beside("memory"));
            }
        }
        Ok(drawn)
    }

    /// Returns one line for each figure and kind of keys.
    fn lines(self, outcomes: &[Outcome], figures: &[(&str, Figure<'_>)]) -> Vec<Line> {
        let mut lines = vec![];
        for (keys, keys_name) in KEYS {
            for (name, figure) in figures {
                let of_keys = outcomes.iter().filter(|outcome| outcome.shape.keys == keys);
                let point = |outcome: &Outcome| {
                    let rows = match self {
                        Study::Build => outcome.shape.build_rows(),
                        Study::Probe => outcome.shape.probe_rows,
                    };
                    Some((rows as f64, figure(&Figures::from_outcome(outcome)?)?))
                };
                lines.push(Line {
                    name: format!("{name}, {keys_name} keys"),
                    points: of_keys.filter_map(point).collect(),
                });
            }
        }
        lines
    }
}

/// A figure to plot, if the outcome has it.
type Figure<'a> = &'a dyn Fn(&Figures<'_>) -> Option<f64>;

/// 1000, 3000, 10 000, … up to `most`; at least the first.
fn sizes(most: u64) -> Vec<u64> {
    let halves = (0u32..).map(|i| LEAST * 10u64.pow(i / 2) * if i % 2 == 0 { 1 } else { 3 });
    halves.take_while(|&rows| rows <= most.max(LEAST)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_half_decades() {
        assert_eq!(sizes(10_000), [1000, 3000, 10_000]);
        assert_eq!(sizes(0), [1000]);
        assert_eq!(sizes(100_000_000).last(), Some(&100_000_000));
        assert_eq!(sizes(100_000_000).len(), 11);
    }

    #[test]
    fn one_side_grows() {
        let cases = Study::Build.cases(Preset::Host, 1.0);
        assert_eq!(cases.len(), 22);
        assert!(cases.iter().all(|case| case.probe == 100_000_000));
        let cases = Study::Probe.cases(Preset::Small, 0.01);
        assert!(cases.iter().all(|case| case.build == 10_000));
        assert_eq!(cases.iter().map(|case| case.probe).max(), Some(1_000_000));
    }
}
