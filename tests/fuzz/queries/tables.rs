//! The tables of random queries, and a function that differs when it is evaluated again.
//!
//! ```text
//!  t0 … t7        in memory: no row, 1, 7 … 4000; k is NULL, hot, or shared by a few
//!  f0 … f7        the same rows as Parquet files, one a partition, of small row groups
//!  good0 … good7  those whose s is a number, in memory
//! ```

use std::collections::HashSet;
use std::fs::{File, create_dir};
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion::common::{Result, internal_err};
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::prelude::{ParquetReadOptions, SessionContext};

/// Rows and partitions of each table.
pub const TABLES: [(i64, usize); 8] = [
    (0, 1),
    (1, 1),
    (7, 1),
    (60, 2),
    (240, 3),
    (700, 2),
    (1500, 4),
    (4000, 4),
];

/// Tables of a few rows, which come first.
pub const TINY: usize = 3;

/// What is added to a value that is drawn again.
const AGAIN: i64 = 1_000_000_000_000;

/// Rows of a row group in a file.
const ROW_GROUP: usize = 100;

/// Registers the tables `t0` and so on, `f0` and so on with the same rows in files of `folder`, and
/// `good0` and so on: those of their rows whose text is a number. Without a folder the rows of `f0`
/// and so on are in memory too.
pub async fn register(session: &SessionContext, folder: Option<&Path>) -> Result<()> {
    for (t, (rows, partitions)) in TABLES.into_iter().enumerate() {
        let all: Vec<i64> = (0..rows).collect();
        let good: Vec<i64> = all.iter().copied().filter(|id| id % 2 == 0).collect();
        let in_memory = |name: String, ids: &[i64]| {
            let (schema, parts) = table(ids, rows, partitions)?;
            let table = MemTable::try_new(schema, parts)?;
            session.register_table(name, Arc::new(table))
        };
        in_memory(format!("t{t}"), &all)?;
        in_memory(format!("good{t}"), &good)?;
        let name = format!("f{t}");
        match folder {
            None => {
                in_memory(name, &all)?;
            }
            Some(folder) => {
                let files = folder.join(&name);
                write(&files, table(&all, rows, partitions)?)?;
                let options = ParquetReadOptions::default();
                let files = files.to_string_lossy();
                session.register_parquet(name, files, options).await?;
            }
        }
    }
    Ok(())
}

/// Writes each partition as a file of a new `folder`.
fn write(folder: &Path, (schema, parts): (SchemaRef, Vec<Vec<RecordBatch>>)) -> Result<()> {
    create_dir(folder)?;
    for (part, batches) in parts.into_iter().enumerate() {
        let file = File::create(folder.join(format!("{part}.parquet")))?;
        let properties = WriterProperties::builder();
        let properties = properties.set_max_row_group_row_count(Some(ROW_GROUP));
        let mut writer = ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties.build()))?;
        for batch in batches {
            writer.write(&batch)?;
        }
        writer.close()?;
    }
    Ok(())
}

/// Returns the rows `ids` of a table of `rows` rows, by partition.
fn table(ids: &[i64], rows: i64, partitions: usize) -> Result<(SchemaRef, Vec<Vec<RecordBatch>>)> {
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
    Ok((batch.schema(), parts))
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
