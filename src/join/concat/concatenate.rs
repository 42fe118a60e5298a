//! Arrays of one type that become one.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
    StructArray, UInt32Array, UInt64Array, downcast_integer,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, FieldRef};
use arrow::error::ArrowError;

use super::children::{children, nulls};
use super::dictionaries::{ArrowResult, concat_dictionaries};
use super::size::Size;

/// Returns one array of `arrays`, which have a [`Size`]; with the bytes of views in buffers of its
/// own if it `copies` them.
///
/// # Errors
/// Arrow's errors; among them [`ArrowError::DictionaryKeyOverflowError`], where one array has no
/// room.
pub fn concatenate(arrays: &[ArrayRef], copies: bool) -> ArrowResult<ArrayRef> {
    if let ([array], false) = (arrays, copies) {
        return Ok(Arc::clone(array));
    }
    let Some(data_type) = arrays.first().map(|array| array.data_type()) else {
        return concat_all(arrays);
    };
    if let DataType::Dictionary(key, _) = data_type {
        macro_rules! of_keys {
            ($key:ty) => {
                concat_dictionaries::<$key>(arrays)
            };
        }
        return downcast_integer! {
            key.as_ref() => (of_keys),
            _ => concat_all(arrays),
        };
    }
    let children = children(arrays).into_iter();
    let mut children = children.map(|arrays| concatenate(&arrays, copies));
    Ok(match data_type {
        DataType::Struct(fields) => {
            let rows = arrays.iter().map(|array| array.len()).sum();
            let (fields, nulls) = (fields.clone(), nulls(arrays));
            let children = children.collect::<ArrowResult<Vec<_>>>()?;
            Arc::new(StructArray::try_new_with_length(
                fields, children, nulls, rows,
            )?)
        }
        nested => match (nested, children.next().transpose()?) {
            (DataType::List(field), Some(items)) => concat_lists::<i32>(arrays, field, items)?,
            (DataType::LargeList(field), Some(items)) => concat_lists::<i64>(arrays, field, items)?,
            (DataType::FixedSizeList(field, size), Some(items)) => {
                let (field, nulls) = (Arc::clone(field), nulls(arrays));
                Arc::new(FixedSizeListArray::try_new(field, *size, items, nulls)?)
            }
            (DataType::Map(field, ordered), Some(entries)) => {
                let maps = arrays.iter().map(|array| array.as_map());
                let offsets = OffsetBuffer::from_lengths(maps.flat_map(|m| m.offsets().lengths()));
                let entries = entries.as_struct().clone();
                let (field, nulls) = (Arc::clone(field), nulls(arrays));
                Arc::new(MapArray::try_new(field, offsets, entries, nulls, *ordered)?)
            }
            _ if copies => compact(concat_all(arrays)?),
            _ => concat_all(arrays)?,
        },
    })
}

fn concat_all(arrays: &[ArrayRef]) -> ArrowResult<ArrayRef> {
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    concat(&arrays)
}

/// Returns the array with the bytes of its views, if it has any, in buffers of its own.
pub fn compact(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        _ => array,
    }
}

fn concat_lists<O: OffsetSizeTrait>(
    arrays: &[ArrayRef],
    field: &FieldRef,
    items: ArrayRef,
) -> ArrowResult<ArrayRef> {
    let lists = arrays.iter().map(|array| array.as_list::<O>());
    let offsets = OffsetBuffer::from_lengths(lists.flat_map(|list| list.offsets().lengths()));
    let (field, nulls) = (Arc::clone(field), nulls(arrays));
    let list = GenericListArray::<O>::try_new(field, offsets, items, nulls)?;
    Ok(Arc::new(list))
}

/// Returns the values at `places`, each an array and a row of it. The arrays have dictionaries that
/// are not one: the rows of each array are taken, and then concatenated.
///
/// # Errors
/// The errors of [`concatenate`]; [`ArrowError::OffsetOverflowError`] where offsets of 32 bits have
/// no room.
pub fn interleave_dictionaries(
    arrays: &[ArrayRef],
    places: &[(usize, usize)],
) -> ArrowResult<ArrayRef> {
    let mut order: Vec<u32> = (0..places.len() as u32).collect();
    order.sort_by_key(|i| places[*i as usize].0);
    let of_one = |a: &u32, b: &u32| places[*a as usize].0 == places[*b as usize].0;
    let taken = order.chunk_by(of_one).map(|run| {
        let rows = run.iter().map(|i| places[*i as usize].1 as u64);
        let array = &arrays[places[run[0] as usize].0];
        take(array, &UInt64Array::from_iter_values(rows), None)
    });
    let taken = taken.collect::<ArrowResult<Vec<_>>>()?;
    if Size::try_new(&taken).is_none() {
        return Err(ArrowError::OffsetOverflowError(i32::MAX as usize));
    }
    let concatenated = concatenate(&taken, false)?;
    let mut back = vec![0; order.len()];
    for (at, i) in (0..).zip(&order) {
        back[*i as usize] = at;
    }
    take(&concatenated, &UInt32Array::from(back), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        DictionaryArray, Int8Array, Int32Array, ListArray, StringArray, StringViewArray,
    };
    use arrow::buffer::NullBuffer;
    use arrow::compute::cast;
    use arrow::datatypes::{Field, Int8Type, Int32Type};

    /// Returns the rows `keys` of a dictionary of `texts`.
    fn dictionary(texts: &[&str], keys: &[Option<i32>]) -> ArrayRef {
        let values = Arc::new(StringArray::from(texts.to_vec()));
        let keys = Int32Array::from(keys.to_vec());
        Arc::new(DictionaryArray::new(keys, values))
    }

    fn texts(array: &ArrayRef) -> Vec<Option<String>> {
        let plain = cast(array, &DataType::Utf8).unwrap();
        let texts = plain.as_string::<i32>().iter();
        texts.map(|text| text.map(str::to_owned)).collect()
    }

    fn values(array: &ArrayRef) -> usize {
        array.as_any_dictionary().values().len()
    }

    #[test]
    fn dictionaries_that_share_their_values_keep_them() {
        let whole = dictionary(&["a", "b", "c"], &[Some(0), None, Some(2), Some(1)]);
        let parts = [whole.slice(2, 2), whole.slice(0, 1), whole.slice(1, 1)];
        let concatenated = concatenate(&parts, false).unwrap();
        let kept = concatenated.as_any_dictionary().values();
        assert!(Arc::ptr_eq(kept, whole.as_any_dictionary().values()));
        let expected: Vec<_> = parts.iter().flat_map(texts).collect();
        assert_eq!(texts(&concatenated), expected);
    }

    #[test]
    fn different_dictionaries_become_one_of_the_values_that_are_used() {
        let parts = [
            dictionary(&["a", "b", "unused"], &[Some(1), None, Some(0)]),
            dictionary(&["c", "b"], &[Some(1), Some(0), Some(1)]),
            dictionary(&[], &[None, None]),
        ];
        let expected: Vec<_> = parts.iter().flat_map(texts).collect();
        let concatenated = concatenate(&parts, false).unwrap();
        assert_eq!((texts(&concatenated), values(&concatenated)), (expected, 3));
        // The same of some rows, in any order.
        let places = [(1, 1), (2, 0), (0, 0), (1, 1), (0, 2)];
        let picked = interleave_dictionaries(&parts, &places).unwrap();
        let text = |text: &str| Some(text.to_owned());
        let expected = vec![text("c"), None, text("b"), text("c"), text("a")];
        assert_eq!((texts(&picked), values(&picked)), (expected, 3));
    }

    #[test]
    fn more_values_than_keys_are_an_error() {
        let part = |from: i32| {
            let texts = (from..from + 100).map(|i| i.to_string());
            let keys = Int8Array::from_iter_values(0..100);
            let values = Arc::new(StringViewArray::from_iter_values(texts));
            Arc::new(DictionaryArray::<Int8Type>::new(keys, values)) as ArrayRef
        };
        let overlap = concatenate(&[part(0), part(28)], false).unwrap();
        assert_eq!(values(&overlap), 128);
        let error = concatenate(&[part(0), part(29)], false).unwrap_err();
        let is_expected = matches!(error, ArrowError::DictionaryKeyOverflowError);
        assert!(is_expected, "{error}");
    }

    #[test]
    fn slices_of_nested_arrays_are_concatenated_without_the_rest() {
        let item = dictionary(&["a", "b"], &[Some(0), Some(1), None, Some(1), Some(0)]);
        let field = Arc::new(Field::new("item", item.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([2, 0, 1, 2]);
        let nulls = Some(NullBuffer::from(vec![true, false, true, true]));
        let list: ArrayRef = Arc::new(ListArray::new(field, offsets, item, nulls));
        let field = Arc::new(Field::new("list", list.data_type().clone(), true));
        let nulls = Some(NullBuffer::from(vec![true, true, true, false]));
        let whole: ArrayRef = Arc::new(StructArray::new(vec![field].into(), vec![list], nulls));
        let parts = [whole.slice(3, 1), whole.slice(0, 3)];
        let concatenated = concatenate(&parts, false).unwrap();
        assert_eq!(&concatenated.slice(0, 1), &parts[0]);
        assert_eq!(&concatenated.slice(1, 3), &parts[1]);
        let items = concatenated.as_struct().column(0).as_list::<i32>().values();
        assert_eq!(items.len(), 5);
        assert_eq!(items.as_dictionary::<Int32Type>().values().len(), 2);
    }
}
