//! One table of very many elements, all of them looked up again.
//!
//! ```text
//!  positions ─draw─▶ keys ─build─▶ table ─look up, a chunk at a time─▶ values = positions?
//!  positions beyond ───────────────────────────────────────────────▶ MISS?
//! ```
//!
//! The Horton paper says that tables of more than two billion elements were built without an issue
//! (section 7). Keys are drawn and answers checked on the device, as a host would take minutes for
//! each; it looks at samples of them, so that the check is checked.

use std::time::Duration;

use horton_tables::device::{Device, Queue};
use horton_tables::error::{Error, Result};
use horton_tables::table::Items;
use horton_tables::table::Table;
use horton_tables::table::horton::{BucketSize, HortonTable, MAX_VALUE, MISS, TableConfig};

use horton_tables_test_support::lookups::workload::{Expected, count_wrong, draw};

/// Keys looked up at once.
const CHUNK: usize = 1 << 27;

/// Answers of a chunk that the host looks at.
const SAMPLE: usize = 1000;

/// Positions beyond the elements whose lookups are misses, if there are as many elements.
const MISSES: usize = 1 << 29;

/// Builds one table of `elements` and looks all of them up, and others; returns the wrong answers.
pub fn run(device: &Device, elements: usize, load: f64, slots: usize) -> Result<usize> {
    if elements > MAX_VALUE as usize {
        return Err(Error::Invalid(format!(
            "values are positions, of which there are at most {MAX_VALUE}, not {elements}"
        )));
    }
    let config = TableConfig {
        bucket_size: BucketSize::try_from(slots)?,
        load_factor: load,
        ..TableConfig::default()
    };
    let keys = device.run_blocking(move |queue| draw(queue, 0, elements))?;
    let built = device.run_blocking(move |queue| {
        let items = Items {
            keys: &keys.value,
            values: None,
        };
        HortonTable::build(queue, &config, items)
    })?;
    let table = built.value;
    println!(
        "{} elements in {} slots, load {:.4}, {:.2} GiB, {:?}",
        table.len(),
        table.layout().words(),
        table.load_factor(),
        table.bytes() as f64 / (1u64 << 30) as f64,
        table.census()
    );
    print_rate("built", elements, built.cost.kernel);
    let mut wrong = table.len().abs_diff(elements);
    let others = MISSES.min(elements).min((1usize << 32) - elements);
    for (what, from, n) in [("hits", 0, elements), ("misses", elements, others)] {
        let mut time = Duration::ZERO;
        for start in (from..from + n).step_by(CHUNK) {
            let count = CHUNK.min(from + n - start);
            let looked_up = look_up(device, &table, (start, count), what == "hits")?;
            time += looked_up.0;
            wrong += looked_up.1;
        }
        print_rate(what, n, time);
    }
    Ok(wrong)
}

fn print_rate(what: &str, n: usize, time: Duration) {
    let rate = n as f64 / time.as_secs_f64() / 1e9;
    println!(
        "{what}: {n} in {:.1} ms, {rate:.2} G/s",
        time.as_secs_f64() * 1e3
    );
}

/// Looks `n` keys up from position `start` on; the time, and the wrong answers.
fn look_up(
    device: &Device,
    table: &HortonTable,
    (start, n): (usize, usize),
    present: bool,
) -> Result<(Duration, usize)> {
    let from = start as u32;
    let keys = device
        .run_blocking(move |queue| draw(queue, from, n))?
        .value;
    let table = table.clone();
    let answer = device.run_blocking(move |queue| {
        let values = queue.allocate("values", n)?;
        let reads = queue.buffer_from("reads", &[0])?;
        table.lookup(queue, &keys, &values, &reads, n)?;
        Ok(values)
    })?;
    let (time, values) = (answer.cost.kernel, answer.value);
    let expected = match present {
        true => Expected::Positions {
            from,
            stride: 1,
            count: u32::MAX,
        },
        false => Expected::Misses,
    };
    let checked = device.run_blocking(move |queue: &mut Queue| {
        let wrong = count_wrong(queue, &values, expected, n)?;
        Ok((wrong, queue.read(&values, n.min(SAMPLE))?))
    })?;
    let (wrong, sample) = checked.value;
    let right = |i: usize| if present { from + i as u32 } else { MISS };
    let wrong_in_sample = sample.iter().enumerate();
    let wrong_in_sample = wrong_in_sample.filter(|(i, value)| **value != right(*i));
    Ok((time, wrong + wrong_in_sample.count()))
}
