//! The build side: collected once, kept as it came, its keys in a device table.
//!
//! ```text
//!  stream ─▶ batches (memory reserved) ─▶ key columns ─▶ KeyEncoder ─▶ surrogates ┐ by parts,
//!         └▶ wanted columns ─────────────────────────────────────────────────────┤ side by side
//!                      BuildSide, shared by all probe partitions ◀── JoinTable ◀─┘
//! ```
//!
//! The counterpart of DataFusion's `collect_left_input`, except that the batches stay as they are:
//! only columns that the host will gather, and that cannot outgrow an array's offsets, become one
//! array. A device that fails leaves a build side whose lookups the host answers
//! ([`fallback`](super::fallback)). Rows with a NULL key that equals nothing are kept for outer joins but have
//! no place in the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, MAX_INLINE_VIEW_LEN, RecordBatch};
use arrow::compute::concat;
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

use super::columns::{DeviceColumn, Source, Upload, log_words};
use super::emit::BuildRows;
use super::fallback::Fallback;
use super::host::HostTable;
use super::keys::{Extents, KeyEncoder};
use super::metrics::JoinMetrics;
use super::parts::{Part, parts, side_by_side};
use super::table::{JoinTable, SurrogateKeys};

/// Bytes of a string that stand in its view.
const INLINE: usize = MAX_INLINE_VIEW_LEN as usize;

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
    /// Whether matches must pass a residual filter.
    pub filtered: bool,
    /// Columns that pairs bring to the output or the residual filter.
    pub columns: Vec<usize>,
    /// Parts of the build side that are worked on at once.
    pub width: usize,
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
    /// The same by column: `key_columns[c][b]`, or one array of all rows.
    pub key_columns: Vec<Vec<ArrayRef>>,
    /// How keys become surrogates.
    pub encoder: KeyEncoder,
    /// The table; missing if no row can match, or if the device failed to build it.
    pub table: Option<Arc<JoinTable>>,
    /// What to do when the device fails.
    pub fallback: Fallback,
    /// Matched rows, for join types that need them; where the table notes them itself, only
    /// once they were brought back.
    pub visited: Option<Bitmap>,
    /// Whether any probe stream saw a row, and a NULL key (null-aware anti joins).
    pub probe_seen: ProbeSeen,
    probes_left: AtomicUsize,
    /// Whether any row can match.
    matchable: bool,
    /// Whether lookups alone decide which rows were matched.
    notes_visits: bool,
    width: usize,
    memory: MemoryReservation,
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
        // Encoded keys and row numbers on the host, until they are on the device.
        let encoded_bytes = 8 * rows;
        memory.try_grow(encoded_bytes)?;
        let (encoder, parts) = encode(&spec, &keys).await?;
        let mut build = Self {
            rows: BuildRows::new(batches),
            key_columns: by_column(&keys, spec.on.len()),
            keys,
            matchable: parts.iter().any(|part| !part.keys.is_empty()),
            notes_visits: spec.visited && !spec.filtered && encoder.is_exact(),
            width: spec.width,
            encoder,
            table: None,
            fallback: Fallback::new(spec.device.clone(), &spec.config),
            visited: spec.visited.then(|| Bitmap::new(rows)),
            probe_seen: ProbeSeen::default(),
            probes_left: AtomicUsize::new(spec.probes),
            memory,
        };
        let table = build.try_table(&spec, (parts, rows), &metrics).await?;
        let joined = build.join_columns(&spec, table.as_ref()).await?;
        metrics.build_mem_used.add(joined);
        timer.done();
        build.memory.shrink(encoded_bytes);
        let kept = table.as_ref().map_or(0, JoinTable::bytes)
            + build.visited.as_ref().map_or(0, Bitmap::bytes);
        build.memory.try_grow(kept)?;
        metrics.build_mem_used.add(kept);
        build.table = table.map(Arc::new);
        Ok(build)
    }

    /// As [`table`](Self::table); `None` too if the device fails and the host is to answer.
    async fn try_table(
        &self,
        spec: &BuildSpec,
        parts: (Vec<SurrogateKeys>, usize),
        metrics: &JoinMetrics,
    ) -> Result<Option<JoinTable>> {
        if self.fallback.is_taken() {
            return Ok(None);
        }
        match self.table(spec, parts, metrics).await {
            Ok(table) => Ok(table),
            Err(error) => {
                self.fallback.take_over(error, metrics)?;
                Ok(None)
            }
        }
    }

    /// The host's table, made when it is first asked for.
    ///
    /// # Errors
    /// `ResourcesExhausted` from the memory pool.
    pub async fn host_table(&self) -> Result<Arc<HostTable>> {
        let make = || async {
            let words = self.encoder.words();
            let encoded = (4 * words + 4) * self.rows.len();
            let kept = HostTable::bytes(self.rows.len(), words);
            self.memory.try_grow(encoded + kept)?;
            let parts = encode_parts(&self.encoder, &self.keys, self.width).await;
            let table = parts.map(|parts| Arc::new(HostTable::build(&parts, words)));
            let unused = encoded + table.as_ref().map_or(kept, |_| 0);
            self.memory.shrink(unused);
            table
        };
        self.fallback.table.get_or_try_init(make).await.cloned()
    }

    /// The table of the encoded `parts`, with the columns it is to gather; `None` if no row can
    /// match.
    async fn table(
        &self,
        spec: &BuildSpec,
        (parts, rows): (Vec<SurrogateKeys>, usize),
        metrics: &JoinMetrics,
    ) -> Result<Option<JoinTable>> {
        if !self.matchable {
            return Ok(None);
        }
        let upload = Upload {
            device: &spec.device,
            memory_limit: spec.config.memory_limit(),
            width: spec.width,
            metrics,
        };
        let how = (self.encoder.format(), self.notes_visits);
        let mut table =
            JoinTable::build(upload, spec.config.table_config(), (parts, rows), how).await?;
        for source in self.sources(spec) {
            let arrays = self.arrays(source);
            let Some(log_words) = log_words(arrays) else {
                continue;
            };
            match DeviceColumn::send(upload, source, (arrays.to_vec(), log_words)).await {
                Ok(column) => table.columns.extend(column),
                // The host gathers what the device has no room for.
                Err(Error::DeviceMemory { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Some(table))
    }

    /// Makes one array of each column that the host will gather, of fixed width or of string
    /// views: gathering from thousands of arrays takes several times as long. Bytes of views are
    /// gathered too, or every output batch would share thousands of buffers. Columns for which
    /// there is no memory stay as they are. Returns the bytes reserved for it.
    async fn join_columns(&mut self, spec: &BuildSpec, table: Option<&JoinTable>) -> Result<usize> {
        let on_device = |source: Source| {
            let columns = table.map_or(&[][..], |table| &table.columns);
            columns.iter().any(|column| column.source == source)
        };
        let mut wanted = Vec::new();
        let mut reserved = 0;
        for source in self.sources(spec) {
            let arrays = self.arrays(source);
            if arrays.len() < 2 || on_device(source) || !arrays.iter().all(can_be_joined) {
                continue;
            }
            let bytes = arrays.iter().map(joined_bytes).sum();
            if self.memory.try_grow(bytes).is_ok() {
                reserved += bytes;
                let columns: Vec<Vec<ArrayRef>> =
                    arrays.iter().map(|array| vec![Arc::clone(array)]).collect();
                wanted.push((source, columns));
            }
        }
        for (source, arrays) in wanted {
            let joined = side_by_side(parts(&arrays), spec.width, |part| async move {
                Ok(compact(join_arrays(part.columns.iter().flatten())?))
            });
            let array = join_arrays(joined.await?.iter())?;
            match source {
                Source::Batch(column) => self.rows.set_joined(column, array),
                Source::Key(c) => self.key_columns[c] = vec![array],
            }
        }
        Ok(reserved)
    }

    /// Columns that the probe would gather.
    fn sources(&self, spec: &BuildSpec) -> Vec<Source> {
        let columns = spec.columns.iter().map(|column| Source::Batch(*column));
        let keys = match self.encoder.is_exact() {
            true => 0,
            false => spec.on.len(),
        };
        columns.chain((0..keys).map(Source::Key)).collect()
    }

    /// A column, an array a batch or one of all rows.
    pub fn arrays(&self, source: Source) -> &[ArrayRef] {
        match source {
            Source::Batch(column) => self.rows.column(column),
            Source::Key(c) => self.key_columns.get(c).map_or(&[], Vec::as_slice),
        }
    }

    /// Whether the caller is the last probe stream to end.
    pub fn probe_ended(&self) -> bool {
        self.probes_left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether any row can match.
    pub fn can_match(&self) -> bool {
        self.matchable
    }

    /// An upper bound of the number of different surrogates.
    pub fn distinct(&self) -> usize {
        match &self.table {
            Some(table) => table.table().len(),
            None if self.matchable => self.rows.len(),
            None => 0,
        }
    }

    /// Whether lookups note which rows were matched, as they alone decide that.
    pub fn notes_visits(&self) -> bool {
        self.notes_visits
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

fn can_be_joined(array: &ArrayRef) -> bool {
    match array.data_type() {
        DataType::Utf8View | DataType::BinaryView | DataType::Boolean => true,
        other => other.is_primitive(),
    }
}

/// Bytes that an array's values take once joined.
fn joined_bytes(array: &ArrayRef) -> usize {
    let of_views = |views: &[u128]| -> usize {
        let lengths = views.iter().map(|view| *view as u32 as usize);
        lengths.filter(|length| *length > INLINE).sum()
    };
    let bytes = match array.data_type() {
        DataType::Utf8View => of_views(array.as_string_view().views()),
        DataType::BinaryView => of_views(array.as_binary_view().views()),
        _ => 0,
    };
    let width = array.data_type().primitive_width().unwrap_or(16) + 1;
    width * array.len() + bytes
}

fn join_arrays<'a>(arrays: impl Iterator<Item = &'a ArrayRef>) -> Result<ArrayRef> {
    let arrays: Vec<&dyn Array> = arrays.map(AsRef::as_ref).collect();
    Ok(concat(&arrays)?)
}

/// The array with the bytes of its views, if it has any, in buffers of its own.
fn compact(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        _ => array,
    }
}

/// The key columns by column instead of by batch.
fn by_column(keys: &[Vec<ArrayRef>], columns: usize) -> Vec<Vec<ArrayRef>> {
    let column = |c: usize| keys.iter().map(|batch| Arc::clone(&batch[c])).collect();
    (0..columns).map(column).collect()
}

/// The columns as a batch, for counting their memory.
fn unnamed(columns: &[ArrayRef]) -> Result<RecordBatch> {
    let named = columns.iter().map(|column| ("", Arc::clone(column)));
    Ok(RecordBatch::try_from_iter(named)?)
}

/// Chooses the encoding of `keys` and encodes them, by parts.
async fn encode(
    spec: &BuildSpec,
    keys: &[Vec<ArrayRef>],
) -> Result<(KeyEncoder, Vec<SurrogateKeys>)> {
    let measure = |part: Part| {
        let types = spec.types.clone();
        async move { Extents::measure(&part.columns, &types) }
    };
    let extents = side_by_side(parts(keys), spec.width, measure).await?;
    let whole = extents.into_iter().reduce(Extents::union);
    let extents = match whole {
        Some(extents) => extents,
        None => Extents::measure(&[], &spec.types)?,
    };
    let encoder = KeyEncoder::of(&extents, &spec.types, spec.null_equality)
        .with_surrogate_bits(spec.config.surrogate_bits, spec.null_equality);
    let encoded = encode_parts(&encoder, keys, spec.width).await?;
    Ok((encoder, encoded))
}

/// The surrogates of all rows that can match, by parts.
async fn encode_parts(
    encoder: &KeyEncoder,
    keys: &[Vec<ArrayRef>],
    width: usize,
) -> Result<Vec<SurrogateKeys>> {
    let encode = |part: Part| {
        let encoder = encoder.clone();
        async move { encode_part(&encoder, &part) }
    };
    side_by_side(parts(keys), width, encode).await
}

/// Surrogates of the rows that can match.
fn encode_part(encoder: &KeyEncoder, part: &Part) -> Result<SurrogateKeys> {
    let words = encoder.words();
    let mut keys = vec![0; part.rows * words];
    let mut rows: Option<Vec<u32>> = None;
    let (mut before, mut len) = (0, 0);
    for columns in &part.columns {
        let count = columns.first().map_or(0, |column| column.len());
        let out = &mut keys[len * words..][..count * words];
        let matchable = encoder.encode_matchable(columns, out)?;
        len += matchable.as_ref().map_or(count, Vec::len);
        let first = before as u32;
        match (matchable, &mut rows) {
            (None, None) => {}
            (None, Some(rows)) => rows.extend(first..first + count as u32),
            (Some(matchable), rows) => rows
                .get_or_insert_with(|| (0..first).collect())
                .extend(matchable.iter().map(|row| first + row)),
        }
        before += count;
    }
    keys.truncate(len * words);
    Ok(SurrogateKeys {
        first_row: part.first_row,
        keys,
        rows,
    })
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

    /// Sets the bits that are set in `words`, of 32 rows each.
    pub fn set_all(&self, words: &[u32]) {
        let bits = words.iter().map(|word| u64::from(*word)).enumerate();
        for (w, word) in bits.filter(|(_, word)| *word != 0) {
            self.words[w / 2].fetch_or(word << (32 * (w % 2)), Ordering::Relaxed);
        }
    }

    /// Whether the bit of `row` is set.
    pub fn get(&self, row: u32) -> bool {
        self.words[row as usize / 64].load(Ordering::Relaxed) >> (row % 64) & 1 == 1
    }
}
