//! The way from the input to the device: batches are gathered into chunks, encoded and looked up.
//!
//! ```text
//!  input ─▶ [batch][batch]…  up to a chunk's rows, bytes, or a refusal
//!        ─▶ keys in staging memory ─▶ device, or the host in its place
//! ```
//!
//! If the device fails, its lookups in flight are made again on another, or on the host. Where the
//! device alone knows which build rows were matched, those bits are brought back from time to time.
//! Until then the keys that were looked up are kept.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::device::{Answer, Staging, UploadPermit};
use crate::error::{Error, Result};
use crate::join::batch_bytes::BatchBytes;
use crate::join::bitmap::Bitmap;
use crate::join::build_side::replicate::fail_over;
use crate::join::build_side::side::BuildSide;
use crate::join::lookup::device;
use crate::join::lookup::host::HostMatches;
use crate::join::lookup::result::{ChunkPosition, LookupKind, LookupResult};
use crate::join::lookup::table::JoinTable;
use crate::join::memory::{FLOOR, ProbeMemory};
use crate::join::probe::chunk::ProbeBatch;

use super::{LookupInFlight, Probe, ProbeSpec, Refused, WINDOW_PAIRS_MIN};

/// Host bytes of what the host finds for a key in the device's place.
const HIT_BYTES: usize = 40;

/// Room of a chunk of probe rows.
#[derive(Clone, Copy)]
struct ChunkRoom {
    /// Bytes of the batches at most, unless there is only one.
    bytes: usize,
    /// Bytes that each row takes beside its batch.
    row_bytes: usize,
}

/// The keys of a chunk, where the engine that answers wants them.
enum ChunkKeys {
    ForDevice(Arc<JoinTable>, Staging<u32>, UploadPermit),
    ForHost(Vec<u32>),
}

impl ChunkKeys {
    fn words(&mut self) -> &mut [u32] {
        match self {
            ChunkKeys::ForDevice(_, words, _) => words,
            ChunkKeys::ForHost(words) => words,
        }
    }
}

/// Batches of a chunk, each with its key columns, and what they reserve.
pub(super) struct GatheredBatches {
    batches: Vec<(RecordBatch, Vec<ArrayRef>)>,
    rows: usize,
    bytes: usize,
    memory: ProbeMemory,
    counter: BatchBytes,
}

impl GatheredBatches {
    fn new(memory: ProbeMemory) -> Self {
        Self {
            batches: Vec::new(),
            rows: 0,
            bytes: 0,
            memory,
            counter: BatchBytes::default(),
        }
    }

    /// Returns the batches.
    pub(super) fn batches(&self) -> impl Iterator<Item = RecordBatch> + use<'_> {
        self.batches.iter().map(|(batch, _)| batch.clone())
    }

    /// Reserves room for a batch with its key columns; returns whether `room` and the memory pool
    /// have some.
    fn has_room(&mut self, batch: &RecordBatch, keys: &[ArrayRef], room: ChunkRoom) -> bool {
        let bytes = self.counter.count(batch, keys);
        self.bytes += bytes;
        let is_full = !self.batches.is_empty() && self.bytes > room.bytes;
        !is_full && (self.memory).add_rows(bytes + room.row_bytes * batch.num_rows())
    }

    /// Returns whether a batch of `bytes` is likely to have room: of `most` bytes with those
    /// before, and of what the memory pool grants.
    fn expects_room(&self, bytes: usize, most: usize) -> bool {
        let is_full = !self.batches.is_empty() && self.bytes + bytes > most;
        !is_full && self.memory.has_room(bytes)
    }

    fn push(&mut self, batch: RecordBatch, keys: Vec<ArrayRef>) {
        self.rows += batch.num_rows();
        self.batches.push((batch, keys));
    }
}

impl Probe {
    /// Returns a chunk: batches with rows, up to its rows, its batches, its bytes, or what the
    /// memory pool grants; at least one batch, which is there anyway. `None` at the end of the
    /// input, or if a chunk in flight is to give its memory back first.
    pub(super) async fn gather(&mut self, build: &BuildSide) -> Result<Option<GatheredBatches>> {
        self.reset_chunk_size(build);
        let size = self.sizing.grow();
        let room = ChunkRoom {
            bytes: self.sizing.bytes_max,
            row_bytes: row_bytes(build),
        };
        let mut gathered = GatheredBatches::new(self.memory.for_chunk());
        while gathered.rows < size.rows && gathered.batches.len() < size.batches {
            let is_least = gathered.batches.is_empty() && self.in_flight.is_empty();
            // A batch that is taken and put back is in memory, too, so it is not even taken.
            if !is_least && !gathered.expects_room(self.sizing.last_batch_bytes, room.bytes) {
                break;
            }
            let waits = self.spec.whole_chunks || gathered.batches.is_empty();
            let Some(batch) = self.input.next(waits).await? else {
                break;
            };
            let batch = if self.sizing.is_memory_short() {
                self.head(batch, size.rows - gathered.rows)
            } else {
                batch
            };
            let keys = self.keys(&batch)?;
            let before = gathered.bytes;
            let has_room = gathered.has_room(&batch, &keys, room);
            self.sizing.last_batch_bytes = gathered.bytes - before;
            if !has_room && !is_least {
                self.input.put_back(batch);
                break;
            }
            gathered.push(batch, keys);
            if !has_room {
                break;
            }
        }
        Ok((!gathered.batches.is_empty()).then_some(gathered))
    }

    /// Returns the first `rows` rows of `batch`; what is left comes next.
    fn head(&mut self, batch: RecordBatch, rows: usize) -> RecordBatch {
        if batch.num_rows() <= rows {
            return batch;
        }
        let rest = batch.slice(rows, batch.num_rows() - rows);
        self.input.put_back(rest);
        batch.slice(0, rows)
    }

    /// Returns the key columns of `batch`.
    fn keys(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let _timer = self.metrics.join_time.timer();
        Ok(evaluate_expressions_to_arrays(&self.spec.on, batch)?)
    }

    /// Reserves a window of `wanted`, of so many pairs at most; one that the memory pool refuses is
    /// halved.
    pub(super) fn reserve_pairs(
        &self,
        build: &BuildSide,
        memory: &ProbeMemory,
        most: usize,
        wanted: &mut LookupKind,
    ) {
        let pair_bytes = ProbeSpec::pair_bytes(build);
        let least = (FLOOR / pair_bytes).max(WINDOW_PAIRS_MIN);
        while let LookupKind::Pairs { window, .. } = *wanted {
            let bytes = pair_bytes * window.min(most);
            if memory.set_pairs(bytes) || !wanted.halve(least) {
                return;
            }
        }
    }

    /// Encodes what was `gathered` and hands its keys to the device, or to the host in its place.
    pub(super) async fn lookup(
        &mut self,
        build: &Arc<BuildSide>,
        gathered: GatheredBatches,
    ) -> Result<LookupInFlight, Refused> {
        let GatheredBatches {
            batches,
            rows,
            memory,
            ..
        } = gathered;
        let words = build.encoder().words();
        let mut wanted = self.spec.first_window(self.wanted, rows);
        let most = if build.table().is_some_and(|table| table.is_unique()) {
            rows
        } else {
            usize::MAX
        };
        self.reserve_pairs(build, &memory, most, &mut wanted);
        let mut keys = if build.can_match() {
            Some(self.room_for_keys(build, rows * words).await?)
        } else {
            None
        };
        let _timer = self.metrics.join_time.timer();
        let mut place = 0;
        let mut chunk = VecDeque::with_capacity(batches.len());
        for (batch, columns) in batches {
            if self.spec.null_aware {
                build.null_aware().note(&columns);
            }
            let from = place;
            let mut matchable = None;
            if let Some(keys) = &mut keys {
                let (at, rows) = (place * words, batch.num_rows());
                let out = &mut keys.words()[at..at + rows * words];
                matchable = build.encoder().encode_matchable(&columns, out)?;
                place += matchable.as_ref().map_or(rows, Vec::len);
            }
            let columns = if build.encoder().is_exact() && !build.visits_on_device() {
                Vec::new()
            } else {
                columns
            };
            let places = from as u32..place as u32;
            chunk.push_back(ProbeBatch::new(batch, columns, places, matchable));
        }
        let (table, answer) = match keys.filter(|_| place > 0) {
            Some(ChunkKeys::ForDevice(table, mut keys, permit)) => {
                keys.truncate(place * words);
                let found = device::lookup(Arc::clone(&table), keys, permit, wanted);
                (Some(table), found)
            }
            Some(ChunkKeys::ForHost(mut keys)) => {
                keys.truncate(place * words);
                (None, lookup_on_host(Arc::clone(build), keys, wanted))
            }
            None => (None, nothing_found()),
        };
        Ok(LookupInFlight {
            batches: chunk,
            memory,
            wanted,
            table,
            answer,
        })
    }

    /// Returns room for a chunk's keys of so many words, where the engine that answers wants them.
    async fn room_for_keys(
        &mut self,
        build: &Arc<BuildSide>,
        words: usize,
    ) -> Result<ChunkKeys, Refused> {
        while let Some(table) = build.tables().answering() {
            let permit = table.device.upload().await;
            let keys = permit.map_err(Error::from).and_then(|permit| {
                let keys = permit.staging("probe keys", words)?;
                Ok((keys, permit))
            });
            match keys {
                Ok((keys, permit)) => return Ok(ChunkKeys::ForDevice(table, keys, permit)),
                // Smaller chunks may have room.
                Err(error) if error.is_device_memory() => {
                    let table = Some(table);
                    return Err(Refused { table, error });
                }
                Err(error) => {
                    fail_over(build, &table, error, &self.metrics).await?;
                }
            }
        }
        Ok(ChunkKeys::ForHost(vec![0; words]))
    }

    /// Returns the host's answer to what is left of a chunk from `start` on, after the device
    /// failed.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the join's keys are not deterministic, and `ResourcesExhausted` from
    /// the memory pool.
    pub(super) async fn lookup_again(
        &mut self,
        build: &Arc<BuildSide>,
        batches: &VecDeque<ProbeBatch>,
        start: ChunkPosition,
    ) -> Result<HostMatches> {
        let mut keys = Vec::new();
        for probe in batches {
            let columns = evaluate_expressions_to_arrays(&self.spec.on, &probe.batch)?;
            let before = keys.len();
            let rows = append_matchable(build, &columns, &mut keys)?;
            let places = (keys.len() - before) / build.encoder().words();
            if places != probe.positions.len() || rows != probe.rows {
                let reason = "join keys gave other values when they were evaluated again: they must be deterministic";
                return Err(Error::Invalid(reason.to_owned()));
            }
        }
        host_matches(build, &keys, start).await
    }

    /// Keeps the keys that the device looked up, where it alone knows which build rows were
    /// matched.
    pub(super) async fn keep_visits(
        &mut self,
        build: &Arc<BuildSide>,
        batches: &VecDeque<ProbeBatch>,
    ) -> Result<()> {
        if !build.visits_on_device() {
            return Ok(());
        }
        let columns = batches.iter().map(|batch| batch.keys.clone());
        if build.tables().fallback().keep(columns, build.rows().len()) {
            self.collect_visits(build).await
        } else {
            Ok(())
        }
    }

    /// Brings back which build rows the answered lookups found, or looks their keys up again.
    pub(super) async fn collect_visits(&mut self, build: &Arc<BuildSide>) -> Result<()> {
        let Some(visited) = build.visited().filter(|_| build.table().is_some()) else {
            return Ok(());
        };
        if !visited.by_lookups() {
            return Ok(());
        }
        let tables = build.tables();
        let log = tables.fallback().drain_log();
        // The visits of a lost table are in the log of probe keys only.
        if !(build.visits_on_device() && tables.is_any_lost())
            && self.mark_visited(build, visited.rows()).await?
        {
            log.forget();
            return Ok(());
        }
        let mut keys = Vec::new();
        for columns in log.batches() {
            keys.clear();
            append_matchable(build, columns, &mut keys)?;
            host_matches(build, &keys, ChunkPosition::default()).await?;
        }
        log.forget();
        Ok(())
    }

    /// Marks the rows that lookups found on any device. Returns `false` if one of them failed.
    async fn mark_visited(&mut self, build: &Arc<BuildSide>, visited: &Bitmap) -> Result<bool> {
        for table in build.tables().all() {
            let marked = Arc::clone(&table).mark_visited(visited, build.rows().len());
            match marked.await {
                Ok(cost) => self.metrics.add_cost(&cost),
                Err(error) => {
                    fail_over(build, &table, error, &self.metrics).await?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// Returns the host bytes of a row beside its batch: its normalized key, its place, and what the
/// host finds for it.
fn row_bytes(build: &BuildSide) -> usize {
    let by_host = match build.tables().answering() {
        Some(_) => 0,
        None => HIT_BYTES,
    };
    size_of::<u32>() * (build.encoder().words() + 1) + by_host
}

/// Returns the host's matches of `keys`; notes the visited rows, where lookups do so.
async fn host_matches(
    build: &Arc<BuildSide>,
    keys: &[u32],
    start: ChunkPosition,
) -> Result<HostMatches> {
    let matches = HostMatches::new(build.host_table().await?, keys, start);
    if let Some(visited) = build.visited().filter(|visited| visited.by_lookups()) {
        (matches.build_rows()).for_each(|row| visited.rows().set(row));
    }
    Ok(matches)
}

/// Returns the host's answer to the `keys` of a chunk.
fn lookup_on_host(
    build: Arc<BuildSide>,
    keys: Vec<u32>,
    wanted: LookupKind,
) -> BoxFuture<'static, Result<Answer<LookupResult>>> {
    let answer = async move {
        let matches = host_matches(&build, &keys, ChunkPosition::default()).await?;
        Ok(Answer {
            value: matches.found(wanted),
            cost: Default::default(),
        })
    };
    answer.boxed()
}

/// Appends the normalized keys of the rows that can match; returns those rows, or `None` if all
/// can.
fn append_matchable(
    build: &BuildSide,
    columns: &[ArrayRef],
    keys: &mut Vec<u32>,
) -> Result<Option<Vec<u32>>> {
    let (before, words) = (keys.len(), build.encoder().words());
    let rows = columns.first().map_or(0, |column| column.len());
    keys.resize(before + rows * words, 0);
    let matchable = build
        .encoder()
        .encode_matchable(columns, &mut keys[before..])?;
    let kept = matchable.as_ref().map_or(rows, Vec::len);
    keys.truncate(before + kept * words);
    Ok(matchable)
}

fn nothing_found() -> BoxFuture<'static, Result<Answer<LookupResult>>> {
    let nothing = Answer {
        value: LookupResult::default(),
        cost: Default::default(),
    };
    futures::future::ready(Ok(nothing)).boxed()
}
