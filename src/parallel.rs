//! The build side's columns in parts, for the cores to work on side by side.
//!
//! ```text
//!  columns of batches  [8192] [8192] … [1000000]
//!  parts               ├── about MORSEL_ROWS ─────┤├── … ──┤    slices, nothing is copied
//! ```
//!
//! The build side comes as one stream, so one task would do all of its encoding, on one of
//! however many cores there are.

use arrow::array::{Array, ArrayRef};
use datafusion::common::runtime::SpawnedTask;
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt};
use tracing::{Instrument, Span};

use crate::error::{Error, Result};

/// Rows that are worked on where they are: those of a batch.
const INLINE_ROWS_MAX: usize = 8192;

/// The same for values of fixed width: they take a fraction of a millisecond. Handing them to
/// another thread and waiting for it takes about as long.
const INLINE_VALUES_MAX: usize = 1 << 16;

/// Rows of a part.
const MORSEL_ROWS: usize = 1 << 18;

/// A part: rows `first_row..first_row + rows` of some columns.
#[derive(Debug, Default)]
pub struct Morsel {
    /// Number of the first row.
    pub first_row: usize,
    /// Number of rows.
    pub rows: usize,
    /// `columns[b][c]`: column `c` of its `b`-th slice.
    pub columns: Vec<Vec<ArrayRef>>,
}

/// Cuts `batches[b][c]` into parts.
pub fn parts(batches: &[Vec<ArrayRef>]) -> Vec<Morsel> {
    let mut parts: Vec<Morsel> = Vec::new();
    let mut row = 0;
    for columns in batches {
        let rows = columns.first().map_or(0, |column| column.len());
        let mut from = 0;
        while from < rows {
            if parts.last().is_none_or(|part| part.rows >= MORSEL_ROWS) {
                parts.push(Morsel {
                    first_row: row,
                    ..Morsel::default()
                });
            }
            let Some(part) = parts.last_mut() else { break };
            let len = (rows - from).min(MORSEL_ROWS - part.rows);
            let slice = columns.iter().map(|column| column.slice(from, len));
            part.columns.push(slice.collect());
            part.rows += len;
            from += len;
            row += len;
        }
    }
    parts
}

/// Does `work` on every item, up to `width` at a time on the runtime's threads; results in order.
/// A single item is not worth another task.
///
/// # Errors
/// The first of `work`'s; [`Error::DataFusion`] if a task panics.
pub async fn map_parallel<I, T, W, F>(items: Vec<I>, width: usize, work: W) -> Result<Vec<T>>
where
    T: Send + 'static,
    W: Fn(I) -> F,
    F: Future<Output = Result<T>> + Send + 'static,
{
    if items.len() <= 1 {
        return futures::stream::iter(items).then(work).try_collect().await;
    }
    futures::stream::iter(items)
        .map(|item| SpawnedTask::spawn(work(item).in_current_span()))
        .buffered(width.max(1))
        .map(|joined| joined.map_err(|e| task_failed(&e))?)
        .try_collect()
        .await
}

/// Does `work` on all items at once, each in a task of its own; results in order. Items may wait
/// for each other, so that the first error ends all of them.
///
/// # Errors
/// The first of `work`'s; [`Error::DataFusion`] if a task panics.
pub async fn all_at_once<I, T, W, F>(items: Vec<I>, work: W) -> Result<Vec<T>>
where
    T: Send + 'static,
    W: Fn(I) -> F,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let tasks = items.into_iter().map(|item| {
        let task = SpawnedTask::spawn(work(item));
        async { task.join().await.map_err(|e| task_failed(&e))? }
    });
    try_join_all(tasks.collect::<Vec<_>>()).await
}

/// Does `work` on every part, up to `width` at a time on threads for blocking work; results in
/// order. A runtime's thread stays with no more rows than a batch has, or with a few batches of
/// values of fixed width.
///
/// # Errors
/// The first of `work`'s; [`Error::DataFusion`] if it panics.
pub async fn map_blocking<T, W>(parts: Vec<Morsel>, width: usize, work: W) -> Result<Vec<T>>
where
    T: Send + 'static,
    W: Fn(Morsel) -> Result<T> + Clone + Send + 'static,
{
    let rows: usize = parts.iter().map(|part| part.rows).sum();
    if rows <= INLINE_ROWS_MAX || rows <= INLINE_VALUES_MAX && parts.iter().all(has_fixed_width) {
        return parts.into_iter().map(work).collect();
    }
    futures::stream::iter(parts)
        .map(|part| {
            let work = work.clone();
            let span = Span::current();
            SpawnedTask::spawn_blocking(move || span.in_scope(|| work(part)))
        })
        .buffered(width.max(1))
        .map(|joined| joined.map_err(|e| task_failed(&e))?)
        .try_collect()
        .await
}

/// Returns whether all values of `part` have as many bytes.
fn has_fixed_width(part: &Morsel) -> bool {
    let mut columns = part.columns.iter().flatten();
    columns.all(|column| column.data_type().primitive_width().is_some())
}

/// Returns the error of a task that panicked, which an expression of the query may do.
pub fn task_failed(error: &impl std::fmt::Display) -> Error {
    datafusion::error::DataFusionError::Execution(format!("a build task failed: {error}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Int32Array};
    use arrow::datatypes::Int32Type;
    use std::sync::Arc;

    #[test]
    fn parts_hold_all_rows_in_order() {
        let sizes = [3, 0, MORSEL_ROWS - 4, 7, 2 * MORSEL_ROWS + 1, 1];
        let mut next = 0;
        let batches: Vec<Vec<ArrayRef>> = sizes
            .iter()
            .map(|&rows| {
                let values = next..next + rows as i32;
                next = values.end;
                vec![Arc::new(Int32Array::from_iter_values(values)) as ArrayRef]
            })
            .collect();
        let parts = parts(&batches);
        assert_eq!(parts.len(), 4);
        let mut wanted = 0..next;
        for part in &parts {
            assert_eq!(part.first_row, wanted.start as usize);
            let values = part.columns.iter().flat_map(|slice| {
                let values = slice[0].as_primitive::<Int32Type>().values();
                values.iter().copied()
            });
            let values: Vec<i32> = values.collect();
            assert_eq!(values.len(), part.rows);
            assert!(part.rows == MORSEL_ROWS || wanted.start as usize + part.rows == next as usize);
            assert!(values.into_iter().eq(wanted.by_ref().take(part.rows)));
        }
        assert!(wanted.is_empty());
    }

    #[tokio::test]
    async fn work_side_by_side_keeps_its_order_and_stops_at_errors() {
        let doubled = map_parallel((0..100).collect(), 7, |i: i32| async move { Ok(2 * i) });
        assert!(
            doubled
                .await
                .unwrap()
                .into_iter()
                .eq((0..100).map(|i| 2 * i))
        );
        let failing = map_parallel(vec![1, 2, 3], 2, |i: i32| async move {
            match i {
                2 => Err(Error::Invalid("two".to_owned())),
                _ => Ok(i),
            }
        });
        assert!(failing.await.unwrap_err().to_string().contains("two"));
    }
}
