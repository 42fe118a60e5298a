//! The slab hash: a table that changes while it is used, and grows as it must.
//!
//! ```text
//!  bucket 0 ─▶ [base slab] ─▶ [slab] ─▶ [slab]      slabs of 128 bytes come from SlabAlloc
//!  bucket 1 ─▶ [base slab]
//!  …            15 pairs, or 30 keys, and a link
//! ```
//!
//! Ashkiani, Farach-Colton, Owens, "A Dynamic Hash Table for the GPU", IPDPS 2018. Operations of
//! all kinds run side by side in one launch, and a list grows inside it. A lookup of a key that is
//! not there reads 1 + β slabs. β, the mean number of slabs that the items of a bucket would fill,
//! is chosen at the start ([`SlabConfig::slabs_per_bucket`]). Beyond about 65 % memory utilisation
//! most operations visit a second slab. Deleted entries are used again by
//! [`insert_instances`](SlabHash::insert_instances), or cleared away by [`flush`](SlabHash::flush).
//!
//! * [`layout`]: words, addresses, shapes
//! * [`alloc`]: SlabAlloc and SlabAlloc-light
//! * [`model`]: the same table in plain Rust, a test oracle
//! * `table`: the table, and how it is built; `operations`: what it does with a batch of keys
//! * `kernels`: program text and launch sizes; `launch`: launching them
//! * `impl_table`: the same as every kind of table does it
//!
//! [`insert_instances`](SlabHash::insert_instances), [`replace`](SlabHash::replace),
//! [`delete`](SlabHash::delete), [`search`](SlabHash::search) and so on are the paper's operations,
//! which do what they can and count what they cannot; [`Table`](crate::table::Table) has a key once
//! and takes a batch back if it does not fit.

pub mod alloc;
mod impl_table;
mod kernels;
mod launch;
pub mod layout;
pub mod model;
mod operations;
mod table;

pub use crate::table::api::MISS;
pub use crate::table::primitives::word::MAX_VALUE;
pub use alloc::SlabPool;
pub(crate) use kernels::programs;
pub use layout::{
    Entries, MAX_BLOCKS, MAX_KEY, MAX_SUPER_BLOCKS, NO_SLAB, PoolLayout, SlabCensus, SlabLayout,
};
pub use model::SlabModel;
pub use table::{SlabConfig, SlabHash};
