//! The types whose arrays can become one array.

use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};

/// Returns whether arrays of the type can be concatenated.
pub fn can_concat(data_type: &DataType) -> bool {
    use DataType::*;
    match data_type {
        Null | Boolean | FixedSizeBinary(_) | Utf8View | BinaryView => true,
        Utf8 | Binary | LargeUtf8 | LargeBinary => true,
        Dictionary(_, values) => {
            let field = SortField::new(values.as_ref().clone());
            let is_plain = can_concat(values) && !has_dictionary(values);
            is_plain && RowConverter::supports_fields(&[field])
        }
        FixedSizeList(_, 0) => false,
        List(field) | LargeList(field) | FixedSizeList(field, _) | Map(field, _) => {
            can_concat(field.data_type())
        }
        Struct(fields) => fields.iter().all(|field| can_concat(field.data_type())),
        other => other.is_primitive(),
    }
}

/// Returns whether values of the type are gathered faster, or with less around them, from one array
/// than from many.
pub fn is_better_concatenated(data_type: &DataType) -> bool {
    use DataType::*;
    // Copying these takes longer than it saves: their bytes are read at random either way.
    let is_text = matches!(data_type, Utf8 | Binary | LargeUtf8 | LargeBinary);
    can_concat(data_type) && !is_text && *data_type != Null
}

/// Returns whether there is a dictionary somewhere in arrays of the type.
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
