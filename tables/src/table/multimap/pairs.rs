//! The way from looked-up values to (probe row, build row) pairs on the device; the host side of
//! `cl/multimap/pairs.cl`.
//!
//! ```text
//!  values 7 MISS 2 2 ─count─▶ tile starts ─write─▶ (0, r9) (2, r4) (2, r5) (3, r4) (3, r5)
//!                                         └─bits──▶ 1011
//! ```
//!
//! Pairs come in probe order, matches of a row in build order. They are counted first, so the
//! caller knows how many there are and takes them a window at a time if they are too many.

use std::sync::Arc;

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};
use crate::kernel_sources;
use crate::table::api::MISS;
use crate::table::launch::local_group;
use crate::table::primitives::group::RowGroups;
use crate::table::primitives::{rows, scan};

/// Probe rows of a tile; their starts take 8 KiB of local memory.
const TILE: usize = 1024;

fn text(group: usize, prefetch: bool) -> ProgramText {
    let defines = [
        ("WORD", "ulong".to_owned()),
        ("ONE_ITEM", u8::from(group == 1).to_string()),
        ("PREFETCH", u8::from(prefetch).to_string()),
        ("PAIR_GROUP", group.to_string()),
        ("PAIR_TILE", TILE.to_string()),
        ("MISS", format!("{MISS:#x}u")),
    ];
    let parts = [kernel_sources::LOCAL, kernel_sources::PAIRS];
    ProgramText::new("pairs", &defines, &parts)
}

/// Returns every program over pairs under the name of a file; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    [1, 256]
        .into_iter()
        .map(|group| (format!("pairs_{group}"), text(group, false)))
}

/// Room for pairs: row `probe[i]` of the probe side matches row `build[i]` of the build side.
#[derive(Debug)]
pub struct Pairs {
    /// Positions in the looked-up keys, ascending.
    pub probe: Buffer<u32>,
    /// Build rows, ascending among equal positions.
    pub build: Buffer<u32>,
}

impl Pairs {
    /// Returns room for `len` pairs.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn with_room(queue: &mut Queue, len: usize) -> Result<Self> {
        Ok(Self {
            probe: queue.allocate("probe rows of pairs", len)?,
            build: queue.allocate("build rows of pairs", len)?,
        })
    }
}

/// The values of a lookup whose pairs have been counted.
#[derive(Debug)]
pub struct Matches {
    values: Buffer<u32>,
    groups: Option<Arc<RowGroups>>,
    n: usize,
    tile_starts: Buffer<u64>,
    total: u64,
    matched: u64,
    reads: u64,
}

/// The values that a lookup left on the device.
#[derive(Debug)]
pub struct LookedUp {
    /// Build rows, or with groups their numbers; [`MISS`] has no pair.
    pub values: Buffer<u32>,
    /// Secondary buckets read, in one word.
    pub reads: Buffer<u32>,
}

impl Matches {
    /// Returns the number of keys that were looked up.
    pub fn keys(&self) -> usize {
        self.n
    }

    /// Counts the pairs of the first `n` values.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are fewer values, [`Error::DeviceMemory`], OpenCL's own.
    pub fn count(
        queue: &mut Queue,
        LookedUp { values, reads }: LookedUp,
        groups: Option<Arc<RowGroups>>,
        n: usize,
    ) -> Result<Self> {
        if values.len() < n || n > u32::MAX as usize {
            return Err(Error::Invalid(format!(
                "pairs of {n} values (at most 2^32 - 1) from a buffer of {}",
                values.len()
            )));
        }
        let (program, grid) = launch(queue, n);
        let tiles = n.div_ceil(TILE);
        // Three more than tiles: the prefix sum over one more is the total, then come the rows
        // with a pair and the buckets read.
        let tile_starts = queue.allocate("pairs by tile", tiles + 3)?;
        if groups.is_some() || n == 0 {
            // Else the kernel writes all of them.
            queue.fill(&tile_starts, 0)?;
        }
        let args = [
            Arg::Words(&values),
            groups
                .as_ref()
                .map_or(Arg::Null, |g| Arg::Words(&g.offsets)),
            Arg::Words(&reads),
            Arg::Longs(&tile_starts),
            Arg::U32(tiles as u32),
            Arg::U32(n as u32),
        ];
        queue.launch(&program, "count_pairs", grid, &args)?;
        scan::exclusive(queue, &tile_starts, tiles + 1)?;
        let mut counts = [0u64; 3];
        queue.download(&tile_starts, tiles, &mut counts)?;
        let [total, matched, reads] = counts;
        let matched = match groups {
            Some(_) => matched,
            None => total,
        };
        if matched > (n as u64).min(total) {
            let what = format!("{matched} of {n} looked-up rows with {total} pairs");
            return Err(queue.wrong_answer(what));
        }
        Ok(Self {
            matched,
            values,
            groups,
            n,
            tile_starts,
            total,
            reads,
        })
    }

    /// Returns the number of pairs.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of looked-up rows with at least one pair.
    pub fn matched(&self) -> u64 {
        self.matched
    }

    /// Returns the number of secondary buckets that the lookup read.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Returns all pairs. Where every row has exactly one of a build row that is its value, the
    /// values themselves are the build rows: a join along a foreign key moves nothing.
    ///
    /// # Errors
    /// [`Error::TooManyPairs`] beyond 2^32 - 1, [`Error::DeviceMemory`], OpenCL's own.
    pub fn into_pairs(self, queue: &mut Queue) -> Result<Pairs> {
        if self.one_each() && self.groups.is_none() && self.values.len() == self.n {
            return Ok(Pairs {
                probe: rows::count_up(queue, self.n)?,
                build: self.values,
            });
        }
        let total =
            u32::try_from(self.total).map_err(|_| Error::TooManyPairs { pairs: self.total })?;
        let pairs = Pairs::with_room(queue, total as usize)?;
        self.write(queue, 0, &pairs)?;
        Ok(pairs)
    }

    /// Returns whether every row has exactly one pair: then pair `i` is of row `i`.
    pub fn one_each(&self) -> bool {
        self.total == self.n as u64 && self.matched == self.n as u64
    }

    /// Returns the looked-up values.
    pub fn values(&self) -> &Buffer<u32> {
        &self.values
    }

    /// Returns the bits of matches. Bit `i % 32` of word `i / 32`: whether row `i` has a pair. Bits
    /// beyond the last row are 0.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn bits(&self, queue: &mut Queue) -> Result<Buffer<u32>> {
        let bits = queue.allocate("match bits", self.n.div_ceil(32))?;
        let (program, grid) = launch(queue, self.n);
        let args = [
            Arg::Words(&self.values),
            Arg::Words(&bits),
            Arg::U32(self.n as u32),
        ];
        queue.launch(&program, "match_bits", grid, &args)?;
        Ok(bits)
    }

    /// Writes pairs `first`, `first + 1`, … to `pairs`, as many as there are and it has room
    /// for; returns how many.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn write(&self, queue: &mut Queue, first: u64, pairs: &Pairs) -> Result<usize> {
        let room = pairs.probe.len().min(pairs.build.len());
        self.write_parts(queue, (first, room), Some(&pairs.probe), &pairs.build)
    }

    /// Does the same for the build rows of the pairs alone.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn write_build(&self, queue: &mut Queue, first: u64, build: &Buffer<u32>) -> Result<usize> {
        self.write_parts(queue, (first, build.len()), None, build)
    }

    fn write_parts(
        &self,
        queue: &mut Queue,
        (first, room): (u64, usize),
        probe: Option<&Buffer<u32>>,
        build: &Buffer<u32>,
    ) -> Result<usize> {
        let left = usize::try_from(self.total.saturating_sub(first)).unwrap_or(usize::MAX);
        let room = left.min(room).min(u32::MAX as usize);
        if room == 0 {
            return Ok(0);
        }
        let (program, grid) = launch(queue, self.n);
        let groups = self.groups.as_ref();
        let args = [
            Arg::Words(&self.values),
            groups.map_or(Arg::Null, |g| Arg::Words(&g.offsets)),
            groups.map_or(Arg::Null, |g| Arg::Words(&g.rows)),
            Arg::Longs(&self.tile_starts),
            probe.map_or(Arg::Null, Arg::Words),
            Arg::Words(build),
            Arg::U32(self.n as u32),
            Arg::U32(first as u32),
            Arg::U32((first >> 32) as u32),
            Arg::U32(room as u32),
        ];
        queue.launch(&program, "write_pairs", grid, &args)?;
        Ok(room)
    }
}

/// Returns the program, and the launch size of one work-group per tile of `n` rows.
fn launch(queue: &Queue, n: usize) -> (ProgramText, (usize, usize)) {
    let group = local_group(queue);
    let prefetch = group == 1 && queue.info().has_prefetch();
    let program = ProgramText::once("pairs", &(group, prefetch), || text(group, prefetch));
    (program, (n.div_ceil(TILE) * group, group))
}
