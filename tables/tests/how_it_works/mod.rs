//! `docs/how-it-works.md` beside what a device does: its drawings are made again here.
//!
//! ```text
//!  <!-- made: eight keys -->           eight_keys  tables of the first 1, 2, … 8 keys
//!  what the page shows                 tile        the words that each lane of a tile reads
//!  <!-- end of eight keys -->          pairs       a join of repeating keys
//!                                      figures     the paper's models, records of measurements
//!  other drawings, names in prose      page        names that the source has
//! ```
//!
//! A test that fails prints what the page should show. The page is a file of the repository, so a
//! package of this crate has no such test.

mod eight_keys;
mod figures;
mod page;
mod pairs;
mod tile;

use page::Page;

/// The parts of the page that a test here makes.
const MADE: [&str; 8] = [
    "buckets by load",
    "eight keys",
    "full table",
    "lookups",
    "lanes",
    "overflow",
    "pairs",
    "what costs what",
];

/// Checks that the part `name` of the page is `expected`.
fn check(name: &str, expected: &str) {
    assert!(MADE.contains(&name), "{name} is missing in MADE");
    let page = Page::read();
    let shown = page.made(name);
    assert!(
        shown == expected,
        "the page shows as '{name}'\n{shown}\nand should show\n{expected}"
    );
}

#[test]
fn every_part_that_is_marked_as_made_is_made() {
    let page = Page::read();
    let mut wanted = MADE;
    wanted.sort_unstable();
    assert_eq!(page.marks(), wanted);
}

#[test]
fn the_page_names_what_the_source_has() {
    let page = Page::read();
    let names = page.names();
    assert!(names.len() > 10, "{names:?}");
    let source = page::source();
    let missing: Vec<&String> = (names.iter())
        .filter(|name| !source.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "not in the source: {missing:?}");
}

/// Numbers of the page's text, each with the line of the source that defines it.
const NUMBERS: [(&str, &str); 6] = [
    (
        "lines of 64 bytes",
        "/// 8 slots, 64 bytes: one cache line.",
    ),
    ("the 21 entries", "pub const TAGS: u32 = 21;"),
    ("from 0 to 20", "pub const TAGS: u32 = 21;"),
    (
        "Seven **secondary functions**, R1 to R7",
        "pub const SECONDARY_FUNCTIONS: u32 = 7;",
    ),
    (
        "load factor of 0.8",
        "pub const DEFAULT_LOAD_FACTOR: f64 = 0.8;",
    ),
    ("three queues", "const QUEUE_THREADS: usize = 3;"),
];

#[test]
fn numbers_of_the_page_are_those_of_the_source() {
    let (page, source) = (Page::read(), page::source());
    for (shown, defined) in NUMBERS {
        assert!(page.says(shown), "the page does not say '{shown}'");
        assert!(source.contains(defined), "the source has no '{defined}'");
    }
}
