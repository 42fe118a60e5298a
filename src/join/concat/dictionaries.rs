//! Dictionaries that become one.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, AsArray, DictionaryArray, PrimitiveArray, UInt64Array,
};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::{ArrowDictionaryKeyType, ArrowNativeType, DataType};
use arrow::error::ArrowError;
use arrow::row::{Row, RowConverter, Rows, SortField};

use super::children::{nulls, share_values};

pub type ArrowResult<T> = std::result::Result<T, ArrowError>;

/// Returns one dictionary: over the values of all, if they share them, else over each value that is
/// used, once.
pub fn concat_dictionaries<K: ArrowDictionaryKeyType>(
    arrays: &[ArrayRef],
) -> ArrowResult<ArrayRef> {
    let runs: Vec<&[ArrayRef]> = arrays.chunk_by(share_values).collect();
    if let [run] = runs.as_slice() {
        let keys = run.iter().map(|array| array.as_dictionary::<K>().keys());
        let keys: Vec<&dyn Array> = keys.map(|keys| keys as &dyn Array).collect();
        let keys = concat(&keys)?.as_primitive::<K>().clone();
        let values = Arc::clone(run[0].as_any_dictionary().values());
        return Ok(Arc::new(DictionaryArray::try_new(keys, values)?));
    }
    let runs: Vec<SharedValues<'_, K>> = runs
        .into_iter()
        .map(SharedValues::try_new)
        .collect::<ArrowResult<_>>()?;
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

/// Returns rows that are equal where the `values` are.
fn as_rows(values: &[ArrayRef]) -> ArrowResult<Vec<Rows>> {
    let data_type = values.first().map_or(&DataType::Null, |v| v.data_type());
    let converter = RowConverter::new(vec![SortField::new(data_type.clone())])?;
    let convert = |values: &ArrayRef| converter.convert_columns(std::slice::from_ref(values));
    values.iter().map(convert).collect()
}

/// Dictionary arrays that follow each other and share their values.
struct SharedValues<'a, K: ArrowDictionaryKeyType> {
    dictionaries: Vec<&'a DictionaryArray<K>>,
    /// The number of values.
    before: usize,
    /// Keys of the values that are used.
    used: Vec<usize>,
    /// The values that are used.
    values: ArrayRef,
}

impl<'a, K: ArrowDictionaryKeyType> SharedValues<'a, K> {
    fn try_new(arrays: &'a [ArrayRef]) -> ArrowResult<Self> {
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
