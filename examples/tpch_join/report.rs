//! The report to the user: for each query its rows, its joins and devices, both times, and the rows
//! that differ; for several queries a table and the closing line.
//!
//! Everything goes to one writer, so that a closed pipe (`| head`) ends the program with
//! an error value and not with `println!`'s panic.

use std::io::{self, Write};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches_with_schema;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use horton_test_support::check::Differences;
use indicatif::HumanBytes;

use crate::Result;
use crate::measure::{Join, Outcome, Run};

/// Longest line of a join, in characters.
const JOIN_WIDTH: usize = 160;

/// Most rows shown of those that only one side has.
const DIFFERING_ROWS: usize = 3;

/// Prints one query's result (its first `rows` rows), joins, times and differences.
///
/// # Errors
/// Of the writer, or a type that cannot be printed.
pub fn query(out: &mut impl Write, outcome: &Outcome, rows: usize) -> Result<()> {
    writeln!(
        out,
        "\n{}: {}",
        outcome.label,
        count(outcome.run.rows(), "row")
    )?;
    if rows > 0 {
        result(out, &outcome.run, rows)?;
    }
    let on_device = outcome.device_joins().count();
    let total = outcome.joins.len();
    writeln!(
        out,
        "joins: {on_device} of {total} on a device, {}",
        count(outcome.launches(), "kernel launch")
    )?;
    for join in &outcome.joins {
        join_line(out, join)?;
    }
    writeln!(
        out,
        "time:  horton {} ms, stock {} ms, stock/horton {}, median {}; \
         first run: horton {} ms, stock {} ms",
        millis(outcome.horton.best),
        outcome.stock.map_or(FAILS.to_string(), |t| millis(t.best)),
        number(outcome.ratio()),
        number(outcome.median_ratio),
        millis(outcome.first[0]),
        millis(outcome.first[1])
    )?;
    let memory = &outcome.memory;
    writeln!(
        out,
        "memory: horton {}, stock {} reserved at most, {}; {} spilled by joins",
        HumanBytes(memory.horton as u64),
        HumanBytes(memory.stock as u64),
        memory.limit.map_or("no limit".to_string(), |limit| {
            format!("limit {}", HumanBytes(limit as u64))
        }),
        HumanBytes(memory.spilled as u64),
    )?;
    if outcome.is_idle() {
        writeln!(out, "WARNING: the device joins launched no kernel")?;
    }
    if let Some(differences) = &outcome.differences {
        check(out, differences)?;
    }
    Ok(())
}

/// Prints the executed plan with its metrics.
///
/// # Errors
/// Of the writer.
pub fn plan(out: &mut impl Write, outcome: &Outcome) -> Result<()> {
    let plan = DisplayableExecutionPlan::with_metrics(outcome.run.plan.as_ref());
    Ok(write!(out, "plan:\n{}", plan.indent(false))?)
}

/// Prints a table of all queries.
///
/// # Errors
/// Of the writer.
pub fn summary(out: &mut impl Write, outcomes: &[Outcome]) -> Result<()> {
    writeln!(
        out,
        "\n{:<18}{:>9}{:>14}{:>13}{:>10}{:>12}{:>12}{:>14}{:>8}{:>13}",
        "query",
        "rows",
        "device joins",
        "stock joins",
        "launches",
        "horton ms",
        "stock ms",
        "best ratio",
        "median",
        "differences"
    )?;
    for outcome in outcomes {
        writeln!(
            out,
            "{:<18}{:>9}{:>14}{:>13}{:>10}{:>12}{:>12}{:>14}{:>8}{:>13}",
            outcome.label,
            outcome.run.rows(),
            outcome.device_joins().count(),
            outcome.stock_joins(),
            outcome.launches(),
            millis(outcome.horton.median),
            outcome
                .stock
                .map_or(FAILS.to_string(), |t| millis(t.median)),
            number(outcome.ratio()),
            number(outcome.median_ratio),
            outcome.difference_count()
        )?;
    }
    let both = outcomes.iter().filter_map(|o| Some((o.horton, o.stock?)));
    let (horton, stock): (Vec<_>, Vec<_>) = both.map(|(h, s)| (h.median, s.median)).unzip();
    let failed = outcomes.len() - stock.len();
    let (horton, stock): (Duration, Duration) = (horton.iter().sum(), stock.iter().sum());
    let all = match failed {
        0 => "all".to_string(),
        _ => format!("all but {failed} for which the stock plan has too little memory"),
    };
    writeln!(
        out,
        "{all}, by medians: horton {} ms, stock {} ms, horton/stock {:.3}\n",
        millis(horton),
        millis(stock),
        horton.as_secs_f64() / stock.as_secs_f64()
    )?;
    Ok(())
}

/// Prints the queries that failed.
///
/// # Errors
/// Of the writer.
pub fn failures(out: &mut impl Write, failures: &[String]) -> io::Result<()> {
    for failure in failures {
        writeln!(out, "FAILED: {failure}")?;
    }
    Ok(())
}

/// Prints the closing line.
///
/// # Errors
/// Of the writer.
pub fn closing_line(out: &mut impl Write, outcomes: &[Outcome]) -> io::Result<()> {
    let joins: Vec<&Join> = outcomes.iter().flat_map(Outcome::device_joins).collect();
    let stock: usize = outcomes.iter().map(Outcome::stock_joins).sum();
    let differences: usize = outcomes.iter().map(Outcome::difference_count).sum();
    writeln!(
        out,
        "checked: {} queries, {} joins on {}, {stock} stock joins, {differences} differences",
        outcomes.len(),
        joins.len(),
        device_names(&joins)
    )
}

/// Returns the devices of `joins`, each once.
fn device_names(joins: &[&Join]) -> String {
    let names = joins.iter().filter_map(|join| join.device.as_deref());
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return "no device".to_string();
    }
    names.join(" and ")
}

fn result(out: &mut impl Write, run: &Run, rows: usize) -> Result<()> {
    let shown = head(&run.batches, rows);
    let table = pretty_format_batches_with_schema(run.schema.clone(), &shown)?;
    writeln!(out, "{table}")?;
    let hidden = run.rows().saturating_sub(rows);
    if hidden > 0 {
        writeln!(out, "and {hidden} more")?;
    }
    Ok(())
}

/// Returns the first `rows` rows.
fn head(batches: &[RecordBatch], rows: usize) -> Vec<RecordBatch> {
    let mut left = rows;
    let mut shown = vec![];
    for batch in batches {
        let taken = batch.num_rows().min(left);
        shown.push(batch.slice(0, taken));
        left -= taken;
    }
    shown
}

fn join_line(out: &mut impl Write, join: &Join) -> io::Result<()> {
    let place = match &join.device {
        Some(device) => format!("on {device}"),
        None => "stock".to_string(),
    };
    let mut line: String = join.line.chars().take(JOIN_WIDTH).collect();
    if line.len() < join.line.len() {
        line.push('…');
    }
    writeln!(out, "  {place}: {line}")
}

fn check(out: &mut impl Write, differences: &Differences) -> Result<()> {
    if differences.count() == 0 {
        return Ok(writeln!(
            out,
            "check: the rows are those of DataFusion's own plan"
        )?);
    }
    writeln!(out, "check: {}", count(differences.count(), "difference"))?;
    for line in &differences.types {
        writeln!(out, "  {line}")?;
    }
    one_sided(out, "missing", &differences.missing)?;
    one_sided(
        out,
        "not in the result of DataFusion's own plan",
        &differences.extra,
    )
}

/// Prints the first of the rows that only one side has.
fn one_sided(out: &mut impl Write, what: &str, rows: &RecordBatch) -> Result<()> {
    if rows.num_rows() == 0 {
        return Ok(());
    }
    let shown = rows.slice(0, rows.num_rows().min(DIFFERING_ROWS));
    let table = pretty_format_batches_with_schema(rows.schema(), &[shown])?;
    writeln!(out, "  {} {what}:\n{table}", count(rows.num_rows(), "row"))?;
    Ok(())
}

/// Returns a text such as `1 row` or `2 rows`.
fn count(number: usize, noun: &str) -> String {
    match (number, noun.ends_with("ch")) {
        (1, _) => format!("1 {noun}"),
        (_, true) => format!("{number} {noun}es"),
        (_, false) => format!("{number} {noun}s"),
    }
}

/// Text that is shown of a side that has too little memory.
const FAILS: &str = "fails";

fn number(number: Option<f64>) -> String {
    number.map_or("-".to_string(), |number| format!("{number:.2}"))
}

fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}
