//! One Horton table: built on the device, and looked up there.
//!
//! ```text
//!   cargo run -p horton-tables --example horton_table
//!
//!   keys, values ─▶ buffers ─▶ HortonTable ─▶ lookup: one bucket per key, two for some
//! ```
//!
//! Source: Breslow et al., "Horton Tables" (USENIX ATC 2016).

use horton_tables::Result;
use horton_tables::device::Device;
use horton_tables::table::horton::{HortonTable, TableConfig};

const ITEMS: u32 = 1 << 18;

fn main() -> Result<()> {
    let device = Device::open("auto")?;
    let config = TableConfig {
        load_factor: 0.9,
        ..TableConfig::default()
    };
    // Even keys are there, odd ones are not.
    let keys: Vec<u32> = (0..ITEMS).map(|i| 2 * i).collect();
    let values: Vec<u32> = (0..ITEMS).collect();
    let table = HortonTable::from_pairs(&device, &keys, &values, &config)?;
    println!("{} items on {}", table.len(), device.info().name);

    for (what, keys) in [
        ("keys that are there", keys.clone()),
        (
            "keys that are not",
            keys.iter().map(|key| key + 1).collect(),
        ),
    ] {
        let found = table.lookup_blocking(&device, &keys)?;
        let hits = found.iter().flatten().count();
        println!("{what}: {hits} of {} found", keys.len());
    }
    Ok(())
}
