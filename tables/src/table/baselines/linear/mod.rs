//! Lock-free linear probing: the simplest table that can change, and fast while it is half empty.
//!
//! ```text
//!  home(k)
//!    ▼
//!  [ a ][ x ][ k ][ · ][ · ][ b ] …     2^n slots of value << 32 | key
//!    └──── probe ──▶ ends at an empty slot
//! ```
//!
//! * [`Deletion::KeepsKey`]: D. Farrell, "A Simple GPU Hash Table" (2020). A key never moves, and
//!   a deletion only takes its value, so insertions, deletions and lookups run side by side in one
//!   launch ([`LinearTable::apply`]). Of insertions of one key in one launch, any one counts.
//!   Deleted keys clutter the table until it is rehashed ([`LinearTable::rehash`]).
//! * [`Deletion::LeavesTombstone`]: the same author's "Reusing Deleted Slots". Deleted slots are
//!   used again; in return insertions and deletions run in phases. `cl/baselines/linear/table.cl`
//!   says what a naive reading gets wrong, and what is done about it.
//!
//! Cost: one random access per operation at low loads. The mean probe of a hit is
//! `1/2 (1 + 1/(1 - load)) - 1` slots beyond the home slot: 0.5 at load 0.5, and 16 at 0.97. A
//! random compare-and-swap beyond a GPU's L2 is several times slower than one inside it. So many
//! insertions at once into a large table are split by ranges of slots first.
//!
//! Two ways to insert: [`LinearTable::put`] stores what finds a slot and says how many did not, as
//! operations side by side must; [`Table::insert`](crate::table::Table::insert) makes sure of room
//! first (`impl_table`).
//!
//! * [`layout`]: shape of a table; `table/primitives/word.rs`: its words
//! * `table`: the table and its bulk operations
//! * `impl_table`: the same as every kind of table does it
//! * [`model`]: the same table in plain Rust, a test oracle
//! * `kernels`: program text

mod impl_table;
mod kernels;
pub mod layout;
pub mod model;
mod table;

pub use crate::table::api::MISS;
pub use crate::table::primitives::word::MAX_VALUE;
pub(crate) use kernels::programs;
pub use layout::{Deletion, LinearLayout, MAX_CAPACITY};
pub use model::{LinearModel, ProbeLengths};
pub use table::{Inserted, LinearConfig, LinearTable};
