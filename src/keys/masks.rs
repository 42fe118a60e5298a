//! Masks of rows, where none stands for all rows.

use arrow::buffer::BooleanBuffer;

/// Returns `a AND b`, where `None` stands for all true.
pub fn and(a: Option<BooleanBuffer>, b: Option<BooleanBuffer>) -> Option<BooleanBuffer> {
    match (a, b) {
        (Some(a), Some(b)) => Some(&a & &b),
        (a, b) => a.or(b),
    }
}
