//! The payload columns of the two tables.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::array::builder::StringViewBuilder;

use super::random::mix;

/// Payload values lie below this (a build row's copy number is added to its value).
pub const VALUES: u64 = 1000;

/// Returns the payload of the first build row of `number`.
pub fn value(number: u64) -> u64 {
    mix(!number) % VALUES
}

/// The string of the build rows of `number`, 4 to 32 bytes: some fit a view, some do not.
pub fn text(number: u64, out: &mut String) {
    use std::fmt::Write as _;
    let bits = mix(number ^ 0x5EED);
    // Writing into a string cannot fail.
    let _ = write!(out, "{bits:016x}{:016x}", mix(bits));
    out.truncate(text_len(number) as usize);
}

/// Its length.
pub fn text_len(number: u64) -> u64 {
    4 + mix(number ^ 0x5EED) % 29
}

/// String views over one buffer, in which strings of up to `width` bytes have room.
pub fn views(texts: impl ExactSizeIterator<Item = String>, width: usize) -> ArrayRef {
    let block = (texts.len() * width).max(1) as u32;
    let mut views = StringViewBuilder::with_capacity(texts.len()).with_fixed_block_size(block);
    texts.for_each(|text| views.append_value(text));
    Arc::new(views.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_as_long_as_said() {
        for number in 0..1000 {
            let mut out = String::new();
            text(number, &mut out);
            assert_eq!(out.len() as u64, text_len(number));
        }
    }
}
