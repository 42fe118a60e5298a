//! The casts of which every value has a result: to a type that holds all values of the other.

use arrow::datatypes::DataType;

/// Returns whether every value of type `from` has one of type `to`, and every array of them.
pub fn is_widening(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    match (from, to) {
        _ if from == to => true,
        // Values of one dictionary can be too many bytes for 32-bit offsets.
        (Dictionary(_, _), Utf8 | Binary) => false,
        (Dictionary(_, values), _) => is_widening(values, to),
        (Utf8, LargeUtf8 | Utf8View) | (LargeUtf8, Utf8View) | (Utf8View, LargeUtf8) => true,
        (Binary, LargeBinary | BinaryView) | (LargeBinary, BinaryView) => true,
        (BinaryView, LargeBinary) | (Date32, Date64) => true,
        (Float16, Float32 | Float64) | (Float32, Float64) => true,
        _ if from.is_integer() && matches!(to, Float32 | Float64) => true,
        _ => match (integer(from), integer(to), decimal(from), decimal(to)) {
            (Some(from), Some(to), _, _) => {
                to.bits >= from.bits && (to.is_signed || !from.is_signed)
            }
            (Some(from), _, _, Some(to)) => to.whole >= from.digits() && to.scale >= 0,
            (_, _, Some(from), Some(to)) => to.whole >= from.whole && to.scale >= from.scale,
            _ => false,
        },
    }
}

struct Integer {
    /// Bits without the sign.
    bits: i16,
    is_signed: bool,
}

impl Integer {
    /// Returns the decimal digits of the largest one.
    fn digits(&self) -> i16 {
        (f32::from(self.bits) * std::f32::consts::LOG10_2) as i16 + 1
    }
}

fn integer(data_type: &DataType) -> Option<Integer> {
    let (bits, is_signed) = match data_type {
        DataType::Int8 => (7, true),
        DataType::Int16 => (15, true),
        DataType::Int32 => (31, true),
        DataType::Int64 => (63, true),
        DataType::UInt8 => (8, false),
        DataType::UInt16 => (16, false),
        DataType::UInt32 => (32, false),
        DataType::UInt64 => (64, false),
        _ => return None,
    };
    Some(Integer { bits, is_signed })
}

struct Decimal {
    /// Digits before the point.
    whole: i16,
    /// Digits behind it.
    scale: i8,
}

fn decimal(data_type: &DataType) -> Option<Decimal> {
    let (precision, scale) = match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => (*precision, *scale),
        _ => return None,
    };
    Some(Decimal {
        whole: i16::from(precision) - i16::from(scale),
        scale,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_that_hold_every_value_are_infallible_and_no_others_of_numbers() {
        let integers = [
            (DataType::Int8, i128::from(i8::MIN), i128::from(i8::MAX)),
            (DataType::Int16, i128::from(i16::MIN), i128::from(i16::MAX)),
            (DataType::Int32, i128::from(i32::MIN), i128::from(i32::MAX)),
            (DataType::Int64, i128::from(i64::MIN), i128::from(i64::MAX)),
            (DataType::UInt8, 0, i128::from(u8::MAX)),
            (DataType::UInt16, 0, i128::from(u16::MAX)),
            (DataType::UInt32, 0, i128::from(u32::MAX)),
            (DataType::UInt64, 0, i128::from(u64::MAX)),
        ];
        for (from, from_min, from_max) in &integers {
            for (to, to_min, to_max) in &integers {
                let holds = to_min <= from_min && from_max <= to_max;
                assert_eq!(is_widening(from, to), holds, "{from} to {to}");
            }
            for whole in 1..25 {
                let decimal = DataType::Decimal128(whole + 3, 3);
                let holds = from_max.to_string().len() <= usize::from(whole);
                assert_eq!(is_widening(from, &decimal), holds, "{from} to {decimal}");
            }
        }
        let decimal = DataType::Decimal128;
        assert!(is_widening(&decimal(10, 2), &decimal(12, 4)));
        assert!(!is_widening(&decimal(10, 2), &decimal(11, 4)));
        assert!(!is_widening(&decimal(10, 2), &decimal(12, 1)));
        assert!(!is_widening(&decimal(10, 2), &DataType::Int64));
    }

    #[test]
    fn strings_and_times_that_may_not_survive_are_not_cast() {
        let timestamp = |zone: Option<&str>| {
            DataType::Timestamp(arrow::datatypes::TimeUnit::Nanosecond, zone.map(Into::into))
        };
        let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        for (from, to) in [
            (DataType::Utf8, DataType::Int32),
            (DataType::LargeUtf8, DataType::Utf8),
            (DataType::Utf8View, DataType::Utf8),
            (dictionary.clone(), DataType::Utf8),
            (DataType::Binary, DataType::Utf8),
            (DataType::Date64, DataType::Date32),
            (DataType::Float64, DataType::Float32),
            (DataType::Float64, DataType::Int64),
            (timestamp(None), timestamp(Some("+02:00"))),
        ] {
            assert!(!is_widening(&from, &to), "{from} to {to}");
        }
        assert!(is_widening(&DataType::Utf8, &DataType::Utf8View));
        assert!(is_widening(&dictionary, &DataType::Utf8View));
    }
}
