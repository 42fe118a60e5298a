//! Rows of a statement on standard output.
//!
//! ```text
//!  batches ─┬─ table ─────────▶ kept, up to --maxrows ─▶ a table at the end
//!           └─ csv, json, … ──▶ written as they come
//! ```
//!
//! The formats are those of `datafusion-cli`. It keeps all rows until the end, cuts some formats
//! after --maxrows, and writes nothing where there are no rows. Here only tables are kept and cut,
//! and no rows are a CSV header, or the JSON array `[]`: what reads them need not ask.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::csv;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::json::{ArrayWriter, LineDelimitedWriter};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::config::FormatOptions;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::MaxRows;
use futures::StreamExt;

/// Standard output, which remembers that its reader is gone.
pub struct Out {
    stdout: Stdout,
    is_gone: Arc<AtomicBool>,
}

impl Out {
    /// Returns standard output, and whether its reader is gone, once that is known.
    pub fn open() -> (Self, Arc<AtomicBool>) {
        let is_gone = Arc::new(AtomicBool::new(false));
        let out = Self {
            stdout: io::stdout(),
            is_gone: Arc::clone(&is_gone),
        };
        (out, is_gone)
    }

    fn note<T>(&self, written: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &written
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            self.is_gone.store(true, Ordering::Relaxed);
        }
        written
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.stdout.write(bytes);
        self.note(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.stdout.flush();
        self.note(flushed)
    }
}

/// The way in which rows are printed.
pub struct Style<'a> {
    /// The format, which is not automatic.
    pub format: PrintFormat,
    /// Rows of a table that are shown.
    pub maxrows: MaxRows,
    /// Look of a table's values.
    pub values: &'a FormatOptions,
}

/// The rows that were printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Printed {
    /// Rows of the result.
    pub rows: usize,
    /// Rows that were left out of a table.
    pub hidden: usize,
}

/// Prints the rows of `rows`, and calls `begin` before the first output. What is kept for a table
/// is taken from `memory`.
///
/// # Errors
/// Those of the rows, of memory that is short, and of standard output.
pub async fn print(
    mut rows: SendableRecordBatchStream,
    style: Style<'_>,
    memory: &MemoryReservation,
    out: Out,
    mut begin: impl FnMut(),
) -> Result<Printed> {
    let schema = rows.schema();
    let out = BufWriter::new(out);
    let mut sink = Sink::new(&style, out, &schema);
    let mut count = 0;
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        if batch.num_rows() == 0 {
            continue;
        }
        count += batch.num_rows();
        if !matches!(sink, Sink::Table { .. }) {
            begin();
        }
        sink.write(batch, memory)?;
    }
    begin();
    let shown = sink.finish(&style, schema, count)?;
    Ok(Printed {
        rows: count,
        hidden: count - shown,
    })
}

/// The place that rows go to.
enum Sink {
    Table {
        out: BufWriter<Out>,
        kept: Vec<RecordBatch>,
        /// Rows that may yet be kept.
        room: usize,
    },
    Csv(Box<csv::Writer<BufWriter<Out>>>),
    Json(ArrayWriter<BufWriter<Out>>),
    NdJson(LineDelimitedWriter<BufWriter<Out>>),
    /// The result has no columns: there is nothing to print.
    None,
}

impl Sink {
    fn new(style: &Style<'_>, out: BufWriter<Out>, schema: &SchemaRef) -> Self {
        let separated = |out, by| {
            let writer = csv::WriterBuilder::new().with_delimiter(by).build(out);
            Self::Csv(Box::new(writer))
        };
        if schema.fields().is_empty() {
            return Self::None;
        }
        match style.format {
            PrintFormat::Csv => separated(out, b','),
            PrintFormat::Tsv => separated(out, b'\t'),
            PrintFormat::Json => Self::Json(ArrayWriter::new(out)),
            PrintFormat::NdJson => Self::NdJson(LineDelimitedWriter::new(out)),
            PrintFormat::Table | PrintFormat::Automatic => Self::Table {
                out,
                kept: Vec::new(),
                room: match style.maxrows {
                    MaxRows::Unlimited => usize::MAX,
                    // One more tells that there are more.
                    MaxRows::Limited(rows) => rows.saturating_add(1),
                },
            },
        }
    }

    fn write(&mut self, batch: RecordBatch, memory: &MemoryReservation) -> Result<()> {
        match self {
            Self::Table { kept, room, .. } => {
                let batch = batch.slice(0, batch.num_rows().min(*room));
                if batch.num_rows() > 0 {
                    *room -= batch.num_rows();
                    memory.try_grow(get_record_batch_memory_size(&batch))?;
                    kept.push(batch);
                }
            }
            Self::Csv(writer) => writer.write(&batch)?,
            Self::Json(writer) => {
                writer.write(&batch)?;
                writer.get_mut().flush()?;
            }
            Self::NdJson(writer) => {
                writer.write(&batch)?;
                writer.get_mut().flush()?;
            }
            Self::None => {}
        }
        Ok(())
    }

    /// Writes what is left of `count` rows. Returns how many were shown.
    fn finish(self, style: &Style<'_>, schema: SchemaRef, count: usize) -> Result<usize> {
        let mut out = match self {
            Self::Table { mut out, kept, .. } => {
                PrintFormat::Table.print_batches(
                    &mut out,
                    schema,
                    &kept,
                    style.maxrows,
                    true,
                    style.values,
                )?;
                out.flush()?;
                return Ok(match style.maxrows {
                    MaxRows::Unlimited => count,
                    MaxRows::Limited(rows) => count.min(rows),
                });
            }
            Self::Csv(mut writer) => {
                if count == 0 {
                    writer.write(&RecordBatch::new_empty(schema))?;
                }
                writer.into_inner()
            }
            Self::Json(mut writer) => {
                writer.finish()?;
                let mut out = writer.into_inner();
                writeln!(out)?;
                out
            }
            Self::NdJson(mut writer) => {
                writer.finish()?;
                writer.into_inner()
            }
            Self::None => return Ok(count),
        };
        out.flush()?;
        Ok(count)
    }
}
