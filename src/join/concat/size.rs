//! Sizes of arrays once they are one, known before memory is reserved.

use arrow::array::{Array, ArrayRef, AsArray, MAX_INLINE_VIEW_LEN, OffsetSizeTrait};
use arrow::datatypes::DataType;

use super::children::children;
use super::types::can_concat;

/// Bytes of a string that stand in its view.
const INLINE_BYTES: usize = MAX_INLINE_VIEW_LEN as usize;

/// Arrays, or buffers of views, from which each output batch may be gathered.
pub const ARRAYS_MAX: usize = 512;

/// The size of arrays once they are concatenated.
#[derive(Debug, Default, Clone, Copy)]
pub struct Size {
    /// Bytes, at most, those of scratch space included.
    pub bytes: usize,
    /// Items that offsets of 32 bits count, at most.
    counted: usize,
    /// Buffers that views point into.
    buffers: usize,
}

impl Size {
    /// Returns the size of `arrays`; `None` if they cannot be concatenated.
    pub fn try_new(arrays: &[ArrayRef]) -> Option<Self> {
        let data_type = arrays.first()?.data_type();
        let are_same = arrays.iter().all(|array| array.data_type() == data_type);
        if !are_same || !can_concat(data_type) {
            return None;
        }
        let mut size = Self::default();
        size.add(arrays);
        if size.copies() {
            size.bytes += view_bytes(arrays);
        }
        (size.counted <= i32::MAX as usize).then_some(size)
    }

    /// Returns whether bytes of views are to be copied together, or every output batch would share
    /// all buffers.
    pub fn copies(&self) -> bool {
        self.buffers > ARRAYS_MAX
    }

    fn add(&mut self, arrays: &[ArrayRef]) {
        let rows: usize = arrays.iter().map(|array| array.len()).sum();
        let data_type = arrays.first().map_or(&DataType::Null, |a| a.data_type());
        let width = data_type.primitive_width().unwrap_or(match data_type {
            DataType::FixedSizeBinary(width) => *width as usize,
            _ => 16,
        });
        // A byte per row for its NULL bit, and for rows that take less.
        self.bytes += (width + 1) * rows;
        let texts: usize = arrays.iter().map(text_bytes).sum();
        self.bytes += texts;
        self.counted += texts;
        self.buffers += arrays.iter().map(data_buffers).sum::<usize>();
        let is_dictionary = matches!(data_type, DataType::Dictionary(_, _));
        for children in children(arrays) {
            if is_dictionary && children.len() < 2 {
                continue;
            }
            let before = self.bytes;
            if matches!(data_type, DataType::List(_) | DataType::Map(_, _)) {
                self.counted += children.iter().map(|array| array.len()).sum::<usize>();
            }
            self.add(&children);
            if is_dictionary {
                // Values that are used, their rows, and a map of these.
                self.bytes += 3 * (self.bytes - before);
            }
        }
    }
}

/// Returns the bytes of texts that are not views.
fn text_bytes(array: &ArrayRef) -> usize {
    fn between<O: OffsetSizeTrait>(offsets: &[O]) -> usize {
        match offsets {
            [first, .., last] => last.as_usize() - first.as_usize(),
            _ => 0,
        }
    }
    match array.data_type() {
        DataType::Utf8 => between(array.as_string::<i32>().value_offsets()),
        DataType::Binary => between(array.as_binary::<i32>().value_offsets()),
        DataType::LargeUtf8 => between(array.as_string::<i64>().value_offsets()),
        DataType::LargeBinary => between(array.as_binary::<i64>().value_offsets()),
        _ => 0,
    }
}

fn data_buffers(array: &ArrayRef) -> usize {
    match array.data_type() {
        DataType::Utf8View => array.as_string_view().data_buffers().len(),
        DataType::BinaryView => array.as_binary_view().data_buffers().len(),
        _ => 0,
    }
}

/// Returns the bytes that views point to.
fn view_bytes(arrays: &[ArrayRef]) -> usize {
    let of_views = |views: &[u128]| -> usize {
        let lengths = views.iter().map(|view| *view as u32 as usize);
        lengths.filter(|length| *length > INLINE_BYTES).sum()
    };
    let own = arrays.iter().map(|array| match array.data_type() {
        DataType::Utf8View => of_views(array.as_string_view().views()),
        DataType::BinaryView => of_views(array.as_binary_view().views()),
        _ => 0,
    });
    let below = children(arrays);
    own.sum::<usize>() + below.iter().map(|arrays| view_bytes(arrays)).sum::<usize>()
}
