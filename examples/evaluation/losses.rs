//! Writes losses.md: where horton is slower than the others, beside how often it is faster.
//!
//! ```text
//!   suite ─┬▶ DataFusion  ┐ horton / other   ┊ above the noise: slower   ┐ a line for each suite,
//!          ├▶ DuckDB      ├─────────────────▶┊ within it: alike          ├ a line for each query
//!          └▶ bloom       ┘                  ┊ below 1 / noise: faster   ┘ that is slower
//! ```
//!
//! The worst comes first. A report that has all queries hides the slow ones among hundreds.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Result;
use crate::figures::{Line, Sums, sums};
use crate::report::{Done, Suite, suites};

/// The beginning of the page.
const HEAD: &str = "\
# Where horton is slower

[The report](report.md) has the machine, the commands and all queries. A query is slower if its
ratio, our median over the other one, is above its noise; it is faster below 1 / noise, and alike
between them. Its noise is the median over the best run, of horton or of DataFusion, whichever is
more. DataFusion takes turns with horton. DuckDB and datafusion-bloom run by themselves.

";

/// The engines beside which queries stand.
const OTHERS: [&str; 3] = ["DataFusion", "DuckDB", "datafusion-bloom"];

/// A query beside another engine.
struct Pair<'a> {
    line: &'a Line,
    other: f64,
}

impl Pair<'_> {
    fn ratio(&self) -> f64 {
        self.line.horton / self.other
    }

    fn is_slower(&self) -> bool {
        self.ratio() > self.line.noise
    }

    fn is_faster(&self) -> bool {
        self.ratio() < 1.0 / self.line.noise
    }
}

/// A suite beside another engine.
struct Match<'a> {
    title: &'a str,
    other: &'static str,
    sums: Sums,
    pairs: Vec<Pair<'a>>,
}

impl<'a> Match<'a> {
    fn new(suite: &Suite<'a>, other: &'static str) -> Self {
        let time = |line: &Line| match other {
            "DuckDB" => suite.duckdb_of(line),
            "datafusion-bloom" => suite.bloom_of(line),
            _ => line.stock,
        };
        let pair = |line| {
            Some(Pair {
                line,
                other: time(line)?,
            })
        };
        Self {
            title: suite.title,
            other,
            sums: sums(suite.lines, time),
            pairs: suite.lines.iter().filter_map(pair).collect(),
        }
    }

    fn count(&self, is: impl Fn(&Pair<'a>) -> bool) -> usize {
        self.pairs.iter().filter(|pair| is(pair)).count()
    }
}

/// Writes losses.md into `out`.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write(out: &Path, done: &[Done]) -> Result<()> {
    let path = out.join("losses.md");
    let describe = |e| format!("cannot write {}: {e}", path.display());
    Ok(fs::write(&path, text(&suites(done))?).map_err(describe)?)
}

fn text(suites: &[Suite<'_>]) -> Result<String> {
    let of_suite = |suite| OTHERS.map(|other| Match::new(suite, other));
    let mut matches: Vec<Match<'_>> = suites.iter().flat_map(of_suite).collect();
    matches.retain(|found| !found.pairs.is_empty());
    let ratio = |found: &Match<'_>| found.sums.ratio().unwrap_or_default();
    matches.sort_by(|a, b| ratio(b).total_cmp(&ratio(a)));
    let mut text = HEAD.to_string();
    of_suites(&mut text, &matches)?;
    of_queries(&mut text, &matches)?;
    Ok(text)
}

fn of_suites(text: &mut String, matches: &[Match<'_>]) -> Result<()> {
    text.push_str(
        "## Suites, the worst first\n\n| suite | beside | slower | alike | faster | horton ms | \
         other ms | horton / other |\n|---|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for found in matches {
        let (slower, faster) = (found.count(Pair::is_slower), found.count(Pair::is_faster));
        writeln!(
            text,
            "| {} | {} | {slower} | {} | {faster} | {:.1} | {:.1} | {:.2} |",
            found.title,
            found.other,
            found.pairs.len() - slower - faster,
            found.sums.horton,
            found.sums.other,
            found.sums.ratio().unwrap_or_default()
        )?;
    }
    Ok(())
}

fn of_queries(text: &mut String, matches: &[Match<'_>]) -> Result<()> {
    let pairs = matches
        .iter()
        .flat_map(|found| found.pairs.iter().map(move |pair| (found, pair)));
    let mut slower: Vec<_> = pairs.filter(|(_, pair)| pair.is_slower()).collect();
    slower.sort_by(|(_, a), (_, b)| b.ratio().total_cmp(&a.ratio()));
    text.push_str(
        "\n## Queries that are slower, the worst first\n\n| query | suite | beside | horton ms | \
         other ms | ratio | noise |\n|---|---|---|--:|--:|--:|--:|\n",
    );
    for (found, pair) in slower {
        writeln!(
            text,
            "| {} | {} | {} | {:.1} | {:.1} | {:.2} | {:.2} |",
            pair.line.query,
            found.title,
            found.other,
            pair.line.horton,
            pair.other,
            pair.ratio(),
            pair.line.noise
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::{Part, Rivals, Shows, Work};
    use crate::report::Results;
    use crate::run::Finished;
    use horton_test_support::duckdb::Times;
    use std::time::Duration;

    fn line(query: &str, horton: f64, stock: Option<f64>, noise: f64) -> Line {
        Line {
            query: query.to_string(),
            horton,
            stock,
            noise,
            device_joins: 1,
            differences: 0,
        }
    }

    fn done(name: &str, results: Results) -> Done {
        let rivals = Rivals {
            duckdb: "duck".to_string(),
            bloom: "bloom".to_string(),
        };
        Done {
            part: Part {
                name: name.to_string(),
                title: name.to_uppercase(),
                data: None,
                work: Work::Example {
                    program: "some",
                    arguments: vec![],
                    shows: Shows::Queries(Some(rivals)),
                },
            },
            finished: Finished::well("some".to_string(), Duration::ZERO),
            results,
        }
    }

    #[test]
    fn the_worst_is_first_and_noise_is_no_loss() {
        let lines = vec![
            line("q1", 12.0, Some(10.0), 1.1),
            line("q2", 12.0, Some(10.0), 1.3),
            line("q3", 10.0, Some(12.0), 1.3),
            line("q4", 10.0, Some(20.0), 1.3),
            line("q5", 10.0, None, 1.3),
        ];
        let times = |name: &str, ms| Results::Times(Times::from([(name.to_string(), ms)]));
        let all = [
            done("tpch", Results::Lines(lines)),
            done("duck", times("q2", 8.0)),
            done("bloom", times("q5", 2.0)),
        ];
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &all).unwrap();
        let text = fs::read_to_string(folder.path().join("losses.md")).unwrap();
        let tables: Vec<&str> = text.lines().filter(|line| line.contains("TPCH")).collect();
        assert_eq!(
            tables,
            [
                "| TPCH | datafusion-bloom | 1 | 0 | 0 | 10.0 | 2.0 | 5.00 |",
                "| TPCH | DuckDB | 1 | 0 | 0 | 12.0 | 8.0 | 1.50 |",
                "| TPCH | DataFusion | 1 | 2 | 1 | 44.0 | 52.0 | 0.85 |",
                "| q5 | TPCH | datafusion-bloom | 10.0 | 2.0 | 5.00 | 1.30 |",
                "| q2 | TPCH | DuckDB | 12.0 | 8.0 | 1.50 | 1.30 |",
                "| q1 | TPCH | DataFusion | 12.0 | 10.0 | 1.20 | 1.10 |",
            ]
        );
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = write(Path::new("/nonexistent"), &[]).unwrap_err();
        assert!(error.to_string().contains("/nonexistent"), "{error}");
    }
}
