//! Bulk lookup in a Horton table on the device.
//!
//! ```text
//!  key ─▶ primary bucket ─hit─▶ value
//!             │ miss, Type B, entry of its tag set
//!             └─▶ secondary bucket ─▶ value | MISS
//! ```
//!
//! Horton paper, section 5.1 and figure 4: one bucket for nearly every key, two at most.
//! The kernel's body is chosen by what the device is ([`KernelBody`]); all give the same
//! answers.

use crate::device::{Arg, Buffer, KernelBody, Queue};
use crate::error::{Error, Result};

use super::{HortonTable, kernels};

impl HortonTable {
    /// Looks up the first `n` of `keys`; `values[i]` receives the value or
    /// [`MISS`](super::MISS), `reads[0]` grows by the number of secondary buckets read.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a buffer is shorter than `n` or `n` exceeds 2^32 - 1; OpenCL's own.
    pub fn lookup(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        values: &Buffer<u32>,
        reads: &Buffer<u32>,
        n: usize,
    ) -> Result<()> {
        if keys.len() < n || values.len() < n || reads.is_empty() || n > u32::MAX as usize {
            return Err(Error::Invalid(format!(
                "a lookup of {n} keys (at most 2^32 - 1) was given {} keys and room for {} values",
                keys.len(),
                values.len()
            )));
        }
        let program = kernels::lookup_program(queue, self.layout.bucket_size);
        let mut args = vec![
            Arg::Longs(&self.words),
            Arg::Words(keys),
            Arg::Words(values),
            Arg::Words(reads),
        ];
        let (buckets, seed) = (Arg::U32(self.layout.buckets), Arg::U32(self.layout.seed));
        match queue.body() {
            KernelBody::Chunk => {
                let share = kernels::share(queue.info(), n);
                args.extend([Arg::U32(share as u32), Arg::U32(n as u32), buckets, seed]);
                queue.launch(&program, "lookup_chunk", (n.div_ceil(share), 1), &args)
            }
            KernelBody::LocalTile | KernelBody::SubGroupTile | KernelBody::WarpTile => {
                let group = kernels::TILE_GROUP;
                args.push(Arg::U32(n as u32));
                match kernels::buffered_rounds(queue, self.layout.words(), n) {
                    Some(rounds) => {
                        args.extend([Arg::U32(rounds as u32), buckets, seed]);
                        let groups = n.div_ceil(group * rounds);
                        let grid = (groups * group, group);
                        queue.launch(&program, "lookup_buffered", grid, &args)
                    }
                    None => {
                        args.extend([buckets, seed]);
                        queue.launch(&program, "lookup_tile", (n, group), &args)
                    }
                }
            }
        }
    }
}
