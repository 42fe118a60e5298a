//! A table that changes: batches go in and out, and it grows where it must.
//!
//! ```text
//!   cargo run -p horton-tables --example changing_table
//!
//!   build ─▶ insert ─▶ remove ─▶ lookup, each in bulk and one after the other
//! ```
//!
//! All tables of the trait `Table` take the same calls. docs/tables.md says which one is for which
//! work. They need 64-bit atomics on the device.

use horton_tables::Result;
use horton_tables::device::Device;
use horton_tables::table::baselines::linear::{LinearConfig, LinearTable};
use horton_tables::table::{Items, Table};

fn main() -> Result<()> {
    let device = Device::open("auto")?;
    let lines = device.run_blocking(|queue| {
        let mut lines = Vec::new();
        let keys = queue.buffer_from("keys", &[1, 2, 3])?;
        let items = Items {
            keys: &keys,
            values: None,
        };
        let mut table = LinearTable::build(queue, &LinearConfig::default(), items)?;
        lines.push(format!(
            "{} items, room for {}",
            table.len(),
            table.capacity()
        ));

        let more: Vec<u32> = (100..5100).collect();
        let new = table.insert_pairs(queue, &more, &more)?;
        lines.push(format!("{new} new items, room for {}", table.capacity()));

        let gone = queue.buffer_from("keys", &[2, 4, 100])?;
        let removed = table.remove(queue, &gone, 3)?;
        lines.push(format!("{removed} of 3 keys were there to remove"));

        let found = table.lookup_many(queue, &[1, 2, 100, 101])?;
        lines.push(format!("1, 2, 100, 101: {found:?}"));
        Ok(lines)
    })?;
    for line in lines.value {
        println!("{line}");
    }
    Ok(())
}
