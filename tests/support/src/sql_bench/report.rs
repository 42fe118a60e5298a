//! The report to the user: a line per case as soon as it is measured, and the same figures as CSV.
//!
//! ```text
//!   case    rows  stock ms  on host ms  horton ms  ratio  of host  upload kernel download host
//!                 └ best of N                                      └ per cent of horton ms
//! ```
//!
//! Lines are written and flushed one by one, so that a run that is cut short keeps what it has;
//! a table laid out at the end could fit its columns and would lose them. One writer takes all
//! of it, so that a closed pipe ends the program with an error value.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::Result;
use super::measure::{Facts, Outcome, Run};
use crate::csv::Csv;
use crate::median::median;

/// The meaning of the shares, above the table.
const LEGEND: &str = "\
stock ms, on host ms, horton ms: best of the timed runs, from the SQL text to the last row; on host:
  Horton's plan with each join on the host; ratio: stock / horton; of host: on host / horton
upload, kernel, download: per cent of that horton run's wall time, from the device's own clock,
  summed over all partitions; host: what is left to 100 %, the time in which no device clock ran.
  Where transfers, kernels and the host overlap, the three count the same moment more than once:
  then host is a lower bound of the host's work, and below zero by at least the time hidden.
differences: runs of any plan whose answer is not the one known from making the tables (of wide
  cases every cell in warm-up runs, but only rows and NULLs in timed ones), and runs that launched
  no kernel although the plan or horton.enabled = 'always' says so";

/// Width of a case's name.
const NAME_WIDTH: usize = 40;

/// Prints what the columns mean, and their names.
///
/// # Errors
/// Of the writer.
pub fn header(out: &mut impl Write) -> Result<()> {
    writeln!(
        out,
        "{LEGEND}\n\n{:<NAME_WIDTH$}{:>11}{:>11}{:>10}{:>11}{:>10}{:>7}{:>8}{:>8}{:>8}{:>10}{:>7}{:>7}{:>9}{:>12}",
        "case",
        "build rows",
        "probe rows",
        "stock ms",
        "on host ms",
        "horton ms",
        "ratio",
        "of host",
        "upload%",
        "kernel%",
        "download%",
        "host%",
        "joins",
        "launches",
        "differences",
    )?;
    Ok(out.flush()?)
}

/// Prints one case, its notes below it, and its joins' lines if `explain`.
///
/// # Errors
/// Of the writer.
pub fn line(out: &mut impl Write, outcome: &Outcome, explain: bool) -> Result<()> {
    let Some(figures) = Figures::from_outcome(outcome) else {
        return Ok(());
    };
    let [upload, kernel, download, host] = figures.shares().map(|share| format!("{share:.0}"));
    let join = &figures.horton.join;
    writeln!(
        out,
        "{:<NAME_WIDTH$}{:>11}{:>11}{:>10}{:>11}{:>10}{:>7.2}{:>8.2}{upload:>8}{kernel:>8}{download:>10}{host:>7}{:>7}{:>9}{:>12}",
        outcome.name,
        outcome.shape.build_rows(),
        outcome.shape.probe_rows,
        millis(figures.stock.time),
        millis(figures.host.time),
        millis(figures.horton.time),
        figures.ratio(),
        figures.of_host(),
        join.device_joins,
        join.launches,
        outcome.differences,
    )?;
    for note in &outcome.notes {
        writeln!(out, "  WARNING: {note}")?;
    }
    if explain {
        for line in &join.lines {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(out.flush()?)
}

/// Prints the closing line.
///
/// # Errors
/// Of the writer.
pub fn closing_line(out: &mut impl Write, outcomes: &[Outcome]) -> Result<()> {
    let figures: Vec<Figures> = outcomes.iter().filter_map(Figures::from_outcome).collect();
    let on_device = figures.iter().filter(|f| f.horton.join.device_joins > 0);
    let slower = figures.iter().filter(|f| f.ratio() < 1.0).count();
    let slower_than_host = figures.iter().filter(|f| f.of_host() < 1.0).count();
    let ratio = geometric_mean(figures.iter().map(Figures::ratio));
    let of_host = geometric_mean(figures.iter().map(Figures::of_host));
    let differences: usize = outcomes.iter().map(|outcome| outcome.differences).sum();
    writeln!(
        out,
        "\n{} cases, {} on the device, {slower} slower than stock, mean ratio {ratio:.2} (geometric), \
         {slower_than_host} slower than on the host, mean {of_host:.2}, {differences} differences",
        figures.len(),
        on_device.count(),
    )?;
    Ok(out.flush()?)
}

/// The figures of an outcome that has runs of all sides.
pub struct Figures<'a> {
    outcome: &'a Outcome,
    /// The best stock run.
    pub stock: &'a Run,
    /// The best run with Horton joins on the host.
    pub host: &'a Run,
    /// The best run with Horton joins.
    pub horton: &'a Run,
}

impl<'a> Figures<'a> {
    /// Returns `None` until all sides have run.
    pub fn from_outcome(outcome: &'a Outcome) -> Option<Self> {
        Some(Self {
            outcome,
            stock: outcome.stock.as_ref()?,
            host: outcome.host.as_ref()?,
            horton: outcome.horton.as_ref()?,
        })
    }

    /// Stock time over Horton time: above 1, Horton is faster.
    pub fn ratio(&self) -> f64 {
        self.stock.time.as_secs_f64() / self.horton.time.as_secs_f64()
    }

    /// Time with joins on the host over Horton time: above 1, the device gains.
    pub fn of_host(&self) -> f64 {
        self.host.time.as_secs_f64() / self.horton.time.as_secs_f64()
    }

    /// Upload, kernel, download and the rest, in per cent of the Horton run.
    fn shares(&self) -> [f64; 4] {
        shares(&self.horton.join, self.horton.time)
    }

    /// Host bytes that the Horton join's build side keeps while it is probed: its batches, and row
    /// lists where normalized keys repeat. Encoded keys on their way to the device are not in it.
    pub fn host_bytes(&self) -> usize {
        let join = &self.horton.join;
        join.build_bytes.saturating_sub(join.table_bytes)
    }

    /// Most device bytes in use at once.
    pub fn device_peak(&self) -> Option<u64> {
        self.outcome.device_peak
    }

    /// Returns `bytes` per build row.
    pub fn per_build_row(&self, bytes: f64) -> f64 {
        bytes / self.outcome.shape.build_rows().max(1) as f64
    }
}

fn shares(join: &Facts, wall: Duration) -> [f64; 4] {
    let share = |time: Duration| 100.0 * time.as_secs_f64() / wall.as_secs_f64();
    let [upload, kernel, download] = [join.upload, join.kernel, join.download].map(share);
    [upload, kernel, download, 100.0 - upload - kernel - download]
}

const COLUMNS: [&str; 27] = [
    "case",
    "build_rows",
    "probe_rows",
    "stock_ms",
    "horton_ms",
    "ratio",
    "upload_ms",
    "kernel_ms",
    "download_ms",
    "uploaded_bytes",
    "downloaded_bytes",
    "device_joins",
    "launches",
    "differences",
    "stock_build_bytes",
    "horton_host_bytes",
    "table_bytes",
    "device_peak_bytes",
    "stock_bytes_per_build_row",
    "horton_host_bytes_per_build_row",
    "table_bytes_per_build_row",
    "device_peak_bytes_per_build_row",
    "stock_median_ms",
    "horton_median_ms",
    "on_host_ms",
    "of_host",
    "on_host_median_ms",
];

/// Starts the file `path` of figures as comma-separated values.
///
/// # Errors
/// Of the file system, with the path.
pub fn csv(path: &Path) -> Result<Csv> {
    Csv::create(path, &COLUMNS)
}

/// Adds a line of `outcome` to `csv`, if it has figures.
///
/// # Errors
/// Of the file system.
pub fn add(csv: &mut Csv, outcome: &Outcome) -> Result<()> {
    let Some(figures) = Figures::from_outcome(outcome) else {
        return Ok(());
    };
    let join = &figures.horton.join;
    let stock_bytes = figures.stock.join.build_bytes;
    let peak = outcome.device_peak;
    let per_row = |bytes: f64| format!("{:.2}", figures.per_build_row(bytes));
    csv.add(&[
        outcome.name.clone(),
        outcome.shape.build_rows().to_string(),
        outcome.shape.probe_rows.to_string(),
        millis(figures.stock.time),
        millis(figures.horton.time),
        format!("{:.3}", figures.ratio()),
        millis(join.upload),
        millis(join.kernel),
        millis(join.download),
        join.uploaded.to_string(),
        join.downloaded.to_string(),
        join.device_joins.to_string(),
        join.launches.to_string(),
        outcome.differences.to_string(),
        stock_bytes.to_string(),
        figures.host_bytes().to_string(),
        join.table_bytes.to_string(),
        peak.map_or(String::new(), |bytes| bytes.to_string()),
        per_row(stock_bytes as f64),
        per_row(figures.host_bytes() as f64),
        per_row(join.table_bytes as f64),
        peak.map_or(String::new(), |bytes| per_row(bytes as f64)),
        median_millis(&outcome.times[0]),
        median_millis(&outcome.times[2]),
        millis(figures.host.time),
        format!("{:.3}", figures.of_host()),
        median_millis(&outcome.times[1]),
    ])
}

fn geometric_mean(ratios: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = ratios.len().max(1) as f64;
    (ratios.map(f64::ln).sum::<f64>() / count).exp()
}

fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

/// The median of some times; empty without one.
fn median_millis(times: &[Duration]) -> String {
    let median = median(times.iter().map(Duration::as_secs_f64));
    median.map_or(String::new(), |seconds| format!("{:.3}", seconds * 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let ms = Duration::from_millis;
        let mut join = Facts {
            upload: ms(10),
            kernel: ms(20),
            download: ms(5),
            ..Facts::default()
        };
        assert_eq!(shares(&join, ms(50)), [20.0, 40.0, 10.0, 30.0]);
        join.kernel = ms(60);
        assert_eq!(shares(&join, ms(50)), [20.0, 120.0, 10.0, -50.0]);
    }

    #[test]
    fn names_fit_their_column() {
        use super::super::cases::Preset;
        use clap::ValueEnum;
        for case in Preset::value_variants()
            .iter()
            .flat_map(|preset| preset.cases())
        {
            assert!(case.to_string().len() < NAME_WIDTH, "{case}");
        }
    }
}
