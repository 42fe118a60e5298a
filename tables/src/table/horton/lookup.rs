//! Bulk lookup in a table of buckets on the device.
//!
//! ```text
//!  key ─▶ primary bucket ─hit─▶ value
//!             │ miss, Type B, entry of its tag set     (cuckoo table: miss)
//!             └─▶ secondary bucket ─▶ value | MISS
//! ```
//!
//! Horton paper, section 5.1 and figure 4: one bucket for nearly every key, two at most. The
//! kernel's body is chosen by what the device is ([`KernelBody`](crate::device::KernelBody)); all
//! give the same answers. Cuckoo tables are looked up by the same kernels ([`Variant`]).

use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::api::Answers;
use crate::table::horton::kernels;
use crate::table::launch::elements_per_item_of;
use crate::table::primitives::bucket::{Layout, Variant};

use super::table::HortonTable;
use super::tuning::{Kind, Second, Tuning};

/// A table that is looked up.
pub(crate) struct Lookup<'a> {
    pub kind: Kind,
    pub variant: Variant,
    pub layout: Layout,
    pub words: &'a Buffer<u64>,
}

/// The buffers for the answers to the first `n` keys, in a table of values of 31 bits.
#[derive(Debug, Clone, Copy)]
pub struct NarrowAnswers<'a> {
    /// The value of each key, or [`MISS`](crate::table::api::MISS).
    pub values: &'a Buffer<u32>,
    /// The first word grows by the number of second buckets read.
    pub reads: &'a Buffer<u32>,
    /// Keys that are looked up.
    pub n: usize,
}

/// The buffers for answers: one word per key, but for `reads`, whose first word grows by the number
/// of second buckets read.
pub(crate) struct Out<'a> {
    pub values: &'a Buffer<u32>,
    /// A buffer, with wide values, for whether a key was found, and whether the one item that
    /// stands in no bucket is there.
    pub found: Option<(&'a Buffer<u32>, bool)>,
    pub reads: &'a Buffer<u32>,
}

impl<'a> Out<'a> {
    /// Returns room for values of 31 bits.
    pub fn narrow(values: &'a Buffer<u32>, reads: &'a Buffer<u32>) -> Self {
        Self {
            values,
            found: None,
            reads,
        }
    }

    /// Returns room for values of 32 bits.
    pub fn wide(answers: &'a Answers, sentinel: bool, reads: &'a Buffer<u32>) -> Self {
        Self {
            values: &answers.values,
            found: Some((&answers.found, sentinel)),
            reads,
        }
    }
}

impl Lookup<'_> {
    /// Looks up the first `n` of `keys` in the best way that is known.
    ///
    /// # Errors
    /// Those of [`run_tuned`](Self::run_tuned).
    pub fn run(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        out: &Out<'_>,
        n: usize,
    ) -> Result<()> {
        let bytes = self.words.bytes();
        let tuning = Tuning::for_job(queue, self.kind, self.layout.bucket_size, bytes);
        self.run_tuned(queue, keys, n, out, &tuning)
    }

    /// Looks up the first `n` of `keys` as `tuning` says.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a buffer is shorter than `n`, `n` exceeds 2^32 - 1, or the tuning does
    /// not fit the device; OpenCL's own.
    pub fn run_tuned(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        n: usize,
        out: &Out<'_>,
        tuning: &Tuning,
    ) -> Result<()> {
        if !tuning.fits(queue.info(), self.layout.slots()) {
            return Err(Error::Invalid(format!(
                "tuning '{tuning}' with {}-slot buckets does not fit device {}",
                self.layout.slots(),
                queue.info().label()
            )));
        }
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
        let program = kernels::lookup_program(queue, self.variant, tuning);
        let mut args = vec![
            Arg::Longs(self.words),
            Arg::Words(keys),
            Arg::Words(out.values),
            Arg::Words(out.reads),
        ];
        let hashing = [Arg::U32(self.layout.buckets), Arg::U32(self.layout.seed)];
        let found = out.found.iter();
        let rest = hashing.into_iter().chain(
            found.flat_map(|(found, sentinel)| [Arg::Words(found), Arg::U32(u32::from(*sentinel))]),
        );
        match *tuning {
            Tuning::Chunk { items_per_unit, .. } => {
                let per_item = elements_per_item_of(queue.info(), n, items_per_unit);
                args.extend([Arg::U32(per_item as u32), Arg::U32(n as u32)]);
                args.extend(rest);
                queue.launch(&program, "lookup_chunk", (n.div_ceil(per_item), 1), &args)
            }
            Tuning::Tile {
                group,
                keys,
                second,
                ..
            } => {
                args.push(Arg::U32(n as u32));
                let rounds = kernels::rounds(queue.info(), n, keys);
                let kernel = match second {
                    _ if rounds == 1 => {
                        args.extend(rest);
                        return queue.launch(&program, "lookup_tile", (n, group), &args);
                    }
                    Second::Buffered if !self.variant.wide => "lookup_buffered",
                    _ => "lookup_rounds",
                };
                args.push(Arg::U32(rounds as u32));
                args.extend(rest);
                let groups = n.div_ceil(group * rounds);
                queue.launch(&program, kernel, (groups * group, group), &args)
            }
        }
    }
}

/// Checks that a table has no values whose lookups need presence told apart.
pub(crate) fn check_narrow(is_wide: bool) -> Result<()> {
    if is_wide {
        Err(Error::Invalid(
            "the table has values of 32 bits: use Table::lookup".to_owned(),
        ))
    } else {
        Ok(())
    }
}

impl HortonTable {
    /// Looks up the first `n` of `keys` in a table of values up to
    /// [`MAX_VALUE`](super::MAX_VALUE), such as a join's: `values[i]` receives the value or
    /// [`MISS`](super::MISS), `reads[0]` grows by the number of secondary buckets read. Other
    /// tables have [`Table::lookup`](crate::table::Table::lookup).
    ///
    /// # Errors
    /// [`Error::Invalid`] if the table has other values, a buffer is shorter than `n` or `n`
    /// exceeds 2^32 - 1; OpenCL's own.
    pub fn lookup(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        values: &Buffer<u32>,
        reads: &Buffer<u32>,
        n: usize,
    ) -> Result<()> {
        self.check_narrow()?;
        let out = Out::narrow(values, reads);
        self.as_lookup(false).run(queue, keys, &out, n)
    }

    /// Does the same with any other `tuning`, to measure tunings.
    ///
    /// # Errors
    /// Those of [`lookup`](Self::lookup); [`Error::Invalid`] if the tuning does not fit the device.
    pub fn lookup_tuned(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        answers: NarrowAnswers<'_>,
        tuning: &Tuning,
    ) -> Result<()> {
        let NarrowAnswers { values, reads, n } = answers;
        self.check_narrow()?;
        let out = Out::narrow(values, reads);
        self.as_lookup(false)
            .run_tuned(queue, keys, n, &out, tuning)
    }

    fn check_narrow(&self) -> Result<()> {
        check_narrow(self.wide || self.sentinel)
    }

    pub(crate) fn as_lookup(&self, wide: bool) -> Lookup<'_> {
        Lookup {
            kind: Kind::Horton,
            variant: self.layout.variant(wide),
            layout: self.layout,
            words: &self.words,
        }
    }
}
