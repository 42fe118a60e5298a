//! The build side that all probe streams share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;

use crate::error::{Error, Result};

use crate::join::arrays::{Size, has_dictionary, is_better_joined};
use crate::join::bitmap::Bitmap;
use crate::join::build::joined::{ColumnsToJoin, JoinedColumn};
use crate::join::build::owed::Owed;
use crate::join::build::spec::BuildSpec;
use crate::join::collect::reading::Collected;
use crate::join::decision::Declined;
use crate::join::lookup::columns::{DeviceColumn, Upload, log_words};
use crate::join::lookup::fallback::Fallback;
use crate::join::lookup::host::HostTable;
use crate::join::lookup::table::{JoinTable, TableSpec};
use crate::join::memory::BuildMemory;
use crate::join::metrics::JoinMetrics;
use crate::join::rows::Source;
use crate::join::rows::{BuildRows, NO_ROW};
use crate::keys::encoder::KeyEncoder;
use crate::keys::source::{
    BuildKeys, EncodedKeys, PlainKeys, choose_encoder, encode_parts, encoded_bytes, has_nulls,
};
use crate::parts::task_failed;

/// Device bytes of a key while one table is built, at least (a slot of a direct table): more keys are not
/// even tried.
const LEAST_KEY_BYTES: u64 = 8;

/// Build rows from which probe streams emit together what the join owes.
const MANY_OWED: usize = 1 << 16;

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
    /// What is emitted once the probe has ended.
    pub owed: Owed,
    /// Whether any row can match.
    matchable: bool,
    /// Whether the join type needs to know which rows were matched, and no residual filter has a say.
    visits: bool,
    /// Why the host is to join these rows, if no table could be built.
    handed_back: Option<Declined>,
    width: usize,
    memory: BuildMemory,
}

/// What became of a build.
pub enum Built {
    /// Its table is on the device.
    Side(Box<BuildSide>),
    /// The host is to join the rows, for this reason.
    HandedBack(Declined),
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
    /// Builds the table of the rows `collected`, the memory of which the caller holds on to, until
    /// it is handed over ([`hold`](Self::hold)).
    ///
    /// # Errors
    /// `ResourcesExhausted` from the memory pool; [`Error::TooManyRows`]; the device's, if the
    /// session wants to see them.
    pub async fn build(
        spec: BuildSpec,
        collected: Collected,
        memory: BuildMemory,
        metrics: JoinMetrics,
    ) -> Result<Built> {
        let timer = metrics.build_time.timer();
        let Collected {
            batches,
            rows,
            mut counter,
            ..
        } = collected;
        let limit = NO_ROW as usize - 1;
        if rows > limit {
            return Err(Error::TooManyRows { rows, limit });
        }
        let keys = evaluate_keys(&spec.on, &batches)?;
        for columns in &keys {
            // Key expressions make new arrays; key columns are counted already.
            let bytes = counter.count_batch(&unnamed(columns)?);
            memory.keys.try_grow(bytes)?;
            metrics.build_mem_used.add(bytes);
        }
        if spec.visited {
            memory.visited.try_grow(Bitmap::bytes(rows))?;
        }
        let began = Instant::now();
        let encoder = choose_encoder(&spec.keys, &keys, spec.width).await?;
        let to_send = if has_nulls(&keys) {
            let memory = &memory.keys;
            BuildKeys::Encoded(EncodedKeys::new(&encoder, &keys, rows, spec.width, memory).await?)
        } else {
            BuildKeys::Plain
        };
        let encoded = began.elapsed();
        let mut build = Self {
            rows: BuildRows::new(batches),
            key_columns: by_column(&keys, spec.on.len()),
            keys,
            matchable: to_send.count(rows) > 0,
            visits: spec.visited && !spec.filtered,
            width: spec.width,
            encoder,
            table: None,
            fallback: Fallback::new(spec.device.clone(), &spec.config),
            visited: spec.visited.then(|| Bitmap::new(rows)),
            probe_seen: ProbeSeen::default(),
            owed: Owed::new(spec.probes, spec.visited && rows > MANY_OWED),
            handed_back: None,
            memory,
        };
        let mut joined = build.build_table(&spec, to_send, &metrics).await?;
        let built = began.elapsed();
        if let Some(reason) = build.handed_back.take() {
            return Ok(Built::HandedBack(reason));
        }
        let left = build.columns_to_join(&spec, |_| true);
        joined += build.set_joined(left.join(spec.width).await?);
        log::debug!(
            "build side of {rows} rows: encoder after {encoded:?}, table after {built:?}, columns after {:?}",
            began.elapsed()
        );
        metrics.build_mem_used.add(joined);
        timer.done();
        let memory = &build.memory;
        let kept = memory.device.size() + memory.tables.size() + memory.visited.size();
        metrics.build_mem_used.add(kept);
        Ok(Built::Side(Box::new(build)))
    }

    /// Holds what is reserved for the rows.
    pub fn hold(&self, rows: &MemoryReservation) {
        self.memory.batches.grow(rows.free());
    }

    /// Builds the table, and meanwhile makes one array of each column that the device does not gather in any case. Returns the
    /// bytes reserved for those.
    async fn build_table(
        &mut self,
        spec: &BuildSpec,
        keys: BuildKeys,
        metrics: &JoinMetrics,
    ) -> Result<usize> {
        let BuildKeys::Plain = keys else {
            self.table = self.try_tables(spec, keys, metrics).await?;
            return Ok(0);
        };
        let early = self.columns_to_join(spec, |arrays| log_words(arrays).is_none());
        if early.is_empty() {
            self.table = self.try_tables(spec, keys, metrics).await?;
            return Ok(0);
        }
        let (reserved, encoder) = (early.reserved(), self.encoder.clone());
        // As a task of its own, as putting parts together keeps a core busy.
        let joined = SpawnedTask::spawn(early.join(spec.width));
        let table = self.try_tables(spec, keys, metrics).await;
        match table {
            Err(error) if reserved > 0 && error.is_pool_memory() => {
                // The table comes first, should what is left of the memory pool be too little for both.
                drop(joined.join().await);
                self.memory.batches.shrink(reserved);
                self.forget_tables();
                self.encoder = encoder;
                self.table = self.try_tables(spec, BuildKeys::Plain, metrics).await?;
                Ok(0)
            }
            table => {
                self.table = table?;
                let joined = joined.join().await.map_err(|e| task_failed(&e))?;
                Ok(self.set_joined(joined?))
            }
        }
    }

    /// Gives back what was reserved for a table that is not there.
    fn forget_tables(&self) {
        let visited = self.visited.as_ref().map_or(0, |_| self.rows.len());
        self.memory.forget_tables(Bitmap::bytes(visited));
    }

    /// As [`one_table`](Self::one_table); `None` too if the device fails and the host is to answer.
    async fn try_tables(
        &mut self,
        spec: &BuildSpec,
        keys: BuildKeys,
        metrics: &JoinMetrics,
    ) -> Result<Option<Arc<JoinTable>>> {
        match self.one_table(spec, keys, metrics).await {
            Ok(table) => Ok(table),
            Err(error) if is_too_large(&error) => {
                self.hand_back(Declined::DoesNotFit);
                Ok(None)
            }
            Err(error) => {
                let reason = error.brief();
                self.fallback.take_over(error, metrics)?;
                self.hand_back(Declined::Failed(reason));
                Ok(None)
            }
        }
    }

    /// Gives the rows to the host for `reason`.
    fn hand_back(&mut self, reason: Declined) {
        self.forget_tables();
        self.handed_back = Some(reason);
    }

    /// The host's table, made when it is first asked for.
    ///
    /// # Errors
    /// `ResourcesExhausted` from the memory pool.
    pub async fn host_table(&self) -> Result<Arc<HostTable>> {
        let make = || async {
            let words = self.encoder.words();
            let encoded = self.memory.keys.new_empty();
            encoded.try_grow(encoded_bytes(&self.encoder, self.rows.len()))?;
            let kept = self.memory.tables.new_empty();
            kept.try_grow(HostTable::bytes(self.rows.len(), words))?;
            let parts = encode_parts(&self.encoder, &self.keys, self.width).await?;
            // What is reserved stays so until the thread is done, though the query may be cancelled.
            let make = move || (HostTable::build(&parts, words), kept, encoded);
            let made = SpawnedTask::spawn_blocking(make).join().await;
            let (table, kept, _) = made.map_err(|e| task_failed(&e))?;
            self.memory.tables.grow(kept.free());
            Ok(Arc::new(table))
        };
        self.fallback.table.get_or_try_init(make).await.cloned()
    }

    /// The table of the encoded `keys`; `None` if no row can match.
    async fn one_table(
        &self,
        spec: &BuildSpec,
        keys: BuildKeys,
        metrics: &JoinMetrics,
    ) -> Result<Option<Arc<JoinTable>>> {
        let rows = self.rows.len();
        let count = keys.count(rows);
        if !self.matchable {
            return Ok(None);
        }
        let upload = Upload {
            device: &spec.device,
            memory_limit: spec.config.memory_limit(),
            width: spec.width,
            metrics,
        };
        let has_room = usize::try_from(upload.limit() / LEAST_KEY_BYTES).unwrap_or(usize::MAX);
        let limit = spec.config.knobs.max_table_rows.min(has_room);
        if rows > spec.config.knobs.max_table_rows || count > has_room {
            return Err(Error::TooManyRows { rows, limit });
        }
        let mut built = self.whole(spec, upload, &keys).await;
        if let Err(error) = &built
            && spec.device.has_room_after(error, 0).await
        {
            built = self.whole(spec, upload, &keys).await;
        }
        Ok(Some(Arc::new(built?)))
    }

    /// One table of all `keys`, with the columns that it is to gather.
    async fn whole(
        &self,
        spec: &BuildSpec,
        upload: Upload<'_>,
        keys: &BuildKeys,
    ) -> Result<JoinTable> {
        let table = TableSpec {
            config: spec.config.index_config(),
            format: self.encoder.format(),
            rows: self.rows.len(),
            notes_visits: self.notes_visits(),
        };
        let mut table = match keys {
            BuildKeys::Plain => {
                let keys = PlainKeys::of(&self.encoder, &self.keys);
                JoinTable::build(upload, table, keys).await?
            }
            BuildKeys::Encoded(keys) => {
                JoinTable::build(upload, table, keys.ranges.clone()).await?
            }
        };
        let columns = Upload {
            // What is left is for chunks.
            memory_limit: upload.limit() / 8 * 7,
            ..upload
        };
        for source in self.sources(spec) {
            match DeviceColumn::send(columns, source, self.arrays(source)).await {
                Ok(column) => table.columns.extend(column),
                // The host gathers what the device has no room for.
                Err(Error::DeviceMemory { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        self.memory.device.try_grow(table.bytes())?;
        Ok(table)
    }

    /// The columns that the host will gather, of those that are `wanted`, and that are better
    /// gathered from one array than from many. Columns for which there is no memory stay as they
    /// are.
    fn columns_to_join(
        &self,
        spec: &BuildSpec,
        wanted: impl Fn(&[ArrayRef]) -> bool,
    ) -> ColumnsToJoin {
        let mut to_join = ColumnsToJoin::default();
        let mut sources = self.sources(spec);
        // Rows owed at the end come batch by batch; but those of many batches make an output batch.
        let owed = spec.owed.iter().filter(|c| !spec.columns.contains(c));
        let owed = owed.map(|c| Source::Batch(*c));
        sources.extend(owed.filter(|source| self.has_dictionary(*source)));
        for source in sources {
            let arrays = self.arrays(source);
            let are_joined = arrays.len() < 2 || self.is_gathered(source);
            if are_joined || !wanted(arrays) || !is_better_joined(arrays[0].data_type()) {
                continue;
            }
            let size = Size::of(arrays);
            let is_room = |size: &Size| self.memory.batches.try_grow(size.bytes).is_ok();
            if let Some(size) = size.filter(is_room) {
                to_join.push(source, arrays, size);
            }
        }
        to_join
    }

    /// Makes each of the columns one array, and gives back what it does not take. Returns what is
    /// left of that.
    fn set_joined(&mut self, joined: Vec<JoinedColumn>) -> usize {
        let mut all = 0;
        for column in joined {
            let bytes = column.array.as_ref().map(Array::get_buffer_memory_size);
            let bytes = bytes.unwrap_or(0).min(column.reserved);
            self.memory.batches.shrink(column.reserved - bytes);
            all += bytes;
            match (column.source, column.array) {
                (Source::Batch(c), Some(array)) => self.rows.set_joined(c, array),
                (Source::Key(c), Some(array)) => self.key_columns[c] = vec![array],
                (_, None) => {}
            }
        }
        all
    }

    /// Columns that the probe would gather.
    fn sources(&self, spec: &BuildSpec) -> Vec<Source> {
        let columns = spec.columns.iter().map(|column| Source::Batch(*column));
        let keys = if self.encoder.is_exact() {
            0
        } else {
            spec.on.len()
        };
        columns.chain((0..keys).map(Source::Key)).collect()
    }

    fn has_dictionary(&self, source: Source) -> bool {
        let first = self.arrays(source).first();
        first.is_some_and(|array| has_dictionary(array.data_type()))
    }

    /// A column, an array a batch or one of all rows.
    pub fn arrays(&self, source: Source) -> &[ArrayRef] {
        match source {
            Source::Batch(column) => self.rows.column(column),
            Source::Key(c) => self.key_columns.get(c).map_or(&[], Vec::as_slice),
        }
    }

    /// Whether any row can match.
    pub fn can_match(&self) -> bool {
        self.matchable
    }

    /// Whether lookups note which rows were matched, as they alone decide that.
    pub fn notes_visits(&self) -> bool {
        self.visits && self.encoder.is_exact()
    }

    /// Whether it is the device alone that knows which build rows lookups met.
    pub fn visits_on_device(&self) -> bool {
        self.table
            .as_ref()
            .is_some_and(|table| table.visited.is_some())
    }

    /// Columns that lookups bring.
    pub fn gathered(&self) -> &[DeviceColumn] {
        self.table.as_ref().map_or(&[], |table| &table.columns)
    }

    /// Whether lookups bring the values of `source`.
    pub fn is_gathered(&self, source: Source) -> bool {
        let mut columns = self.gathered().iter();
        columns.any(|column| column.source == source)
    }

    /// Whether the first key of build row `row` is NULL.
    pub fn first_key_is_null(&self, row: u32) -> bool {
        let (batch, row) = self.rows.locate(row);
        self.keys[batch]
            .first()
            .is_some_and(|key| key.logical_nulls().is_some_and(|nulls| nulls.is_null(row)))
    }
}

/// Whether one table of the keys has no room.
fn is_too_large(error: &Error) -> bool {
    matches!(
        error,
        Error::DeviceMemory { .. } | Error::TooManyRows { .. }
    )
}

/// Key columns of every batch.
fn evaluate_keys(on: &[PhysicalExprRef], batches: &[RecordBatch]) -> Result<Vec<Vec<ArrayRef>>> {
    let keys = batches
        .iter()
        .map(|batch| evaluate_expressions_to_arrays(on, batch))
        .collect::<datafusion::error::Result<_>>()?;
    Ok(keys)
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
