//! A join of repeating keys, from build rows to windows of pairs.
//!
//! ```text
//!  build keys ─ group ─▶ offsets, rows ─ lookup ─▶ groups ─ count ─▶ total ─ write ─▶ windows
//! ```

use std::fmt::Display;

use horton_tables::device::{Buffer, Queue};
use horton_tables::error::Result;
use horton_tables::table::horton::{Items, MISS, TableConfig};
use horton_tables::table::multimap::pairs::{Matches, Pairs};
use horton_tables::table::multimap::{KeyFormat, MultiMap, MultiMapInput};
use horton_tables::table::primitives::group::group;
use horton_tables_test_support::env::device;
use horton_tables_test_support::tables::run;

use super::check;

const BUILD: [u32; 5] = [11, 22, 11, 33, 11];
const PROBE: [u32; 4] = [22, 99, 11, 33];

/// Pairs of a window.
const WINDOW: usize = 3;

/// What the device made of the keys.
struct Joined {
    keys: Vec<u32>,
    offsets: Vec<u32>,
    rows: Vec<u32>,
    /// The group of each probe key, or [`MISS`].
    values: Vec<u32>,
    total: u64,
    matched: u64,
    windows: Vec<Vec<(u32, u32)>>,
}

fn read(queue: &mut Queue, buffer: &Buffer<u32>) -> Result<Vec<u32>> {
    queue.read(buffer, buffer.len())
}

fn join(queue: &mut Queue) -> Result<Joined> {
    let build = queue.buffer_from("build keys", &BUILD)?;
    let items = Items {
        keys: &build,
        values: None,
    };
    let keys = group(queue, items, u32::BITS)?.unique_keys;
    let input = MultiMapInput {
        keys: &build,
        rows: None,
        format: KeyFormat::ANY_WORD,
    };
    let table = MultiMap::build(queue, &TableConfig::default(), input)?;
    let groups = table.groups.as_ref().unwrap();
    let probe = queue.buffer_from("probe keys", &PROBE)?;
    let matches = table.lookup(queue, &probe, PROBE.len())?;
    Ok(Joined {
        keys: read(queue, &keys)?,
        offsets: read(queue, &groups.offsets)?,
        rows: read(queue, &groups.rows)?,
        values: queue.read(matches.values(), PROBE.len())?,
        total: matches.total(),
        matched: matches.matched(),
        windows: windows(queue, &matches)?,
    })
}

/// Returns all pairs of `matches`, a window at a time.
fn windows(queue: &mut Queue, matches: &Matches) -> Result<Vec<Vec<(u32, u32)>>> {
    let room = Pairs::with_room(queue, WINDOW)?;
    let (mut windows, mut first) = (Vec::new(), 0);
    while first < matches.total() {
        let written = matches.write(queue, first, &room)?;
        let probe = queue.read(&room.probe, written)?;
        let build = queue.read(&room.build, written)?;
        windows.push(probe.into_iter().zip(build).collect());
        first += written as u64;
    }
    Ok(windows)
}

impl Joined {
    /// Returns the rows of a group.
    fn group(&self, group: usize) -> &[u32] {
        &self.rows[self.offsets[group] as usize..self.offsets[group + 1] as usize]
    }

    /// Returns each probe row's number of pairs.
    fn counts(&self) -> Vec<u32> {
        let count = |value: &u32| match *value {
            MISS => 0,
            group => self.group(group as usize).len() as u32,
        };
        self.values.iter().map(count).collect()
    }

    fn draw(&self) -> String {
        let (groups, windows, counts) = (self.groups(), self.windows(), self.counts());
        let mut before = 0;
        let sums = counts.iter().map(|count| {
            before += count;
            before - count
        });
        let value = |value: &u32| match *value {
            MISS => "miss".to_owned(),
            group => format!("g{group}"),
        };
        [
            row("build keys", BUILD),
            format!(" groups          {}", groups.join("     ")),
            row("offsets", &self.offsets),
            row("rows", &self.rows),
            String::new(),
            row("probe keys", PROBE),
            row("lookup", self.values.iter().map(value)),
            row("count", &counts) + &format!("     {} pairs of {} rows", self.total, self.matched),
            row("first pair", sums),
            format!(
                " window of {WINDOW}     {}",
                windows.join("\n next window     ")
            ),
            String::new(),
        ]
        .join("\n")
    }

    fn groups(&self) -> Vec<String> {
        let rows = |group| self.group(group).iter().map(|row| format!(" r{row}"));
        let groups = self.keys.iter().enumerate();
        let groups = groups
            .map(|(group, key)| format!("{key} ▶ g{group}:{}", rows(group).collect::<String>()));
        groups.collect()
    }

    fn windows(&self) -> Vec<String> {
        let pair = |(probe, build): &(u32, u32)| format!("({probe},r{build})");
        let window = |pairs: &Vec<_>| pairs.iter().map(pair).collect::<Vec<_>>().join(" ");
        self.windows.iter().map(window).collect()
    }
}

/// Returns a row of the drawing.
fn row(name: &str, cells: impl IntoIterator<Item = impl Display>) -> String {
    let cells = cells
        .into_iter()
        .map(|cell| format!("{:>5}", cell.to_string()));
    format!(" {name:13}{}", cells.collect::<String>())
}

#[test]
fn pairs_are_counted_and_then_written_by_windows() {
    check("pairs", &run(&device(), join).value.draw());
}
