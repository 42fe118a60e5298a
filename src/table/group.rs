//! Groups of equal keys, made on the device; the driver of `cl/group.cl`.
//!
//! ```text
//!  keys  7 3 7 3 9      sort    3 3 7 7 9    unique keys  3 7 9
//!  rows  0 1 2 3 4     ─────▶   1 3 0 2 4 ─▶ offsets      0 2 4 5     rows 1 3 0 2 4
//! ```
//!
//! A cuckoo bucket cannot hold many equal keys, so rows with equal keys stand in a group
//! outside the table and the table maps the key to the group's number. The sort is a stable
//! least-significant-digit radix sort: rows of a group ascend (a join owes matches in build
//! order), and a hot key costs what any other key costs. Scratch: 16 bytes a row.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, DeviceInfo, DeviceKind, Queue};
use crate::error::Result;

/// Elements that one work-item adds up in a prefix sum.
const SCAN_TILE: usize = 256;

/// Work-group size of these kernels.
const GROUP: usize = 64;

/// Bits of a digit on CPUs.
const CPU_RADIX_BITS: u32 = 8;

/// Bits of a digit on GPUs.
const GPU_RADIX_BITS: u32 = 4;

/// Rows by group, on the device.
#[derive(Debug)]
pub struct Groups {
    /// The distinct keys, ascending; one a group.
    pub unique_keys: Buffer<u32>,
    /// `groups + 1` positions in `rows`.
    pub offsets: Buffer<u32>,
    /// Rows, group after group, ascending within each.
    pub rows: Buffer<u32>,
}

/// The program for a device: wide digits where a work-item has a cache of its own.
fn program(info: &DeviceInfo) -> ProgramText {
    text(radix_bits(info))
}

fn radix_bits(info: &DeviceInfo) -> u32 {
    match info.kind {
        DeviceKind::Cpu => CPU_RADIX_BITS,
        _ => GPU_RADIX_BITS,
    }
}

/// The program's text for digits of `radix_bits`.
pub(crate) fn text(radix_bits: u32) -> ProgramText {
    ProgramText::new(
        "group",
        &[("RADIX_BITS", radix_bits.to_string())],
        &[("group.cl", include_str!("../../cl/group.cl"))],
    )
}

/// Every grouping program under the name of a file; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    [CPU_RADIX_BITS, GPU_RADIX_BITS]
        .into_iter()
        .map(|bits| (format!("group_{bits}"), text(bits)))
}

/// Groups `keys`; `rows` are their row numbers (without them, their positions). Only the low
/// `key_bits` bits of the keys may be set: fewer bits, fewer passes.
///
/// # Errors
/// [`DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
pub fn group(
    queue: &mut Queue,
    keys: &Buffer<u32>,
    rows: Option<&Buffer<u32>>,
    key_bits: u32,
) -> Result<Groups> {
    let grouper = Grouper::new(queue, keys.len());
    let (keys, rows) = grouper.sort(queue, keys, rows, key_bits)?;
    grouper.collect(queue, &keys, rows)
}

struct Grouper {
    program: ProgramText,
    radix_bits: u32,
    n: usize,
    tile: usize,
}

impl Grouper {
    fn new(queue: &Queue, n: usize) -> Self {
        let info = queue.info();
        // A CPU wants few long tiles, a GPU many short ones.
        let tile = match info.kind {
            DeviceKind::Cpu => n.div_ceil(info.compute_units.max(1) as usize * 16),
            _ => 0,
        };
        Self {
            program: program(info),
            radix_bits: radix_bits(info),
            n,
            tile: tile.max(SCAN_TILE),
        }
    }

    /// Keys and rows in key order; rows of equal keys keep their order.
    fn sort(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        rows: Option<&Buffer<u32>>,
        key_bits: u32,
    ) -> Result<(Buffer<u32>, Buffer<u32>)> {
        let mut pair = self.pass(queue, keys, rows, 0)?;
        let mut spare: Option<(Buffer<u32>, Buffer<u32>)> = None;
        let mut shift = self.radix_bits;
        while shift < key_bits.min(32) {
            let out = match spare.take() {
                Some(out) => out,
                None => self.allocate_pair(queue)?,
            };
            self.pass_into(queue, (&pair.0, Some(&pair.1)), &out, shift)?;
            spare = Some(std::mem::replace(&mut pair, out));
            shift += self.radix_bits;
        }
        Ok(pair)
    }

    fn allocate_pair(&self, queue: &mut Queue) -> Result<(Buffer<u32>, Buffer<u32>)> {
        Ok((
            queue.allocate("sorted keys", self.n)?,
            queue.allocate("sorted rows", self.n)?,
        ))
    }

    fn pass(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        rows: Option<&Buffer<u32>>,
        shift: u32,
    ) -> Result<(Buffer<u32>, Buffer<u32>)> {
        let out = self.allocate_pair(queue)?;
        self.pass_into(queue, (keys, rows), &out, shift)?;
        Ok(out)
    }

    /// One digit of the sort.
    fn pass_into(
        &self,
        queue: &mut Queue,
        (keys, rows): (&Buffer<u32>, Option<&Buffer<u32>>),
        out: &(Buffer<u32>, Buffer<u32>),
        shift: u32,
    ) -> Result<()> {
        let tiles = self.n.div_ceil(self.tile);
        let counts = queue.allocate("digit counts", tiles << self.radix_bits)?;
        let sizes = [
            Arg::U32(self.n as u32),
            Arg::U32(self.tile as u32),
            Arg::U32(tiles as u32),
            Arg::U32(shift),
        ];
        let mut args = vec![Arg::Words(keys), Arg::Words(&counts)];
        args.extend(sizes);
        queue.launch(&self.program, "histogram", (tiles, GROUP), &args)?;
        self.exclusive_scan(queue, &counts, counts.len())?;
        let mut args = vec![
            Arg::Words(keys),
            rows.map_or(Arg::Null, Arg::Words),
            Arg::Words(&out.0),
            Arg::Words(&out.1),
            Arg::Words(&counts),
        ];
        args.extend(sizes);
        queue.launch(&self.program, "scatter", (tiles, GROUP), &args)
    }

    /// Replaces the first `n` of `data` by their exclusive prefix sums.
    fn exclusive_scan(&self, queue: &mut Queue, data: &Buffer<u32>, n: usize) -> Result<()> {
        let tiles = n.div_ceil(SCAN_TILE);
        let sizes = [
            Arg::U32(n as u32),
            Arg::U32(SCAN_TILE as u32),
            Arg::U32(tiles as u32),
        ];
        let bases = match tiles {
            0 | 1 => None,
            _ => {
                let sums = queue.allocate("prefix sums", tiles)?;
                let mut args = vec![Arg::Words(data), Arg::Words(&sums)];
                args.extend(sizes);
                queue.launch(&self.program, "tile_sums", (tiles, GROUP), &args)?;
                self.exclusive_scan(queue, &sums, tiles)?;
                Some(sums)
            }
        };
        let mut args = vec![
            Arg::Words(data),
            bases.as_ref().map_or(Arg::Null, Arg::Words),
        ];
        args.extend(sizes);
        queue.launch(&self.program, "tile_scan", (tiles, GROUP), &args)
    }

    /// Boundaries of the runs of equal keys.
    fn collect(&self, queue: &mut Queue, keys: &Buffer<u32>, rows: Buffer<u32>) -> Result<Groups> {
        let n = self.n;
        // One element more than rows: its prefix sum is the number of groups.
        let marks = queue.allocate("group marks", n + 1)?;
        queue.fill(&marks, 0)?;
        let args = [Arg::Words(keys), Arg::Words(&marks), Arg::U32(n as u32)];
        queue.launch(&self.program, "mark_groups", (n, GROUP), &args)?;
        self.exclusive_scan(queue, &marks, n + 1)?;
        let mut groups = [0u32];
        queue.download(&marks, n, &mut groups)?;
        let groups = groups[0] as usize;
        let unique_keys = queue.allocate("unique keys", groups)?;
        let offsets = queue.allocate("group offsets", groups + 1)?;
        let args = [
            Arg::Words(keys),
            Arg::Words(&marks),
            Arg::Words(&unique_keys),
            Arg::Words(&offsets),
            Arg::U32(n as u32),
        ];
        queue.launch(&self.program, "collect_groups", (n, GROUP), &args)?;
        queue.upload(&offsets, groups, &[n as u32])?;
        Ok(Groups {
            unique_keys,
            offsets,
            rows,
        })
    }
}
