//! The buckets that lookups read, counted on the device; the host side of
//! `cl/baselines/bucket_reads.cl`.
//!
//! The Horton paper measures data movement with hardware counters (section 8). Where there are
//! none, counting says the same: the buckets that each lookup reads, and the cache lines they lie
//! on.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, KernelBody, Queue};
use crate::error::Result;
use crate::kernel_sources;
use crate::table::launch::group_of;
use crate::table::primitives::bucket::{self, BucketSize, Variant};
use crate::table::primitives::radix_partition::NONE;

use crate::table::baselines::updates::items::{check_keys, strided};
use crate::table::horton::lookup::Lookup;
use crate::table::horton::table::HortonTable;

/// 64-bit words of a cache line.
const LINE_WORDS: usize = 8;

/// The buckets that lookups read in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reads {
    /// Buckets, one or two per key.
    pub buckets: u64,
    /// Cache lines of 64 bytes.
    pub lines: u64,
}

fn text(variant: Variant, body: KernelBody) -> ProgramText {
    let mut defines = bucket::defines(variant, false);
    defines.extend([
        ("NONE", format!("{NONE:#x}u")),
        ("LINE_WORDS", LINE_WORDS.to_string()),
        ("READS_GROUP", group_of(body).to_string()),
    ]);
    let parts = [
        kernel_sources::HASH,
        kernel_sources::BUCKET,
        kernel_sources::BUCKET_READS,
    ];
    ProgramText::new("reads", &defines, &parts)
}

/// Returns every program that counts under the name of a file; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    BucketSize::ALL.into_iter().flat_map(|bucket_size| {
        [("horton", false), ("cuckoo", true)].map(|(kind, cuckoo)| {
            let variant = Variant {
                cuckoo,
                wide: true,
                ..bucket_size.into()
            };
            let name = format!("{kind}_reads_{bucket_size}");
            (name, text(variant, KernelBody::LocalTile))
        })
    })
}

impl Lookup<'_> {
    /// Counts what looking up the first `n` of `keys` reads.
    pub fn count(&self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<Reads> {
        check_keys(keys, n)?;
        let sums = queue.buffer_from("reads", &[0u64; 2])?;
        let args = [
            Arg::Longs(self.words),
            Arg::Words(keys),
            Arg::Longs(&sums),
            Arg::U32(n as u32),
            Arg::U32(self.layout.buckets),
            Arg::U32(self.layout.seed),
        ];
        let program = text(self.variant, queue.body());
        queue.launch(&program, "count_reads", strided(queue, n), &args)?;
        let sums = queue.read(&sums, 2)?;
        Ok(Reads {
            buckets: sums[0],
            lines: sums[1],
        })
    }
}

impl HortonTable {
    /// Counts the buckets and cache lines that looking up the first `n` of `keys` reads.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::error::Error::Invalid) if there are fewer keys; OpenCL's own.
    pub fn count_reads(&self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<Reads> {
        self.as_lookup(true).count(queue, keys, n)
    }
}
