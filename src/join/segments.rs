//! A build side in several tables, each of a range of its rows: over the device's memory, its
//! largest allocation, or the rows that one table can number.
//!
//! ```text
//!  build keys   ├─ segment 0 ─┤├─ segment 1 ─┤├─ segment 2 ─┤     built one after the other
//!  tables        device         device          host, lent to the device for a chunk
//!  groups        host           host            host
//!  probe keys   ─▶ all looked up in each ─▶ hits (key, value) ─▶ merged by key: hits.rs
//! ```
//!
//! Segments are ranges of rows, not of hashed keys: a hot key's rows would all share a hash and could
//! not be split; matches come in build order by themselves; nothing is scattered on the host,
//! neither build nor probe keys. The price is a lookup in every segment, at the rate of lookups, where
//! partitions would cost a scatter of the probe keys on the host, which costs more than a few lookups do.
//!
//! Half of the device's limit is for tables that stay there, half for work: building, the
//! table that is lent, and chunks. A lent table is copied again for each chunk; so chunks then
//! have as many rows as the build side, if the memory pool allows, and a probe row costs no more than a
//! slot's copy. One table is lent at a time. Only hits come back, 8 bytes each.
//!
//! Keys of several words are hashed to one here, and their matches verified: what tells them apart would
//! have to be lent, too. Segments are Horton tables whatever `horton.table` says: smaller ones, to be copied.
//!
//! Host memory: 4 bytes a row and a group where keys repeat, 8 bytes / load factor a distinct key in
//! tables that do not stay on the device. Everything is reserved before it is taken. A segment that
//! the device has no room for is halved, until 64 keys or 1024 segments.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::device::{Answer, Buffer, Cost, Queue};
use crate::error::{Error, Result};
use crate::table::grouped::{BuildKeys, GroupedTable, KeyFormat};
use crate::table::horton::stored::StoredTable;
use crate::table::horton::{HortonTable, TableConfig};
use crate::table::key_table::KeyTable;
use crate::table::pairs::{LookedUp, Matches, Pairs};

use super::bitmap::Bitmap;
use super::build_keys::{KeyRange, KeySource};
use super::columns::Upload;
use super::hits::{Hits, SegmentHits};
use super::lookup::{Access, Found, Wanted};
use super::memory::BuildMemory;
use super::table::send_keys;

/// Keys of a segment that is not halved again.
const LEAST: usize = 64;

/// Segments at most: each costs a lookup of every probe key.
const MOST_SEGMENTS: usize = 1024;

/// Device bytes a key while a segment is built: key, table, and what its groups take meanwhile.
const KEY_BYTES: u64 = 48;

/// Keys that are looked up at once at least, if the device has little room.
const LEAST_PIECE: usize = 64;

/// How segments are made.
#[derive(Debug, Clone, Copy)]
pub struct SegmentConfig {
    /// How tables are built.
    pub table: TableConfig,
    /// What a key is; one word.
    pub format: KeyFormat,
    /// Whether lookups are to note which build rows they met.
    pub visits: bool,
    /// Keys of a segment at most.
    pub most_keys: usize,
    /// Keys that are looked up at once.
    pub piece: usize,
}

/// Several tables over consecutive ranges of build rows.
#[derive(Debug)]
pub struct SegmentedTable {
    segments: Vec<Segment>,
    keys: usize,
    piece: usize,
    /// Held while a table is lent to the device.
    lending: Arc<Mutex<()>>,
}

/// One table, and what its values stand for.
#[derive(Debug)]
pub struct Segment {
    home: Home,
    groups: Option<HostGroups>,
    rows: RowNumbers,
    visited: Option<Bitmap>,
}

/// Where a segment's table is.
#[derive(Debug)]
enum Home {
    Device(HortonTable),
    Host(Arc<StoredTable>),
}

/// Positions in the segment by group.
#[derive(Debug)]
struct HostGroups {
    offsets: Vec<u32>,
    positions: Vec<u32>,
}

/// The build rows of a segment's positions.
#[derive(Debug)]
enum RowNumbers {
    /// Consecutive ones.
    From(u32),
    Listed(Vec<u32>),
}

/// A table on the device for the time of some jobs.
struct Lent {
    table: HortonTable,
    _turn: Option<OwnedMutexGuard<()>>,
}

impl SegmentedTable {
    /// Builds segments of `keys`, in their order.
    ///
    /// # Errors
    /// `ResourcesExhausted` from the memory pool, [`Error::DeviceMemory`] if the smallest segment has
    /// no room; those of [`GroupedTable::build`].
    pub async fn build(
        upload: Upload<'_>,
        config: SegmentConfig,
        keys: &[KeyRange],
        memory: &BuildMemory,
    ) -> Result<Self> {
        let count: usize = keys.iter().map(KeyRange::count).sum();
        let fewest = LEAST.max(count.div_ceil(MOST_SEGMENTS));
        let mut most = most_keys(upload, config).max(fewest).min(config.most_keys);
        let mut segments = Vec::new();
        let mut done = 0;
        while done < count {
            let taken = count.min(done + most) - done;
            let part = KeyRange::cut(keys, done..done + taken);
            match Segment::build(upload, config, part, memory).await {
                Ok(segment) => {
                    segments.push(segment);
                    done += taken;
                }
                Err(Error::DeviceMemory { .. }) if taken > fewest => {
                    most = taken.div_ceil(2).max(fewest);
                }
                Err(error) => return Err(error),
            }
        }
        let stored = segments.iter().filter(|s| s.is_stored()).count();
        log::debug!(
            "{count} build keys in {} tables, {stored} of them in host memory",
            segments.len()
        );
        Ok(Self {
            segments,
            keys: count,
            piece: config.piece.max(1),
            lending: Arc::default(),
        })
    }

    /// The segments, in the order of their rows.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Keys of all tables.
    pub fn len(&self) -> usize {
        self.keys
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// Whether every chunk has tables copied to the device.
    pub fn is_lent(&self) -> bool {
        self.segments.iter().any(Segment::is_stored)
    }

    /// Sets the bits of the build rows that lookups met.
    pub fn mark_visited(&self, rows: &Bitmap) {
        for segment in &self.segments {
            let values = segment.visited.iter().flat_map(Bitmap::ones);
            for value in values {
                let all = 0..segment.matches(value);
                segment.rows(value, all).for_each(|row| rows.set(row));
            }
        }
    }

    /// Looks `keys` up in every segment.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub async fn look_up(
        self: Arc<Self>,
        access: Access,
        keys: Vec<u32>,
        wanted: Wanted,
    ) -> Result<Answer<Found>> {
        let keys = Arc::new(keys);
        let mut cost = Cost::default();
        let mut hits = Vec::with_capacity(self.segments.len());
        for s in 0..self.segments.len() {
            let found = self.look_up_in(s, &access, &keys).await?;
            cost += found.cost;
            hits.push(found.value);
        }
        let hits = Hits::merge(&self, (keys.len(), hits));
        let value = hits.into_found(&self, wanted);
        Ok(Answer { value, cost })
    }

    /// What segment `s` has of `keys`, a piece at a time; smaller ones if the device has little room.
    async fn look_up_in(
        self: &Arc<Self>,
        s: usize,
        access: &Access,
        keys: &Arc<Vec<u32>>,
    ) -> Result<Answer<SegmentHits>> {
        let Answer {
            value: lent,
            mut cost,
        } = self.lend(s, access).await?;
        let mut hits = SegmentHits::default();
        let (mut from, mut most) = (0, self.piece);
        while from < keys.len() {
            let range = from..keys.len().min(from + most);
            let (lent, keys) = (Arc::clone(&lent), Arc::clone(keys));
            let (start, len) = (range.start, range.len());
            let found = access.run(move |queue| look_up(queue, &lent.table, &keys[range], start));
            match found.await {
                Ok(found) => {
                    cost += found.cost;
                    hits.append(found.value);
                    from += len;
                }
                Err(Error::DeviceMemory { .. }) if len > LEAST_PIECE => most = len.div_ceil(2),
                Err(error) => return Err(error),
            }
        }
        Ok(Answer { value: hits, cost })
    }

    /// Segment `s`'s table on the device.
    async fn lend(self: &Arc<Self>, s: usize, access: &Access) -> Result<Answer<Arc<Lent>>> {
        let stored = match &self.segments[s].home {
            Home::Device(table) => {
                let lent = Lent {
                    table: table.clone(),
                    _turn: None,
                };
                return Ok(Answer {
                    value: Arc::new(lent),
                    cost: Cost::default(),
                });
            }
            Home::Host(stored) => Arc::clone(stored),
        };
        let turn = Arc::clone(&self.lending).lock_owned().await;
        let lend = move |queue: &mut Queue| {
            Ok(Arc::new(Lent {
                table: stored.lend(queue)?,
                _turn: Some(turn),
            }))
        };
        access.run(lend).await
    }
}

/// Keys of a segment that half of the limit has room for.
fn most_keys(upload: Upload<'_>, config: SegmentConfig) -> usize {
    let bytes = upload.limit() / 2 / KEY_BYTES;
    usize::try_from(bytes)
        .unwrap_or(usize::MAX)
        .min(config.most_keys)
}

/// What `table` has of `keys`, the first of which is number `start`.
fn look_up(
    queue: &mut Queue,
    table: &HortonTable,
    keys: &[u32],
    start: usize,
) -> Result<SegmentHits> {
    let n = keys.len();
    let keys = queue.buffer_from("probe keys", keys)?;
    let values = queue.allocate("looked-up values", n)?;
    let reads = queue.buffer_from("bucket reads", &[0])?;
    table.lookup(queue, &keys, &values, &reads, n)?;
    let matches = Matches::count(queue, LookedUp { values, reads }, None, n)?;
    let found = matches.total() as usize;
    let start = start as u32;
    let (keys, values) = if matches.one_each() {
        let values = queue.read(matches.values(), n)?;
        ((start..start + n as u32).collect(), values)
    } else {
        let pairs = Pairs::with_room(queue, found)?;
        matches.write(queue, 0, &pairs)?;
        let mut keys: Vec<u32> = queue.read(&pairs.probe, found)?;
        keys.iter_mut().for_each(|key| *key += start);
        (keys, queue.read(&pairs.build, found)?)
    };
    Ok(SegmentHits {
        keys,
        values,
        reads: n as u64 + matches.reads(),
    })
}

impl Segment {
    async fn build(
        upload: Upload<'_>,
        config: SegmentConfig,
        keys: Vec<KeyRange>,
        memory: &BuildMemory,
    ) -> Result<Self> {
        let n: usize = keys.iter().map(KeyRange::count).sum();
        // Groups and row numbers, if there are any: 12 bytes a row at most.
        let reserved = memory.tables.new_empty();
        reserved.try_grow(12 * n + 4)?;
        let rows = RowNumbers::of(&keys);
        let sent = send_keys(upload, (keys, 1), false).await?;
        let limit = upload.memory_limit;
        let built = upload.device.run(move |queue| {
            queue.limit_memory(limit);
            grouped(queue, (config.table, config.format), &sent.keys)
        });
        let built = built.await?;
        upload.metrics.add_cost(&built.cost);
        let (table, groups) = built.value;
        upload.metrics.add_table(&table);
        let KeyTable::Horton(table) = table else {
            return Err(Error::Invalid("segments are Horton tables".into()));
        };
        let kept = rows.bytes() + groups.as_ref().map_or(0, HostGroups::bytes);
        reserved.shrink(reserved.size() - kept);
        let values = groups.as_ref().map_or(n, HostGroups::len);
        let visited = match config.visits {
            true => {
                memory.visited.try_grow(Bitmap::bytes(values))?;
                Some(Bitmap::new(values))
            }
            false => None,
        };
        let home = Home::of(table, upload, memory).await?;
        memory.tables.grow(reserved.free());
        Ok(Self {
            home,
            groups,
            rows,
            visited,
        })
    }

    fn is_stored(&self) -> bool {
        matches!(self.home, Home::Host(_))
    }

    /// Build rows of a value.
    pub fn matches(&self, value: u32) -> usize {
        match &self.groups {
            Some(groups) => groups.range(value).len(),
            None => 1,
        }
    }

    /// The build rows `range` of a value's, ascending.
    pub fn rows(&self, value: u32, range: Range<usize>) -> impl Iterator<Item = u32> {
        let (one, many) = match &self.groups {
            Some(groups) => (None, &groups.positions[groups.range(value)][range]),
            None => (Some(value).filter(|_| !range.is_empty()), &[][..]),
        };
        let positions = one.into_iter().chain(many.iter().copied());
        positions.map(|position| self.rows.row(position))
    }

    /// Notes that a lookup met `value`.
    pub fn visit(&self, value: u32) {
        if let Some(visited) = &self.visited {
            visited.set(value);
        }
    }
}

/// A table over `keys` and, if they repeat, its groups on the host.
fn grouped(
    queue: &mut Queue,
    (config, format): (TableConfig, KeyFormat),
    keys: &Buffer<u32>,
) -> Result<(KeyTable, Option<HostGroups>)> {
    let keys = BuildKeys {
        keys,
        rows: None,
        format,
    };
    let built = GroupedTable::build(queue, &config, keys)?;
    let groups = match &built.groups {
        Some(groups) => Some(HostGroups {
            offsets: queue.read(&groups.offsets, groups.offsets.len())?,
            positions: queue.read(&groups.rows, groups.rows.len())?,
        }),
        None => None,
    };
    Ok((built.table, groups))
}

impl Home {
    /// On the device while half of its limit is free for work, else on the host.
    async fn of(table: HortonTable, upload: Upload<'_>, memory: &BuildMemory) -> Result<Self> {
        if upload.device.budget().used() <= upload.limit() / 2 {
            memory.device.try_grow(table.bytes() as usize)?;
            return Ok(Home::Device(table));
        }
        memory.tables.try_grow(table.stored_bytes())?;
        let stored = upload.device.run(move |queue| table.store(queue)).await?;
        upload.metrics.add_cost(&stored.cost);
        Ok(Home::Host(Arc::new(stored.value)))
    }
}

impl HostGroups {
    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    fn bytes(&self) -> usize {
        4 * (self.offsets.len() + self.positions.len())
    }

    fn range(&self, group: u32) -> Range<usize> {
        let group = group as usize;
        self.offsets[group] as usize..self.offsets[group + 1] as usize
    }
}

impl RowNumbers {
    fn of(keys: &[KeyRange]) -> Self {
        match keys.first() {
            Some(first) if keys.iter().all(KeyRange::has_all_rows) => Self::From(first.first_row()),
            _ => {
                let n: usize = keys.iter().map(KeyRange::count).sum();
                let mut rows = vec![0; n];
                let mut rest = &mut rows[..];
                for range in keys {
                    let (now, later) = rest.split_at_mut(range.count());
                    range.number(now);
                    rest = later;
                }
                Self::Listed(rows)
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::From(_) => 0,
            Self::Listed(rows) => 4 * rows.len(),
        }
    }

    fn row(&self, position: u32) -> u32 {
        match self {
            Self::From(first) => first + position,
            Self::Listed(rows) => rows[position as usize],
        }
    }
}
