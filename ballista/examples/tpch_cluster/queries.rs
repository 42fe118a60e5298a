//! The texts of TPC-H's queries: those of the example `tpch_join`.

use std::path::Path;

use crate::Result;

/// The fraction of Q11 at scale 1, as its text has it.
const Q11_FRACTION: &str = "0.0001000000";

/// One of the 22.
pub struct Query {
    /// From 1 to 22.
    pub number: u8,
    /// Its text.
    pub sql: String,
}

/// Returns the queries with these numbers, or all.
///
/// # Errors
/// Names the file that cannot be read.
pub fn selected(numbers: &[u8], scale: f64) -> Result<Vec<Query>> {
    let all: Vec<u8> = (1..=22).collect();
    let numbers = if numbers.is_empty() { &all } else { numbers };
    numbers.iter().map(|number| read(*number, scale)).collect()
}

fn read(number: u8, scale: f64) -> Result<Query> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tpch_join/queries");
    let file = folder.join(format!("q{number}.sql"));
    let text = std::fs::read_to_string(&file);
    let text = text.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    // Its fraction selects as many rows at every scale.
    let fraction = format!("{:.12}", 0.0001 / scale);
    let sql = match number {
        11 => text.replace(Q11_FRACTION, &fraction),
        _ => text,
    };
    Ok(Query { number, sql })
}
