//! From the input to the device: batches gathered into chunks, encoded, and asked for.
//!
//! ```text
//!  input ─▶ [batch][batch]…  up to a chunk's rows ─▶ keys in staging memory ─▶ device, or the host in its place
//! ```
//!
//! What the device was asked is looked up again on the host if it fails later; where it alone knows which build
//! rows were met, that is brought back, or what was asked so far is kept.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::device::Answer;
use crate::error::{Error, Result};
use crate::join::build::BuildSide;
use crate::join::chunk::ProbeBatch;
use crate::join::host::HostMatches;
use crate::join::lookup::{Found, Wanted, Words};
use crate::join::tables::BuildTable;

use super::{Asked, GROWTH, Probe};

/// Host bytes of a row's key and hits, beside the row itself, while a table is lent to the device.
const HIT_BYTES: usize = 40;

impl Probe {
    /// Batches with rows, up to the chunk's size, and what they reserve if they are more than
    /// usual; none at the end of the input.
    pub(super) async fn gather(
        &mut self,
        build: &BuildSide,
    ) -> Result<(Vec<RecordBatch>, Option<MemoryReservation>)> {
        self.forget_shortage(build);
        let mut batches = Vec::new();
        let mut rows = 0;
        let wanted = self.next_chunk_rows;
        self.next_chunk_rows = (GROWTH * wanted).min(self.chunk_rows).max(1);
        let is_lent = build.table.as_ref().is_some_and(BuildTable::is_lent);
        let memory = is_lent.then(|| self.memory.new_empty());
        while rows < wanted {
            let waits = self.spec.whole_chunks || batches.is_empty();
            let Some(batch) = self.input.next(waits).await? else {
                break;
            };
            let (batch, rest) = match batch.num_rows() > wanted - rows && self.is_short {
                true => {
                    let len = wanted - rows;
                    let rest = batch.slice(len, batch.num_rows() - len);
                    (batch.slice(0, len), Some(rest))
                }
                false => (batch, None),
            };
            if let Some(rest) = rest {
                self.input.put_back(rest);
            }
            let bytes = batch.get_array_memory_size() + HIT_BYTES * batch.num_rows();
            let refused = memory.as_ref().map(|memory| memory.try_grow(bytes));
            rows += batch.num_rows();
            batches.push(batch);
            // A chunk of the usual size needs no leave.
            if matches!(refused, Some(Err(_))) && rows >= self.spec.chunk_rows {
                break;
            }
        }
        Ok((batches, memory))
    }

    /// Encodes `batches` and hands their keys to the device, or to the host in its place.
    pub(super) async fn ask(
        &mut self,
        build: &Arc<BuildSide>,
        batches: &[RecordBatch],
    ) -> Result<Asked> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let words = build.encoder.words();
        let mut keys = match build.can_match() {
            true => Some(self.room_for_keys(build, rows * words).await?),
            false => None,
        };
        let _timer = self.metrics.join_time.timer();
        let mut place = 0;
        let mut chunk = VecDeque::with_capacity(batches.len());
        for batch in batches {
            let columns = evaluate_expressions_to_arrays(&self.spec.on, batch)?;
            if self.spec.null_aware {
                note_nulls(build, &columns);
            }
            let from = place;
            let mut matchable = None;
            if let Some((_, keys)) = &mut keys {
                let (at, rows) = (place * words, batch.num_rows());
                let out = &mut keys[at..at + rows * words];
                matchable = build.encoder.encode_matchable(&columns, out)?;
                place += matchable.as_ref().map_or(rows, Vec::len);
            }
            let columns = match build.encoder.is_exact() && !build.visits_on_device() {
                true => Vec::new(),
                false => columns,
            };
            let places = from as u32..place as u32;
            chunk.push_back(ProbeBatch::new(batch.clone(), columns, places, matchable));
        }
        let (by_device, answer) = match keys.filter(|_| place > 0) {
            Some((table, mut keys)) => {
                keys.truncate(place * words);
                match table {
                    Some(table) => (true, table.look_up(&self.spec.access, keys, self.wanted)),
                    None => {
                        let (build, keys) = (Arc::clone(build), keys.into_vec());
                        (false, look_up_on_host(build, keys, self.wanted))
                    }
                }
            }
            None => (false, nothing_found()),
        };
        Ok(Asked {
            batches: chunk,
            memory: None,
            by_device,
            answer,
        })
    }

    /// The table that answers a chunk, `None` for the host's, and room for the chunk's keys where it
    /// wants them.
    pub(super) async fn room_for_keys(
        &mut self,
        build: &BuildSide,
        words: usize,
    ) -> Result<(Option<BuildTable>, Words)> {
        if let Some(table) = build.table.as_ref().filter(|_| !build.fallback.is_taken()) {
            match table.keys_with_room(&self.spec.access, words).await {
                Ok(keys) => return Ok((Some(table.clone()), keys)),
                // Smaller chunks may have room.
                Err(error) if error.is_device_memory() => return Err(error),
                Err(error) => build.fallback.take_over(error, &self.metrics)?,
            }
        }
        Ok((None, Words::Host(vec![0; words])))
    }

    /// The host's answer to what is left of a chunk, from the key at a place and its first pair
    /// on, after the device failed.
    pub(super) async fn look_up_again(
        &mut self,
        build: &BuildSide,
        batches: &VecDeque<ProbeBatch>,
        from: (u32, u64),
    ) -> Result<HostMatches> {
        let mut keys = Vec::new();
        for probe in batches {
            let columns = evaluate_expressions_to_arrays(&self.spec.on, &probe.batch)?;
            let before = keys.len();
            let rows = append_matchable(build, &columns, &mut keys)?;
            let places = (keys.len() - before) / build.encoder.words();
            if places != probe.places.len() || rows != probe.rows {
                let reason = "key expressions gave other values when evaluated again";
                return Err(Error::Invalid(reason.to_owned()));
            }
        }
        host_matches(build, &keys, from).await
    }

    /// Keeps what the device was asked, where it alone knows which build rows were met.
    pub(super) async fn keep_visits(
        &mut self,
        build: &BuildSide,
        batches: &VecDeque<ProbeBatch>,
    ) -> Result<()> {
        if !build.visits_on_device() {
            return Ok(());
        }
        let columns = batches.iter().map(|batch| batch.keys.clone());
        match build.fallback.keep(columns, build.rows.len()) {
            true => self.collect_visits(build).await,
            false => Ok(()),
        }
    }

    /// Brings back which build rows the answered lookups met, or looks their keys up again.
    pub(super) async fn collect_visits(&mut self, build: &BuildSide) -> Result<()> {
        let (Some(visited), Some(table)) = (&build.visited, &build.table) else {
            return Ok(());
        };
        if !build.notes_visits() {
            return Ok(());
        }
        let journal = build.fallback.take_journal();
        if !(build.visits_on_device() && build.fallback.is_taken()) {
            let rows = (visited, build.rows.len());
            match table.mark_visited(&self.spec.access, rows).await {
                Ok(cost) => {
                    self.metrics.add_cost(&cost);
                    journal.forget();
                    return Ok(());
                }
                Err(error) => build.fallback.take_over(error, &self.metrics)?,
            }
        }
        let mut keys = Vec::new();
        for columns in journal.batches() {
            keys.clear();
            append_matchable(build, columns, &mut keys)?;
            host_matches(build, &keys, (0, 0)).await?;
        }
        journal.forget();
        Ok(())
    }
}

/// The host's matches of `keys`; notes the visited rows, where lookups do so.
async fn host_matches(build: &BuildSide, keys: &[u32], from: (u32, u64)) -> Result<HostMatches> {
    let keys = (keys, build.encoder.words());
    let matches = HostMatches::new(build.host_table().await?, keys, from);
    if let Some(visited) = &build.visited
        && build.notes_visits()
    {
        matches.build_rows().for_each(|row| visited.set(row));
    }
    Ok(matches)
}

/// The host's answer to the `keys` of a chunk.
fn look_up_on_host(
    build: Arc<BuildSide>,
    keys: Vec<u32>,
    wanted: Wanted,
) -> BoxFuture<'static, Result<Answer<Found>>> {
    let answer = async move {
        let matches = host_matches(&build, &keys, (0, 0)).await?;
        Ok(Answer {
            value: matches.found(wanted),
            cost: Default::default(),
        })
    };
    answer.boxed()
}

/// Appends the surrogates of the rows that can match; returns those rows, or `None` if all can.
fn append_matchable(
    build: &BuildSide,
    columns: &[ArrayRef],
    keys: &mut Vec<u32>,
) -> Result<Option<Vec<u32>>> {
    let (before, words) = (keys.len(), build.encoder.words());
    let rows = columns.first().map_or(0, |column| column.len());
    keys.resize(before + rows * words, 0);
    let matchable = build
        .encoder
        .encode_matchable(columns, &mut keys[before..])?;
    let kept = matchable.as_ref().map_or(rows, Vec::len);
    keys.truncate(before + kept * words);
    Ok(matchable)
}

fn nothing_found() -> BoxFuture<'static, Result<Answer<Found>>> {
    let nothing = Answer {
        value: Found::default(),
        cost: Default::default(),
    };
    futures::future::ready(Ok(nothing)).boxed()
}

/// Notes what a null-aware anti join must know of its probe side.
fn note_nulls(build: &BuildSide, columns: &[ArrayRef]) {
    build.probe_seen.any.store(true, Ordering::Relaxed);
    if columns.iter().any(|key| key.logical_null_count() > 0) {
        build.probe_seen.null.store(true, Ordering::Relaxed);
    }
}
