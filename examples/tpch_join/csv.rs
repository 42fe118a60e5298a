//! A line per query as comma-separated values, for programs that read what was measured.
//!
//! ```text
//!   query,rows,device_joins,stock_joins,launches,stock_median_ms,horton_median_ms,…
//!   q05,5,5,0,12,31.204,22.871,…
//! ```
//!
//! Each line is written as soon as its query is measured, so that a run cut short keeps what it
//! has. A figure that is not there, as the stock plan had too little memory, is an empty field.

use std::path::Path;
use std::time::Duration;

use horton_test_support::csv::Csv;

use crate::Result;
use crate::measure::Outcome;

const COLUMNS: [&str; 10] = [
    "query",
    "rows",
    "device_joins",
    "stock_joins",
    "launches",
    "stock_median_ms",
    "horton_median_ms",
    "stock_best_ms",
    "horton_best_ms",
    "differences",
];

/// Starts the file `path`.
///
/// # Errors
/// Of the file system, with the path.
pub fn create(path: &Path) -> Result<Csv> {
    Csv::create(path, &COLUMNS)
}

/// Adds a line to `csv`.
///
/// # Errors
/// Of the file system.
pub fn add(csv: &mut Csv, outcome: &Outcome) -> Result<()> {
    let stock = outcome.stock;
    csv.add(&[
        outcome.label.clone(),
        outcome.run.rows().to_string(),
        outcome.device_joins().count().to_string(),
        outcome.stock_joins().to_string(),
        outcome.launches().to_string(),
        stock.map_or(String::new(), |times| millis(times.median)),
        millis(outcome.horton.median),
        stock.map_or(String::new(), |times| millis(times.best)),
        millis(outcome.horton.best),
        outcome.difference_count().to_string(),
    ])
}

fn millis(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}
