//! Predicates over one key of the probe side.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::{BinaryExpr, IsNullExpr, lit};

use crate::error::Result;
use crate::join::key_range::min_max;
use crate::parallel::{Morsel, map_blocking, parts};

/// Returns `key >= min AND key <= max`; `None` for types whose order and equality differ. The `key`
/// has values of type `of_key`.
///
/// # Errors
/// DataFusion's errors of finding the minimum and the maximum.
pub async fn bounds(
    (key, of_key): (&PhysicalExprRef, &DataType),
    keys: &[Vec<ArrayRef>],
    width: usize,
) -> Result<Option<PhysicalExprRef>> {
    let first = keys.iter().flatten().next();
    let Some(data_type) = first.map(|key| value_type(key.data_type()).clone()) else {
        return Ok(None);
    };
    // A float's zeros are equal, but one is less; nested values have no order here.
    if data_type.is_floating() || data_type.is_nested() {
        return Ok(None);
    }
    // Decimals of several precisions and times of several zones can be equal, but Arrow does not
    // compare them as they are.
    if data_type != *value_type(of_key) {
        return Ok(None);
    }
    let of_part = data_type.clone();
    let measure = move |part: Morsel| min_max(part.columns.iter().flatten(), &of_part);
    let measured = map_blocking(parts(keys), width, measure).await?;
    let (mins, maxs): (Vec<_>, Vec<_>) = measured.into_iter().unzip();
    let mins = ScalarValue::iter_to_array(mins)?;
    let maxs = ScalarValue::iter_to_array(maxs)?;
    let (min, _) = min_max([&mins].into_iter(), &data_type)?;
    let (_, max) = min_max([&maxs].into_iter(), &data_type)?;
    Ok(Some(and(
        binary(Arc::clone(key), Operator::GtEq, lit(min)),
        binary(Arc::clone(key), Operator::LtEq, lit(max)),
    )))
}

/// Returns the type behind dictionaries.
fn value_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, value) => value_type(value),
        other => other,
    }
}

/// Lets NULL keys through, too, if they `pass`.
pub fn or_null(predicate: PhysicalExprRef, key: &PhysicalExprRef, pass: bool) -> PhysicalExprRef {
    if pass {
        let is_null = Arc::new(IsNullExpr::new(Arc::clone(key)));
        binary(is_null, Operator::Or, predicate)
    } else {
        predicate
    }
}

/// Returns `left AND right`.
pub fn and(left: PhysicalExprRef, right: PhysicalExprRef) -> PhysicalExprRef {
    binary(left, Operator::And, right)
}

fn binary(left: PhysicalExprRef, op: Operator, right: PhysicalExprRef) -> PhysicalExprRef {
    Arc::new(BinaryExpr::new(left, op, right))
}
