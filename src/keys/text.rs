//! Strings of bytes as keys: their types, their values, how long they are.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;

/// Words of the longest normalized key: 32 bytes.
pub const MAX_WORDS: usize = 8;

/// Bytes of a word.
pub const WORD: usize = size_of::<u32>();

/// The strings of one key column, or of a part of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct StringLengths {
    /// Bytes of the longest.
    pub longest: usize,
}

/// Returns whether values of the type are strings of bytes.
pub fn is_text(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView
    )
}

impl StringLengths {
    /// Returns the lengths of one array; `None` if its strings are too long.
    pub fn measure(array: &ArrayRef) -> Option<Self> {
        let mut extent = Self::default();
        for_each_value(array, |_, bytes| {
            extent.longest = extent.longest.max(bytes.map_or(0, <[u8]>::len));
        });
        extent.fits().then_some(extent)
    }

    /// Returns the lengths of both.
    pub fn union(self, other: Self) -> Self {
        Self {
            longest: self.longest.max(other.longest),
        }
    }

    fn fits(self) -> bool {
        self.words() <= MAX_WORDS
    }

    /// Returns the number of 32-bit words of a normalized key that they take.
    pub fn words(self) -> usize {
        1 + self.longest.div_ceil(WORD)
    }
}

/// Calls `each` with every row and its bytes, `None` if NULL.
pub fn for_each_value(array: &ArrayRef, mut each: impl FnMut(usize, Option<&[u8]>)) {
    macro_rules! walk {
        ($array:expr) => {{
            let array = $array;
            for row in 0..array.len() {
                let value: Option<&[u8]> = array
                    .is_valid(row)
                    .then(|| AsRef::<[u8]>::as_ref(array.value(row)));
                each(row, value);
            }
        }};
    }
    match array.data_type() {
        DataType::Utf8 => walk!(array.as_string::<i32>()),
        DataType::LargeUtf8 => walk!(array.as_string::<i64>()),
        DataType::Utf8View => walk!(array.as_string_view()),
        DataType::Binary => walk!(array.as_binary::<i32>()),
        DataType::LargeBinary => walk!(array.as_binary::<i64>()),
        DataType::BinaryView => walk!(array.as_binary_view()),
        _ => {}
    }
}
