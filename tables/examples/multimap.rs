//! A multimap, which joins build: keys that repeat, looked up in bulk, as pairs of rows.
//!
//! ```text
//!   cargo run -p horton-tables --example multimap
//!
//!   build keys  5 3 5 8     row 0, 1, 2, 3
//!   probe keys  8 9 5       8 ─▶ row 3     9 ─▶ none     5 ─▶ rows 0 and 2
//! ```

use horton_tables::Result;
use horton_tables::device::Device;
use horton_tables::table::horton::TableConfig;
use horton_tables::table::multimap::{KeyFormat, MultiMap, MultiMapInput};

fn main() -> Result<()> {
    let (build, probe) = ([5, 3, 5, 8], [8, 9, 5]);
    let device = Device::open("auto")?;
    // A job: all of it runs on the device, and what it returns comes back.
    let answer = device.run_blocking(move |queue| {
        let keys = queue.buffer_from("build keys", &build)?;
        let input = MultiMapInput {
            keys: &keys,
            rows: None,
            format: KeyFormat::ANY_WORD,
        };
        let table = MultiMap::build(queue, &TableConfig::default(), input)?;
        let keys = queue.buffer_from("probe keys", &probe)?;
        let matches = table.lookup(queue, &keys, probe.len())?;
        let total = matches.total() as usize;
        let pairs = matches.into_pairs(queue)?;
        let probe_rows = queue.read(&pairs.probe, total)?;
        let build_rows = queue.read(&pairs.build, total)?;
        Ok((probe_rows, build_rows))
    })?;
    let (probe_rows, build_rows) = answer.value;
    for (p, b) in probe_rows.iter().zip(&build_rows) {
        let key = probe[*p as usize];
        println!("probe row {p} and build row {b} have key {key}");
    }
    println!(
        "{} kernels in {:?}",
        answer.cost.launches, answer.cost.kernel
    );
    Ok(())
}
