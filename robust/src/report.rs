//! What was measured: lines, a CSV file, and what they come to.
//!
//! ```text
//!   (query, order, engine) ─▶ ms ─┬▶ of a query and engine   min, median, max over orders
//!                                 ├▶ of an engine            total, max/min: mean and worst
//!                                 └▶ of two engines          ratio of totals, mean, worst
//! ```
//!
//! Means are geometric. A stopped query counts with the limit: its true time is longer. A failed
//! one has no time, and a ratio leaves it out on both sides.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use horton_test_support::Result;
use horton_test_support::csv::Csv;
use horton_test_support::median::median;

use crate::engines::Engine;
use crate::turns::{Measured, Outcome};

/// Queries that take so many times as long are counted.
const SLOWER: f64 = 1.05;

/// One engine's time of one query, with its tables in one order.
struct Sample {
    query: String,
    order: usize,
    measured: Measured,
}

/// All that was measured so far.
pub struct Report {
    samples: Vec<Sample>,
    limit: Duration,
    csv: Option<Csv>,
}

/// The times of one query and engine over all orders.
struct Times {
    seconds: Vec<f64>,
    stopped: usize,
    failed: usize,
    /// Orders with other rows.
    differ: usize,
}

impl Times {
    fn least(&self) -> f64 {
        self.seconds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn most(&self) -> f64 {
        self.seconds.iter().copied().fold(0.0, f64::max)
    }

    /// The longest time over the shortest.
    fn ratio(&self) -> f64 {
        self.most() / self.least()
    }
}

impl Report {
    /// Starts a report, and the file `csv`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn new(limit: Duration, csv: Option<&Path>) -> Result<Self> {
        let columns = ["query", "order", "engine", "ms", "status", "differences"];
        Ok(Self {
            samples: vec![],
            limit,
            csv: csv.map(|path| Csv::create(path, &columns)).transpose()?,
        })
    }

    /// Adds what engines did with `query` in one order, and says what went wrong.
    ///
    /// # Errors
    /// If a line cannot be written.
    pub fn add(&mut self, query: &str, order: usize, measured: Vec<Measured>) -> Result<()> {
        for measured in measured {
            let engine = measured.engine.name();
            let (status, why) = match &measured.outcome {
                Outcome::Took(_) => ("ok", None),
                Outcome::Stopped => ("stopped", None),
                Outcome::Failed(why) => ("failed", Some(why)),
            };
            let mut out = io::stdout();
            if let Some(why) = why {
                writeln!(out, "{query}, order {order}, {engine} failed: {why}")?;
            }
            if measured.differences > 0 {
                let rows = measured.differences;
                writeln!(out, "{query}, order {order}, {engine}: {rows} rows differ")?;
            }
            if let Some(csv) = &mut self.csv {
                let ms = self.limit.min(match measured.outcome {
                    Outcome::Took(time) => time,
                    _ => self.limit,
                });
                let ms = why.map_or(format!("{:.3}", ms.as_secs_f64() * 1e3), |_| String::new());
                csv.add(&[
                    query,
                    &order.to_string(),
                    engine,
                    &ms,
                    status,
                    &measured.differences.to_string(),
                ])?;
            }
            self.samples.push(Sample {
                query: query.to_owned(),
                order,
                measured,
            });
        }
        Ok(())
    }

    /// Returns the number of samples whose rows differ.
    pub fn differences(&self) -> usize {
        let differ = |sample: &&Sample| sample.measured.differences > 0;
        self.samples.iter().filter(differ).count()
    }

    fn seconds(&self, measured: &Measured) -> Option<f64> {
        match measured.outcome {
            Outcome::Took(time) => Some(time.as_secs_f64()),
            Outcome::Stopped => Some(self.limit.as_secs_f64()),
            Outcome::Failed(_) => None,
        }
    }

    /// The distinct values of a field, as they first came.
    fn distinct<T: PartialEq>(&self, field: impl Fn(&Sample) -> T) -> Vec<T> {
        let mut values = vec![];
        for value in self.samples.iter().map(field) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    fn times(&self, query: &str, engine: Engine) -> Times {
        let of = |s: &&Sample| s.query == query && s.measured.engine == engine;
        let samples: Vec<&Measured> = self
            .samples
            .iter()
            .filter(of)
            .map(|s| &s.measured)
            .collect();
        let count = |is: &dyn Fn(&Measured) -> bool| samples.iter().filter(|m| is(m)).count();
        Times {
            seconds: samples.iter().filter_map(|m| self.seconds(m)).collect(),
            stopped: count(&|m| matches!(m.outcome, Outcome::Stopped)),
            failed: count(&|m| matches!(m.outcome, Outcome::Failed(_))),
            differ: count(&|m| m.differences > 0),
        }
    }

    /// Prints a line for each engine: the times of `query` over all orders.
    ///
    /// # Errors
    /// Of the output.
    pub fn orders(&self, query: &str) -> Result<()> {
        let mut out = io::stdout();
        for engine in self.distinct(|sample| sample.measured.engine) {
            let times = self.times(query, engine);
            let name = engine.name();
            write!(out, "{query:10} {name:6}")?;
            if let Some(median) = median(times.seconds.iter().copied()) {
                let [least, median, most] =
                    [times.least(), median, times.most()].map(|seconds| seconds * 1e3);
                let ratio = times.ratio();
                write!(
                    out,
                    " min {least:9.1} median {median:9.1} max {most:9.1} ms  max/min {ratio:7.2}"
                )?;
            }
            let counts = [
                (times.stopped, "stopped"),
                (times.failed, "failed"),
                (times.differ, "with other rows"),
            ];
            for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
                write!(out, ", {count} {what}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// Returns the times of `query` as one line, in milliseconds.
    pub fn line(&self, query: &str) -> String {
        let mut line = String::new();
        for sample in self.samples.iter().filter(|sample| sample.query == query) {
            let time = match (&sample.measured.outcome, self.seconds(&sample.measured)) {
                (Outcome::Took(_), Some(seconds)) => format!("{:.1}", seconds * 1e3),
                (_, Some(seconds)) => format!(">{:.0}", seconds * 1e3),
                _ => "failed".to_owned(),
            };
            line += &format!("  {} {time:>8}", sample.measured.engine.name());
        }
        line
    }

    /// Prints what all comes to.
    ///
    /// # Errors
    /// Of the output.
    pub fn summary(&self) -> Result<()> {
        let mut out = io::stdout();
        let queries = self.distinct(|sample| sample.query.clone());
        let orders = self.distinct(|sample| sample.order).len();
        let engines = self.distinct(|sample| sample.measured.engine);
        writeln!(out, "\n{} queries, {orders} orders each", queries.len())?;
        for &engine in &engines {
            let all_times = queries.iter().map(|query| self.times(query, engine));
            let all_times: Vec<Times> = all_times.collect();
            let total: f64 = all_times.iter().flat_map(|times| &times.seconds).sum();
            let sum = |count: fn(&Times) -> usize| all_times.iter().map(count).sum::<usize>();
            let (stopped, failed) = (sum(|s| s.stopped), sum(|s| s.failed));
            let differ = sum(|s| s.differ);
            let name = engine.name();
            write!(
                out,
                "{name:6} total {total:10.3} s, {stopped} stopped, {failed} failed, \
                 {differ} with other rows"
            )?;
            let of_each = queries.iter().zip(&all_times);
            let of_each = of_each.filter(|(_, times)| times.seconds.len() > 1);
            let of_each: Vec<(f64, &str)> = of_each
                .map(|(query, times)| (times.ratio(), query.as_str()))
                .collect();
            if let Some((mean, worst, query)) = mean_and_worst(&of_each) {
                write!(out, "; max/min mean {mean:.2}, worst {worst:.2} ({query})")?;
            }
            writeln!(out)?;
        }
        for other in engines.iter().filter(|engine| **engine != Engine::Ours) {
            self.ratio(Engine::Ours, *other, &queries)?;
        }
        self.ratio(Engine::Again, Engine::Stock, &queries)
    }

    /// Prints the times of `engine` over those of `other`, where both have one.
    fn ratio(&self, engine: Engine, other: Engine, queries: &[String]) -> Result<()> {
        let mut ratios = vec![];
        let mut totals = [0.0, 0.0];
        for query in queries {
            let of = |engine: Engine, order: usize| {
                let mut samples = self.samples.iter();
                let sample = samples.find(|sample| {
                    let is_order = sample.query == *query && sample.order == order;
                    is_order && sample.measured.engine == engine
                });
                self.seconds(&sample?.measured)
            };
            let orders = self.distinct(|sample| sample.order).into_iter();
            let pairs = orders.filter_map(|order| Some([of(engine, order)?, of(other, order)?]));
            let sums = pairs.fold([0.0, 0.0], |[a, b], [x, y]| [a + x, b + y]);
            if sums[1] > 0.0 {
                ratios.push((sums[0] / sums[1], query.as_str()));
                totals = [totals[0] + sums[0], totals[1] + sums[1]];
            }
        }
        if let Some((mean, worst, query)) = mean_and_worst(&ratios) {
            let (name, other) = (engine.name(), other.name());
            let of_totals = totals[0] / totals[1];
            let slower = ratios.iter().filter(|(ratio, _)| *ratio > SLOWER).count();
            let count = ratios.len();
            writeln!(
                io::stdout(),
                "{name} / {other}: {of_totals:.3} of totals, {mean:.3} in the mean, worst \
                 {worst:.2} ({query}), {slower} of {count} above {SLOWER}"
            )?;
        }
        Ok(())
    }
}

/// The geometric mean, and the largest with its name.
fn mean_and_worst<'a>(ratios: &[(f64, &'a str)]) -> Option<(f64, f64, &'a str)> {
    let (worst, name) = ratios.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let logarithms: f64 = ratios.iter().map(|(ratio, _)| ratio.ln()).sum();
    Some(((logarithms / ratios.len() as f64).exp(), worst, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_geometric() {
        assert_eq!(mean_and_worst(&[]), None);
        let (mean, worst, name) = mean_and_worst(&[(0.5, "a"), (2.0, "b")]).unwrap();
        assert!((mean - 1.0).abs() < 1e-9);
        assert_eq!((worst, name), (2.0, "b"));
    }
}
