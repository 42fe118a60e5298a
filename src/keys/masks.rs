//! Masks of rows, where none stands for all rows.

use arrow::buffer::{BooleanBuffer, Buffer};

/// Returns the rows of `values` that pass `test`.
///
/// As `BooleanBuffer::collect_bool`, but what was moved into `test` stays in registers, though it
/// reads atomics: LLVM does not move other loads across those.
#[inline]
pub fn collect<T: Copy>(values: &[T], test: impl Fn(T) -> bool) -> BooleanBuffer {
    let mut words = Vec::with_capacity(values.len().div_ceil(64));
    for values in values.chunks(64) {
        let mut word = 0;
        for (bit, value) in values.iter().enumerate() {
            word |= u64::from(test(*value)) << bit;
        }
        words.push(word);
    }
    BooleanBuffer::new(Buffer::from_vec(words), 0, values.len())
}

/// Returns `a AND b`, where `None` stands for all true.
pub fn and(a: Option<BooleanBuffer>, b: Option<BooleanBuffer>) -> Option<BooleanBuffer> {
    match (a, b) {
        (Some(a), Some(b)) => Some(&a & &b),
        (a, b) => a.or(b),
    }
}
