//! What a join reserves in DataFusion's memory pool, under names that say what it is.
//!
//! ```text
//!  HortonJoinBuild[0]: left rows        rows of either input, until it is decided which one is built
//!  HortonJoinBuild[0]: right rows
//!  HortonJoinBuild[0]: left buckets     rows on their way to disk, of either side
//!  HortonJoinBuild[0]: right buckets
//!  HortonJoinBuild[0]: batches          the build side's rows, and arrays made of them
//!  HortonJoinBuild[0]: keys             key expressions' values; surrogates until they are on the device
//!  HortonJoinBuild[0]: tables           groups, and tables that the host keeps for a device without room, or in its place
//!  HortonJoinBuild[0]: visited rows     one bit a build row
//!  HortonJoinBuild[0]: device           tables, groups and columns on the device
//!  HortonJoinBuild: filters             sets of keys, for scans of the probe side
//!  HortonJoinProbe[3]: probe rows       rows that wait for a table to come back to the device
//! ```
//!
//! A reservation goes with what it is for: with the build side, or with a chunk, however those end.
//! The device's own budget ([`Budget`](crate::device::memory::Budget)) is counted apart, because a
//! GPU's memory is not the host's; but an operator of queries wants to see what a join holds there, too.

use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use super::sides::Side;

/// What the rows of a side that build `partition` joins are reserved under, until it is decided.
pub fn of_rows(pool: &Arc<dyn MemoryPool>, partition: usize, side: Side) -> MemoryReservation {
    MemoryConsumer::new(format!("HortonJoinBuild[{partition}]: {side} rows")).register(pool)
}

/// What the rows of a side are reserved under while they are scattered over buckets.
pub fn of_buckets(pool: &Arc<dyn MemoryPool>, partition: usize, side: Side) -> MemoryReservation {
    let name = format!("HortonJoinBuild[{partition}]: {side} buckets");
    MemoryConsumer::new(name).register(pool)
}

/// The reservations of one build side.
#[derive(Debug)]
pub struct BuildMemory {
    /// Build batches, and arrays joined from them.
    pub batches: MemoryReservation,
    /// Key columns, and surrogate keys while they are on the host.
    pub keys: MemoryReservation,
    /// Groups and tables in host memory.
    pub tables: MemoryReservation,
    /// Bitmaps of rows that were matched.
    pub visited: MemoryReservation,
    /// Device memory.
    pub device: MemoryReservation,
}

impl BuildMemory {
    /// Nothing reserved yet for build `partition`.
    pub fn new(pool: &Arc<dyn MemoryPool>, partition: usize) -> Self {
        let of = |what: &str| {
            MemoryConsumer::new(format!("HortonJoinBuild[{partition}]: {what}")).register(pool)
        };
        Self {
            batches: of("batches"),
            keys: of("keys"),
            tables: of("tables"),
            visited: of("visited rows"),
            device: of("device"),
        }
    }

    /// Gives back what was reserved for tables that are no more; `visited` bytes of the bitmaps stay.
    pub fn forget_tables(&self, visited: usize) {
        self.tables.free();
        self.device.free();
        self.visited.shrink(self.visited.size() - visited);
    }
}

/// What probe rows of `partition` that wait for a table are reserved under.
pub fn of_probe_rows(pool: &Arc<dyn MemoryPool>, partition: usize) -> MemoryReservation {
    MemoryConsumer::new(format!("HortonJoinProbe[{partition}]: probe rows")).register(pool)
}

/// What sets of keys, for scans of the probe side, are reserved under.
pub fn of_filters(pool: &Arc<dyn MemoryPool>) -> MemoryReservation {
    MemoryConsumer::new("HortonJoinBuild: filters").register(pool)
}
