//! The bytes of the batches of a chunk, or of a read: those of their rows, and of buffers that they
//! share.
//!
//! ```text
//!  numbers, strings     bytes of the rows                a slice counts as what it shows
//!  views                16 per row, and their texts ─┐   a buffer that many batches share counts
//!  dictionaries, lists  whole buffers ───────────────┴─▶ once; of a large one what is pointed at
//! ```
//!
//! `get_array_memory_size` counts the whole of a table for each slice of it, and texts again with
//! each batch that shows them. DataFusion's `RecordBatchMemoryCounter` counts buffers once, but all
//! of a table for its first slice, which a memory pool then refuses though nothing more is taken.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, GenericByteViewArray, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{ByteViewType, DataType};

/// Approximate bytes of a row's texts that lie in separate buffers. Of larger buffers, only the
/// bytes in use count.
const ROW_TEXT_BYTES: usize = 64;

/// Counts the bytes of batches, one after the other.
#[derive(Debug, Default)]
pub struct BatchBytes {
    /// Addresses of buffers, and of lists of buffers, that were counted.
    counted: HashSet<usize>,
}

impl BatchBytes {
    /// Returns the bytes that `batch` adds to those before, with its key columns `keys`.
    pub fn count(&mut self, batch: &RecordBatch, keys: &[ArrayRef]) -> usize {
        let columns = batch.columns();
        let is_new = |key: &&ArrayRef| !columns.iter().any(|column| Arc::ptr_eq(column, key));
        let all = columns.iter().chain(keys.iter().filter(is_new));
        all.map(|array| self.array(array)).sum()
    }

    fn array(&mut self, array: &ArrayRef) -> usize {
        match array.data_type() {
            DataType::Utf8View => self.views(array.as_string_view()),
            DataType::BinaryView => self.views(array.as_binary_view()),
            _ => {
                let data = array.to_data();
                if data.child_data().is_empty() {
                    data.get_slice_memory_size()
                        .unwrap_or_else(|_| self.whole(&data))
                } else {
                    self.whole(&data)
                }
            }
        }
    }

    fn views<T: ByteViewType>(&mut self, array: &GenericByteViewArray<T>) -> usize {
        16 * array.len()
            + match array.data_buffers() {
                [] => 0,
                // Slices of an array have one list of buffers together.
                buffers if !self.counted.insert(buffers.as_ptr() as usize) => 0,
                buffers => {
                    let bytes = buffers.iter().map(|buffer| self.buffer(buffer)).sum();
                    if bytes > ROW_TEXT_BYTES * array.len() {
                        array.total_buffer_bytes_used().min(bytes)
                    } else {
                        bytes
                    }
                }
            }
    }

    /// Returns all of an array's buffers that were not counted.
    fn whole(&mut self, data: &ArrayData) -> usize {
        let nulls = data.nulls().map(|nulls| nulls.inner().inner());
        let own = data.buffers().iter().chain(nulls);
        let own: usize = own.map(|buffer| self.buffer(buffer)).sum();
        let of_children = data.child_data().iter().map(|child| self.whole(child));
        own + of_children.sum::<usize>()
    }

    fn buffer(&mut self, buffer: &Buffer) -> usize {
        if self.counted.insert(buffer.data_ptr().as_ptr() as usize) {
            buffer.capacity()
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{DictionaryArray, Int32Array, StringArray, StringViewArray};
    use arrow::datatypes::Int32Type;

    fn batch(column: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter([("c", column)]).unwrap()
    }

    fn count(counter: &mut BatchBytes, batch: &RecordBatch) -> usize {
        counter.count(batch, &[])
    }

    #[test]
    fn slices_count_as_what_they_show() {
        let numbers = batch(Arc::new(Int32Array::from_iter_values(0..100_000)));
        let text = "x".repeat(1000);
        let texts = StringArray::from_iter_values(std::iter::repeat_n(&text, 1000));
        let texts = batch(Arc::new(texts));
        let mut counter = BatchBytes::default();
        assert_eq!(count(&mut counter, &numbers.slice(500, 10)), 40);
        assert_eq!(count(&mut counter, &numbers.slice(500, 10)), 40);
        assert_eq!(count(&mut counter, &texts.slice(5, 10)), 10_044);
    }

    #[test]
    fn shared_buffers_count_once() {
        let text = "y".repeat(1000);
        let texts = StringArray::from_iter_values(std::iter::repeat_n(&text, 100));
        let keys = Int32Array::from_iter_values((0..1000).map(|row| row % 100));
        let dictionary = DictionaryArray::<Int32Type>::new(keys, Arc::new(texts));
        let views = StringViewArray::from_iter_values(std::iter::repeat_n(&text, 100));
        for (array, least) in [
            (Arc::new(dictionary) as ArrayRef, 100_000),
            (Arc::new(views), 100_000),
        ] {
            let (batch, mut counter) = (batch(array), BatchBytes::default());
            let first = count(&mut counter, &batch);
            assert!((least..3 * least).contains(&first), "{first}");
            let more = count(&mut counter, &batch.slice(10, 50));
            assert!(more <= 16 * 50, "{more}");
        }
    }

    #[test]
    fn of_large_shared_buffers_what_is_pointed_at_counts() {
        let text = "z".repeat(1000);
        let views = StringViewArray::from_iter_values(std::iter::repeat_n(&text, 5000));
        let rows = batch(Arc::new(views)).slice(70, 3);
        assert_eq!(count(&mut BatchBytes::default(), &rows), 3 * 16 + 3000);
    }

    #[test]
    fn a_key_column_of_the_batch_counts_once() {
        let numbers = batch(Arc::new(Int32Array::from_iter_values(0..100)));
        let other: ArrayRef = Arc::new(Int32Array::from_iter_values(0..100));
        let own = Arc::clone(numbers.column(0));
        let mut counter = BatchBytes::default();
        assert_eq!(counter.count(&numbers, &[own]), 400);
        assert_eq!(counter.count(&numbers, &[other]), 800);
    }
}
