//! A batch of items without repeating keys; the host side of `cl/primitives/distinct.cl`.
//!
//! ```text
//!  keys 7 3 7 3 9, values a b c d e  ─▶  keys 3 7 9, values d c e
//! ```
//!
//! Two work-items with the same new key must not both insert it, and cannot wait for each other. So
//! keys are grouped first, as a join groups its build side, and of each group the last item
//! stays: what would be there if items came one after the other. A hot key
//! costs what any other key costs.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::Result;
use crate::kernel_sources;
use crate::table::api::Items;
use crate::table::launch::GROUP;

use super::group::group;

/// Items with distinct keys, on the device.
pub(crate) struct Distinct {
    pub keys: Buffer<u32>,
    pub values: Buffer<u32>,
}

impl Distinct {
    /// Returns the last item of each key in `items`.
    ///
    /// # Errors
    /// Those of [`group`], and [`Error::Invalid`](crate::error::Error::Invalid) if the numbers
    /// of keys and values differ.
    pub fn new(queue: &mut Queue, items: Items<'_>) -> Result<Self> {
        items.count()?;
        let positions = Items {
            values: None,
            ..items
        };
        let groups = group(queue, positions, u32::BITS)?;
        let n = groups.unique_keys.len();
        let values = queue.allocate("values of distinct keys", n)?;
        let args = [
            Arg::Words(&groups.offsets),
            Arg::Words(&groups.rows),
            items.values.map_or(Arg::Null, Arg::Words),
            Arg::Words(&values),
            Arg::U32(n as u32),
        ];
        queue.launch(&text(), "last_of_groups", (n, GROUP), &args)?;
        Ok(Self {
            keys: groups.unique_keys,
            values,
        })
    }

    /// Returns the items.
    pub fn items(&self) -> Items<'_> {
        Items {
            keys: &self.keys,
            values: Some(&self.values),
        }
    }
}

fn text() -> ProgramText {
    let parts = [kernel_sources::DISTINCT];
    ProgramText::new("distinct", &[], &parts)
}

/// Returns the program under the name of a file; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    [("distinct".to_owned(), text())].into_iter()
}
