//! From looked-up values to (probe row, build row) pairs on the device; the driver of
//! `cl/pairs.cl`.
//!
//! ```text
//!  values 7 MISS 2 2 ─count─▶ tile starts ─write─▶ (0, r9) (2, r4) (2, r5) (3, r4) (3, r5)
//! ```
//!
//! Pairs come in probe order, matches of a row in build order. They are counted first, so the
//! caller knows how many there are and takes them a window at a time if they are too many.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};

use super::group::Groups;
use super::horton::MISS;
use super::scan;

/// Probe rows of a tile; their starts take 8 KiB of local memory.
const TILE: usize = 1024;

fn text(group: usize) -> ProgramText {
    let defines = [
        ("WORD", "ulong".to_owned()),
        ("PAIR_GROUP", group.to_string()),
        ("PAIR_TILE", TILE.to_string()),
        ("MISS", format!("{MISS:#x}u")),
    ];
    let parts = [
        ("local.cl", include_str!("../../cl/local.cl")),
        ("pairs.cl", include_str!("../../cl/pairs.cl")),
    ];
    ProgramText::new("pairs", &defines, &parts)
}

/// Every program over pairs under the name of a file; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    [1, 256]
        .into_iter()
        .map(|group| (format!("pairs_{group}"), text(group)))
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
    /// Room for `len` pairs.
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
pub struct Matches<'a> {
    values: &'a Buffer<u32>,
    groups: Option<&'a Groups>,
    n: usize,
    tile_starts: Buffer<u64>,
    total: u64,
    program: ProgramText,
    group: usize,
}

impl<'a> Matches<'a> {
    /// Counts the pairs of the first `n` of `values`, which are build rows, or with `groups`
    /// numbers of groups; [`MISS`] has no pair.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are fewer values, [`Error::DeviceMemory`], OpenCL's own.
    pub fn count(
        queue: &mut Queue,
        values: &'a Buffer<u32>,
        groups: Option<&'a Groups>,
        n: usize,
    ) -> Result<Self> {
        if values.len() < n || n > u32::MAX as usize {
            return Err(Error::Invalid(format!(
                "pairs of {n} values (at most 2^32 - 1) were asked for, but there are {}",
                values.len()
            )));
        }
        let group = scan::local_group(queue);
        let program = text(group);
        let tiles = n.div_ceil(TILE);
        // One more than tiles: its prefix sum is the total.
        let tile_starts = queue.allocate("pairs by tile", tiles + 1)?;
        queue.fill(&tile_starts, 0)?;
        let args = [
            Arg::Words(values),
            groups.map_or(Arg::Null, |groups| Arg::Words(&groups.offsets)),
            Arg::Longs(&tile_starts),
            Arg::U32(n as u32),
        ];
        queue.launch(&program, "count_pairs", (tiles * group, group), &args)?;
        scan::exclusive(queue, &tile_starts, tiles + 1)?;
        let mut total = [0u64];
        queue.download(&tile_starts, tiles, &mut total)?;
        Ok(Self {
            values,
            groups,
            n,
            tile_starts,
            total: total[0],
            program,
            group,
        })
    }

    /// Pairs in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Writes pairs `first`, `first + 1`, … to `pairs`, as many as there are and it has room
    /// for; returns how many.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn write(&self, queue: &mut Queue, first: u64, pairs: &Pairs) -> Result<usize> {
        let left = usize::try_from(self.total.saturating_sub(first)).unwrap_or(usize::MAX);
        let room = left.min(pairs.probe.len()).min(pairs.build.len());
        let room = room.min(u32::MAX as usize);
        if room == 0 {
            return Ok(0);
        }
        let tiles = self.n.div_ceil(TILE);
        let args = [
            Arg::Words(self.values),
            self.groups.map_or(Arg::Null, |g| Arg::Words(&g.offsets)),
            self.groups.map_or(Arg::Null, |g| Arg::Words(&g.rows)),
            Arg::Longs(&self.tile_starts),
            Arg::Words(&pairs.probe),
            Arg::Words(&pairs.build),
            Arg::U32(self.n as u32),
            Arg::U32(first as u32),
            Arg::U32((first >> 32) as u32),
            Arg::U32(room as u32),
        ];
        let grid = (tiles * self.group, self.group);
        queue.launch(&self.program, "write_pairs", grid, &args)?;
        Ok(room)
    }
}
