//! The rate at which the device could look keys up at best: one random bucket read per key.
//!
//! Every rate of a benchmark means little without the rate of the memory beside it, measured
//! in the same run on the same table (`cl/baselines/gather_bound.cl`).

use crate::device::{Arg, Buffer, Queue};
use crate::error::Result;
use crate::table::horton::kernels;
use crate::table::launch::elements_per_item_of;

use crate::table::horton::table::HortonTable;
use crate::table::horton::tuning::Tuning;

impl HortonTable {
    /// Reads the primary bucket of each of the first `n` keys and writes a word for each to
    /// `out`; the answers mean nothing, the time is the limit of [`lookup`](Self::lookup).
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn gather(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        out: &Buffer<u32>,
        n: usize,
    ) -> Result<()> {
        let (program, tuning) = kernels::gather_program(queue, self.layout.variant(false));
        let n_arg = Arg::U32(n as u32);
        let (buckets, seed) = (Arg::U32(self.layout.buckets), Arg::U32(self.layout.seed));
        let mut args = vec![Arg::Longs(&self.words), Arg::Words(keys), Arg::Words(out)];
        match tuning {
            Tuning::Chunk { items_per_unit, .. } => {
                let per_item = elements_per_item_of(queue.info(), n, items_per_unit);
                args.extend([Arg::U32(per_item as u32), n_arg, buckets, seed]);
                queue.launch(&program, "gather_chunk", (n.div_ceil(per_item), 1), &args)
            }
            Tuning::Tile { group, .. } => {
                args.extend([n_arg, buckets, seed]);
                queue.launch(&program, "gather_tile", (n, group), &args)
            }
        }
    }
}
