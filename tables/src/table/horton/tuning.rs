//! The ways in which lookups use a device: the parameters of `cl/horton/lookup.cl`, and the best of
//! them that were measured.
//!
//! ```text
//!  kernel body, kind of table, slots per bucket, cached or not ─▶ Tuning::of ─▶ a constant
//! ```
//!
//! The Horton paper tunes every kind of table by itself (section 7: unrolling, threads per compute
//! unit, keys per group of threads), as a slow baseline proves nothing. So each parameter was
//! varied here, one after another, on an NVIDIA H200 and on PoCL
//! (`benches/results/tables-2026-11-21.md`). Winners by 3 % and more are constants, with their rate
//! beside the first guess. A file of tunings for every device gained nothing for joins, whose
//! buckets of eight slots are fastest with the first guess on both. Answers never depend on a
//! tuning.

use std::fmt;

use crate::device::{DeviceInfo, DeviceKind, KernelBody, Queue};
use crate::table::launch::cached_bytes;
use crate::table::primitives::bucket::BucketSize;

/// The kind of table that is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A Horton table.
    Horton,
    /// A cuckoo table that fills the emptier of two buckets.
    LoadBalanced,
    /// A cuckoo table that fills the first bucket first.
    FirstFit,
}

impl Kind {
    /// All kinds of tables.
    pub const ALL: [Kind; 3] = [Kind::LoadBalanced, Kind::FirstFit, Kind::Horton];

    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Horton => "Horton",
            Kind::LoadBalanced => "load-balanced",
            Kind::FirstFit => "first-fit",
        }
    }
}

/// The memory that lookups wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Residence {
    /// Instructions: the table stays in the last cache.
    Cached,
    /// The table is in the device's memory.
    Memory,
}

impl Residence {
    /// Both residences.
    pub const ALL: [Residence; 2] = [Residence::Cached, Residence::Memory];

    /// Returns the residence of a table of so many `bytes`.
    pub fn of(info: &DeviceInfo, bytes: u64) -> Self {
        if bytes <= cached_bytes(info) {
            Residence::Cached
        } else {
            Residence::Memory
        }
    }
}

/// The table that is looked up, as far as tuning goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    /// The kind of table.
    pub kind: Kind,
    /// Slots per bucket: 4, 8 or 16.
    pub slots: usize,
    /// Memory that the table is in.
    pub residence: Residence,
}

/// The time at which a second bucket is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Second {
    /// A lookup reads its second bucket immediately.
    Direct,
    /// Second buckets are looked at when a few keys wait for theirs (Horton paper, section 5.1).
    Buffered,
}

/// Values for the parameters of a lookup kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tuning {
    /// A contiguous chunk of keys per work-item.
    Chunk {
        /// Keys between a prefetch and its lookup.
        look_ahead: usize,
        /// Work-items per compute unit.
        items_per_unit: usize,
        /// Looks at second buckets.
        second: Second,
    },
    /// A tile of lanes per bucket.
    Tile {
        /// Way in which lanes talk: any body but [`KernelBody::Chunk`].
        body: KernelBody,
        /// Lanes per bucket.
        lanes: usize,
        /// Buckets that are read before the first is compared.
        unroll: usize,
        /// Number of work-items of a work-group.
        group: usize,
        /// Keys per work-item at most; few keys are spread over the whole device instead.
        keys: usize,
        /// Looks at second buckets; [`Second::Buffered`] only with [`KernelBody::WarpTile`],
        /// several keys per work-item and values of 31 bits.
        second: Second,
    },
}

impl Tuning {
    /// Returns the tuning of lookups on a device whose lanes talk by `body`. Tiles that do not fit
    /// the sub-groups talk through local memory instead.
    pub fn for_device(info: &DeviceInfo, body: KernelBody, workload: &Workload) -> Self {
        let body = info.body_for_slots(body, workload.slots);
        Self::measured(body, info.kind, workload)
    }

    /// Returns the tuning of a job's lookups in tables of `kind` with `bytes` bytes.
    pub(crate) fn for_job(queue: &Queue, kind: Kind, bucket_size: BucketSize, bytes: u64) -> Self {
        let workload = Workload {
            kind,
            slots: bucket_size.slots(),
            residence: Residence::of(queue.info(), bytes),
        };
        Self::for_device(queue.info(), queue.body(), &workload)
    }

    /// Returns the tuning for a kind of device.
    pub(crate) fn measured(body: KernelBody, kind: DeviceKind, workload: &Workload) -> Self {
        match (body, kind) {
            (KernelBody::Chunk, DeviceKind::Cpu) => Self::chunk_on_cpu(workload),
            (KernelBody::Chunk, _) => Self::Chunk {
                look_ahead: 32,
                items_per_unit: 2048,
                second: Second::Direct,
            },
            (KernelBody::WarpTile, _) => Self::warp_tile(workload),
            (KernelBody::LocalTile | KernelBody::SubGroupTile, _) => Self::Tile {
                body,
                lanes: workload.slots / 2,
                unroll: workload.slots / 2,
                group: 256,
                keys: 1,
                second: Second::Direct,
            },
        }
    }

    /// Returns the tuning measured on PoCL with buckets of eight slots. A figure is the rate over
    /// that of 32 keys ahead, 16 work-items and second buckets at once.
    fn chunk_on_cpu(workload: &Workload) -> Self {
        let (look_ahead, items_per_unit, second) = match (workload.kind, workload.residence) {
            // 1.12
            (Kind::Horton, Residence::Cached) => (16, 16, Second::Direct),
            // 1.00
            (Kind::Horton, Residence::Memory) => (32, 16, Second::Direct),
            // 1.10
            (Kind::LoadBalanced, Residence::Cached) => (32, 64, Second::Buffered),
            // 1.44
            (Kind::LoadBalanced, Residence::Memory) => (32, 16, Second::Buffered),
            // 1.17
            (Kind::FirstFit, Residence::Cached) => (8, 64, Second::Buffered),
            // 1.33
            (Kind::FirstFit, Residence::Memory) => (32, 64, Second::Buffered),
        };
        Self::Chunk {
            look_ahead,
            items_per_unit,
            second,
        }
    }

    /// Returns the tuning measured on an NVIDIA H200. A figure is the rate over that of the last
    /// two arms, which are the best with eight slots. Cuckoo tables of four and 16 slots gain 5 %
    /// at most by others.
    fn warp_tile(workload: &Workload) -> Self {
        let half = workload.slots / 2;
        let (lanes, unroll, group, keys, second) =
            match (workload.kind, workload.slots, workload.residence) {
                // 1.054
                (Kind::Horton, 4, Residence::Cached) => (2, 2, 512, 8, Second::Direct),
                // 1.048
                (Kind::Horton, 16, Residence::Cached) => (4, 2, 64, 8, Second::Buffered),
                // 1.111
                (Kind::Horton, 16, Residence::Memory) => (4, 2, 128, 4, Second::Direct),
                (_, _, Residence::Cached) => (half, half, 256, 16, Second::Buffered),
                (_, _, Residence::Memory) => (half, half, 256, 1, Second::Direct),
            };
        Self::Tile {
            body: KernelBody::WarpTile,
            lanes,
            unroll,
            group,
            keys,
            second,
        }
    }

    /// Returns the kernel body.
    pub fn body(&self) -> KernelBody {
        match self {
            Self::Chunk { .. } => KernelBody::Chunk,
            Self::Tile { body, .. } => *body,
        }
    }

    /// Returns whether a device can do so with buckets of so many slots.
    pub fn fits(&self, info: &DeviceInfo, slots: usize) -> bool {
        let warps = self.body() == KernelBody::WarpTile;
        let sound = match *self {
            Self::Chunk {
                look_ahead,
                items_per_unit,
                ..
            } => (1..=4096).contains(&look_ahead) && (1..=1 << 16).contains(&items_per_unit),
            Self::Tile {
                lanes,
                unroll,
                group,
                keys,
                second,
                ..
            } => {
                lanes.is_power_of_two()
                    && 2 * lanes <= slots
                    && unroll.is_power_of_two()
                    && unroll <= lanes
                    && group.is_power_of_two()
                    && (64..=info.max_work_group).contains(&group)
                    && (1..=256).contains(&keys)
                    && (second == Second::Direct || (warps && keys > 1))
                    && info.runs(self.body(), lanes)
            }
        };
        sound && info.supports(self.body())
    }
}

impl fmt::Display for Second {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Second::Direct => "direct",
            Second::Buffered => "buffered",
        })
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chunk {
                look_ahead,
                items_per_unit,
                second,
            } => write!(
                f,
                "chunks, {look_ahead} keys ahead, {items_per_unit} work-items a unit, {second}"
            ),
            Self::Tile {
                body,
                lanes,
                unroll,
                group,
                keys,
                second,
            } => {
                let body = match body {
                    KernelBody::LocalTile => "local",
                    KernelBody::SubGroupTile => "sub-group",
                    _ => "warp",
                };
                write!(f, "{body} tiles, {lanes} lanes, {unroll} at once, ")?;
                write!(f, "groups of {group}, {keys} keys a work-item, {second}")
            }
        }
    }
}
