//! Columns of the build side that become one array each.
//!
//! ```text
//!  column: arrays of many batches ─parts, side by side─▶ one array       memory reserved before
//!                                  └ has no room in one ─▶ stays as it is
//! ```

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::error::ArrowError;
use datafusion::execution::memory_pool::MemoryReservation;
use tracing::trace_span;

use crate::error::Result;
use crate::join::build_side::keyed::KeyedRows;
use crate::join::build_side::spec::BuildSpec;
use crate::join::concat::concatenate::concatenate;
use crate::join::concat::size::Size;
use crate::join::concat::types::is_better_concatenated;
use crate::join::rows::Source;
use crate::parallel::{map_parallel, parts};

/// A column whose arrays are to become one.
pub struct ColumnToConcat {
    /// Place that it comes from.
    source: Source,
    /// Its arrays, two at least; then the one that is made of them, if they have room in one.
    arrays: Vec<ArrayRef>,
    /// What is reserved for one array.
    pub size: Size,
}

/// Chooses the columns that the host will gather, of those that are `wanted`, if one array is
/// better for that than many. Columns for which `memory` has no room stay as they are.
pub fn choose_columns(
    spec: &BuildSpec,
    rows: &KeyedRows,
    memory: &MemoryReservation,
    wanted: impl Fn(Source, &[ArrayRef]) -> bool,
) -> Vec<ColumnToConcat> {
    let mut sources = rows.probed(&spec.columns);
    // Build rows after the probe come batch by batch, but an output batch has those of many
    // batches.
    let of_output = spec
        .output_columns
        .iter()
        .filter(|c| !spec.columns.contains(c));
    let of_output = of_output.map(|c| Source::Batch(*c));
    sources.extend(of_output.filter(|source| rows.has_dictionary(*source)));
    let mut columns = Vec::new();
    for source in sources {
        let arrays = rows.column(source);
        let is_single = arrays.len() < 2 || !wanted(source, arrays);
        if is_single || !is_better_concatenated(arrays[0].data_type()) {
            continue;
        }
        let has_room = |size: &Size| memory.try_grow(size.bytes).is_ok();
        if let Some(size) = Size::try_new(arrays).filter(has_room) {
            columns.push(ColumnToConcat {
                source,
                arrays: arrays.to_vec(),
                size,
            });
        }
    }
    columns
}

/// Makes one array of each column, `width` parts at a time. Columns that have no room in one stay
/// as they are.
///
/// # Errors
/// [`Error::DataFusion`](crate::error::Error::DataFusion) if a task panics.
pub async fn concat_columns(
    mut columns: Vec<ColumnToConcat>,
    width: usize,
) -> Result<Vec<ColumnToConcat>> {
    for column in &mut columns {
        let copies = column.size.copies();
        let arrays = column.arrays.iter().map(|array| vec![Arc::clone(array)]);
        let parts = parts(&arrays.collect::<Vec<_>>());
        let arrays = map_parallel(parts, width, move |part| async move {
            let _work = trace_span!("concatenate").entered();
            Ok(concatenate(&part.columns.concat(), copies))
        });
        let arrays: std::result::Result<Vec<ArrayRef>, ArrowError> =
            arrays.await?.into_iter().collect();
        let _work = trace_span!("concatenate").entered();
        match arrays.and_then(|parts| concatenate(&parts, false)) {
            Ok(array) => column.arrays = vec![array],
            Err(error) => log::debug!("{:?} stays as it is: {error}", column.source),
        }
    }
    Ok(columns)
}

/// Puts the columns into `rows`, and gives back what they do not take of `memory`. Returns the
/// bytes that they keep.
pub fn set_in(
    columns: Vec<ColumnToConcat>,
    rows: &mut KeyedRows,
    memory: &MemoryReservation,
) -> usize {
    let mut all = 0;
    for column in columns {
        let reserved = column.size.bytes;
        let bytes = match column.arrays.as_slice() {
            [array] => {
                rows.set_single_array(column.source, Arc::clone(array));
                array.get_buffer_memory_size().min(reserved)
            }
            _ => 0,
        };
        memory.shrink(reserved - bytes);
        all += bytes;
    }
    all
}
