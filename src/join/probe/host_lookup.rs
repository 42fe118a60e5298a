//! Lookups by the host, in the place of devices that failed.
//!
//! ```text
//!  a chunk that is new          keys ─▶ HostTable ─▶ matches
//!  one that a device had        its batches ─▶ the same keys once more ─▶ matches, from a pair on
//!  visits that a device noted   logged key columns ─▶ keys ─▶ matches ─▶ visited rows
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use futures::FutureExt;
use futures::future::BoxFuture;
use tracing::trace_span;

use crate::device::Answer;
use crate::error::{Error, Result};
use crate::join::build_side::side::BuildSide;
use crate::join::lookup::host::HostMatches;
use crate::join::lookup::result::{ChunkPosition, LookupKind, LookupResult};

use super::chunk::ProbeBatch;

/// Returns the host's answer to the `keys` of a chunk.
pub fn lookup_on_host(
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

/// Returns the host's answer to what is left of a chunk from `start` on, after the device failed.
/// The keys of its `batches` are evaluated by the expressions `on` again.
///
/// # Errors
/// [`Error::Invalid`] if the join's keys are not deterministic, and `ResourcesExhausted` from
/// the memory pool.
pub async fn lookup_again(
    on: &[PhysicalExprRef],
    build: &Arc<BuildSide>,
    batches: &VecDeque<ProbeBatch>,
    start: ChunkPosition,
) -> Result<HostMatches> {
    let mut keys = Vec::new();
    for probe in batches {
        let columns = evaluate_expressions_to_arrays(on, &probe.batch)?;
        let before = keys.len();
        let rows = append_keys(build, &columns, &mut keys)?;
        // Keys that changed are noticed only if fewer or more of a batch can match.
        let places = (keys.len() - before) / build.encoder().words();
        if places != probe.positions.len() || rows != probe.rows {
            let reason = "join keys gave other values when they were evaluated again: \
                          they must be deterministic";
            return Err(Error::Invalid(reason.to_owned()));
        }
    }
    host_matches(build, &keys, start).await
}

/// Notes the visited rows of the keys of `batches`, key columns by batch.
///
/// # Errors
/// `ResourcesExhausted` from the memory pool.
pub async fn visit_again(build: &Arc<BuildSide>, batches: &[Vec<ArrayRef>]) -> Result<()> {
    let mut keys = Vec::new();
    for columns in batches {
        keys.clear();
        append_keys(build, columns, &mut keys)?;
        host_matches(build, &keys, ChunkPosition::default()).await?;
    }
    Ok(())
}

/// Returns the host's matches of `keys`; notes the visited rows, where lookups do so.
async fn host_matches(
    build: &Arc<BuildSide>,
    keys: &[u32],
    start: ChunkPosition,
) -> Result<HostMatches> {
    let table = build.host_table().await?;
    let _work = trace_span!("look up on the host").entered();
    let matches = HostMatches::new(table, keys, start);
    if let Some(visited) = build.visited().filter(|visited| visited.by_lookups()) {
        (matches.build_rows()).for_each(|row| visited.rows().set(row.0));
    }
    Ok(matches)
}

/// Appends the normalized keys of the rows that have one; returns those rows, or `None` if all
/// have.
fn append_keys(
    build: &BuildSide,
    columns: &[ArrayRef],
    keys: &mut Vec<u32>,
) -> Result<Option<Vec<u32>>> {
    let (before, words) = (keys.len(), build.encoder().words());
    let rows = columns.first().map_or(0, |column| column.len());
    keys.resize(before + rows * words, 0);
    let with_key = build.encoder().encode_probe(columns, &mut keys[before..])?;
    let kept = with_key.as_ref().map_or(rows, Vec::len);
    keys.truncate(before + kept * words);
    Ok(with_key)
}
