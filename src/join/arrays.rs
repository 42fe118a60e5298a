//! One array of the arrays that a column has in many batches.
//!
//! ```text
//!  Int32, FixedSizeBinary, views …   concat; bytes of views in many buffers are copied together
//!  Struct, List, Map …               children joined one by one, offsets and NULLs around them
//!  Dictionary   keys k₀ k₁ k₂, values v v v   v is shared, keys alone are joined
//!               keys k₀ k₁ k₂, values v v w   used values are numbered anew, each once
//! ```
//!
//! Arrow's kernels append the values of dictionaries without looking at them, once an array, and
//! panic where the sum outgrows the type of the keys. So an output batch interleaved from a
//! thousand slices of one batch would carry its dictionary a thousand times. Here a value stands
//! once, and keys that have no room are an error, after which the column can stay as it is.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, AsArray, BooleanBufferBuilder, DictionaryArray,
    FixedSizeListArray, GenericListArray, MAX_INLINE_VIEW_LEN, MapArray, OffsetSizeTrait,
    PrimitiveArray, StructArray, UInt32Array, UInt64Array, downcast_integer,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::{ArrowDictionaryKeyType, ArrowNativeType, DataType, FieldRef};
use arrow::error::ArrowError;
use arrow::row::{Row, RowConverter, Rows, SortField};

/// Bytes of a string that stand in its view.
const INLINE: usize = MAX_INLINE_VIEW_LEN as usize;

/// Arrays, or buffers of views, from which each output batch may be gathered.
pub const MANY: usize = 512;

type Joined<T> = std::result::Result<T, ArrowError>;

/// Whether arrays of the type can be joined.
pub fn can_be_joined(data_type: &DataType) -> bool {
    use DataType::*;
    match data_type {
        Null | Boolean | FixedSizeBinary(_) | Utf8View | BinaryView => true,
        Utf8 | Binary | LargeUtf8 | LargeBinary => true,
        Dictionary(_, values) => {
            let field = SortField::new(values.as_ref().clone());
            let is_plain = can_be_joined(values) && !has_dictionary(values);
            is_plain && RowConverter::supports_fields(&[field])
        }
        FixedSizeList(_, 0) => false,
        List(field) | LargeList(field) | FixedSizeList(field, _) | Map(field, _) => {
            can_be_joined(field.data_type())
        }
        Struct(fields) => fields.iter().all(|field| can_be_joined(field.data_type())),
        other => other.is_primitive(),
    }
}

/// Whether values of the type are gathered faster, or with less around them, from one array than
/// from many.
pub fn is_better_joined(data_type: &DataType) -> bool {
    use DataType::*;
    // Copying these takes longer than it saves: their bytes are met at random either way.
    let is_text = matches!(data_type, Utf8 | Binary | LargeUtf8 | LargeBinary);
    can_be_joined(data_type) && !is_text && *data_type != Null
}

/// Whether there is a dictionary somewhere in arrays of the type.
pub fn has_dictionary(data_type: &DataType) -> bool {
    use DataType::*;
    match data_type {
        Dictionary(_, _) => true,
        List(field) | LargeList(field) | FixedSizeList(field, _) | Map(field, _) => {
            has_dictionary(field.data_type())
        }
        Struct(fields) => fields.iter().any(|field| has_dictionary(field.data_type())),
        _ => false,
    }
}

/// What arrays take once joined.
#[derive(Debug, Default, Clone, Copy)]
pub struct Size {
    /// Bytes, at most, those of scratch space included.
    pub bytes: usize,
    /// What offsets of 32 bits count, at most.
    counted: usize,
    /// Buffers that views point into.
    buffers: usize,
}

impl Size {
    /// That of `arrays`; `None` if they cannot be joined.
    pub fn of(arrays: &[ArrayRef]) -> Option<Self> {
        let data_type = arrays.first()?.data_type();
        let are_same = arrays.iter().all(|array| array.data_type() == data_type);
        if !are_same || !can_be_joined(data_type) {
            return None;
        }
        let mut size = Self::default();
        size.add(arrays);
        if size.copies() {
            size.bytes += view_bytes(arrays);
        }
        (size.counted <= i32::MAX as usize).then_some(size)
    }

    /// Whether bytes of views are to be copied together, or every output batch would share all
    /// buffers.
    pub fn copies(&self) -> bool {
        self.buffers > MANY
    }

    fn add(&mut self, arrays: &[ArrayRef]) {
        let rows: usize = arrays.iter().map(|array| array.len()).sum();
        let data_type = arrays.first().map_or(&DataType::Null, |a| a.data_type());
        let width = data_type.primitive_width().unwrap_or(match data_type {
            DataType::FixedSizeBinary(width) => *width as usize,
            _ => 16,
        });
        // A byte a row for its NULL bit, and for rows that take less.
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

/// Bytes of texts that are not views.
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

/// Bytes that views point to.
fn view_bytes(arrays: &[ArrayRef]) -> usize {
    let of_views = |views: &[u128]| -> usize {
        let lengths = views.iter().map(|view| *view as u32 as usize);
        lengths.filter(|length| *length > INLINE).sum()
    };
    let own = arrays.iter().map(|array| match array.data_type() {
        DataType::Utf8View => of_views(array.as_string_view().views()),
        DataType::BinaryView => of_views(array.as_binary_view().views()),
        _ => 0,
    });
    let below = children(arrays);
    own.sum::<usize>() + below.iter().map(|arrays| view_bytes(arrays)).sum::<usize>()
}

/// The children of arrays of one type, child by child, without what slices leave out; of
/// dictionaries, each values array once in a row.
fn children(arrays: &[ArrayRef]) -> Vec<Vec<ArrayRef>> {
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

/// Whether two dictionary arrays have one array of values.
fn share_values(a: &ArrayRef, b: &ArrayRef) -> bool {
    let (a, b) = (
        a.as_any_dictionary().values(),
        b.as_any_dictionary().values(),
    );
    Arc::ptr_eq(a, b) || a.to_data().ptr_eq(&b.to_data())
}

/// One array of `arrays`, which have a [`Size`]; with the bytes of views in buffers of its own if
/// it `copies` them.
///
/// # Errors
/// Arrow's; among them [`ArrowError::DictionaryKeyOverflowError`], where one array has no room.
pub fn join(arrays: &[ArrayRef], copies: bool) -> Joined<ArrayRef> {
    if let ([array], false) = (arrays, copies) {
        return Ok(Arc::clone(array));
    }
    let Some(data_type) = arrays.first().map(|array| array.data_type()) else {
        return concat_all(arrays);
    };
    if let DataType::Dictionary(key, _) = data_type {
        macro_rules! of_keys {
            ($key:ty) => {
                join_dictionaries::<$key>(arrays)
            };
        }
        return downcast_integer! {
            key.as_ref() => (of_keys),
            _ => concat_all(arrays),
        };
    }
    let children = children(arrays).into_iter();
    let mut children = children.map(|arrays| join(&arrays, copies));
    Ok(match data_type {
        DataType::Struct(fields) => {
            let rows = arrays.iter().map(|array| array.len()).sum();
            let (fields, nulls) = (fields.clone(), nulls(arrays));
            let children = children.collect::<Joined<Vec<_>>>()?;
            Arc::new(StructArray::try_new_with_length(
                fields, children, nulls, rows,
            )?)
        }
        nested => match (nested, children.next().transpose()?) {
            (DataType::List(field), Some(items)) => join_lists::<i32>(arrays, field, items)?,
            (DataType::LargeList(field), Some(items)) => join_lists::<i64>(arrays, field, items)?,
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

fn concat_all(arrays: &[ArrayRef]) -> Joined<ArrayRef> {
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    concat(&arrays)
}

/// The array with the bytes of its views, if it has any, in buffers of its own.
pub fn compact(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        _ => array,
    }
}

fn join_lists<O: OffsetSizeTrait>(
    arrays: &[ArrayRef],
    field: &FieldRef,
    items: ArrayRef,
) -> Joined<ArrayRef> {
    let lists = arrays.iter().map(|array| array.as_list::<O>());
    let offsets = OffsetBuffer::from_lengths(lists.flat_map(|list| list.offsets().lengths()));
    let (field, nulls) = (Arc::clone(field), nulls(arrays));
    let list = GenericListArray::<O>::try_new(field, offsets, items, nulls)?;
    Ok(Arc::new(list))
}

/// The NULLs of all rows.
fn nulls(arrays: &[ArrayRef]) -> Option<NullBuffer> {
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

/// One dictionary: over the values of all, if they share them, else over each value that is used,
/// once.
fn join_dictionaries<K: ArrowDictionaryKeyType>(arrays: &[ArrayRef]) -> Joined<ArrayRef> {
    let runs: Vec<&[ArrayRef]> = arrays.chunk_by(share_values).collect();
    if let [run] = runs.as_slice() {
        let keys = run.iter().map(|array| array.as_dictionary::<K>().keys());
        let keys: Vec<&dyn Array> = keys.map(|keys| keys as &dyn Array).collect();
        let keys = concat(&keys)?.as_primitive::<K>().clone();
        let values = Arc::clone(run[0].as_any_dictionary().values());
        return Ok(Arc::new(DictionaryArray::try_new(keys, values)?));
    }
    let runs: Vec<Run<'_, K>> = runs.into_iter().map(Run::of).collect::<Joined<_>>()?;
    let values: Vec<ArrayRef> = runs.iter().map(|run| Arc::clone(&run.values)).collect();
    let rows = as_rows(&values)?;
    let mut places = Vec::new();
    let mut numbers: HashMap<Row<'_>, usize> = HashMap::new();
    let mut keys: Vec<K::Native> = Vec::with_capacity(arrays.iter().map(|a| a.len()).sum());
    for (r, run) in runs.iter().enumerate() {
        let mut renumbered = vec![K::Native::ZERO; run.before];
        for (i, (key, row)) in run.used.iter().zip(rows[r].iter()).enumerate() {
            let number = *numbers.entry(row).or_insert_with(|| {
                places.push((r, i));
                places.len() - 1
            });
            let number = K::Native::from_usize(number);
            renumbered[*key] = number.ok_or(ArrowError::DictionaryKeyOverflowError)?;
        }
        for dictionary in &run.dictionaries {
            let old = dictionary.keys().values().iter();
            // The keys of NULLs can be any.
            let new = old.map(|key| renumbered.get(key.as_usize()).copied());
            keys.extend(new.map(Option::unwrap_or_default));
        }
    }
    let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
    let keys = PrimitiveArray::<K>::try_new(keys.into(), nulls(arrays))?;
    let values = interleave(&values, &places)?;
    Ok(Arc::new(DictionaryArray::try_new(keys, values)?))
}

/// Values that are equal where their rows are.
fn as_rows(values: &[ArrayRef]) -> Joined<Vec<Rows>> {
    let data_type = values.first().map_or(&DataType::Null, |v| v.data_type());
    let converter = RowConverter::new(vec![SortField::new(data_type.clone())])?;
    let convert = |values: &ArrayRef| converter.convert_columns(std::slice::from_ref(values));
    values.iter().map(convert).collect()
}

/// Dictionary arrays that follow each other and share their values.
struct Run<'a, K: ArrowDictionaryKeyType> {
    dictionaries: Vec<&'a DictionaryArray<K>>,
    /// How many values there are.
    before: usize,
    /// Keys of those that are used.
    used: Vec<usize>,
    /// Those that are used.
    values: ArrayRef,
}

impl<'a, K: ArrowDictionaryKeyType> Run<'a, K> {
    fn of(arrays: &'a [ArrayRef]) -> Joined<Self> {
        let dictionaries = arrays.iter().map(|array| array.as_dictionary::<K>());
        let dictionaries: Vec<&DictionaryArray<K>> = dictionaries.collect();
        let all = dictionaries[0].values();
        let mut is_used = vec![false; all.len()];
        for key in dictionaries.iter().flat_map(|d| d.keys().iter().flatten()) {
            is_used[key.as_usize()] = true;
        }
        let used: Vec<usize> = (0..all.len()).filter(|key| is_used[*key]).collect();
        let keys = UInt64Array::from_iter_values(used.iter().map(|key| *key as u64));
        Ok(Self {
            values: take(all, &keys, None)?,
            before: all.len(),
            dictionaries,
            used,
        })
    }
}

/// The values at `places`, each an array and a row of it, of arrays with dictionaries that are
/// not joined: the rows of each array are taken, and these are joined.
///
/// # Errors
/// Those of [`join`]; [`ArrowError::OffsetOverflowError`] where offsets of 32 bits have no room.
pub fn interleave_joined(arrays: &[ArrayRef], places: &[(usize, usize)]) -> Joined<ArrayRef> {
    let mut order: Vec<u32> = (0..places.len() as u32).collect();
    order.sort_by_key(|i| places[*i as usize].0);
    let of_one = |a: &u32, b: &u32| places[*a as usize].0 == places[*b as usize].0;
    let taken = order.chunk_by(of_one).map(|run| {
        let rows = run.iter().map(|i| places[*i as usize].1 as u64);
        let array = &arrays[places[run[0] as usize].0];
        take(array, &UInt64Array::from_iter_values(rows), None)
    });
    let taken = taken.collect::<Joined<Vec<_>>>()?;
    if Size::of(&taken).is_none() {
        return Err(ArrowError::OffsetOverflowError(i32::MAX as usize));
    }
    let joined = join(&taken, false)?;
    let mut back = vec![0; order.len()];
    for (at, i) in (0..).zip(&order) {
        back[*i as usize] = at;
    }
    take(&joined, &UInt32Array::from(back), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        DictionaryArray, Int8Array, Int32Array, ListArray, StringArray, StringViewArray,
    };
    use arrow::compute::cast;
    use arrow::datatypes::{Field, Int8Type, Int32Type};

    /// Rows `keys` of a dictionary of `texts`.
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
        let joined = join(&parts, false).unwrap();
        let kept = joined.as_any_dictionary().values();
        assert!(Arc::ptr_eq(kept, whole.as_any_dictionary().values()));
        let expected: Vec<_> = parts.iter().flat_map(texts).collect();
        assert_eq!(texts(&joined), expected);
    }

    #[test]
    fn different_dictionaries_become_one_of_the_values_that_are_used() {
        let parts = [
            dictionary(&["a", "b", "unused"], &[Some(1), None, Some(0)]),
            dictionary(&["c", "b"], &[Some(1), Some(0), Some(1)]),
            dictionary(&[], &[None, None]),
        ];
        let expected: Vec<_> = parts.iter().flat_map(texts).collect();
        let joined = join(&parts, false).unwrap();
        assert_eq!((texts(&joined), values(&joined)), (expected, 3));
        // The same of some rows, in any order.
        let places = [(1, 1), (2, 0), (0, 0), (1, 1), (0, 2)];
        let picked = interleave_joined(&parts, &places).unwrap();
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
        let overlap = join(&[part(0), part(28)], false).unwrap();
        assert_eq!(values(&overlap), 128);
        let error = join(&[part(0), part(29)], false).unwrap_err();
        let is_expected = matches!(error, ArrowError::DictionaryKeyOverflowError);
        assert!(is_expected, "{error}");
    }

    #[test]
    fn slices_of_nested_arrays_are_joined_without_the_rest() {
        let item = dictionary(&["a", "b"], &[Some(0), Some(1), None, Some(1), Some(0)]);
        let field = Arc::new(Field::new("item", item.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([2, 0, 1, 2]);
        let nulls = Some(NullBuffer::from(vec![true, false, true, true]));
        let list: ArrayRef = Arc::new(ListArray::new(field, offsets, item, nulls));
        let field = Arc::new(Field::new("list", list.data_type().clone(), true));
        let nulls = Some(NullBuffer::from(vec![true, true, true, false]));
        let whole: ArrayRef = Arc::new(StructArray::new(vec![field].into(), vec![list], nulls));
        let parts = [whole.slice(3, 1), whole.slice(0, 3)];
        let joined = join(&parts, false).unwrap();
        assert_eq!(&joined.slice(0, 1), &parts[0]);
        assert_eq!(&joined.slice(1, 3), &parts[1]);
        let items = joined.as_struct().column(0).as_list::<i32>().values();
        assert_eq!(items.len(), 5);
        assert_eq!(items.as_dictionary::<Int32Type>().values().len(), 2);
    }
}
