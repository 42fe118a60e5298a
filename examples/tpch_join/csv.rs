//! A line a query as comma-separated values, for programs that read what was measured.
//!
//! ```text
//!   query,rows,device_joins,stock_joins,launches,stock_median_ms,horton_median_ms,…
//!   q05,5,5,0,12,31.204,22.871,…
//! ```
//!
//! Each line is written as soon as its query is measured, so that a run cut short keeps what it
//! has. A figure that is not there, as the stock plan had too little memory, is an empty field.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::Result;
use crate::measure::Outcome;

const HEADER: &str = "query,rows,device_joins,stock_joins,launches,stock_median_ms,\
    horton_median_ms,stock_best_ms,horton_best_ms,differences";

/// The file that lines are added to.
pub struct Csv(File);

impl Csv {
    /// Starts the file `path`.
    ///
    /// # Errors
    /// Of the file system, with the path.
    pub fn create(path: &Path) -> Result<Self> {
        let file =
            File::create(path).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        let mut csv = Self(file);
        writeln!(csv.0, "{HEADER}")?;
        Ok(csv)
    }

    /// Adds a line.
    ///
    /// # Errors
    /// Of the file system.
    pub fn add(&mut self, outcome: &Outcome) -> Result<()> {
        writeln!(
            self.0,
            "{},{},{},{},{},{},{},{},{},{}",
            field(&outcome.label),
            outcome.run.rows(),
            outcome.device_joins().count(),
            outcome.stock_joins(),
            outcome.launches(),
            outcome
                .stock
                .map_or(String::new(), |times| millis(times.median)),
            millis(outcome.horton.median),
            outcome
                .stock
                .map_or(String::new(), |times| millis(times.best)),
            millis(outcome.horton.best),
            outcome.difference_count(),
        )?;
        Ok(())
    }
}

/// A file's name without what separates fields and lines.
fn field(name: &str) -> String {
    name.replace([',', '"', '\n', '\r'], "_")
}

fn millis(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_one_field() {
        assert_eq!(field("q01"), "q01");
        assert_eq!(field("a,\"b\"\nc"), "a__b__c");
    }

    #[test]
    fn an_unwritable_path_is_named() {
        let error = Csv::create(Path::new("/nonexistent/x.csv")).err().unwrap();
        assert!(error.to_string().contains("/nonexistent/x.csv"));
    }
}
