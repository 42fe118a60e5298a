//! Columns of the build side that become one array each.
//!
//! ```text
//!  column: arrays of many batches ─parts, side by side─▶ one array       memory reserved before
//!                                  └ has no room in one ─▶ stays as it is
//! ```

use arrow::array::{Array, ArrayRef};
use arrow::error::ArrowError;
use datafusion::execution::memory_pool::MemoryReservation;

use crate::error::Result;
use crate::join::build_side::keyed::KeyedRows;
use crate::join::build_side::spec::BuildSpec;
use crate::join::concat::concatenate::concatenate;
use crate::join::concat::size::Size;
use crate::join::concat::types::is_better_concatenated;
use crate::join::rows::Source;
use crate::parallel::{map_parallel, parts};

/// A column whose arrays are to become one.
struct Column {
    source: Source,
    arrays: Vec<ArrayRef>,
    size: Size,
}

/// Columns of which one array each is to be made, with what is reserved for that.
pub struct ColumnsToConcat {
    columns: Vec<Column>,
}

/// A column as one array.
pub struct ConcatColumn {
    /// Place that it comes from.
    pub source: Source,
    /// The array; `None` if it has no room in one.
    pub array: Option<ArrayRef>,
    /// Bytes reserved for it.
    pub reserved: usize,
}

impl ColumnsToConcat {
    /// Chooses the columns that the host will gather, of those that are `wanted`, if one array is
    /// better for that than many. Columns for which `memory` has no room stay as they are.
    pub fn of(
        spec: &BuildSpec,
        rows: &KeyedRows,
        memory: &MemoryReservation,
        wanted: impl Fn(Source, &[ArrayRef]) -> bool,
    ) -> Self {
        let mut sources = rows.probed(&spec.columns);
        // Build rows after the probe come batch by batch, but an output batch has those of many
        // batches.
        let owed = spec.owed.iter().filter(|c| !spec.columns.contains(c));
        let owed = owed.map(|c| Source::Batch(*c));
        sources.extend(owed.filter(|source| rows.has_dictionary(*source)));
        let mut columns = Vec::new();
        for source in sources {
            let arrays = rows.column(source);
            let is_joined = arrays.len() < 2 || !wanted(source, arrays);
            if is_joined || !is_better_concatenated(arrays[0].data_type()) {
                continue;
            }
            let has_room = |size: &Size| memory.try_grow(size.bytes).is_ok();
            if let Some(size) = Size::try_new(arrays).filter(has_room) {
                columns.push(Column {
                    source,
                    arrays: arrays.to_vec(),
                    size,
                });
            }
        }
        Self { columns }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Returns the bytes reserved for all of them.
    pub fn reserved(&self) -> usize {
        self.columns.iter().map(|column| column.size.bytes).sum()
    }

    /// Makes one array of each column, `width` parts at a time.
    ///
    /// # Errors
    /// [`Error::DataFusion`](crate::error::Error::DataFusion) if a task panics.
    pub async fn join(self, width: usize) -> Result<Vec<ConcatColumn>> {
        let mut all = Vec::with_capacity(self.columns.len());
        for column in self.columns {
            let copies = column.size.copies();
            let arrays = column.arrays.into_iter().map(|array| vec![array]);
            let parts = parts(&arrays.collect::<Vec<_>>());
            let joined = map_parallel(parts, width, move |part| async move {
                Ok(concatenate(&part.columns.concat(), copies))
            });
            let joined: std::result::Result<Vec<ArrayRef>, ArrowError> =
                joined.await?.into_iter().collect();
            let joined = joined.and_then(|parts| concatenate(&parts, false));
            if let Err(error) = &joined {
                log::debug!("{:?} stays as it is: {error}", column.source);
            }
            all.push(ConcatColumn {
                source: column.source,
                array: joined.ok(),
                reserved: column.size.bytes,
            });
        }
        Ok(all)
    }
}

/// Puts the columns into `rows`, and gives back what they do not take of `memory`. Returns the
/// bytes that they keep.
pub fn set_in(
    joined: Vec<ConcatColumn>,
    rows: &mut KeyedRows,
    memory: &MemoryReservation,
) -> usize {
    let mut all = 0;
    for column in joined {
        let bytes = column.array.as_ref().map(Array::get_buffer_memory_size);
        let bytes = bytes.unwrap_or(0).min(column.reserved);
        memory.shrink(column.reserved - bytes);
        all += bytes;
        if let Some(array) = column.array {
            rows.set_single_array(column.source, array);
        }
    }
    all
}
