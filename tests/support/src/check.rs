//! Checks that two results are the same multiset of rows.
//!
//! Two plans may emit rows in different orders and add floats in different orders. So rows are
//! compared without their order, and floats to a relative 1e-9:
//!
//! ```text
//!   rows ─▶ sort by (exact columns, floats) ─▶ walk both sides, run by run
//!                                               one run = equal exact columns
//!           inside a run: every expected row takes the first unused found row
//!           whose floats are all close; what stays over on either side is a difference
//! ```
//!
//! Exact columns (all but top-level floats) are compared as arrow's row format, in
//! which NULL equals NULL. For floats, NaN equals NaN and -0.0 equals 0.0; floats inside
//! lists and structs are compared bit by bit. Cost: one sort per side, then linear, unless
//! many rows share their exact columns and nearly their first float; such a row looks at
//! no more than `WINDOW` candidates, which may report a false difference but never
//! hides one. A plain sort and pairwise comparison would be simpler and wrong: a float that
//! differs in its last bit moves its row to another place.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, NullArray, RecordBatch, UInt64Array};
use arrow::compute::{cast, concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Float64Type, SchemaRef};
use arrow::row::{RowConverter, Rows, SortField};

use crate::Result;

/// Largest relative difference of two floats that count as equal.
const TOLERANCE: f64 = 1e-9;

/// Most candidates that one row is compared with inside its run.
const WINDOW: usize = 4096;

/// Rows that one result has and the other lacks.
pub struct Differences {
    /// One line per column whose type differs; rows are then not compared.
    pub types: Vec<String>,
    /// Rows expected and not found.
    pub missing: RecordBatch,
    /// Rows found and not expected.
    pub extra: RecordBatch,
}

impl Differences {
    /// Returns the number of differing columns and of rows that only one side has.
    pub fn count(&self) -> usize {
        self.types.len() + self.missing.num_rows() + self.extra.num_rows()
    }
}

/// Compares two results given as schema and batches.
///
/// # Errors
/// A column type that arrow's row format cannot hold, or a result too large for one batch.
pub fn compare(
    expected: (&SchemaRef, &[RecordBatch]),
    found: (&SchemaRef, &[RecordBatch]),
) -> Result<Differences> {
    let types = differing_types(expected.0, found.0);
    if !types.is_empty() {
        return Ok(Differences {
            types,
            missing: RecordBatch::new_empty(Arc::clone(expected.0)),
            extra: RecordBatch::new_empty(Arc::clone(found.0)),
        });
    }
    let expected = concat_batches(expected.0, expected.1)?;
    let found = concat_batches(found.0, found.1)?;
    let converter = converter(&expected)?;
    let (missing, extra) = unmatched(
        &Side::new(&expected, &converter)?,
        &Side::new(&found, &converter)?,
    );
    Ok(Differences {
        types,
        missing: take_rows(&expected, missing)?,
        extra: take_rows(&found, extra)?,
    })
}

/// Returns one line per column whose type is not the same on both sides.
fn differing_types(expected: &SchemaRef, found: &SchemaRef) -> Vec<String> {
    let (expected, found) = (expected.fields(), found.fields());
    if expected.len() != found.len() {
        let (e, f) = (expected.len(), found.len());
        return vec![format!("{f} columns instead of {e}")];
    }
    expected
        .iter()
        .zip(found)
        .filter(|(e, f)| e.data_type() != f.data_type())
        .map(|(e, f)| {
            let (name, e, f) = (e.name(), e.data_type(), f.data_type());
            format!("column {name} is {f} instead of {e}")
        })
        .collect()
}

/// Rows of `batch` in ascending order of their numbers.
fn take_rows(batch: &RecordBatch, mut rows: Vec<usize>) -> Result<RecordBatch> {
    rows.sort_unstable();
    if batch.num_columns() == 0 {
        return Ok(batch.slice(0, rows.len()));
    }
    let rows = UInt64Array::from_iter_values(rows.into_iter().map(|row| row as u64));
    Ok(take_record_batch(batch, &rows)?)
}

/// Returns the columns compared exactly, and a NULL column that gives the rows their number when
/// there are no others (it takes no space).
fn exact_columns(batch: &RecordBatch) -> Vec<ArrayRef> {
    let nulls: ArrayRef = Arc::new(NullArray::new(batch.num_rows()));
    let exact = batch.columns().iter().filter(|c| !is_float(c.data_type()));
    exact.cloned().chain([nulls]).collect()
}

fn is_float(data_type: &DataType) -> bool {
    data_type.is_floating()
}

/// Returns a converter for the exact columns of `batch`; rows of two batches can only be compared
/// when one converter made both.
fn converter(batch: &RecordBatch) -> Result<RowConverter> {
    let fields = exact_columns(batch)
        .iter()
        .map(|column| SortField::new(column.data_type().clone()))
        .collect();
    Ok(RowConverter::new(fields)?)
}

/// One result, ready to be compared.
struct Side {
    /// The exact columns, one comparable byte string per row.
    exact: Rows,
    /// The float columns: `floats[column][row]`, NULL as `None`, one NaN, no -0.0.
    floats: Vec<Vec<Option<f64>>>,
}

impl Side {
    fn new(batch: &RecordBatch, converter: &RowConverter) -> Result<Self> {
        let floats = batch.columns().iter().filter(|c| is_float(c.data_type()));
        Ok(Self {
            exact: converter.convert_columns(&exact_columns(batch))?,
            floats: floats.map(float_column).collect::<Result<_>>()?,
        })
    }

    /// Returns all rows, sorted by the exact columns and then by the floats.
    fn sorted(&self) -> Vec<usize> {
        let mut rows: Vec<usize> = (0..self.exact.num_rows()).collect();
        rows.sort_unstable_by(|&a, &b| {
            let exact = self.exact.row(a).cmp(&self.exact.row(b));
            exact.then_with(|| self.compare_floats(a, b))
        });
        rows
    }

    fn compare_floats(&self, a: usize, b: usize) -> Ordering {
        self.floats
            .iter()
            .map(|column| compare_float(column[a], column[b]))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    /// Returns the leading rows of `sorted` that have the first one's exact columns.
    fn run<'a>(&self, sorted: &'a [usize]) -> &'a [usize] {
        let same = |row: &&usize| self.exact.row(**row) == self.exact.row(sorted[0]);
        &sorted[..sorted.iter().take_while(same).count()]
    }

    /// Returns the float by which a run is sorted; the same for all rows when there is none.
    fn first_float(&self, row: usize) -> Option<f64> {
        self.floats.first().and_then(|column| column[row])
    }

    /// Returns whether all floats of `row` are close to those of `other`'s row.
    fn floats_close(&self, row: usize, other: &Self, other_row: usize) -> bool {
        let pairs = self.floats.iter().zip(&other.floats);
        pairs.into_iter().all(|(a, b)| close(a[row], b[other_row]))
    }
}

/// Reads a float column of any width; canonical NaN and zero, so that order and equality agree.
fn float_column(column: &ArrayRef) -> Result<Vec<Option<f64>>> {
    let canonical = |value: f64| {
        if value.is_nan() {
            f64::NAN
        } else {
            value + 0.0
        }
    };
    let column = cast(column, &DataType::Float64)?;
    let values = column.as_primitive::<Float64Type>().iter();
    Ok(values.map(|value| value.map(canonical)).collect())
}

/// NULL first, NaN last.
fn compare_float(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Returns whether two floats (or NULLs) count as equal.
fn close(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) if a.is_finite() && b.is_finite() => {
            (a - b).abs() <= TOLERANCE * a.abs().max(b.abs())
        }
        (Some(a), Some(b)) => a.total_cmp(&b).is_eq(),
        _ => false,
    }
}

/// Returns the rows of `expected` and of `found` that the other side lacks.
fn unmatched(expected: &Side, found: &Side) -> (Vec<usize>, Vec<usize>) {
    let (expected_rows, found_rows) = (expected.sorted(), found.sorted());
    let (mut e, mut f) = (&expected_rows[..], &found_rows[..]);
    let (mut missing, mut extra) = (vec![], vec![]);
    while let (Some(&first_e), Some(&first_f)) = (e.first(), f.first()) {
        let order = expected.exact.row(first_e).cmp(&found.exact.row(first_f));
        let run_e = if order.is_le() { expected.run(e) } else { &[] };
        let run_f = if order.is_ge() { found.run(f) } else { &[] };
        match_run((expected, run_e, &mut missing), (found, run_f, &mut extra));
        e = &e[run_e.len()..];
        f = &f[run_f.len()..];
    }
    missing.extend(e);
    extra.extend(f);
    (missing, extra)
}

/// Pairs the rows of two runs with equal exact columns; one run may be empty. Appends the rows
/// without a partner to the vector beside their run.
fn match_run(
    (expected, rows, missing): (&Side, &[usize], &mut Vec<usize>),
    (found, candidates, extra): (&Side, &[usize], &mut Vec<usize>),
) {
    let mut used = vec![false; candidates.len()];
    // Every candidate before `low` is used or below all further rows.
    let mut low = 0;
    for &row in rows {
        let value = expected.first_float(row);
        let is_beyond = |candidate: usize, side: Ordering| {
            let other = found.first_float(candidates[candidate]);
            compare_float(other, value) == side && !close(other, value)
        };
        while low < used.len() && (used[low] || is_beyond(low, Ordering::Less)) {
            low += 1;
        }
        let partner = (low..used.len())
            .take(WINDOW)
            .take_while(|&c| !is_beyond(c, Ordering::Greater))
            .find(|&c| !used[c] && expected.floats_close(row, found, candidates[c]));
        match partner {
            Some(candidate) => used[candidate] = true,
            None => missing.push(row),
        }
    }
    let unused = candidates.iter().zip(&used).filter(|(_, used)| !**used);
    extra.extend(unused.map(|(row, _)| *row));
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float32Array, Float64Array, Int64Array, RecordBatchOptions, StringArray};
    use arrow::datatypes::Schema;

    fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
        let names = ["a", "b", "c", "d"];
        RecordBatch::try_from_iter_with_nullable(
            names.into_iter().zip(columns).map(|(n, c)| (n, c, true)),
        )
        .unwrap()
    }

    fn ints(values: &[Option<i64>]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    fn floats(values: &[Option<f64>]) -> ArrayRef {
        Arc::new(Float64Array::from(values.to_vec()))
    }

    /// Numbers of missing and of extra rows.
    fn rows(expected: &[RecordBatch], found: &[RecordBatch]) -> (usize, usize) {
        let d = compare(
            (&expected[0].schema(), expected),
            (&found[0].schema(), found),
        )
        .unwrap();
        assert!(d.types.is_empty());
        (d.missing.num_rows(), d.extra.num_rows())
    }

    #[test]
    fn order_and_batch_boundaries_do_not_matter() {
        let strings = |v: &[&str]| Arc::new(StringArray::from(v.to_vec())) as ArrayRef;
        let one = batch(vec![
            ints(&[Some(1), None, Some(2)]),
            strings(&["x", "y", "z"]),
        ]);
        let first = batch(vec![ints(&[Some(2), Some(1)]), strings(&["z", "x"])]);
        let second = batch(vec![ints(&[None]), strings(&["y"])]);
        assert_eq!(rows(&[one], &[first, second]), (0, 0));
    }

    #[test]
    fn multiplicity_matters() {
        let twice = batch(vec![ints(&[Some(1), Some(1), Some(2)])]);
        let once = batch(vec![ints(&[Some(1), Some(2), Some(2)])]);
        assert_eq!(rows(&[twice], &[once]), (1, 1));
    }

    #[test]
    fn the_differing_rows_are_reported() {
        let expected = batch(vec![ints(&[Some(1), Some(2), None])]);
        let found = batch(vec![ints(&[Some(3), None, Some(1)])]);
        let schema = expected.schema();
        let d = compare((&schema, &[expected]), (&schema, &[found])).unwrap();
        assert_eq!(d.missing.column(0).as_ref(), ints(&[Some(2)]).as_ref());
        assert_eq!(d.extra.column(0).as_ref(), ints(&[Some(3)]).as_ref());
        assert_eq!(d.count(), 2);
    }

    #[test]
    fn an_empty_side_misses_everything() {
        let full = batch(vec![ints(&[Some(1), Some(2)]), floats(&[Some(1.0), None])]);
        let schema = full.schema();
        let empty = compare((&schema, &[]), (&schema, &[])).unwrap();
        assert_eq!(empty.count(), 0);
        let d = compare((&schema, std::slice::from_ref(&full)), (&schema, &[])).unwrap();
        assert_eq!((d.missing.num_rows(), d.extra.num_rows()), (2, 0));
        let d = compare((&schema, &[]), (&schema, &[full])).unwrap();
        assert_eq!((d.missing.num_rows(), d.extra.num_rows()), (0, 2));
    }

    #[test]
    fn floats_are_equal_to_a_relative_tolerance() {
        let expected = batch(vec![floats(&[Some(1e12), Some(1e-12), Some(-3.0)])]);
        let within = batch(vec![floats(&[
            Some(-3.0 - 2e-9),
            Some(1e12 + 500.0),
            Some(1e-12 + 1e-22),
        ])]);
        assert_eq!(rows(std::slice::from_ref(&expected), &[within]), (0, 0));
        let beyond = batch(vec![floats(&[
            Some(-3.0 - 4e-9),
            Some(1e12 + 2000.0),
            Some(1e-12 + 1e-20),
        ])]);
        assert_eq!(rows(&[expected], &[beyond]), (3, 3));
    }

    #[test]
    fn special_floats() {
        let all = [Some(f64::NAN), Some(0.0), Some(f64::INFINITY), None];
        let same = [None, Some(f64::INFINITY), Some(-0.0), Some(-f64::NAN)];
        let expected = batch(vec![floats(&all)]);
        assert_eq!(
            rows(
                std::slice::from_ref(&expected),
                &[batch(vec![floats(&same)])]
            ),
            (0, 0)
        );
        let other = [
            Some(1.0),
            Some(f64::MAX),
            Some(f64::NEG_INFINITY),
            Some(1e-300),
        ];
        assert_eq!(rows(&[expected], &[batch(vec![floats(&other)])]), (4, 4));
    }

    #[test]
    fn narrow_floats_are_compared_too() {
        let f32s = |v: &[f32]| batch(vec![Arc::new(Float32Array::from(v.to_vec())) as ArrayRef]);
        assert_eq!(rows(&[f32s(&[1.5, 2.5])], &[f32s(&[2.5, 1.5])]), (0, 0));
        assert_eq!(rows(&[f32s(&[1.5])], &[f32s(&[1.500_000_1])]), (1, 1));
    }

    /// Last bits that put rows into another order must not pair wrong second columns.
    #[test]
    fn rows_reordered_by_rounding_still_match() {
        let up = |x: f64| f64::from_bits(x.to_bits() + 1);
        let key = ints(&[Some(7), Some(7), Some(7)]);
        let expected = batch(vec![
            Arc::clone(&key),
            floats(&[Some(0.1), Some(0.1), Some(up(0.1))]),
            floats(&[Some(1.0), Some(2.0), Some(3.0)]),
        ]);
        let found = batch(vec![
            key,
            floats(&[Some(up(0.1)), Some(0.1), Some(0.1)]),
            floats(&[Some(1.0), Some(2.0), Some(3.0)]),
        ]);
        assert_eq!(rows(&[expected], &[found]), (0, 0));
    }

    #[test]
    fn floats_belong_to_their_exact_columns() {
        let expected = batch(vec![
            ints(&[Some(1), Some(2)]),
            floats(&[Some(0.5), Some(1.5)]),
        ]);
        let swapped = batch(vec![
            ints(&[Some(1), Some(2)]),
            floats(&[Some(1.5), Some(0.5)]),
        ]);
        assert_eq!(rows(&[expected], &[swapped]), (2, 2));
    }

    #[test]
    fn many_equal_rows_take_linear_time() {
        let n = 300_000;
        let expected = batch(vec![floats(&vec![Some(1.0); n])]);
        let found = batch(vec![floats(&vec![Some(1.0); n + 1])]);
        assert_eq!(rows(&[expected], &[found]), (0, 1));
    }

    #[test]
    fn types_and_column_counts_must_agree() {
        let int = batch(vec![ints(&[Some(1)])]);
        let float = batch(vec![floats(&[Some(1.0)])]);
        let two = batch(vec![ints(&[Some(1)]), ints(&[Some(1)])]);
        for other in [float, two] {
            let d = compare(
                (&int.schema(), std::slice::from_ref(&int)),
                (&other.schema(), std::slice::from_ref(&other)),
            )
            .unwrap();
            assert_eq!((d.types.len(), d.count()), (1, 1));
        }
    }

    #[test]
    fn rows_without_columns_are_counted() {
        let schema = Arc::new(Schema::empty());
        let of = |n| {
            let options = RecordBatchOptions::new().with_row_count(Some(n));
            RecordBatch::try_new_with_options(Arc::clone(&schema), vec![], &options).unwrap()
        };
        assert_eq!(rows(&[of(3), of(2)], &[of(5)]), (0, 0));
        assert_eq!(rows(&[of(3)], &[of(5)]), (0, 2));
    }
}
