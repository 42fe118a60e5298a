//! A table with a slot for every possible key: for keys that are dense numbers; the host side of
//! `cl/multimap/direct.cl`.
//!
//! ```text
//!  key 2 ─▶ row 0, key 5 ─▶ row 1        slots  - - 0 - - 1
//! ```
//!
//! Not from the papers: what `HashJoinExec` calls an array map. Many primary keys are the numbers
//! from 1 up. Where the normalized keys of a build side have at most [`SPARSEST`] codes per row,
//! the slot of a key is the key: no hash, no comparison, 4 bytes read. On a CPU, where they are few
//! enough for its caches, the bound is [`SPARSEST_CACHED`]. On CPU runtimes, where kernels are
//! nearly all of a join's time, that halves it. On GPUs they are a small part of it and a Horton
//! table's bucket costs one read too, so nothing is gained there.
//!
//! Cost: 4 bytes per code, one compare-and-swap per row to build, one read of 4 bytes per lookup.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};
use crate::kernel_sources;
use crate::table::api::{Items, MISS};
use crate::table::launch::{
    LOOK_AHEAD, LaunchConfig, check_lookup, group_of, local_group, prefetches,
};

/// Codes per row up to which keys are dense: with more, a Horton table is no larger.
pub const SPARSEST: usize = 4;

/// Codes up to which a table may be less dense on a CPU, whose caches have room for 32 MiB or soon
/// will.
pub const CACHED: usize = 1 << 23;

/// Codes per row up to which it may be so: filling the table must not cost more than lookups save.
pub const SPARSEST_CACHED: usize = 128;

fn text(group: usize, prefetch: bool) -> ProgramText {
    let defines = [
        ("MISS", format!("{MISS:#x}u")),
        ("DIRECT_GROUP", group.to_string()),
        ("LOOK_AHEAD", LOOK_AHEAD.to_string()),
        ("PREFETCH", u8::from(prefetch).to_string()),
    ];
    let parts = [kernel_sources::DIRECT];
    ProgramText::new("direct table", &defines, &parts)
}

/// Returns the programs under the names of files; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    use crate::device::KernelBody::{Chunk, LocalTile};
    [Chunk, LocalTile].into_iter().map(|body| {
        (
            format!("direct_{}", group_of(body)),
            text(group_of(body), false),
        )
    })
}

fn program(queue: &Queue) -> ProgramText {
    let variant = (local_group(queue), prefetches(queue));
    ProgramText::once("direct", &variant, || text(variant.0, variant.1))
}

/// A table of distinct keys below its number of entries, in device memory.
#[derive(Debug)]
pub struct DirectTable {
    slots: Buffer<u32>,
    keys: usize,
}

impl DirectTable {
    /// Builds a table of `items`, whose keys must be below `entries`; `None` if some key is there
    /// more than once.
    ///
    /// # Errors
    /// [`Error::Invalid`] if some are not, [`Error::DeviceMemory`], OpenCL's own.
    pub fn build(queue: &mut Queue, entries: usize, items: Items<'_>) -> Result<Option<Self>> {
        let n = items.keys.len();
        if entries > u32::MAX as usize {
            return Err(Error::Invalid(format!(
                "a table with a slot for every key has at most 2^32 - 1, not {entries}"
            )));
        }
        let slots = queue.allocate_table("a direct table", entries)?;
        queue.fill(&slots, MISS)?;
        let wrong = queue.buffer_from("wrong keys", &[0])?;
        let config = LaunchConfig::new(queue, n, 1);
        let args = [
            Arg::Words(&slots),
            Arg::Words(items.keys),
            items.values.map_or(Arg::Null, Arg::Words),
            Arg::Words(&wrong),
            Arg::U32(entries as u32),
            Arg::U32(config.per_item as u32),
            Arg::U32(n as u32),
        ];
        queue.launch(&program(queue), "enter", config.grid(n), &args)?;
        let mut found = [0u32];
        queue.download(&wrong, 0, &mut found)?;
        match found[0] {
            0 => Ok(Some(Self { slots, keys: n })),
            1 => Ok(None),
            _ => Err(Error::Invalid(format!(
                "a key is beyond a direct table of {entries} slots: expected keys below that number"
            ))),
        }
    }

    /// Looks up the first `n` of `keys`: `values[i]` receives the value, or [`MISS`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if a buffer is shorter, and OpenCL's own.
    pub fn lookup(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        values: &Buffer<u32>,
        n: usize,
    ) -> Result<()> {
        check_lookup(n, keys.len().min(values.len()))?;
        let config = LaunchConfig::new(queue, n, 1);
        let args = [
            Arg::Words(&self.slots),
            Arg::Words(keys),
            Arg::Words(values),
            Arg::U32(self.entries() as u32),
            Arg::U32(config.per_item as u32),
            Arg::U32(n as u32),
        ];
        queue.launch(&program(queue), "lookup_direct", config.grid(n), &args)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys
    }

    /// Returns whether the table has no keys.
    pub fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// Returns the number of slots.
    pub fn entries(&self) -> usize {
        self.slots.len()
    }

    /// Returns the bytes in device memory.
    pub fn bytes(&self) -> u64 {
        self.slots.bytes()
    }
}
