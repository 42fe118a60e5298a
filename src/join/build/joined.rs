//! Columns of the build side that become one array each.
//!
//! ```text
//!  column: arrays of many batches ─parts, side by side─▶ one array       memory reserved before
//!                                  └ has no room in one ─▶ stays as it is
//! ```

use arrow::array::ArrayRef;
use arrow::error::ArrowError;

use crate::error::Result;
use crate::join::arrays::{Size, join};
use crate::join::rows::Source;
use crate::parts::{parts, side_by_side};

/// A column whose arrays are to become one.
struct Column {
    source: Source,
    arrays: Vec<ArrayRef>,
    size: Size,
}

/// Columns of which one array each is to be made.
#[derive(Default)]
pub struct ColumnsToJoin {
    columns: Vec<Column>,
}

/// A column, and what was reserved for it.
pub struct JoinedColumn {
    /// What it is a column of.
    pub source: Source,
    /// Its one array; `None` if it has no room in one.
    pub array: Option<ArrayRef>,
    /// What was reserved.
    pub reserved: usize,
}

impl ColumnsToJoin {
    /// Adds a column for which `size.bytes` are reserved.
    pub fn push(&mut self, source: Source, arrays: &[ArrayRef], size: Size) {
        let arrays = arrays.to_vec();
        self.columns.push(Column {
            source,
            arrays,
            size,
        });
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// What is reserved for all of them.
    pub fn reserved(&self) -> usize {
        self.columns.iter().map(|column| column.size.bytes).sum()
    }

    /// The columns, `width` parts of one at a time.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::error::Error::Invalid) if a task panics.
    pub async fn join(self, width: usize) -> Result<Vec<JoinedColumn>> {
        let mut all = Vec::with_capacity(self.columns.len());
        for column in self.columns {
            let copies = column.size.copies();
            let arrays = column.arrays.into_iter().map(|array| vec![array]);
            let parts = parts(&arrays.collect::<Vec<_>>());
            let joined = side_by_side(parts, width, move |part| async move {
                Ok(join(&part.columns.concat(), copies))
            });
            let joined: std::result::Result<Vec<ArrayRef>, ArrowError> =
                joined.await?.into_iter().collect();
            let joined = joined.and_then(|parts| join(&parts, false));
            if let Err(error) = &joined {
                log::debug!("{:?} stays as it is: {error}", column.source);
            }
            all.push(JoinedColumn {
                source: column.source,
                array: joined.ok(),
                reserved: column.size.bytes,
            });
        }
        Ok(all)
    }
}
