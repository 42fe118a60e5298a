//! The build side: collected once, kept as it came, its keys in a device table.
//!
//! ```text
//!  stream ─▶ batches (memory reserved) ─▶ key columns ─▶ KeyEncoder ─▶ surrogates
//!         ─▶ device job: JoinTable ─▶ BuildSide, shared by all probe partitions
//! ```
//!
//! The counterpart of DataFusion's `collect_left_input`, except that batches are not
//! concatenated. Rows with a NULL key that equals nothing are kept for outer joins but have
//! no place in the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::common::NullEquality;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use futures::TryStreamExt;

use crate::config::HortonConfig;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::table::horton::MAX_VALUE;

use super::emit::BuildRows;
use super::keys::KeyEncoder;
use super::metrics::JoinMetrics;
use super::table::{JoinTable, SurrogateKeys};

/// What a build needs to know about its join.
#[derive(Debug, Clone)]
pub struct BuildSpec {
    /// Key expressions over the build side.
    pub on: Vec<PhysicalExprRef>,
    /// Their types.
    pub types: Vec<DataType>,
    /// Whether NULL keys match each other.
    pub null_equality: NullEquality,
    /// Whether the join type needs to know which build rows were matched.
    pub visited: bool,
    /// Streams that will probe the table.
    pub probes: usize,
    /// Device of the table.
    pub device: Device,
    /// The session's options.
    pub config: HortonConfig,
}

/// A collected build side and its device table.
#[derive(Debug)]
pub struct BuildSide {
    /// The batches.
    pub rows: BuildRows,
    /// Key columns of each batch: for verifying candidates, NULL tests and dynamic filters.
    pub keys: Vec<Vec<ArrayRef>>,
    /// How keys become surrogates.
    pub encoder: KeyEncoder,
    /// The table; missing if no row can match.
    pub table: Option<Arc<JoinTable>>,
    /// Matched rows, for join types that need them.
    pub visited: Option<Bitmap>,
    /// Whether any probe stream saw a row, and a NULL key (null-aware anti joins).
    pub probe_seen: ProbeSeen,
    probes_left: AtomicUsize,
    _memory: MemoryReservation,
}

/// What the probe streams of a null-aware anti join saw.
#[derive(Debug, Default)]
pub struct ProbeSeen {
    /// A row.
    pub any: AtomicBool,
    /// A NULL key.
    pub null: AtomicBool,
}

impl BuildSide {
    /// Collects `stream` and builds its table.
    ///
    /// # Errors
    /// The stream's; `ResourcesExhausted` from the memory pool; [`Error::TooManyRows`]; the
    /// device's.
    pub async fn collect(
        spec: BuildSpec,
        stream: SendableRecordBatchStream,
        memory: MemoryReservation,
        metrics: JoinMetrics,
    ) -> Result<Self> {
        // Batches can be slices of one larger batch, whose buffers count once.
        let mut counter = RecordBatchMemoryCounter::new();
        let batches = collect_batches(stream, &memory, &mut counter, &metrics).await?;
        let timer = metrics.build_time.timer();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if rows > MAX_VALUE as usize {
            return Err(Error::TooManyRows {
                rows,
                limit: MAX_VALUE as usize,
            });
        }
        let keys = evaluate_keys(&spec.on, &batches)?;
        for columns in &keys {
            // Key expressions make new arrays; key columns are counted already.
            let bytes = counter.count_batch(&unnamed(columns)?);
            memory.try_grow(bytes)?;
            metrics.build_mem_used.add(bytes);
        }
        let encoder = KeyEncoder::fit(&keys, &spec.types, spec.null_equality)?
            .with_surrogate_bits(spec.config.surrogate_bits);
        // Encoded keys and row numbers on the host, until they are on the device.
        let encoded_bytes = 8 * rows;
        memory.try_grow(encoded_bytes)?;
        let input = encode(&encoder, &keys, rows)?;
        timer.done();
        let table = build_table(&spec, input, &metrics).await?;
        memory.shrink(encoded_bytes);
        let visited = spec.visited.then(|| Bitmap::new(rows));
        let kept =
            table.as_ref().map_or(0, JoinTable::bytes) + visited.as_ref().map_or(0, Bitmap::bytes);
        memory.try_grow(kept)?;
        metrics.build_mem_used.add(kept);
        Ok(Self {
            rows: BuildRows::new(batches),
            keys,
            encoder,
            table: table.map(Arc::new),
            visited,
            probe_seen: ProbeSeen::default(),
            probes_left: AtomicUsize::new(spec.probes),
            _memory: memory,
        })
    }

    /// Whether the caller is the last probe stream to end.
    pub fn probe_ended(&self) -> bool {
        self.probes_left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether the first key of build row `row` is NULL.
    pub fn first_key_is_null(&self, row: u32) -> bool {
        let (batch, row) = self.rows.locate(row);
        self.keys[batch]
            .first()
            .is_some_and(|key| key.logical_nulls().is_some_and(|nulls| nulls.is_null(row)))
    }
}

/// Collects non-empty batches, reserving their memory.
async fn collect_batches(
    mut stream: SendableRecordBatchStream,
    memory: &MemoryReservation,
    counter: &mut RecordBatchMemoryCounter,
    metrics: &JoinMetrics,
) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    while let Some(batch) = stream.try_next().await? {
        let bytes = counter.count_batch(&batch);
        memory.try_grow(bytes)?;
        metrics.build_mem_used.add(bytes);
        metrics.build_input_batches.add(1);
        metrics.build_input_rows.add(batch.num_rows());
        if batch.num_rows() > 0 {
            batches.push(batch);
        }
    }
    Ok(batches)
}

/// Key columns of every batch.
fn evaluate_keys(on: &[PhysicalExprRef], batches: &[RecordBatch]) -> Result<Vec<Vec<ArrayRef>>> {
    let keys = batches
        .iter()
        .map(|batch| evaluate_expressions_to_arrays(on, batch))
        .collect::<datafusion::error::Result<_>>()?;
    Ok(keys)
}

/// The columns as a batch, for counting their memory.
fn unnamed(columns: &[ArrayRef]) -> Result<RecordBatch> {
    let named = columns.iter().map(|column| ("", Arc::clone(column)));
    Ok(RecordBatch::try_from_iter(named)?)
}

/// Surrogates of all rows that can match, with their row numbers unless those are all rows.
fn encode(encoder: &KeyEncoder, keys: &[Vec<ArrayRef>], rows: usize) -> Result<SurrogateKeys> {
    let mut surrogates = Vec::with_capacity(rows);
    let mut kept: Option<Vec<u32>> = None;
    let mut first_row = 0;
    for columns in keys {
        let start = surrogates.len();
        let mask = encoder.encode(columns, &mut surrogates)?;
        let count = surrogates.len() - start;
        if mask.is_some() || kept.is_some() {
            let kept = kept.get_or_insert_with(|| (0..first_row).collect());
            let matchable = |i: &usize| mask.as_ref().is_none_or(|mask| mask.value(*i));
            for (to, i) in (start..).zip((0..count).filter(matchable)) {
                surrogates[to] = surrogates[start + i];
                kept.push(first_row + i as u32);
            }
            surrogates.truncate(kept.len());
        }
        first_row += count as u32;
    }
    Ok(SurrogateKeys {
        keys: surrogates,
        rows: kept,
        bits: encoder.bits(),
    })
}

async fn build_table(
    spec: &BuildSpec,
    input: SurrogateKeys,
    metrics: &JoinMetrics,
) -> Result<Option<JoinTable>> {
    if input.keys.is_empty() {
        return Ok(None);
    }
    let (config, limit) = (spec.config.table(), spec.config.memory_limit());
    let _timer = metrics.build_time.timer();
    let answer = spec
        .device
        .run(move |queue| {
            queue.limit_memory(limit);
            JoinTable::build(queue, &config, &input)
        })
        .await?;
    metrics.add_cost(&answer.cost);
    metrics.add_table(&answer.value.table);
    Ok(Some(answer.value))
}

/// One bit a build row, set by any probe stream.
#[derive(Debug)]
pub struct Bitmap {
    words: Vec<AtomicU64>,
}

impl Bitmap {
    fn new(rows: usize) -> Self {
        let words = (0..rows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { words }
    }

    fn bytes(&self) -> usize {
        8 * self.words.len()
    }

    /// Sets the bit of `row`.
    pub fn set(&self, row: u32) {
        let (word, bit) = (&self.words[row as usize / 64], 1 << (row % 64));
        // Most rows are visited again and again: reading first keeps the line shared.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Whether the bit of `row` is set.
    pub fn get(&self, row: u32) -> bool {
        self.words[row as usize / 64].load(Ordering::Relaxed) >> (row % 64) & 1 == 1
    }
}
