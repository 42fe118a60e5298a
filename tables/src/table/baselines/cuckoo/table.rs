//! A cuckoo table in device memory, and its lookups.

use std::sync::Arc;

use crate::device::{Buffer, Queue};
use crate::error::Result;
use crate::table::baselines::bucket_reads::Reads;
use crate::table::horton::lookup::{Lookup, NarrowAnswers, Out, check_narrow};
use crate::table::horton::model::Census;
use crate::table::horton::tuning::{Kind, Tuning};
use crate::table::primitives::bucket::{Layout, Variant};

use super::config::{CuckooConfig, Placement};
use super::model::CuckooModel;

/// A bucketized cuckoo table of distinct keys in device memory. Clones share the memory.
#[derive(Debug, Clone)]
pub struct CuckooTable {
    pub(super) layout: Layout,
    pub(super) words: Arc<Buffer<u64>>,
    pub(super) census: Census,
    pub(super) config: CuckooConfig,
    /// True if there may be values beyond [`MAX_VALUE`](crate::table::horton::MAX_VALUE).
    pub(super) wide: bool,
    /// True if the item is there whose word is that of an empty slot; it stands in no bucket.
    pub(super) sentinel: bool,
}

impl CuckooTable {
    /// Looks up the first `n` of `keys` in a table of values up to
    /// [`MAX_VALUE`](crate::table::horton::MAX_VALUE), as
    /// [`HortonTable::lookup`](crate::table::horton::HortonTable::lookup) does: `values[i]`
    /// receives the value or [`MISS`](crate::table::horton::MISS), `reads[0]` grows by the number
    /// of second buckets read.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::error::Error::Invalid) if the table has other values, a buffer is
    /// shorter than `n` or `n` exceeds 2^32 - 1; OpenCL's own.
    pub fn lookup(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        values: &Buffer<u32>,
        reads: &Buffer<u32>,
        n: usize,
    ) -> Result<()> {
        check_narrow(self.wide || self.sentinel)?;
        let out = Out::narrow(values, reads);
        self.as_lookup(false).run(queue, keys, &out, n)
    }

    /// Does the same with any other `tuning`, to measure tunings.
    ///
    /// # Errors
    /// Those of [`lookup`](Self::lookup); [`Error::Invalid`](crate::error::Error::Invalid) if the
    /// tuning does not fit the device.
    pub fn lookup_tuned(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        answers: NarrowAnswers<'_>,
        tuning: &Tuning,
    ) -> Result<()> {
        let NarrowAnswers { values, reads, n } = answers;
        check_narrow(self.wide || self.sentinel)?;
        let out = Out::narrow(values, reads);
        self.as_lookup(false)
            .run_tuned(queue, keys, n, &out, tuning)
    }

    /// Counts the buckets and cache lines that looking up the first `n` of `keys` reads.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::error::Error::Invalid) if there are fewer keys; OpenCL's own.
    pub fn count_reads(&self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<Reads> {
        self.as_lookup(true).count(queue, keys, n)
    }

    pub(super) fn as_lookup(&self, wide: bool) -> Lookup<'_> {
        Lookup {
            kind: match self.config.placement {
                Placement::LoadBalanced => Kind::LoadBalanced,
                Placement::FirstFit => Kind::FirstFit,
            },
            variant: self.variant(wide),
            layout: self.layout,
            words: &self.words,
        }
    }

    pub(super) fn variant(&self, wide: bool) -> Variant {
        Variant {
            cuckoo: true,
            ..self.layout.variant(wide)
        }
    }

    /// Brings the words back as a model.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn download(&self, queue: &mut Queue) -> Result<CuckooModel> {
        Ok(CuckooModel {
            layout: self.layout,
            words: queue.read(&self.words, self.layout.words())?,
            sentinel: self.sentinel,
        })
    }

    /// Sends a model's words to the device; later items are placed as `config` says.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
    pub fn upload(queue: &mut Queue, model: &CuckooModel, config: CuckooConfig) -> Result<Self> {
        Ok(Self {
            layout: model.layout,
            words: Arc::new(queue.buffer_from("a cuckoo table", &model.words)?),
            census: model.census(),
            config,
            wide: model.is_wide(),
            sentinel: model.sentinel,
        })
    }

    /// Returns the shape and the seed of the table.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the rule for the bucket that an item goes to.
    pub fn placement(&self) -> Placement {
        self.config.placement
    }

    /// Returns the items in buckets, and those in their second one; no bucket is Type B.
    pub fn census(&self) -> Census {
        self.census
    }

    /// Returns the bytes in device memory.
    pub fn bytes(&self) -> u64 {
        self.words.bytes()
    }
}
