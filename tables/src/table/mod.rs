//! Hash tables in device memory: those of joins, and others for their own sake.
//!
//! ```text
//!  what joins use                       baselines: tables of other papers, tables that change
//!
//!  multimap   any keys to their rows    linear   linear probing without locks
//!     │                                 slab     lists that grow while others read them
//!     ▼                                 cuckoo   buckets, to compare Horton tables with
//!  horton     distinct keys, buckets    updates  insert and remove in Horton tables
//!     │                                   │
//!     └────────────┬──────────────────────┘
//!                  ▼
//!  primitives     hashes, words, prefix sums, radix partitions, groups of rows
//!  api, launch    the trait Table, conventions, sizes of launches
//! ```
//!
//! Arrows are imports. Joins import [`multimap`] and [`primitives`] only. No join needs
//! [`baselines`]; its cuckoo tables share the buckets and lookups of [`horton`]. The kernels of
//! `tables/src/table/X` are in `cl/X`. The top comment of the Rust side names its file there; files
//! that several programs share have none. `tables/src/kernel_sources.rs` names all files. How to
//! add a table: `CONTRIBUTING.md`.
//!
//! Which table for which work (measured: `docs/tables.md`):
//!
//! ```text
//!  built once, then looked up ─────▶ horton   1.1 reads per hit, 10 bytes per key
//!  it changes, its size is known ──▶ linear   KeepsKey: few removals; all kinds in one launch
//!                                             LeavesTombstone: keys come and go; two phases
//!  it changes, its size is not,
//!  or a key has several values ────▶ slab     grows while others read
//!  keys repeat, as in a join ──────▶ multimap
//!  to compare with ────────────────▶ cuckoo
//! ```
//!
//! The figures are from an H200 with 64 Mi keys, and compare with linear probing at load 0.5. A
//! Horton table answers misses 1.2 times as fast, and hits as fast, in 5/8 of the memory. Linear
//! probing is 17 times as fast as a Horton table at batches of insertions, and 15 times at mixed
//! batches. A slab hash builds at 0.4 and searches at 0.8 of linear probing's rate.
//!
//! The four tables of distinct keys implement [`Table`]. [`linear`](baselines::linear) and
//! [`slab`](baselines::slab) differ in two ways. They take values up to
//! [`MAX_VALUE`](baselines::linear::MAX_VALUE) only. Of a key that a batch repeats, any value
//! counts, not the last. They also have operations of their own, side by side in one launch
//! ([`batch`](baselines::batch)), which keep all items that found room
//! ([`Error::NoRoom`](crate::error::Error::NoRoom)). A slab hash may then hold a key several times.

pub mod api;
pub mod baselines;
pub mod horton;
mod launch;
pub mod multimap;
pub mod primitives;

use crate::device::program::ProgramText;

pub use api::{Answers, Items, Statistics, Table, WhenFull};
pub use baselines::bucket_reads::Reads;

/// Returns every program that this crate can compile, under the name of a file without its `.cl`:
/// for offline compilers (`make portability`). Those with NVIDIA's inline PTX, which no other
/// compiler takes, end in `.nvidia`. `__builtin_prefetch` is off, as it is on GPUs.
pub fn programs() -> Vec<(String, ProgramText)> {
    horton::programs()
        .chain(primitives::group::programs())
        .chain(primitives::scan::programs())
        .chain(multimap::pairs::programs())
        .chain(primitives::rows::programs())
        .chain(multimap::multiword::programs())
        .chain(multimap::direct::programs())
        .chain(multimap::cacheline::programs())
        .chain(primitives::distinct::programs())
        .chain(baselines::cuckoo::programs())
        .chain(baselines::bucket_reads::programs())
        .chain(baselines::linear::programs())
        .chain(baselines::slab::programs())
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_file_of_kernels_is_in_some_program() {
        let programs = super::programs();
        for (file, text) in crate::kernel_sources::ALL {
            let is_there = programs
                .iter()
                .any(|(_, program)| program.source().contains(text));
            assert!(is_there, "{file} is in no program of table::programs");
        }
    }
}
