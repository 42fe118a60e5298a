//! Bulk lookup in a table of buckets on the device.
//!
//! ```text
//!  key ─▶ primary bucket ─hit─▶ value
//!             │ miss, Type B, entry of its tag set     (cuckoo table: miss)
//!             └─▶ secondary bucket ─▶ value | MISS
//! ```
//!
//! Horton paper, section 5.1 and figure 4: one bucket for nearly every key, two at most.
//! The kernel's body is chosen by what the device is ([`KernelBody`]); all give the same
//! answers. Cuckoo tables are looked up by the same kernels ([`Variant`]).

use crate::device::{Arg, Buffer, KernelBody, Queue};
use crate::error::{Error, Result};
use crate::table::{Answers, Reads};

use super::layout::{Layout, Variant};
use super::{HortonTable, kernels};

/// A table that is looked up.
pub(crate) struct Lookup<'a> {
    pub variant: Variant,
    pub layout: Layout,
    pub words: &'a Buffer<u64>,
}

/// Where answers go, each buffer one word a key but `reads`, whose first word grows by the number
/// of second buckets read.
pub(crate) struct Out<'a> {
    pub values: &'a Buffer<u32>,
    /// Whether a key was found, and whether the one item that stands in no bucket is there; with
    /// wide values.
    pub found: Option<(&'a Buffer<u32>, bool)>,
    pub reads: &'a Buffer<u32>,
}

impl<'a> Out<'a> {
    /// Room for values of 32 bits.
    pub fn wide(answers: &'a Answers, twin: bool, reads: &'a Buffer<u32>) -> Self {
        Self {
            values: &answers.values,
            found: Some((&answers.found, twin)),
            reads,
        }
    }
}

impl Lookup<'_> {
    /// Looks up the first `n` of `keys`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a buffer is shorter than `n` or `n` exceeds 2^32 - 1; OpenCL's own.
    pub fn run(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        out: &Out<'_>,
        n: usize,
    ) -> Result<()> {
        let room = out.found.map_or(out.values.len(), |(found, _)| {
            found.len().min(out.values.len())
        });
        if keys.len() < n || room < n || out.reads.is_empty() || n > u32::MAX as usize {
            return Err(Error::Invalid(format!(
                "a lookup of {n} keys (at most 2^32 - 1) was given {} keys and room for {room} \
                 values",
                keys.len(),
            )));
        }
        let program = kernels::lookup_program(queue, self.variant);
        let mut args = vec![
            Arg::Longs(self.words),
            Arg::Words(keys),
            Arg::Words(out.values),
            Arg::Words(out.reads),
        ];
        let hashing = [Arg::U32(self.layout.buckets), Arg::U32(self.layout.seed)];
        let found = out.found.iter();
        let rest = hashing
            .into_iter()
            .chain(found.flat_map(|(found, twin)| [Arg::Words(found), Arg::U32(u32::from(*twin))]));
        match queue.body() {
            KernelBody::Chunk => {
                let share = kernels::share(queue.info(), n);
                args.extend([Arg::U32(share as u32), Arg::U32(n as u32)]);
                args.extend(rest);
                queue.launch(&program, "lookup_chunk", (n.div_ceil(share), 1), &args)
            }
            KernelBody::LocalTile | KernelBody::SubGroupTile | KernelBody::WarpTile => {
                let group = kernels::TILE_GROUP;
                args.push(Arg::U32(n as u32));
                let buffered = kernels::buffered_rounds(queue, self.layout.words(), n);
                match buffered.filter(|_| !self.variant.wide) {
                    Some(rounds) => {
                        args.push(Arg::U32(rounds as u32));
                        args.extend(rest);
                        let groups = n.div_ceil(group * rounds);
                        let grid = (groups * group, group);
                        queue.launch(&program, "lookup_buffered", grid, &args)
                    }
                    None => {
                        args.extend(rest);
                        queue.launch(&program, "lookup_tile", (n, group), &args)
                    }
                }
            }
        }
    }
}

impl HortonTable {
    /// Looks up the first `n` of `keys` in a table of values up to
    /// [`MAX_VALUE`](super::MAX_VALUE), such as a join's: `values[i]` receives the value or
    /// [`MISS`](super::MISS), `reads[0]` grows by the number of secondary buckets read. Other
    /// tables have [`Table::lookup`](crate::table::Table::lookup).
    ///
    /// # Errors
    /// [`Error::Invalid`] if the table has other values, a buffer is shorter than `n` or `n` exceeds
    /// 2^32 - 1; OpenCL's own.
    pub fn lookup(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        values: &Buffer<u32>,
        reads: &Buffer<u32>,
        n: usize,
    ) -> Result<()> {
        if self.wide || self.twin {
            return Err(Error::Invalid(
                "the table has values of 32 bits, which need Table::lookup".to_owned(),
            ));
        }
        let out = Out {
            values,
            found: None,
            reads,
        };
        self.as_lookup(false).run(queue, keys, &out, n)
    }

    /// Counts the buckets and cache lines that looking up the first `n` of `keys` reads.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are fewer keys; OpenCL's own.
    pub fn count_reads(&self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<Reads> {
        self.as_lookup(true).count(queue, keys, n)
    }

    pub(super) fn as_lookup(&self, wide: bool) -> Lookup<'_> {
        Lookup {
            variant: self.layout.variant(wide),
            layout: self.layout,
            words: &self.words,
        }
    }
}
