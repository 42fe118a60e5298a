//! Tables whose rows are made when they are read: nothing of them is resident before.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;

/// Rows of a batch, but for [`Texts::Small`] and [`Texts::Cut`].
const BATCH: usize = 8192;

/// Rows of a batch with [`Texts::Small`], and values of its dictionary.
pub const SMALL: usize = 64;

/// The texts in the column `s` of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Texts {
    /// A text of 4 KB per row.
    Plain,
    /// The same in batches of 500 rows.
    Cut,
    /// A text of 4 KB per row, of a dictionary of 1,000 that each batch has for itself.
    Dictionary,
    /// A text of 4 KB per row, of one dictionary that all batches share; they are small.
    Small,
    /// A text of 1 KB per row.
    Medium,
    /// A byte.
    Short,
}

impl Texts {
    fn data_type(self) -> DataType {
        match self {
            Self::Dictionary | Self::Small => {
                DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
            }
            _ => DataType::Utf8,
        }
    }

    /// Rows of a batch.
    fn batch_rows(self) -> usize {
        match self {
            Self::Small => SMALL,
            Self::Cut => 500,
            _ => BATCH,
        }
    }

    /// `rows` texts.
    fn column(self, rows: usize) -> ArrayRef {
        let long = "x".repeat(4096);
        let texts = |text: &str, n| StringArray::from_iter_values(std::iter::repeat_n(text, n));
        match self {
            Self::Plain | Self::Cut => Arc::new(texts(&long, rows)),
            Self::Medium => Arc::new(texts(&long[..1024], rows)),
            Self::Short => Arc::new(texts("x", rows)),
            Self::Dictionary => {
                let keys = (0..rows as i32).map(|row| row % 1000).collect();
                let values = Arc::new(texts(&long, 1000));
                Arc::new(DictionaryArray::<Int32Type>::new(keys, values))
            }
            Self::Small => {
                static VALUES: LazyLock<ArrayRef> = LazyLock::new(|| Texts::Plain.column(SMALL));
                let keys = (0..rows as i32).collect();
                let values = Arc::clone(&VALUES);
                Arc::new(DictionaryArray::<Int32Type>::new(keys, values))
            }
        }
    }
}

/// One partition: rows `k = row % keys`, and `s`.
#[derive(Debug)]
struct Rows {
    schema: SchemaRef,
    texts: Texts,
    rows: usize,
    keys: i64,
}

impl Rows {
    fn batch(&self, from: usize) -> RecordBatch {
        let rows = from..(from + self.texts.batch_rows()).min(self.rows);
        let texts = self.texts.column(rows.len());
        let keys = Int64Array::from_iter_values(rows.map(|row| row as i64 % self.keys));
        RecordBatch::try_new(Arc::clone(&self.schema), vec![Arc::new(keys), texts]).unwrap()
    }
}

/// The same, behind an `Arc` of its own for the stream.
#[derive(Debug)]
struct Partition(Arc<Rows>);

impl PartitionStream for Partition {
    fn schema(&self) -> &SchemaRef {
        &self.0.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = Arc::clone(&self.0);
        let batches = (0..rows.rows).step_by(rows.texts.batch_rows());
        let schema = Arc::clone(&self.0.schema);
        let stream = futures::stream::iter(batches.map(move |from| Ok(rows.batch(from))));
        Box::pin(RecordBatchStreamAdapter::new(schema, stream))
    }
}

/// A table of `rows` rows in each of `partitions` partitions.
pub fn table((partitions, rows): (usize, usize), keys: i64, texts: Texts) -> Arc<StreamingTable> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, false),
        // Else `count(s)` would be `count(*)`.
        Field::new("s", texts.data_type(), true),
    ]));
    let rows = Arc::new(Rows {
        schema: Arc::clone(&schema),
        texts,
        rows,
        keys,
    });
    let partition = || Arc::new(Partition(Arc::clone(&rows))) as Arc<dyn PartitionStream>;
    let partitions = (0..partitions).map(|_| partition()).collect();
    Arc::new(StreamingTable::try_new(schema, partitions).unwrap())
}
