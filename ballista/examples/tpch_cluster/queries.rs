//! The texts of TPC-H's queries: those of the example `tpch_join`.

use horton_test_support::tpch;

use crate::Result;

/// One of the 22.
pub struct Query {
    /// Number of the query, 1 to 22.
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
    let sql = tpch::query(number.into(), scale)?;
    Ok(Query { number, sql })
}
