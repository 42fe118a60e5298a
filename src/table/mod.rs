//! Hash tables in device memory.
//!
//! * [`api`]: what tables of distinct keys can do, the trait [`Table`]
//! * [`hash`]: the hash functions they share
//! * [`horton`]: the Horton table, distinct 32-bit keys to 32-bit values, 31-bit ones for joins
//! * [`cuckoo`]: bucketized cuckoo tables, which Horton tables are compared with
//! * [`group`]: rows by key, for keys that repeat
//! * [`key_table`]: the table of a join's distinct keys, of any kind; [`direct`]: a slot for every possible key;
//!   [`codes`]: linear probing over keys of one or two words, for CPUs
//! * [`grouped`]: that and groups together: any keys to their rows, what a join builds
//! * [`wide`]: the same for keys of two words and more
//! * [`pairs`]: from looked-up values to (probe row, build row) pairs in probe order
//! * [`rows`]: bits and columns by row number
//! * [`linear`]: lock-free linear probing, with or without reuse of deleted slots
//! * [`slab`]: the slab hash, whose lists grow while others read them, with SlabAlloc
//! * [`batch`]: operations of several kinds in one launch
//! * [`tuning`]: how lookups use a device, and what of that was found to be fast
//! * `split`: items by ranges of buckets; `scan`: prefix sums; `distinct`: the last item of every
//!   key; `items`: finding and changing items in place; `reads`: what lookups read, counted;
//!   `insert`: inserting, and growing where items find no slot; `word`: key and value in 64 bits;
//!   `launch`: elements over work-items; `mix`: the hash of keys of several words
//!
//! Which one for which work (measured: README, "Which table for which work"):
//!
//! ```text
//!  built once, then looked up, as by a join ─▶ horton             1.1 reads a hit, 10 bytes a key
//!  it changes, its size is known ────────────▶ linear, KeepsKey   few removals; all kinds in one launch
//!                                              linear, LeavesTombstone   keys come and go; two phases
//!  it changes, its size is not known,
//!  or a key has several values ──────────────▶ slab               grows while others read
//!  to compare with ──────────────────────────▶ cuckoo
//! ```
//!
//! On an H200 with 64 Mi keys a Horton table answers misses 1.2 times as fast as linear probing at load 0.5 and
//! hits as fast, in 5/8 of its memory; linear probing takes batches of insertions 17 times and mixed
//! batches 15 times as fast. A slab hash builds at 0.4 and searches at 0.8 of linear probing's rate.
//!
//! All of them implement [`Table`]. What differs there: [`linear`] and [`slab`] take values up to
//! [`MAX_VALUE`](linear::MAX_VALUE) only, and of a key that a batch repeats any value counts, not the last.
//! Beyond it they have operations of their own, side by side in one launch, which keep whatever found
//! room ([`Error::NoRoom`](crate::error::Error::NoRoom)); a slab hash may then hold a key several times.

pub mod api;
pub mod batch;
pub mod cuckoo;
pub mod horton;
mod launch;
pub mod linear;
pub mod multimap;
pub mod primitives;
pub mod slab;

use crate::device::program::ProgramText;

pub use api::{Answers, Items, Statistics, Table, WhenFull};
pub use horton::reads::Reads;

/// Every program that this crate can compile, under the name of a file without its `.cl`: for
/// offline compilers (`make portability`). Those with NVIDIA's inline PTX, which no other
/// compiler takes, end in `.nvidia`. `__builtin_prefetch` is off, as it is on GPUs.
pub fn programs() -> Vec<(String, ProgramText)> {
    horton::programs()
        .chain(primitives::group::programs())
        .chain(primitives::scan::programs())
        .chain(multimap::pairs::programs())
        .chain(primitives::rows::programs())
        .chain(multimap::wide::programs())
        .chain(multimap::direct::programs())
        .chain(multimap::codes::programs())
        .chain(primitives::distinct::programs())
        .chain(cuckoo::programs())
        .chain(horton::reads::programs())
        .chain(linear::programs())
        .chain(slab::programs())
        .collect()
}
