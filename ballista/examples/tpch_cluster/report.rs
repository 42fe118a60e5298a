//! Medians as a table.

use std::fmt::Write;
use std::time::Duration;

use crate::engines::Engine;
use crate::queries::Query;

/// Returns the median, the later of two in the middle.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Returns a line for each query, in milliseconds, and a last one with the sums.
pub fn table(engines: &[Engine], queries: &[Query], medians: &[Vec<Duration>]) -> String {
    let mut text = String::from("| median, ms |");
    for engine in engines {
        // Writing to a string does not fail.
        let _ = write!(text, " {} |", engine.name);
    }
    text.push_str("\n|---|");
    text.push_str(&"--:|".repeat(engines.len()));
    let mut totals = vec![Duration::ZERO; engines.len()];
    for (query, medians) in queries.iter().zip(medians) {
        line(&mut text, &format!("Q{}", query.number), medians);
        for (total, median) in totals.iter_mut().zip(medians) {
            *total += *median;
        }
    }
    line(&mut text, "total", &totals);
    text.push('\n');
    text
}

fn line(text: &mut String, name: &str, times: &[Duration]) {
    let _ = write!(text, "\n| {name} |");
    for time in times {
        let _ = write!(text, " {:.1} |", time.as_secs_f64() * 1000.0);
    }
}
