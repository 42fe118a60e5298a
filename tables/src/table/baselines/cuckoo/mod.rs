//! Bucketized cuckoo tables: the baselines of the Horton paper.
//!
//! ```text
//!  key ─H1─▶ bucket ─miss─H2─▶ bucket ─▶ value | absent        two buckets at most, no entries
//!
//!  load-balanced   an item goes to the emptier of its two buckets: 1.5 buckets per hit
//!  first fit       to the first one unless it is full: fewer per hit, longer displacements
//!  both            2 buckets per miss
//! ```
//!
//! Breslow et al., USENIX ATC 2016, section 3.3. Buckets, hash functions, lookup kernels and the
//! choice among them are those of the [Horton table](crate::table::horton), so that a comparison is
//! one of tables. Unlike there, an item's bucket may hold it only by luck, and no bucket says where
//! else to look.
//!
//! * `table`: the table and its lookups; `config`: how it is built
//! * `impl_table`: the trait [`Table`](crate::table::Table)
//! * `place`: bulk placement on the device, host side of `cl/baselines/cuckoo/place.cl`
//! * [`model`]: the same table in plain Rust, a test oracle

mod config;
mod impl_table;
pub mod model;
mod place;
mod table;

pub use config::{CuckooConfig, Placement};
pub use model::CuckooModel;
pub(crate) use place::programs;
pub use table::CuckooTable;
