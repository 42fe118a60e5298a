//! The figures of the page: those of the paper's models, and those of a record of measurements.

use std::fmt::Write as _;
use std::fs;

use horton_tables_test_support::lookups::equations::Model;

use super::check;
use super::page::repository;

/// Load factors of which the page has the cost of lookups.
const LOADS: [f64; 4] = [0.5, 0.8, 0.9, 0.95];

/// Returns a row of a table in Markdown.
fn row(name: &str, cells: impl IntoIterator<Item = f64>) -> String {
    let mut row = format!("| {name} |");
    for cell in cells {
        write!(row, " {cell:.2} |").unwrap();
    }
    row + "\n"
}

/// `table_ops::cost` holds the models beside what a device reads.
#[test]
fn the_models_say_how_many_buckets_a_lookup_reads() {
    let cost = |of: fn(&Model) -> f64| LOADS.map(|load| of(&Model::new(8, load)));
    let table = row("load factor", LOADS)
        + "|---|--:|--:|--:|--:|\n"
        + &row("hit", cost(Model::hit))
        + &row("miss", cost(Model::miss));
    check("buckets by load", &table);
}

/// The record that the page quotes, and the case of which its figures are.
const RECORD: &str = "benches/results/wide-2026-11-28.md";
const CASE: &str = "1Mx10M-sparse-wide12-hit100";

/// Returns what the record says of the device's time, between `before` and `after`.
fn between(text: &str, before: &str, after: &str) -> String {
    let rest = text.split_once(before).unwrap().1;
    rest.split_once(after).unwrap().0.to_owned()
}

/// Returns the cells of the rows about [`CASE`].
fn recorded(text: &str) -> Vec<Vec<String>> {
    let begin = format!("| {CASE} |");
    let rows = text.lines().filter_map(|line| line.strip_prefix(&begin));
    let cells = |row: &str| {
        let cells = row.split(['|', ',']);
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    rows.map(cells).collect()
}

/// Returns the figure of the part `name` among `cells`.
fn part(cells: &[String], name: &str) -> String {
    let part = cells.iter().find_map(|cell| cell.strip_prefix(name));
    part.unwrap_or_else(|| panic!("the record has no {name}"))
        .trim()
        .to_owned()
}

#[test]
fn what_costs_what_is_in_the_record() {
    let text = fs::read_to_string(repository(RECORD)).unwrap();
    let [clock, cores] = recorded(&text).try_into().unwrap();
    let joins = text.lines().filter(|line| line.contains("gather columns "));
    let joins = joins.count();
    let device = format!("the device: uploads, kernels, downloads ({joins} such joins)");
    let rows = [
        ("the query, joined on the host", clock[1].clone()),
        ("the query, joined on the device", clock[2].clone()),
        ("all cores: the join on the host", cores[0].clone()),
        (
            "all cores: the host's part of the device join",
            cores[1].clone(),
        ),
        ("… the host gathers columns", part(&cores, "gather columns")),
        ("… the host emits batches", part(&cores, "emit")),
        (
            "… the host concatenates build columns",
            part(&cores, "concatenate"),
        ),
        (
            device.as_str(),
            between(&text, "(upload, kernels, download) took ", " ms in each"),
        ),
    ];
    let mut table = String::from("| what | ms |\n|---|--:|\n");
    for (what, figure) in rows {
        writeln!(table, "| {what} | {figure} |").unwrap();
    }
    check("what costs what", &table);
}
