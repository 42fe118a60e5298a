//! Reservations of a join in DataFusion's memory pool, under names that say what they are for.
//!
//! ```text
//!  HortonJoinBuild[0]: left rows             rows of either input, until the build side is chosen
//!  HortonJoinBuild[0]: right rows
//!  HortonJoinBuild[0]: left spill partitions  rows in files, or on their way
//!  HortonJoinBuild[0]: right spill partitions
//!  HortonJoinBuild[0]: order                 a sort of rows that come from spill partitions
//!  HortonJoinBuild[0]: batches               the build side's rows, and arrays made of them
//!  HortonJoinBuild[0]: keys                  key values; normalized keys on their way
//!  HortonJoinBuild[0]: tables                the table that the host keeps in the device's place
//!  HortonJoinBuild[0]: visited rows          one bit per build row
//!  HortonJoinBuild[0]: device                tables, groups and columns on the device
//!  HortonJoinBuild: filters                  sets of keys, for scans of the probe side
//!  HortonJoinProbe[3]: probe rows            chunks of rows with their keys, until emitted
//!  HortonJoinProbe[3]: pairs                 windows of their pairs, with gathered columns
//! ```
//!
//! A reservation lives as long as what it covers: the build side, or a chunk, however those end. A
//! build side that is refused goes to disk ([`spill`](super::spill)). If the pool refuses a chunk
//! more memory, the chunk is sent with the rows that it has. A second chunk that gets none waits
//! for the one in flight. Windows that are refused are halved. Chunks are large for speed alone. So
//! they use at most half of a limited pool. Operators that cannot spill may need the rest: an
//! aggregate above, the next build side.
//!
//! Where that leaves nothing, a stream goes on with one batch of its input and a window of
//! [`FALLBACK_BYTES`]. Both are unreserved, as is the batch that DataFusion's joins hold. Growing
//! beyond the limit instead makes the pool refuse all others, who then fail. The batch is not cut:
//! its buffers are there anyway, and rows of a whole one pass through uncopied. Output batches are
//! not reserved either.
//!
//! The device's own budget ([`Budget`](crate::device::Budget)) is counted apart, because a GPU's
//! memory is not the host's. It is reserved here as well, so that operators see it.

use std::sync::Arc;

use datafusion::common::utils::memory::estimate_memory_size;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};

use crate::join::side::Side;

/// Returns a reservation for the rows of a side that build `partition` joins, until the build side
/// is chosen.
pub fn rows_reservation(
    pool: &Arc<dyn MemoryPool>,
    partition: usize,
    side: Side,
) -> MemoryReservation {
    MemoryConsumer::new(format!("HortonJoinBuild[{partition}]: {side} rows")).register(pool)
}

/// Returns a reservation for the rows of a side while they go to spill partitions.
pub fn spill_reservation(
    pool: &Arc<dyn MemoryPool>,
    partition: usize,
    side: Side,
) -> MemoryReservation {
    let name = format!("HortonJoinBuild[{partition}]: {side} spill partitions");
    MemoryConsumer::new(name).register(pool)
}

/// Returns a reservation for the sort that restores the order of rows which come from disk.
pub fn order_reservation(pool: &Arc<dyn MemoryPool>, partition: usize) -> MemoryReservation {
    let consumer = MemoryConsumer::new(format!("HortonJoinBuild[{partition}]: order"));
    consumer.with_can_spill(true).register(pool)
}

/// The reservations of one build side.
#[derive(Debug)]
pub struct BuildMemory {
    /// Build batches, and arrays concatenated from them.
    pub batches: MemoryReservation,
    /// Key columns, and normalized keys while they are on the host.
    pub keys: MemoryReservation,
    /// The table in host memory.
    pub tables: MemoryReservation,
    /// Bitmaps of rows that were matched.
    pub visited: MemoryReservation,
    /// Reservation for memory on the device.
    pub device: MemoryReservation,
}

impl BuildMemory {
    /// Returns the reservations for build `partition`, empty as yet.
    pub fn new(pool: &Arc<dyn MemoryPool>, partition: usize) -> Self {
        let reservation = |what: &str| {
            MemoryConsumer::new(format!("HortonJoinBuild[{partition}]: {what}")).register(pool)
        };
        Self {
            batches: reservation("batches"),
            keys: reservation("keys"),
            tables: reservation("tables"),
            visited: reservation("visited rows"),
            device: reservation("device"),
        }
    }

    /// Gives back what was reserved for tables that are no more; `visited` bytes of the bitmaps
    /// stay.
    pub fn forget_tables(&self, visited: usize) {
        self.tables.free();
        self.device.free();
        self.visited.shrink(self.visited.size() - visited);
    }
}

/// Bytes that a stream takes however full the memory pool is: for a window of pairs, and for a sort
/// of rows that come from disk.
pub const FALLBACK_BYTES: usize = 1 << 20;

/// Bytes for each row that a chunk of probe rows, its window of pairs, or a read may have: 128 MiB
/// for 2^20 rows. Rows of analytic queries are narrower as a rule, so that rows are what ends them.
pub const ROW_BYTES: usize = 128;

/// Returns whether half of a limited `pool` is free after `bytes` more: what is taken for speed
/// alone leaves so much to those who fail without.
pub fn leaves_half(pool: &Arc<dyn MemoryPool>, bytes: usize) -> bool {
    match pool.memory_limit() {
        MemoryLimit::Finite(limit) => pool.reserved() + bytes <= limit / 2,
        _ => true,
    }
}

/// The reservations of a chunk of probe rows. That of a stream is empty, and makes those of its
/// chunks.
#[derive(Debug)]
pub struct ProbeMemory {
    /// Batches, key columns, and normalized keys.
    pub rows: MemoryReservation,
    /// A window of pairs with gathered columns.
    pub pairs: MemoryReservation,
    pool: Arc<dyn MemoryPool>,
}

impl ProbeMemory {
    /// Returns the reservations of the probe stream of `partition`, empty as yet.
    pub fn new(pool: &Arc<dyn MemoryPool>, partition: usize) -> Self {
        let reservation = |what: &str| {
            MemoryConsumer::new(format!("HortonJoinProbe[{partition}]: {what}")).register(pool)
        };
        Self {
            rows: reservation("probe rows"),
            pairs: reservation("pairs"),
            pool: Arc::clone(pool),
        }
    }

    /// Returns the reservations for a chunk, empty as yet.
    pub fn for_chunk(&self) -> Self {
        Self {
            rows: self.rows.new_empty(),
            pairs: self.pairs.new_empty(),
            pool: Arc::clone(&self.pool),
        }
    }

    /// Returns whether `bytes` more for rows would be granted.
    pub fn has_room(&self, bytes: usize) -> bool {
        leaves_half(&self.pool, bytes)
    }

    /// Reserves `bytes` more for rows; whether they were granted.
    pub fn add_rows(&self, bytes: usize) -> bool {
        leaves_half(&self.pool, bytes) && self.rows.try_grow(bytes).is_ok()
    }

    /// Reserves `bytes` for pairs instead of what there is; without a grant, nothing.
    pub fn set_pairs(&self, bytes: usize) -> bool {
        self.pairs.free();
        leaves_half(&self.pool, bytes) && self.pairs.try_grow(bytes).is_ok()
    }

    /// Gives back what more than `bytes` is reserved for pairs.
    pub fn keep_pairs(&self, bytes: usize) {
        self.pairs.resize(self.pairs.size().min(bytes));
    }
}

/// Returns a reservation for sets of keys, for scans of the probe side.
pub fn filter_reservation(pool: &Arc<dyn MemoryPool>) -> MemoryReservation {
    MemoryConsumer::new("HortonJoinBuild: filters").register(pool)
}

/// Bytes of an empty hash map.
const MAP_HEADER_BYTES: usize = 64;

/// Returns the bytes of the hash table that DataFusion's join makes of `rows` rows: its own
/// estimate, and a bit per row for those that were matched.
pub fn table_bytes(rows: usize) -> usize {
    let table = estimate_memory_size::<(u32, u64)>(rows, MAP_HEADER_BYTES);
    table.unwrap_or(usize::MAX / 2) + rows.div_ceil(8)
}
