//! The build side's table, whichever form the device has room for.
//!
//! ```text
//!  Whole      one table, its groups and columns on the device: nearly always
//!  Segments   several, of consecutive rows; groups on the host (segments.rs)
//! ```
//!
//! What follows a lookup (windows of pairs, verifying, the residual filter, the join type) does not
//! know which it was.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::config::MOST_CHUNK_ROWS;
use crate::device::{Answer, Cost};
use crate::error::Result;

use super::bitmap::Bitmap;
use super::columns::DeviceColumn;
use super::lookup::{Access, Found, Wanted, Words, look_up};
use super::segments::SegmentedTable;
use super::table::JoinTable;

/// The table, or the tables, of a build side.
#[derive(Debug, Clone)]
pub enum BuildTable {
    /// One.
    Whole(Arc<JoinTable>),
    /// Several.
    Segments(Arc<SegmentedTable>),
}

impl BuildTable {
    /// Room for the `words` words of keys to look up.
    ///
    /// # Errors
    /// Those of [`Device::staging`](crate::device::Device::staging).
    pub async fn keys_with_room(&self, access: &Access, words: usize) -> Result<Words> {
        Ok(match self {
            Self::Whole(_) => Words::Staged(access.device.staging("probe keys", words).await?),
            Self::Segments(_) => Words::Host(vec![0; words]),
        })
    }

    /// The device's answer to `keys`, which it works on from now on, or (segments that are lent in
    /// turn) when the future is awaited.
    pub fn look_up(
        &self,
        access: &Access,
        keys: Words,
        wanted: Wanted,
    ) -> BoxFuture<'static, Result<Answer<Found>>> {
        match self {
            Self::Whole(table) => {
                let table = Arc::clone(table);
                access.run(move |queue| {
                    let keys = match keys {
                        Words::Staged(keys) => keys,
                        Words::Host(words) => {
                            let mut keys = queue.staging("probe keys", words.len())?;
                            keys.copy_from_slice(&words);
                            keys
                        }
                    };
                    look_up(queue, &table, keys, wanted)
                })
            }
            Self::Segments(table) => Arc::clone(table)
                .look_up(access.clone(), keys.into_vec(), wanted)
                .boxed(),
        }
    }

    /// Bytes that stay on the device while the join goes on, as far as they are known to.
    pub fn device_bytes(&self) -> u64 {
        match self {
            Self::Whole(table) => table.bytes() as u64,
            Self::Segments(_) => 0,
        }
    }

    /// Columns that windows bring.
    pub fn columns(&self) -> &[DeviceColumn] {
        match self {
            Self::Whole(table) => &table.columns,
            Self::Segments(_) => &[],
        }
    }

    /// Distinct keys, or a few more.
    pub fn distinct(&self) -> usize {
        match self {
            Self::Whole(table) => table.table().len(),
            Self::Segments(table) => table.len(),
        }
    }

    /// Rows of a chunk, of usually `rows`: more if each chunk has tables copied to the device. The
    /// chunks of all `probes` streams together have no more than the build side then.
    pub fn chunk_rows(&self, rows: usize, probes: usize) -> usize {
        match self {
            Self::Segments(table) if self.is_lent() => {
                rows.max((table.len() / probes.max(1)).min(MOST_CHUNK_ROWS))
            }
            _ => rows,
        }
    }

    /// Whether no key has several pairs.
    pub fn is_unique(&self) -> bool {
        matches!(self, Self::Whole(table) if table.built.groups.is_none())
    }

    /// Whether each chunk has tables copied to the device.
    pub fn is_lent(&self) -> bool {
        matches!(self, Self::Segments(table) if table.is_lent())
    }

    /// Whether it is the device alone that knows which build rows lookups met.
    pub fn visits_on_device(&self) -> bool {
        matches!(self, Self::Whole(table) if table.visited.is_some())
    }

    /// Sets the bits, of `rows` rows, of those that lookups met.
    ///
    /// # Errors
    /// [`DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
    pub async fn mark_visited(
        &self,
        access: &Access,
        (visited, rows): (&Bitmap, usize),
    ) -> Result<Cost> {
        match self {
            Self::Whole(table) => {
                let table = Arc::clone(table);
                let bits = access.run(move |queue| table.visited_rows(queue, rows));
                let bits = bits.await?;
                visited.set_all(&bits.value);
                Ok(bits.cost)
            }
            Self::Segments(table) => {
                table.mark_visited(visited);
                Ok(Cost::default())
            }
        }
    }
}
