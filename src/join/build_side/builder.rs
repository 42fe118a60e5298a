//! The way from collected rows to a build side: keys, encoder, table, columns.
//!
//! ```text
//!  rows ─▶ keys ─▶ encoder ─┬─▶ table on the device ───────────┐
//!                           └─▶ columns that the host gathers ─┴─▶ BuildSide
//!                               meanwhile, one array each
//! ```
//!
//! Making one array of a column keeps the cores busy while the device builds. Where memory is short
//! the table comes first: without it there is no join on the device, without the arrays only a
//! slower one.

use std::sync::Arc;
use std::time::Instant;

use datafusion::common::runtime::SpawnedTask;
use tracing::{Instrument, trace_span};

use crate::error::{Error, Result};
use crate::join::bitmap::Bitmap;
use crate::join::build_side::concat_columns::{choose_columns, concat_columns, set_in};
use crate::join::build_side::keyed::{KeyedRows, evaluate_keys};
use crate::join::build_side::side::BuildSide;
use crate::join::build_side::spec::BuildSpec;
use crate::join::build_side::table::TableBuild;
use crate::join::build_side::visited::Visited;
use crate::join::decision::HostReason;
use crate::join::input::build_batches::BuildBatches;
use crate::join::lookup::columns::log_words;
use crate::join::lookup::failover::Failover;
use crate::join::lookup::table::JoinTable;
use crate::join::lookup::tables::TableReplicas;
use crate::join::memory::BuildMemory;
use crate::join::metrics::JoinMetrics;
use crate::join::rows::NO_ROW;
use crate::keys::source::{KeysToSend, choose_encoder};
use crate::parallel::task_failed;

/// Builds the table of the rows `collected`. The caller holds on to their memory until it is handed
/// over ([`BuildSide::hold`]). Returns the reason if the host is to join the rows.
///
/// # Errors
/// `ResourcesExhausted` from the memory pool; [`Error::TooManyRows`]; the device's, if the
/// session wants to see them.
pub async fn build(
    spec: BuildSpec,
    collected: BuildBatches,
    memory: BuildMemory,
    metrics: JoinMetrics,
) -> Result<Result<Box<BuildSide>, HostReason>> {
    let timer = metrics.build_time.timer();
    let BuildBatches {
        batches, rows: n, ..
    } = collected;
    let limit = NO_ROW.0 as usize - 1;
    if n > limit {
        return Err(Error::TooManyRows { rows: n, limit });
    }
    let keys = evaluate_keys(&spec.on, &batches, &memory.keys);
    let keys = keys.instrument(trace_span!("evaluate keys")).await?;
    metrics.build_mem_used.add(memory.keys.size());
    if spec.visited {
        memory.visited.try_grow(Bitmap::bytes(n))?;
    }
    let began = Instant::now();
    let (null_equality, bits) = (spec.null_equality, spec.config.knobs.normalized_key_bits);
    let encoder = choose_encoder(&spec.key_types, null_equality, &keys, spec.width).await?;
    let encoder = encoder.with_normalized_key_bits(bits, null_equality);
    let to_send = KeysToSend::new(&encoder, &keys, spec.width, &memory.keys).await?;
    let encoded = began.elapsed();
    let failover = Failover::new(&spec.config);
    let notes_visits = spec.visited && !spec.filtered && encoder.is_exact();
    let visited = spec
        .visited
        .then(|| Visited::new(n, notes_visits, spec.probes));
    let mut rows = KeyedRows::new(batches, keys, encoder);
    let build = TableBuild {
        spec: &spec,
        notes_visits,
        memory: &memory,
        failover: &failover,
        metrics: &metrics,
    };
    let (table, early) = table_and_columns(build, &mut rows, to_send).await?;
    let built = began.elapsed();
    let table = match table {
        Ok(table) => table,
        Err(reason) => return Ok(Err(reason)),
    };
    let tables = TableReplicas::new(table, failover);
    let left = choose_columns(&spec, &rows, &memory.batches, |source, _| {
        !tables.gathers(source)
    });
    let left = concat_columns(left, spec.width).await?;
    let single_arrays = early + set_in(left, &mut rows, &memory.batches);
    log::debug!(
        "build side of {n} rows: encoder after {encoded:?}, table after {built:?}, columns after {:?}",
        began.elapsed()
    );
    metrics.build_mem_used.add(single_arrays);
    timer.done();
    let kept = memory.device.size() + memory.tables.size() + memory.visited.size();
    metrics.build_mem_used.add(kept);
    let side = BuildSide::new(rows, spec, tables, visited, memory);
    Ok(Ok(Box::new(side)))
}

/// Builds the table of `keys`, and meanwhile makes one array of each column that the device does
/// not gather in any case. Returns the bytes reserved for those, too.
async fn table_and_columns(
    build: TableBuild<'_>,
    rows: &mut KeyedRows,
    keys: KeysToSend,
) -> Result<(Result<Option<Arc<JoinTable>>, HostReason>, usize)> {
    let (spec, memory) = (build.spec, build.memory);
    if keys.is_encoded() {
        return Ok((build.build(rows, &keys).await?, 0));
    }
    let early = choose_columns(spec, rows, &memory.batches, |_, arrays| {
        log_words(arrays).is_none()
    });
    if early.is_empty() {
        return Ok((build.build(rows, &keys).await?, 0));
    }
    let reserved: usize = early.iter().map(|column| column.size.bytes).sum();
    // As a task of its own, as putting parts together keeps a core busy.
    let concatenated = SpawnedTask::spawn(concat_columns(early, spec.width));
    let table = build.build(rows, &keys).await;
    match table {
        Err(error) if reserved > 0 && error.is_pool_memory() => {
            // The table comes first, should the memory pool have too little left for both.
            drop(concatenated.join().await);
            memory.batches.shrink(reserved);
            build.forget(rows);
            Ok((build.build(rows, &keys).await?, 0))
        }
        table => {
            let table = table?;
            let columns = concatenated.join().await.map_err(|e| task_failed(&e))?;
            Ok((table, set_in(columns?, rows, &memory.batches)))
        }
    }
}
