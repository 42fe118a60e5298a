//! Column types, and arrays from abstract numbers.
//!
//! Rows that are NULL hold some other value below their null bit, as arrays from kernels do:
//! whoever reads values without asking for NULLs is found out.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::OffsetBuffer;
use arrow::compute::{cast, nullif};
use arrow::datatypes::{
    DataType, Field, Int32Type, IntervalDayTime, IntervalMonthDayNano, UInt8Type, i256,
};

/// A column type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Null,
    Boolean,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float16,
    Float32,
    Float64,
    Decimal32,
    Decimal64,
    Decimal128,
    Decimal128Wide,
    Decimal256,
    Date32,
    Date64,
    Time32,
    Time64,
    TimestampSecond,
    TimestampNano,
    TimestampNanoZone,
    Duration,
    IntervalYearMonth,
    IntervalDayTime,
    IntervalMonthDayNano,
    Utf8,
    LargeUtf8,
    Utf8View,
    Binary,
    LargeBinary,
    BinaryView,
    FixedSizeBinary,
    DictionaryUtf8,
    DictionaryInt64,
    ListInt32,
    LargeListUtf8,
    FixedSizeListInt32,
    Struct,
    StructFloat64,
    Map,
}

impl Kind {
    /// Key types that go together: the same one mostly, integers and strings more often.
    pub const KEYS: [(Kind, Kind); 54] = [
        (Kind::Null, Kind::Null),
        (Kind::Boolean, Kind::Boolean),
        (Kind::Int8, Kind::Int8),
        (Kind::Int16, Kind::Int16),
        (Kind::Int32, Kind::Int32),
        (Kind::Int32, Kind::Int32),
        (Kind::Int32, Kind::Int32),
        (Kind::Int64, Kind::Int64),
        (Kind::Int64, Kind::Int64),
        (Kind::Int64, Kind::Int64),
        (Kind::Int64, Kind::Int64),
        (Kind::UInt8, Kind::UInt8),
        (Kind::UInt16, Kind::UInt16),
        (Kind::UInt32, Kind::UInt32),
        (Kind::UInt64, Kind::UInt64),
        (Kind::UInt64, Kind::UInt64),
        (Kind::Float16, Kind::Float16),
        (Kind::Float32, Kind::Float32),
        (Kind::Float64, Kind::Float64),
        (Kind::Decimal32, Kind::Decimal32),
        (Kind::Decimal64, Kind::Decimal64),
        (Kind::Decimal128, Kind::Decimal128Wide),
        (Kind::Decimal128Wide, Kind::Decimal128),
        (Kind::Decimal256, Kind::Decimal256),
        (Kind::Date32, Kind::Date32),
        (Kind::Date64, Kind::Date64),
        (Kind::Time32, Kind::Time32),
        (Kind::Time64, Kind::Time64),
        (Kind::TimestampSecond, Kind::TimestampSecond),
        (Kind::TimestampNano, Kind::TimestampNanoZone),
        (Kind::TimestampNanoZone, Kind::TimestampNano),
        (Kind::Duration, Kind::Duration),
        (Kind::IntervalYearMonth, Kind::IntervalYearMonth),
        (Kind::IntervalDayTime, Kind::IntervalDayTime),
        (Kind::IntervalMonthDayNano, Kind::IntervalMonthDayNano),
        (Kind::Utf8, Kind::Utf8),
        (Kind::Utf8, Kind::Utf8),
        (Kind::Utf8, Kind::Utf8),
        (Kind::LargeUtf8, Kind::LargeUtf8),
        (Kind::Utf8View, Kind::Utf8View),
        (Kind::Utf8View, Kind::Utf8View),
        (Kind::Binary, Kind::Binary),
        (Kind::LargeBinary, Kind::LargeBinary),
        (Kind::BinaryView, Kind::BinaryView),
        (Kind::FixedSizeBinary, Kind::FixedSizeBinary),
        (Kind::DictionaryUtf8, Kind::DictionaryUtf8),
        (Kind::DictionaryUtf8, Kind::DictionaryUtf8),
        (Kind::DictionaryInt64, Kind::DictionaryInt64),
        (Kind::ListInt32, Kind::ListInt32),
        (Kind::LargeListUtf8, Kind::LargeListUtf8),
        (Kind::FixedSizeListInt32, Kind::FixedSizeListInt32),
        (Kind::Struct, Kind::Struct),
        (Kind::StructFloat64, Kind::StructFloat64),
        (Kind::Map, Kind::Map),
    ];

    /// Types of columns that are only carried along. Not run-end encoded ones: Arrow's `take`
    /// does not make them NULL, so the stock join's outer joins are wrong.
    pub const PAYLOADS: [Kind; 15] = [
        Kind::Boolean,
        Kind::Int32,
        Kind::Int64,
        Kind::Float64,
        Kind::Decimal128,
        Kind::Utf8,
        Kind::Utf8View,
        Kind::Binary,
        Kind::FixedSizeBinary,
        Kind::DictionaryUtf8,
        Kind::ListInt32,
        Kind::FixedSizeListInt32,
        Kind::Struct,
        Kind::Map,
        Kind::Null,
    ];

    pub fn is_integer(self) -> bool {
        use Kind::*;
        matches!(
            self,
            Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64
        )
    }

    pub fn is_float(self) -> bool {
        use Kind::*;
        matches!(self, Float16 | Float32 | Float64 | StructFloat64)
    }

    pub fn is_sortable(self) -> bool {
        self.is_integer() || matches!(self, Kind::Utf8 | Kind::Date32 | Kind::Decimal128)
    }

    /// A number that is equal at least where the values are; `None` for what may be NULL.
    pub fn reduce(self, value: i64) -> Option<i64> {
        use Kind::*;
        match self {
            Null => None,
            Boolean => Some(value & 1),
            Int8 | UInt8 => Some(value & 0xff),
            Int16 | UInt16 => Some(value & 0xffff),
            Int64 | UInt64 | Date64 | TimestampSecond | Duration => Some(value),
            DictionaryUtf8 | DictionaryInt64 => Some(value.rem_euclid(100)),
            FixedSizeListInt32 | ListInt32 | LargeListUtf8 | Map | Struct => {
                Some(value as i32 as i64 >> 2)
            }
            Time32 => Some(value.rem_euclid(86_400)),
            Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView
                if value.rem_euclid(7) == 0 =>
            {
                Some(0)
            }
            _ => Some(value as i32 as i64),
        }
    }

    /// The array of `values`.
    pub fn array(self, values: &[Option<i64>]) -> ArrayRef {
        match self {
            Kind::Null => return Arc::new(NullArray::new(values.len())),
            Kind::DictionaryUtf8 => return dictionary(values),
            _ => {}
        }
        let below_null = |(row, value): (usize, &Option<i64>)| value.unwrap_or(row as i64 * 7919);
        let dense: Vec<i64> = values.iter().enumerate().map(below_null).collect();
        let array = self.dense(&dense);
        let null: Vec<bool> = values.iter().map(Option::is_none).collect();
        match null.contains(&true) {
            true => nullif(&array, &BooleanArray::from(null)).unwrap(),
            false => array,
        }
    }

    fn dense(self, values: &[i64]) -> ArrayRef {
        let values = values.iter().copied();
        let i32s = values.clone().map(|v| v as i32);
        match self {
            Kind::Boolean => Arc::new(BooleanArray::from_iter(values.map(|v| Some(v & 1 == 1)))),
            Kind::Int8 => Arc::new(Int8Array::from_iter_values(values.map(|v| v as i8))),
            Kind::Int16 => Arc::new(Int16Array::from_iter_values(values.map(|v| v as i16))),
            Kind::Int32 => Arc::new(Int32Array::from_iter_values(i32s)),
            Kind::Int64 => Arc::new(Int64Array::from_iter_values(values)),
            Kind::UInt8 => Arc::new(UInt8Array::from_iter_values(values.map(|v| v as u8))),
            Kind::UInt16 => Arc::new(UInt16Array::from_iter_values(values.map(|v| v as u16))),
            Kind::UInt32 => Arc::new(UInt32Array::from_iter_values(values.map(|v| v as u32))),
            Kind::UInt64 => Arc::new(UInt64Array::from_iter_values(values.map(|v| v as u64))),
            Kind::Float16 => {
                let wide = Float32Array::from_iter_values(values.map(|v| float(v) as f32));
                cast(&wide, &DataType::Float16).unwrap()
            }
            Kind::Float32 => Arc::new(Float32Array::from_iter_values(
                values.map(|v| float(v) as f32),
            )),
            Kind::Float64 => Arc::new(Float64Array::from_iter_values(values.map(float))),
            Kind::Decimal32
            | Kind::Decimal64
            | Kind::Decimal128
            | Kind::Decimal128Wide
            | Kind::Decimal256 => self.decimals(values),
            Kind::Date32 => Arc::new(Date32Array::from_iter_values(i32s)),
            Kind::Date64 => Arc::new(Date64Array::from_iter_values(values)),
            Kind::Time32 => {
                let seconds = values.map(|v| v.rem_euclid(86_400) as i32);
                Arc::new(Time32SecondArray::from_iter_values(seconds))
            }
            Kind::Time64 => {
                let nanos = values.map(|v| v.rem_euclid(86_400_000_000_000));
                Arc::new(Time64NanosecondArray::from_iter_values(nanos))
            }
            Kind::TimestampSecond => Arc::new(TimestampSecondArray::from_iter_values(values)),
            Kind::TimestampNano => Arc::new(TimestampNanosecondArray::from_iter_values(values)),
            Kind::TimestampNanoZone => {
                let array = TimestampNanosecondArray::from_iter_values(values);
                Arc::new(array.with_timezone("+02:00"))
            }
            Kind::Duration => Arc::new(DurationMillisecondArray::from_iter_values(values)),
            Kind::IntervalYearMonth => Arc::new(IntervalYearMonthArray::from_iter_values(i32s)),
            Kind::IntervalDayTime => {
                let value = |v: i64| IntervalDayTime::new(v as i32, (v >> 3) as i32);
                Arc::new(IntervalDayTimeArray::from_iter_values(values.map(value)))
            }
            Kind::IntervalMonthDayNano => {
                let value = |v: i64| IntervalMonthDayNano::new(v as i32, 1, v);
                Arc::new(IntervalMonthDayNanoArray::from_iter_values(
                    values.map(value),
                ))
            }
            Kind::Utf8 => Arc::new(StringArray::from_iter_values(values.map(text))),
            Kind::LargeUtf8 => Arc::new(LargeStringArray::from_iter_values(values.map(text))),
            Kind::Utf8View => Arc::new(StringViewArray::from_iter_values(values.map(text))),
            Kind::Binary => Arc::new(BinaryArray::from_iter_values(values.map(bytes))),
            Kind::LargeBinary => Arc::new(LargeBinaryArray::from_iter_values(values.map(bytes))),
            Kind::BinaryView => Arc::new(BinaryViewArray::from_iter_values(values.map(bytes))),
            Kind::FixedSizeBinary => {
                let flat: Vec<u8> = values.flat_map(|v| v.to_le_bytes()[..5].to_vec()).collect();
                Arc::new(FixedSizeBinaryArray::new(5, flat.into(), None))
            }
            Kind::DictionaryInt64 => {
                let keys = UInt8Array::from_iter_values(values.map(|v| v.rem_euclid(100) as u8));
                let values = Int64Array::from_iter_values((0..100).map(|v| v << 33));
                Arc::new(DictionaryArray::<UInt8Type>::new(keys, Arc::new(values)))
            }
            Kind::ListInt32 => {
                let (offsets, items) = lists(values);
                Arc::new(ListArray::new(field(), offsets, items, None))
            }
            Kind::LargeListUtf8 => {
                let (offsets, items) = lists(values);
                let offsets = OffsetBuffer::<i64>::from_lengths(offsets.lengths());
                let items = cast(&items, &DataType::Utf8).unwrap();
                let field = Field::new("item", DataType::Utf8, true);
                Arc::new(LargeListArray::new(Arc::new(field), offsets, items, None))
            }
            Kind::FixedSizeListInt32 => {
                let items = values.flat_map(|v| [Some(v as i32), (v % 3 != 0).then_some(7)]);
                let items = Arc::new(Int32Array::from_iter(items));
                Arc::new(FixedSizeListArray::new(field(), 2, items, None))
            }
            Kind::Struct => {
                let a = i32s.map(|v| (v % 5 != 0).then_some(v >> 2));
                let b = values.map(|v| (v % 4 != 0).then(|| text(v >> 1)));
                structs(
                    Arc::new(Int32Array::from_iter(a)),
                    Arc::new(StringArray::from_iter(b)),
                )
            }
            Kind::StructFloat64 => structs(
                Arc::new(Float64Array::from_iter_values(values.map(float))),
                Arc::new(Int32Array::from_iter_values(i32s.map(|_| 1))),
            ),
            Kind::Map => map(values),
            Kind::Null | Kind::DictionaryUtf8 => unreachable!("made by array()"),
        }
    }

    fn decimals(self, values: impl Iterator<Item = i64>) -> ArrayRef {
        let wide = |v: i64| match i32::try_from(v) {
            Ok(small) => i128::from(small),
            Err(_) => i128::from(v) << 20,
        };
        match self {
            Kind::Decimal32 => {
                let array = Decimal32Array::from_iter_values(values.map(|v| v as i32));
                Arc::new(array.with_precision_and_scale(9, 2).unwrap())
            }
            Kind::Decimal64 => {
                let array = Decimal64Array::from_iter_values(values);
                Arc::new(array.with_precision_and_scale(18, 4).unwrap())
            }
            Kind::Decimal128 => {
                let array = Decimal128Array::from_iter_values(values.map(wide));
                Arc::new(array.with_precision_and_scale(30, 5).unwrap())
            }
            Kind::Decimal128Wide => {
                let array = Decimal128Array::from_iter_values(values.map(wide));
                Arc::new(array.with_precision_and_scale(38, 5).unwrap())
            }
            _ => {
                let value = |v: i64| match i32::try_from(v) {
                    Ok(_) => i256::from_i128(v.into()),
                    Err(_) => i256::from_parts(v as u128, v.into()),
                };
                let array = Decimal256Array::from_iter_values(values.map(value));
                Arc::new(array.with_precision_and_scale(76, 20).unwrap())
            }
        }
    }
}

/// Halves, and below 0 the values that compare in their own way.
fn float(value: i64) -> f64 {
    match value {
        -1 => -0.0,
        -2 => f64::NAN,
        -3 => -f64::NAN,
        -4 => f64::from_bits(f64::NAN.to_bits() ^ (1 << 40)),
        -5 => f64::INFINITY,
        -6 => f64::NEG_INFINITY,
        _ => value as f64 / 2.0,
    }
}

/// Empty, short, or long with a common beginning.
fn text(value: i64) -> String {
    match value.rem_euclid(7) {
        0 => String::new(),
        1 | 2 => format!("the same beginning of {value}"),
        _ => format!("{value}"),
    }
}

fn bytes(value: i64) -> Vec<u8> {
    match value.rem_euclid(7) {
        0 => Vec::new(),
        1 | 2 => [&[0xff; 20][..], &value.to_le_bytes()].concat(),
        _ => value.to_le_bytes().to_vec(),
    }
}

/// A dictionary with values that repeat, are not used, and are NULL: every other NULL row
/// reads that one.
fn dictionary(values: &[Option<i64>]) -> ArrayRef {
    let key = |(row, value): (usize, &Option<i64>)| match value {
        Some(value) => Some(value.rem_euclid(100) as i32 + (row as i32 % 2) * 101),
        None if row % 2 == 0 => Some(100),
        None => None,
    };
    let keys = Int32Array::from_iter(values.iter().enumerate().map(key));
    let once = || (0..100).map(|v| Some(text(v)));
    let values = StringArray::from_iter(once().chain([None]).chain(once()));
    Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::new(values)))
}

fn field() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Int32, true))
}

/// Up to 3 items, one of them NULL at times.
fn lists(values: impl Iterator<Item = i64> + Clone) -> (OffsetBuffer<i32>, ArrayRef) {
    let length = |v: i64| v.rem_euclid(4) as usize;
    let offsets = OffsetBuffer::from_lengths(values.clone().map(length));
    let items = values.flat_map(|v| {
        let item = move |i| (i != 1 || v % 5 != 0).then_some((v as i32 >> 2).wrapping_add(i));
        (0..length(v) as i32).map(item)
    });
    (offsets, Arc::new(Int32Array::from_iter(items)))
}

fn structs(a: ArrayRef, b: ArrayRef) -> ArrayRef {
    let fields = vec![
        Field::new("a", a.data_type().clone(), true),
        Field::new("b", b.data_type().clone(), true),
    ];
    Arc::new(StructArray::new(fields.into(), vec![a, b], None))
}

fn map(values: impl Iterator<Item = i64> + Clone) -> ArrayRef {
    let (offsets, items) = lists(values);
    let names = offsets.lengths().flat_map(|n| 0..n as i32);
    let names = Arc::new(Int32Array::from_iter_values(names));
    let fields = vec![
        Field::new("keys", DataType::Int32, false),
        Field::new("values", DataType::Int32, true),
    ];
    let entries = StructArray::new(fields.into(), vec![names, items], None);
    let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    Arc::new(MapArray::new(field, offsets, entries, None, false))
}
