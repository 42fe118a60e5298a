//! The tables of random queries, and a function that differs when it is evaluated again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, internal_err};
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::SessionContext;

/// Rows and partitions of each table.
pub const TABLES: [(i64, usize); 6] = [(0, 1), (7, 1), (60, 2), (240, 3), (700, 2), (1500, 4)];

/// What is added to a value that is drawn again.
const AGAIN: i64 = 1_000_000_000_000;

/// Registers the tables `t0` and so on, and `good0` and so on: those of their rows whose text is a
/// number.
pub fn register(session: &SessionContext) -> Result<()> {
    for (t, (rows, partitions)) in TABLES.into_iter().enumerate() {
        let all: Vec<i64> = (0..rows).collect();
        let good: Vec<i64> = all.iter().copied().filter(|id| id % 2 == 0).collect();
        for (name, ids) in [(format!("t{t}"), all), (format!("good{t}"), good)] {
            session.register_table(name, Arc::new(table(&ids, rows, partitions)?))?;
        }
    }
    Ok(())
}

fn table(ids: &[i64], rows: i64, partitions: usize) -> Result<MemTable> {
    // Different in each table, with NULLs, and a value that is hot.
    let key = |id: i64| match (id * 7919 + rows) % 17 {
        0 => None,
        1 => Some(3),
        _ => Some((id * 31 + rows) % (rows / 2 + 5)),
    };
    let ints = |value: &dyn Fn(i64) -> Option<i64>| -> ArrayRef {
        Arc::new(Int64Array::from_iter(ids.iter().map(|id| value(*id))))
    };
    let text = |id: &i64| match id % 2 {
        0 => (id % (rows / 3 + 2)).to_string(),
        _ => "none".to_owned(),
    };
    let batch = RecordBatch::try_from_iter([
        ("id", ints(&|id| Some(id))),
        ("k", ints(&key)),
        ("x", ints(&|id| (id % 11 != 4).then_some(id % 100))),
        (
            "b",
            Arc::new(Int32Array::from_iter_values(
                ids.iter().map(|id| (id % 7) as i32),
            )) as _,
        ),
        (
            "d",
            Arc::new(Int32Array::from_iter_values(
                ids.iter().map(|id| (id % 5) as i32),
            )) as _,
        ),
        (
            "s",
            Arc::new(StringArray::from_iter_values(ids.iter().map(text))) as _,
        ),
        (
            "ok",
            Arc::new(BooleanArray::from_iter(
                ids.iter().map(|id| Some(id % 2 == 0)),
            )) as _,
        ),
    ])?;
    let mut parts = vec![Vec::new(); partitions];
    let size = 50;
    for (at, from) in (0..batch.num_rows()).step_by(size).enumerate() {
        parts[at % partitions].push(batch.slice(from, size.min(batch.num_rows() - from)));
    }
    MemTable::try_new(batch.schema(), parts)
}

/// The arguments that were drawn for since a query began, and how many were drawn for again.
#[derive(Debug, Default)]
pub struct Drawn(Mutex<(HashSet<i64>, usize)>);

impl Drawn {
    /// Returns the record of one query of `session`. Tasks of others that were cut short may draw a
    /// little longer, so that each query has one of its own.
    pub fn of(session: &SessionContext) -> Arc<Self> {
        let drawn = Arc::new(Self::default());
        session.register_udf(ScalarUDF::new_from_impl(Once {
            drawn: Arc::clone(&drawn),
            signature: Signature::exact(vec![DataType::Int64; 2], Volatility::Volatile),
        }));
        drawn
    }

    /// Arguments that were drawn for more than once.
    pub fn again(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

/// `once(id, k)`: `k` when it is first evaluated for an `id`, another number after that. So a
/// filter that evaluates it once more loses rows, and the count tells.
#[derive(Debug)]
struct Once {
    drawn: Arc<Drawn>,
    signature: Signature,
}

impl PartialEq for Once {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.drawn, &other.drawn)
    }
}

impl Eq for Once {}

impl std::hash::Hash for Once {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.drawn).hash(state);
    }
}

impl ScalarUDFImpl for Once {
    fn name(&self) -> &str {
        "once"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [ids, values] = arrays.as_slice() else {
            return internal_err!("once has two arguments");
        };
        let mut drawn = self.drawn.0.lock().unwrap();
        let pairs = ids.as_primitive::<Int64Type>().iter();
        let pairs = pairs.zip(values.as_primitive::<Int64Type>());
        let once = pairs.map(|(id, value)| {
            let is_first = id.is_none_or(|id| drawn.0.insert(id));
            drawn.1 += usize::from(!is_first);
            value.map(|value| if is_first { value } else { value + AGAIN })
        });
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from_iter(once))))
    }
}
