//! Writes report.md, with a chart for each suite of queries.
//!
//! ```text
//!   # what failed                            FAILED: name: why
//!   # all suites, a line each                sums, ratios, the worst query, losses.md
//!   # the machine                            facts, devices
//!   # each suite                             NAME.svg, a table: the worst query first
//!   # command lines                          to run a part again
//! ```
//!
//! Markdown and SVG show in a browser and in a review without another program. All that the
//! programs wrote stays beside it, in raw/.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use horton_test_support::bars::{Bar, bars};
use horton_test_support::duckdb::Times;

use crate::Result;
use crate::figures::{Csv, Line, Sums, sums, worst_first};
use crate::machine::Fact;
use crate::parts::{Part, Shows, Work};
use crate::run::Finished;

/// Facts that a reader must know of the times.
const METHOD: &str = "\
How it was measured:

* A time runs from a query's text to its last row. One run warms up, and the sides take turns.
* Times are medians. A sum is over the queries that both sides have. A ratio below 1 says that horton
  is faster.
* Every run is checked: `differences` counts rows that differ, and devices that did nothing.
* Suites in memory read the same Parquet files into memory first.
* DuckDB runs by itself, with the same files, threads and number of runs. Its rows go into a
  temporary table, and nobody checks them.
* The five questions of db-benchmark ask for sums. The benchmark itself keeps all columns of the
  joined rows.
* Names of single joins have the sizes of the whole form.

";

/// A part that has been run, or could not be.
pub struct Done {
    /// The part that was to be run.
    pub part: Part,
    /// The end of its run.
    pub finished: Finished,
    /// The figures of it.
    pub results: Results,
}

/// The figures of a part.
pub enum Results {
    /// Queries beside plain DataFusion.
    Lines(Vec<Line>),
    /// A rival's medians.
    Times(Times),
    /// Rates.
    Table(Csv),
    /// Files that need no reading.
    None,
}

/// A suite of queries: what was measured, and the times of rivals.
pub struct Suite<'a> {
    name: &'a str,
    /// Title of what it shows.
    pub title: &'a str,
    /// What was measured.
    pub lines: &'a [Line],
    duckdb: Option<&'a Times>,
    bloom: Option<&'a Times>,
}

impl Suite<'_> {
    /// DuckDB's time.
    pub fn duckdb_of(&self, line: &Line) -> Option<f64> {
        self.duckdb?.get(&line.query).copied()
    }

    /// The time of datafusion-bloom.
    pub fn bloom_of(&self, line: &Line) -> Option<f64> {
        self.bloom?.get(&line.query).copied()
    }

    fn stock(&self) -> Sums {
        sums(self.lines, |line| line.stock)
    }

    fn duckdb(&self) -> Sums {
        sums(self.lines, |line| self.duckdb_of(line))
    }

    /// The chart's bars, in the order in which the queries ran.
    fn bars(&self) -> Vec<Bar> {
        let bar = |line: &Line| {
            let name = line.query.clone();
            Some(Bar {
                name,
                ratio: line.ratio()?,
            })
        };
        self.lines.iter().filter_map(bar).collect()
    }
}

/// Writes the report and its charts into `out`.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write(out: &Path, facts: &[Fact], done: &[Done]) -> Result<()> {
    let suites = suites(done);
    for suite in &suites {
        let file = out.join(format!("{}.svg", suite.name));
        let axis = "horton / DataFusion, by medians: left of 1, horton is faster";
        bars(&file, suite.title, axis, &suite.bars())?;
    }
    let text = text(out, facts, done, &suites)?;
    let path = out.join("report.md");
    let describe = |e| format!("cannot write {}: {e}", path.display());
    Ok(fs::write(&path, text).map_err(describe)?)
}

/// The suites of queries that have figures.
pub fn suites(done: &[Done]) -> Vec<Suite<'_>> {
    let times = done.iter().filter_map(|done| match &done.results {
        Results::Times(times) => Some((done.part.name.as_str(), times)),
        _ => None,
    });
    let times: BTreeMap<&str, &Times> = times.collect();
    let suites = done.iter().filter_map(|done| {
        let (Results::Lines(lines), Work::Example { shows, .. }) = (&done.results, &done.part.work)
        else {
            return None;
        };
        let rivals = match shows {
            Shows::Queries(rivals) => rivals.as_ref(),
            _ => None,
        };
        let of = |name: &String| times.get(name.as_str()).copied();
        Some(Suite {
            name: &done.part.name,
            title: &done.part.title,
            lines,
            duckdb: rivals.and_then(|rivals| of(&rivals.duckdb)),
            bloom: rivals.and_then(|rivals| of(&rivals.bloom)),
        })
    });
    suites.filter(|suite| !suite.lines.is_empty()).collect()
}

fn text(out: &Path, facts: &[Fact], done: &[Done], suites: &[Suite<'_>]) -> Result<String> {
    let mut text = "# Evaluation of horton-join\n\n".to_string();
    failures(&mut text, out, done)?;
    overview(&mut text, suites)?;
    let has_devices = done.iter().any(|done| done.part.name == "devices");
    let devices = has_devices.then(|| out.join("raw/devices.log"));
    machine(&mut text, facts, devices.as_deref())?;
    for suite in suites {
        queries(&mut text, suite)?;
    }
    for done in done {
        match (&done.part.work, &done.results) {
            (_, Results::Table(csv)) => rates(&mut text, &done.part, csv)?,
            (
                Work::Example {
                    shows: Shows::Figures(folder),
                    ..
                },
                _,
            ) => {
                figures(&mut text, &done.part, out, folder)?;
            }
            _ => {}
        }
    }
    command_lines(&mut text, out, done)?;
    Ok(text)
}

fn failures(text: &mut String, out: &Path, done: &[Done]) -> Result<()> {
    let failed = done
        .iter()
        .filter_map(|done| Some((done, done.finished.failure.as_ref()?)));
    for (done, why) in failed {
        writeln!(text, "**FAILED: {}**: {why}\n", log(out, &done.part.name))?;
    }
    Ok(())
}

fn overview(text: &mut String, suites: &[Suite<'_>]) -> Result<()> {
    if suites.is_empty() {
        return Ok(());
    }
    text.push_str(
        "| suite | queries | horton ms | DataFusion ms | horton / DataFusion | DuckDB ms | \
         horton / DuckDB | the worst query |\n|---|---|---|---|---|---|---|---|\n",
    );
    for suite in suites {
        let (stock, duckdb) = (suite.stock(), suite.duckdb());
        let rival = match duckdb.queries {
            0 => None,
            n if n < suite.lines.len() => {
                let of = suite.lines.len();
                Some(format!("{:.1} ({n} of {of})", duckdb.other))
            }
            _ => Some(format!("{:.1}", duckdb.other)),
        };
        writeln!(
            text,
            "| [{}](#{}) | {} | {:.1} | {:.1} | {} | {} | {} | {} |",
            suite.name,
            suite.name,
            stock.queries,
            stock.horton,
            stock.other,
            ratio(stock.ratio()),
            rival.unwrap_or_else(|| "-".to_string()),
            ratio(duckdb.ratio()),
            worst(suite)
        )?;
    }
    text.push_str("\n[Where horton is slower, beyond noise](losses.md)\n\n");
    text.push_str(METHOD);
    Ok(())
}

/// The query with the largest ratio, and the ratio.
fn worst(suite: &Suite<'_>) -> String {
    let worst = worst_first(suite.lines).first().copied();
    worst.map_or("-".to_string(), |line| {
        format!("{} {}", line.query, ratio(line.ratio()))
    })
}

fn machine(text: &mut String, facts: &[Fact], devices: Option<&Path>) -> Result<()> {
    text.push_str("## The machine\n\n| what | value |\n|---|---|\n");
    for (name, value) in facts {
        writeln!(text, "| {name} | {} |", value.replace('|', "\\|"))?;
    }
    if let Some(Ok(devices)) = devices.map(fs::read_to_string) {
        writeln!(text, "\n```text\n{}\n```", devices.trim_end())?;
    }
    text.push('\n');
    Ok(())
}

fn queries(text: &mut String, suite: &Suite<'_>) -> Result<()> {
    let name = suite.name;
    writeln!(
        text,
        "<a id=\"{name}\"></a>\n\n## {}\n\nThe worst query: {}. Sums: horton / DataFusion {}, \
         horton / DuckDB {}.\n\n![{}]({name}.svg)\n\n\
         | query | horton ms | DataFusion ms | horton / DataFusion | DuckDB ms | device joins | \
         differences |\n|---|---|---|---|---|---|---|",
        suite.title,
        worst(suite),
        ratio(suite.stock().ratio()),
        ratio(suite.duckdb().ratio()),
        suite.title
    )?;
    for line in worst_first(suite.lines) {
        writeln!(
            text,
            "| {} | {:.1} | {} | {} | {} | {} | {} |",
            line.query,
            line.horton,
            line.stock
                .map_or("too little memory".to_string(), |ms| format!("{ms:.1}")),
            ratio(line.ratio()),
            suite
                .duckdb_of(line)
                .map_or("-".to_string(), |ms| format!("{ms:.1}")),
            line.device_joins,
            line.differences
        )?;
    }
    Ok(writeln!(
        text,
        "\n[figures](raw/{name}.csv), [log](raw/{name}.log)\n"
    )?)
}

fn rates(text: &mut String, part: &Part, csv: &Csv) -> Result<()> {
    let (name, columns) = (&part.name, csv.header.len());
    writeln!(text, "## {}\n\n| {} |", part.title, csv.header.join(" | "))?;
    writeln!(text, "|{}", "---|".repeat(columns))?;
    for row in &csv.rows {
        writeln!(text, "| {} |", row.join(" | "))?;
    }
    Ok(writeln!(
        text,
        "\n[figures](raw/{name}.csv), [log](raw/{name}.log)\n"
    )?)
}

/// Shows the figures in `folder`, which is in `out`.
fn figures(text: &mut String, part: &Part, out: &Path, folder: &Path) -> Result<()> {
    let relative = folder.strip_prefix(out).unwrap_or(folder).display();
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".svg")).collect();
    names.sort();
    if names.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "## {}\n\n[Their own report]({relative}/report.md)\n",
        part.title
    )?;
    for name in names {
        writeln!(text, "![{name}]({relative}/{name})\n")?;
    }
    Ok(())
}

fn command_lines(text: &mut String, out: &Path, done: &[Done]) -> Result<()> {
    text.push_str("## Command lines\n\n| part | seconds | command |\n|---|---|---|\n");
    for done in done {
        writeln!(
            text,
            "| {} | {:.1} | `{}` |",
            log(out, &done.part.name),
            done.finished.took.as_secs_f64(),
            done.finished.command.replace('|', "\\|")
        )?;
    }
    Ok(())
}

/// The part's name, linked to its log if it has one.
fn log(out: &Path, name: &str) -> String {
    let file = format!("raw/{name}.log");
    match out.join(&file).is_file() {
        true => format!("[{name}]({file})"),
        false => name.to_string(),
    }
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::Rivals;
    use std::time::Duration;

    fn line(query: &str, horton: f64, stock: f64) -> Line {
        Line {
            query: query.to_string(),
            horton,
            stock: Some(stock),
            noise: 1.0,
            device_joins: 1,
            differences: 0,
        }
    }

    fn done(name: &str, work: Work, failure: Option<&str>, results: Results) -> Done {
        Done {
            part: Part {
                name: name.to_string(),
                title: format!("Title of {name}"),
                data: None,
                work,
            },
            finished: Finished {
                command: format!("{name} --all"),
                took: Duration::from_secs(2),
                failure: failure.map(str::to_string),
            },
            results,
        }
    }

    fn example(shows: Shows) -> Work {
        Work::Example {
            program: "some",
            arguments: vec![],
            shows,
        }
    }

    fn all() -> Vec<Done> {
        let lines = vec![line("q1", 10.0, 20.0), line("q2", 30.0, 20.0)];
        let times = Times::from([("q1".to_string(), 4.0)]);
        let suite = example(Shows::Queries(Some(Rivals {
            duckdb: "duck".to_string(),
            bloom: "bloom".to_string(),
        })));
        let table = Csv {
            header: vec!["mib".to_string(), "hits".to_string()],
            rows: vec![vec!["16".to_string(), "99".to_string()]],
        };
        vec![
            done("tpch", suite, None, Results::Lines(lines)),
            done(
                "duck",
                Work::DuckDb { in_memory: true },
                None,
                Results::Times(times),
            ),
            done("rates", example(Shows::Rates), None, Results::Table(table)),
            done(
                "broken",
                example(Shows::Text),
                Some("exit status: 2"),
                Results::None,
            ),
        ]
    }

    #[test]
    fn a_report_shows_sums_the_worst_query_and_what_failed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("raw")).unwrap();
        fs::write(folder.path().join("raw/rates.log"), "").unwrap();
        write(folder.path(), &[("CPU", "a|b".to_string())], &all()).unwrap();
        let text = fs::read_to_string(folder.path().join("report.md")).unwrap();
        for part in [
            "**FAILED: broken**: exit status: 2\n",
            "| [tpch](#tpch) | 2 | 40.0 | 40.0 | 1.00 | 4.0 (1 of 2) | 2.50 | q2 1.50 |",
            "| CPU | a\\|b |",
            "![Title of tpch](tpch.svg)",
            "| q2 | 30.0 | 20.0 | 1.50 | - | 1 | 0 |\n| q1 | 10.0 | 20.0 | 0.50 | 4.0 | 1 | 0 |",
            "| mib | hits |\n|---|---|\n| 16 | 99 |",
            "| [rates](raw/rates.log) | 2.0",
            "| broken | 2.0 | `broken --all` |",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(folder.path().join("tpch.svg").is_file());
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = write(Path::new("/nonexistent"), &[], &all()).unwrap_err();
        assert!(error.to_string().contains("/nonexistent"), "{error}");
    }
}
