//! Equality of candidate pairs on the real key columns, as `HashJoinExec` defines it.
//!
//! ```text
//!   build rows  7  7  9     gathered   build column  "x" "x" "y"
//!   probe rows  0  2  2     ────────▶  probe column  "x" "y" "y"   ──▶  1 0 1
//! ```
//!
//! `HashJoinExec` compares with [`JoinKeyComparator`], one boxed call per pair and column (except
//! for single columns of common types, where it loops over the arrays). Arrow's comparison kernels
//! compare whole columns. Once `-0.0` is out of the way, they give the same answers on everything
//! that is not nested: both compare floats by their total order. So flat columns take the kernels
//! and only nested ones the comparator. Strings are compared where they stand ([`equal_strings`]):
//! gathering them would copy each one to look at it once.

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ByteView, GenericByteViewArray, MAX_INLINE_VIEW_LEN,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::SortOptions;
use arrow::compute::kernels::cmp::{eq, not_distinct};
use arrow::datatypes::{ByteViewType, DataType};
use datafusion::common::NullEquality;
use datafusion::common::utils::normalize_float_zero;
use datafusion::logical_expr::utils::can_hash;
use datafusion::physical_plan::joins::utils::JoinKeyComparator;

use super::masks::and;
use crate::device::host::prefetch;
use crate::error::{Error, Result};

/// Returns which candidate pairs have equal keys.
///
/// Row `i` of `build_columns` (the key columns of the build side, gathered) is compared
/// with row `i` of `probe_columns`; all columns have one length. A pair of NULLs is equal
/// only under [`NullEquality::NullEqualsNull`], and a pair of rows without columns is.
///
/// # Errors
/// [`Error::Internal`] when the two sides differ in columns, rows or types (see
/// [`supported`]).
pub fn equal_pairs(
    build_columns: &[ArrayRef],
    probe_columns: &[ArrayRef],
    null_equality: NullEquality,
) -> Result<BooleanBuffer> {
    let pairs = build_columns.first().map_or(0, |column| column.len());
    if build_columns.len() != probe_columns.len() {
        return Err(Error::Internal(format!(
            "{} build key columns cannot be compared with {} probe key columns",
            build_columns.len(),
            probe_columns.len()
        )));
    }
    let mut equal = None;
    for (build, probe) in build_columns.iter().zip(probe_columns) {
        check_pair(build, probe, pairs)?;
        equal = and(equal, Some(equal_values(build, probe, null_equality)?));
    }
    Ok(equal.unwrap_or_else(|| BooleanBuffer::new_set(pairs)))
}

/// Pairs between a lookup's prefetch of a view and of its bytes, and the comparison.
const AHEAD: [usize; 2] = [32, 16];

/// Rows of an array: row `i` of these is row `rows[i]` of the array.
#[derive(Debug, Clone, Copy)]
pub struct Selected<'a, A = ArrayRef, R = u32> {
    /// Array of the values to compare.
    pub array: &'a A,
    /// The rows, each as often as it is needed.
    pub rows: &'a [R],
}

impl<'a, A, R> Selected<'a, A, R> {
    /// Returns the same rows of the array as `cast` has it.
    fn cast<B>(self, cast: impl Fn(&'a A) -> &'a B) -> Selected<'a, B, R> {
        Selected {
            array: cast(self.array),
            rows: self.rows,
        }
    }
}

/// Returns which candidate pairs have equal string views, compared where they stand. Pair `i` is of
/// row `i` of `build` and of `probe`. Returns `None` for columns that are not both of one type of
/// views.
///
/// The build rows are random, so views and bytes are fetched ahead.
pub fn equal_views<R: Copy + Into<u32>>(
    build: Selected<'_, ArrayRef, R>,
    probe: Selected<'_>,
    null_equality: NullEquality,
) -> Option<BooleanBuffer> {
    match (build.array.data_type(), probe.array.data_type()) {
        (DataType::Utf8View, DataType::Utf8View) => Some(equal_byte_views(
            build.cast(|array| array.as_string_view()),
            probe.cast(|array| array.as_string_view()),
            null_equality,
        )),
        (DataType::BinaryView, DataType::BinaryView) => Some(equal_byte_views(
            build.cast(|array| array.as_binary_view()),
            probe.cast(|array| array.as_binary_view()),
            null_equality,
        )),
        _ => None,
    }
}

fn equal_byte_views<T: ByteViewType<Native: PartialEq> + ?Sized, R: Copy + Into<u32>>(
    build: Selected<'_, GenericByteViewArray<T>, R>,
    probe: Selected<'_, GenericByteViewArray<T>>,
    null_equality: NullEquality,
) -> BooleanBuffer {
    let (build_rows, rows) = (build.rows, probe.rows);
    let (build, probe) = (build.array, probe.array);
    let nulls = build.null_count() > 0 || probe.null_count() > 0;
    BooleanBuffer::collect_bool(build_rows.len().min(rows.len()), |i| {
        if let Some(row) = build_rows.get(i + AHEAD[0]) {
            prefetch(build.views(), (*row).into() as usize);
        }
        if let Some(row) = build_rows.get(i + AHEAD[1]) {
            let view = ByteView::from(build.views()[(*row).into() as usize]);
            if view.length > MAX_INLINE_VIEW_LEN {
                let bytes = build.data_buffers().get(view.buffer_index as usize);
                prefetch(
                    bytes.map_or(&[][..], |b| b.as_slice()),
                    view.offset as usize,
                );
            }
        }
        let (b, p) = (build_rows[i].into() as usize, rows[i] as usize);
        if nulls && (build.is_null(b) || probe.is_null(p)) {
            return build.is_null(b)
                && probe.is_null(p)
                && null_equality == NullEquality::NullEqualsNull;
        }
        // Length and first four bytes, or all of a short string's.
        let (left, right) = (build.views()[b], probe.views()[p]);
        left as u64 == right as u64
            && if left as u32 <= MAX_INLINE_VIEW_LEN {
                left == right
            } else {
                build.value(b) == probe.value(p)
            }
    })
}

/// Returns which candidate pairs have equal strings, compared where they stand. Pair `i` is of row
/// `places[i].1` of `build[places[i].0]` and of row `i` of `probe`. `None` for columns that are not
/// all of one type of strings or of binary values.
pub fn equal_strings(
    build: &[ArrayRef],
    places: &[(usize, usize)],
    probe: Selected<'_>,
    null_equality: NullEquality,
) -> Option<BooleanBuffer> {
    let (probe, rows) = (probe.array, probe.rows);
    if build
        .iter()
        .any(|array| array.data_type() != probe.data_type())
    {
        return None;
    }
    let pairs = || places.iter().zip(rows.iter().map(|row| *row as usize));
    macro_rules! compare {
        ($cast:ident $(::<$offset:ty>)?) => {{
            let build: Vec<_> = build.iter().map(|array| array.$cast$(::<$offset>)?()).collect();
            let probe = probe.$cast$(::<$offset>)?();
            let equal = |((batch, at), row): (&(usize, usize), usize)| {
                let build = build[*batch];
                match (build.is_null(*at), probe.is_null(row)) {
                    (false, false) => build.value(*at) == probe.value(row),
                    (a, b) => a && b && null_equality == NullEquality::NullEqualsNull,
                }
            };
            pairs().map(equal).collect()
        }};
    }
    Some(match probe.data_type() {
        DataType::Utf8 => compare!(as_string::<i32>),
        DataType::LargeUtf8 => compare!(as_string::<i64>),
        DataType::Binary => compare!(as_binary::<i32>),
        DataType::LargeBinary => compare!(as_binary::<i64>),
        _ => return None,
    })
}

/// Returns whether key columns of these `(build, probe)` types can be encoded and compared.
///
/// # Errors
/// The first pair of types that cannot, in words.
pub fn supported(types: &[(DataType, DataType)]) -> std::result::Result<(), String> {
    for (build, probe) in types {
        if !comparable(build, probe) {
            return Err(format!("key types {build} and {probe} differ"));
        }
        if !can_hash(build) {
            return Err(format!("key type {build} cannot be hashed"));
        }
    }
    Ok(())
}

/// Returns whether values of the two types have the same representation and meaning, so that they
/// can be compared as they are: equal types up to names and nullability of nested fields,
/// time zones (values are UTC) and decimal precisions.
pub fn comparable(a: &DataType, b: &DataType) -> bool {
    use DataType::*;
    match (a, b) {
        (Timestamp(a, _), Timestamp(b, _)) => a == b,
        (Decimal32(_, a), Decimal32(_, b))
        | (Decimal64(_, a), Decimal64(_, b))
        | (Decimal128(_, a), Decimal128(_, b))
        | (Decimal256(_, a), Decimal256(_, b)) => a == b,
        (List(a), List(b)) | (LargeList(a), LargeList(b)) | (Map(a, _), Map(b, _)) => {
            comparable(a.data_type(), b.data_type())
        }
        (FixedSizeList(a, m), FixedSizeList(b, n)) => {
            m == n && comparable(a.data_type(), b.data_type())
        }
        (Struct(a), Struct(b)) => {
            let mut fields = a.iter().zip(b);
            a.len() == b.len() && fields.all(|(a, b)| comparable(a.data_type(), b.data_type()))
        }
        (Dictionary(k, a), Dictionary(l, b)) => k == l && comparable(a, b),
        _ => a == b,
    }
}

fn check_pair(build: &ArrayRef, probe: &ArrayRef, pairs: usize) -> Result<()> {
    let same = build.len() == pairs
        && probe.len() == pairs
        && comparable(build.data_type(), probe.data_type());
    if same {
        return Ok(());
    }
    Err(Error::Internal(format!(
        "key columns of {pairs} candidate pairs cannot be compared: {} × {} and {} × {}",
        build.len(),
        build.data_type(),
        probe.len(),
        probe.data_type()
    )))
}

/// Returns which rows of two columns of one length and comparable types are equal.
fn equal_values(
    build: &ArrayRef,
    probe: &ArrayRef,
    null_equality: NullEquality,
) -> Result<BooleanBuffer> {
    if build.data_type() != probe.data_type() || !has_kernel(build.data_type()) {
        return compare_values(build, probe, null_equality);
    }
    let (build, probe) = (normalize_float_zero(build), normalize_float_zero(probe));
    Ok(all_true(match null_equality {
        NullEquality::NullEqualsNothing => eq(&build, &probe)?,
        NullEquality::NullEqualsNull => not_distinct(&build, &probe)?,
    }))
}

/// Returns whether Arrow's comparison kernels take the type: flat, or a dictionary of flat values.
fn has_kernel(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => {
            !values.is_nested() && !matches!(**values, DataType::Dictionary(..))
        }
        other => !other.is_nested(),
    }
}

/// Does [`equal_values`] for any type, one comparator call per row.
fn compare_values(
    build: &ArrayRef,
    probe: &ArrayRef,
    null_equality: NullEquality,
) -> Result<BooleanBuffer> {
    let comparator = JoinKeyComparator::new(
        std::slice::from_ref(build),
        std::slice::from_ref(probe),
        &[SortOptions::default()],
        null_equality,
    )?;
    Ok(BooleanBuffer::collect_bool(build.len(), |row| {
        comparator.is_equal(row, row)
    }))
}

/// Returns the rows whose value is true. NULL counts as false.
fn all_true(array: BooleanArray) -> BooleanBuffer {
    match array.into_parts() {
        (values, Some(nulls)) => &values & nulls.inner(),
        (values, None) => values,
    }
}
