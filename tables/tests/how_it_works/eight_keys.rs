//! Eight keys in two buckets of four slots: the tables of the first 1, 2, … of them, as the device
//! builds them for a join.
//!
//! ```text
//!  first n keys ─ build ─▶ words of the device ─▶ a line of the picture
//!                                              └▶ the model looks keys up in them, as the device
//! ```
//!
//! One work-item per work-group builds them, so that slots are taken in the order of the keys.
//! Insertion into a table that exists takes other slots. So only the counts are compared there.

use std::fmt::Write as _;

use horton_tables::device::{KernelBody, Queue};
use horton_tables::error::Result;
use horton_tables::table::horton::{
    BucketSize, Built, HortonModel, HortonTable, Items, Layout, MISS, TableConfig, build,
};
use horton_tables::table::primitives::bucket::{
    EMPTY_WORD, TYPE_B, entry_at, is_type_b, key_of, value_of,
};
use horton_tables::table::{Table, WhenFull};
use horton_tables_test_support::env::device;
use horton_tables_test_support::tables::run;

use super::check;

/// The build side's keys. The value of each is its row number.
const KEYS: [u32; 8] = [11, 22, 33, 44, 55, 66, 77, 88];

/// Keys that two buckets of four slots have room for under [`config`]'s seed.
const MOST: usize = 7;

/// Keys that are looked up: hits in either bucket, and the three kinds of misses.
const PROBES: [u32; 5] = [11, 77, 20, 99, 42];

fn config() -> TableConfig {
    TableConfig {
        bucket_size: BucketSize::Four,
        load_factor: 1.0,
        seed: 5934,
        min_capacity: 8,
        when_full: WhenFull::Reject,
        ..TableConfig::default()
    }
}

/// Returns the table of the first `n` keys, as a join builds it.
fn build_first(queue: &mut Queue, n: usize) -> Result<HortonTable> {
    queue.use_body(KernelBody::Chunk)?;
    let keys = queue.buffer_from("keys", &KEYS[..n])?;
    let items = Items {
        keys: &keys,
        values: None,
    };
    match build::build(queue, &config(), items)? {
        Built::Table(table) => Ok(table),
        Built::Repeats => panic!("no key repeats"),
    }
}

/// Returns the words of the table of the first `n` keys.
fn words_of_first(n: usize) -> HortonModel {
    let job = move |queue: &mut Queue| build_first(queue, n)?.download(queue);
    let model = run(&device(), job).value;
    model.check().unwrap();
    model
}

fn bucket(model: &HortonModel, bucket: u32) -> &[u64] {
    let slots = model.layout.slots();
    &model.words[bucket as usize * slots..][..slots]
}

fn last_word(model: &HortonModel, of: u32) -> u64 {
    *bucket(model, of).last().unwrap()
}

/// Returns the words of a bucket that hold items or nothing: all but entries.
fn item_words(model: &HortonModel, of: u32) -> &[u64] {
    let words = bucket(model, of);
    &words[..words.len() - usize::from(is_type_b(last_word(model, of)))]
}

/// Returns a bucket as the page draws it.
fn drawn(model: &HortonModel, of: u32) -> String {
    let cells = item_words(model, of).iter().map(|word| match *word {
        EMPTY_WORD => "[     ]".to_owned(),
        word => format!("[{:5}]", format!("{} r{}", key_of(word), value_of(word))),
    });
    let cells: String = cells.collect();
    if is_type_b(last_word(model, of)) {
        format!("B {cells}[remap]")
    } else {
        format!("A {cells}")
    }
}

/// Returns both buckets side by side.
fn both(model: &HortonModel) -> String {
    assert_eq!(model.layout.buckets, 2);
    format!("{}   {}", drawn(model, 0), drawn(model, 1))
}

const HEADING: &str = " key ▶ bucket   bucket 0                         bucket 1\n";

#[test]
fn keys_go_to_their_primary_buckets_and_the_fifth_overflows() {
    let mut picture = HEADING.to_owned();
    for n in 1..=MOST {
        let (model, key) = (words_of_first(n), KEYS[n - 1]);
        let home = model.layout.primary_bucket(key);
        writeln!(picture, "  {key} ▶ {home}        {}", both(&model)).unwrap();
    }
    check("eight keys", &picture);
}

/// Returns the buckets that the secondary functions lead to, up to the one in `entry`.
fn functions(layout: &Layout, tag: u32, entry: u32) -> String {
    let tried =
        (1..=entry).map(|e| format!("R{e} = bucket {}", layout.secondary_bucket(0, tag, e)));
    tried.collect::<Vec<_>>().join(", full   ")
}

#[test]
fn a_bucket_that_overflows_notes_where_its_items_went() {
    let (before, after) = (words_of_first(MOST - 1), words_of_first(MOST));
    let layout = after.layout;
    let added = KEYS[MOST - 1];
    let evicted = key_of(last_word(&before, 0));
    assert_eq!(layout.primary_bucket(added), 0);
    assert!(!is_type_b(last_word(&before, 0)) && evicted != key_of(EMPTY_WORD));
    let last = last_word(&after, 0);
    assert!(is_type_b(last));
    let mut picture = format!(
        " {added} ▶ bucket 0, which is full. It turns Type B, and the item of its last slot goes: \
         {evicted}\n"
    );
    let (mut sum, mut all) = (String::from("1 << 63"), TYPE_B);
    for key in [evicted, added] {
        let tag = layout.tag_of(key);
        let entry = entry_at(last, tag);
        let tried = format!("{:36}", functions(&layout, tag, entry));
        writeln!(
            picture,
            "  {key}   tag {tag}   {tried} entry {tag} = {entry}"
        )
        .unwrap();
        write!(sum, " | {entry} << 3·{tag}").unwrap();
        all |= u64::from(entry) << (3 * tag);
    }
    assert_eq!(last, all);
    writeln!(picture, " last word of bucket 0:   {sum}   = {last:#x}").unwrap();
    check("overflow", &picture);
}

#[test]
fn the_eighth_key_takes_another_seed() {
    let first = words_of_first(MOST).layout;
    let at_home = KEYS.iter().filter(|key| first.primary_bucket(**key) == 0);
    let overflowing = usize::from(at_home.count() > first.slots());
    let (wanted, room) = (KEYS.len() + overflowing, first.words());
    let items: Vec<(u32, u32)> = KEYS.into_iter().zip(0..).collect();
    assert!(wanted > room && HortonModel::build(first, &items).is_err());
    let table = words_of_first(KEYS.len());
    assert_ne!(table.layout.seed, first.seed);
    let added = KEYS[MOST];
    let home = first.primary_bucket(added);
    let picture = format!(
        " {added} ▶ bucket {home}: {} items and {overflowing} word of entries are {wanted} words, and \
         the table has {room}: rejected\n all keys again, with another seed:\n                {}\n",
        KEYS.len(),
        both(&table)
    );
    check("full table", &picture);
}

/// Returns what a lookup of `key` does, read off the words.
fn way(model: &HortonModel, key: u32) -> String {
    let layout = model.layout;
    let home = layout.primary_bucket(key);
    let has = |of| {
        item_words(model, of)
            .iter()
            .any(|word| key_of(*word) == key)
    };
    if has(home) {
        return format!("bucket {home}: found");
    }
    let last = last_word(model, home);
    if !is_type_b(last) {
        return format!("bucket {home}: Type A, miss");
    }
    let tag = layout.tag_of(key);
    match entry_at(last, tag) {
        0 => format!("bucket {home}: Type B, entry {tag} = 0, miss"),
        entry => {
            let second = layout.secondary_bucket(home, tag, entry);
            let end = if has(second) { "found" } else { "miss" };
            format!("bucket {home}: Type B, entry {tag} = {entry} ▶ bucket {second}: {end}")
        }
    }
}

#[test]
fn a_miss_reads_one_bucket_unless_an_entry_is_set() {
    let model = words_of_first(MOST);
    let (mut picture, mut second) = (String::new(), 0);
    let mut answers = Vec::new();
    for key in PROBES {
        let (value, reads) = model.lookup_counted(key);
        let buckets = if reads == 1 { "1 bucket" } else { "2 buckets" };
        writeln!(picture, "  {key}   {:50} {buckets}", way(&model, key)).unwrap();
        second += reads - 1;
        answers.push(value.unwrap_or(MISS));
    }
    let job = |queue: &mut Queue| {
        let table = build_first(queue, MOST)?;
        let keys = queue.buffer_from("keys", &PROBES)?;
        let values = queue.allocate("values", PROBES.len())?;
        let reads = queue.buffer_from("reads", &[0])?;
        HortonTable::lookup(&table, queue, &keys, &values, &reads, PROBES.len())?;
        Ok((
            queue.read(&values, PROBES.len())?,
            queue.read(&reads, 1)?[0],
        ))
    };
    assert_eq!(run(&device(), job).value, (answers, second));
    check("lookups", &picture);
}

/// Returns a table into which the first `n` keys were inserted one by one.
fn insert_first(queue: &mut Queue, n: usize) -> Result<HortonTable> {
    let no_keys = queue.buffer_from("keys", &[])?;
    let nothing = Items {
        keys: &no_keys,
        values: None,
    };
    let mut table = <HortonTable as Table>::build(queue, &config(), nothing)?;
    for (key, row) in KEYS[..n].iter().zip(0..) {
        let key = queue.buffer_from("keys", &[*key])?;
        let row = queue.buffer_from("values", &[row])?;
        let item = Items {
            keys: &key,
            values: Some(&row),
        };
        table.insert(queue, item)?;
    }
    Ok(table)
}

#[test]
fn insertion_of_one_key_after_the_other_remaps_as_many_items() {
    for n in 1..=MOST {
        let built = words_of_first(n);
        let inserted = run(&device(), move |queue| insert_first(queue, n)).value;
        assert_eq!(built.layout, inserted.layout());
        assert_eq!(built.census(), inserted.census(), "{n} keys");
    }
}
