//! Arrays of one type taken apart: their children and their NULLs.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanBufferBuilder, OffsetSizeTrait};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

/// Returns the children of arrays of one type, child by child, without what slices leave out; of
/// dictionaries, each values array once in a row.
pub fn children(arrays: &[ArrayRef]) -> Vec<Vec<ArrayRef>> {
    fn items<O: OffsetSizeTrait>(array: &ArrayRef) -> ArrayRef {
        let list = array.as_list::<O>();
        slice(list.values(), list.value_offsets())
    }
    fn slice<O: OffsetSizeTrait>(values: &dyn Array, offsets: &[O]) -> ArrayRef {
        let first = offsets.first().map_or(0, |offset| offset.as_usize());
        let last = offsets.last().map_or(0, |offset| offset.as_usize());
        values.slice(first, last - first)
    }
    let each = |child: &dyn Fn(&ArrayRef) -> ArrayRef| arrays.iter().map(child).collect();
    match arrays.first().map(|array| array.data_type()) {
        Some(DataType::Struct(fields)) => (0..fields.len())
            .map(|i| each(&|array| Arc::clone(array.as_struct().column(i))))
            .collect(),
        Some(DataType::List(_)) => vec![each(&items::<i32>)],
        Some(DataType::LargeList(_)) => vec![each(&items::<i64>)],
        Some(DataType::FixedSizeList(_, _)) => {
            vec![each(&|array| {
                Arc::clone(array.as_fixed_size_list().values())
            })]
        }
        Some(DataType::Map(_, _)) => vec![each(&|array| {
            let map = array.as_map();
            slice(map.entries(), map.value_offsets())
        })],
        Some(DataType::Dictionary(_, _)) => {
            let values = |run: &[ArrayRef]| Arc::clone(run[0].as_any_dictionary().values());
            vec![arrays.chunk_by(share_values).map(values).collect()]
        }
        _ => Vec::new(),
    }
}

/// Returns whether two dictionary arrays have one array of values.
pub fn share_values(a: &ArrayRef, b: &ArrayRef) -> bool {
    let (a, b) = (
        a.as_any_dictionary().values(),
        b.as_any_dictionary().values(),
    );
    Arc::ptr_eq(a, b) || a.to_data().ptr_eq(&b.to_data())
}

/// Returns the NULLs of all rows.
pub fn nulls(arrays: &[ArrayRef]) -> Option<NullBuffer> {
    if arrays.iter().all(|array| array.null_count() == 0) {
        return None;
    }
    let rows = arrays.iter().map(|array| array.len()).sum();
    let mut bits = BooleanBufferBuilder::new(rows);
    for array in arrays {
        match array.nulls() {
            Some(nulls) => bits.append_buffer(nulls.inner()),
            None => bits.append_n(array.len(), true),
        }
    }
    Some(NullBuffer::new(bits.finish()))
}
