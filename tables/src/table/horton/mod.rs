//! The Horton table: bucketized cuckoo hashing whose overflowing buckets remember where
//! their items went.
//!
//! ```text
//!  Type A  [k v][k v][k v][k v][k v][k v][k v][k v]      8 items
//!  Type B  [k v][k v][k v][k v][k v][k v][k v][entries]  7 items, 21 remap entries
//!                                                └─ tag 12: 3 ─▶ R_3(bucket, 12) ─▶ other bucket
//! ```
//!
//! Breslow et al., "Horton Tables: Fast Hash Tables for In-Memory Data-Intensive Computing", USENIX
//! ATC 2016. A plain cuckoo table reads 1.5 buckets for a hit and 2 for a miss; this one about 1.18
//! and 1.06 at load factor 0.95. The reason: a key is in its primary bucket unless that bucket's
//! entry for it says otherwise.
//!
//! * `table`: the table, and how it is built; [`bucket`](super::primitives::bucket): its words
//! * [`build`]: bulk build on the device
//! * `updates`, in [`baselines`](crate::table::baselines): insert, update and remove in a table
//!   that exists, and the trait [`Table`](crate::table::Table); no join needs them
//! * `phases`: what building and inserting share; its last part `displace`, which `patience` ends
//! * `lookup`: bulk lookup on the device; [`tuning`]: its parameters
//! * [`model`]: the same table in plain Rust, a test oracle
//! * `kernels`: program text

pub mod build;
pub(crate) mod displace;
pub(crate) mod kernels;
pub(crate) mod lookup;
pub mod model;
pub(crate) mod patience;
pub(crate) mod phases;
pub(crate) mod table;
pub mod tuning;

pub use crate::table::api::{ATTEMPTS, Items, MISS, WhenFull};
pub use crate::table::primitives::bucket::{BucketSize, Layout, MAX_VALUE};
pub use crate::table::primitives::hash::Reduction;
pub use build::Built;
pub(crate) use kernels::programs;
pub use lookup::NarrowAnswers;
pub use model::{Census, HortonModel};
pub use table::{DEFAULT_LOAD_FACTOR, HortonTable, TableConfig, Upkeep};
