//! How lookups use a device: the parameters of `cl/lookup.cl`, and the best of them once measured.
//!
//! ```text
//!  (kind, slots a bucket, cached or not) ─▶ stored for this device and driver? ─yes─▶ that
//!                                                     └─no─▶ Tuning::default_for(body, …)
//!  cargo run --release --example tune ─▶ tries one parameter after another ─▶ store
//! ```
//!
//! The Horton paper tunes every kind of table by itself (section 7: unrolling, threads a compute
//! unit, keys a group of threads), as a slow baseline proves nothing. Which values are best is a
//! property of device and driver that no rule predicts, so they are measured, and remembered in a
//! file ([`store()`]). Whatever stands there, answers are the same. A grid of all values would cost
//! minutes of compiling; the parameters hardly depend on each other, so that one after another is
//! tried ([`Parameter`]).

mod store;

use std::fmt;

use crate::device::{DeviceInfo, DeviceKind, KernelBody, Queue};

use super::horton::BucketSize;

pub use store::{remembered, store};

/// What kind of table is looked up.
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
    /// All kinds.
    pub const ALL: [Kind; 3] = [Kind::LoadBalanced, Kind::FirstFit, Kind::Horton];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Horton => "Horton",
            Kind::LoadBalanced => "load-balanced",
            Kind::FirstFit => "first-fit",
        }
    }
}

/// What lookups wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Residence {
    /// Instructions: the table stays in the last cache.
    Cached,
    /// Memory.
    Memory,
}

impl Residence {
    /// Both.
    pub const ALL: [Residence; 2] = [Residence::Cached, Residence::Memory];

    /// That of a table of so many bytes.
    pub fn of(info: &DeviceInfo, bytes: u64) -> Self {
        match bytes <= Self::most_cached(info) {
            true => Residence::Cached,
            false => Residence::Memory,
        }
    }

    /// Bytes of the largest table that is taken to stay in the cache.
    pub fn most_cached(info: &DeviceInfo) -> u64 {
        match info.kind {
            DeviceKind::Cpu => 4 << 20,
            _ => 48 << 20,
        }
    }
}

/// What is looked up, as far as tuning goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    /// The kind of table.
    pub kind: Kind,
    /// Slots a bucket: 4, 8 or 16.
    pub slots: usize,
    /// Where the table is.
    pub residence: Residence,
}

/// When a second bucket is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Second {
    /// At once.
    Direct,
    /// When a few keys wait for theirs (Horton paper, section 5.1).
    Buffered,
}

/// Values for the parameters of a lookup kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tuning {
    /// A contiguous chunk of keys a work-item.
    Chunk {
        /// Keys between a prefetch and its lookup.
        look_ahead: usize,
        /// Work-items a compute unit.
        shares: usize,
        /// Looks at second buckets.
        second: Second,
    },
    /// A tile of lanes a bucket.
    Tile {
        /// How lanes talk: any body but [`KernelBody::Chunk`].
        body: KernelBody,
        /// Lanes a bucket.
        lanes: usize,
        /// Buckets that are read before the first is compared.
        unroll: usize,
        /// Registers a work-item that the compiler is held to, 0 for as many as it likes; only
        /// with [`KernelBody::WarpTile`].
        registers: usize,
        /// Work-group size.
        group: usize,
        /// Keys a work-item at most; few keys are spread over the whole device instead.
        keys: usize,
        /// Looks at second buckets; [`Second::Buffered`] only with [`KernelBody::WarpTile`], several
        /// keys a work-item and values of 31 bits.
        second: Second,
    },
}

impl Tuning {
    /// What is good on the devices that were at hand: 32 keys ahead on PoCL and on Intel's CPU
    /// runtime, tiles of two slots a lane on an H200, in the cache buffered. Where such tiles do
    /// not fit the sub-groups, they talk through local memory instead.
    pub fn default_for(info: &DeviceInfo, body: KernelBody, workload: &Workload) -> Self {
        let body = info.body_for_slots(body, workload.slots);
        Self::default_of(body, info.kind, workload)
    }

    /// The same for no device in particular.
    pub(crate) fn default_of(body: KernelBody, kind: DeviceKind, workload: &Workload) -> Self {
        let lanes = workload.slots / 2;
        let cached = workload.residence == Residence::Cached && body == KernelBody::WarpTile;
        match body {
            KernelBody::Chunk => Self::Chunk {
                look_ahead: 32,
                shares: if kind == DeviceKind::Cpu { 16 } else { 2048 },
                second: Second::Direct,
            },
            _ => Self::Tile {
                body,
                lanes,
                unroll: lanes,
                registers: match body {
                    // As many warps as there can be; 40 registers cost 0.6 % of the lookups.
                    KernelBody::WarpTile => 32,
                    _ => 0,
                },
                group: 256,
                keys: if cached { 16 } else { 1 },
                second: if cached {
                    Second::Buffered
                } else {
                    Second::Direct
                },
            },
        }
    }

    /// The tuning of lookups in tables of `kind` with so many `bytes`: the remembered one, unless
    /// the job asked for a body of its own.
    pub(crate) fn of(queue: &Queue, kind: Kind, bucket_size: BucketSize, bytes: u64) -> Self {
        let info = queue.info();
        let workload = Workload {
            kind,
            slots: bucket_size.slots(),
            residence: Residence::of(info, bytes),
        };
        match queue.body() == info.body() {
            true => Self::for_device(info, &workload),
            false => Self::default_for(info, queue.body(), &workload),
        }
    }

    /// What lookups of a workload do on a device: the remembered tuning, or else the default.
    pub fn for_device(info: &DeviceInfo, workload: &Workload) -> Self {
        // A self-test may have ruled it out since it was remembered.
        remembered(info, workload)
            .filter(|tuning| tuning.fits(info, workload.slots))
            .unwrap_or_else(|| Self::default_for(info, info.body(), workload))
    }

    /// The kernel body.
    pub fn body(&self) -> KernelBody {
        match self {
            Self::Chunk { .. } => KernelBody::Chunk,
            Self::Tile { body, .. } => *body,
        }
    }

    /// Whether a device can do so with buckets of so many slots.
    pub fn fits(&self, info: &DeviceInfo, slots: usize) -> bool {
        let warps = self.body() == KernelBody::WarpTile;
        let sound = match *self {
            Self::Chunk {
                look_ahead, shares, ..
            } => (1..=4096).contains(&look_ahead) && (1..=1 << 16).contains(&shares),
            Self::Tile {
                lanes,
                unroll,
                registers,
                group,
                keys,
                second,
                ..
            } => {
                lanes.is_power_of_two()
                    && 2 * lanes <= slots
                    && unroll.is_power_of_two()
                    && unroll <= lanes
                    && matches!(registers, 0 | 32)
                    && (registers == 0 || warps)
                    && group.is_power_of_two()
                    && (64..=info.max_work_group).contains(&group)
                    && (1..=256).contains(&keys)
                    && (second == Second::Direct || (warps && keys > 1))
                    && info.runs(self.body(), lanes)
            }
        };
        sound && info.supports(self.body())
    }

    /// The other values of one parameter, all else being equal, that the device can do.
    pub fn others(
        &self,
        parameter: Parameter,
        info: &DeviceInfo,
        workload: &Workload,
    ) -> Vec<Self> {
        let others: Vec<Self> = match parameter {
            Parameter::Body => KernelBody::ALL
                .into_iter()
                .map(|body| Self::default_for(info, body, workload))
                .filter(|tuning| tuning.body() != self.body())
                .collect(),
            Parameter::Lanes => [1, 2, 4, 8].map(|lanes| self.with_lanes(lanes)).into(),
            Parameter::Unroll => [1, 2, 4, 8].map(|unroll| self.with_unroll(unroll)).into(),
            Parameter::Registers => [0, 32].map(|count| self.with_registers(count)).into(),
            Parameter::Group => [64, 128, 256, 512]
                .map(|group| self.with_group(group))
                .into(),
            Parameter::Keys => [Second::Direct, Second::Buffered]
                .into_iter()
                .flat_map(|second| [1, 2, 4, 8, 16, 32].map(|keys| self.with_keys(keys, second)))
                .collect(),
            Parameter::LookAhead => [8, 16, 32, 64, 128].map(|n| self.with_look_ahead(n)).into(),
            Parameter::Shares => [4, 16, 64, 256, 1024]
                .map(|shares| self.with_shares(shares))
                .into(),
        };
        let fit = |tuning: &Self| tuning != self && tuning.fits(info, workload.slots);
        let mut distinct = Vec::new();
        for tuning in others.into_iter().filter(fit) {
            if !distinct.contains(&tuning) {
                distinct.push(tuning);
            }
        }
        distinct
    }

    fn with_lanes(mut self, to: usize) -> Self {
        if let Self::Tile { lanes, unroll, .. } = &mut self {
            (*lanes, *unroll) = (to, to);
        }
        self
    }

    fn with_unroll(mut self, to: usize) -> Self {
        if let Self::Tile { unroll, .. } = &mut self {
            *unroll = to;
        }
        self
    }

    fn with_registers(mut self, to: usize) -> Self {
        if let Self::Tile { registers, .. } = &mut self {
            *registers = to;
        }
        self
    }

    fn with_group(mut self, to: usize) -> Self {
        if let Self::Tile { group, .. } = &mut self {
            *group = to;
        }
        self
    }

    fn with_keys(mut self, to: usize, when: Second) -> Self {
        match &mut self {
            Self::Tile { keys, second, .. } => (*keys, *second) = (to, when),
            Self::Chunk { second, .. } => *second = when,
        }
        self
    }

    fn with_look_ahead(mut self, to: usize) -> Self {
        if let Self::Chunk { look_ahead, .. } = &mut self {
            *look_ahead = to;
        }
        self
    }

    fn with_shares(mut self, to: usize) -> Self {
        if let Self::Chunk { shares, .. } = &mut self {
            *shares = to;
        }
        self
    }
}

/// What a tuner varies, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// The kernel's body.
    Body,
    /// Lanes a bucket.
    Lanes,
    /// Buckets read at once.
    Unroll,
    /// Registers a work-item.
    Registers,
    /// Work-group size.
    Group,
    /// Keys a work-item, and when it looks at second buckets.
    Keys,
    /// Keys between a prefetch and its lookup.
    LookAhead,
    /// Work-items a compute unit.
    Shares,
}

impl Parameter {
    /// All of them.
    pub const ALL: [Parameter; 8] = [
        Parameter::Body,
        Parameter::Lanes,
        Parameter::Unroll,
        Parameter::Registers,
        Parameter::Group,
        Parameter::Keys,
        Parameter::LookAhead,
        Parameter::Shares,
    ];
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
                shares,
                second,
            } => write!(
                f,
                "chunks, {look_ahead} keys ahead, {shares} work-items a unit, {second}"
            ),
            Self::Tile {
                body,
                lanes,
                unroll,
                registers,
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
                if *registers > 0 {
                    write!(f, "{registers} registers, ")?;
                }
                write!(f, "groups of {group}, {keys} keys a work-item, {second}")
            }
        }
    }
}
