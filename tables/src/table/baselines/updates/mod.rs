//! Horton tables that change: insert, update and remove in bulk, after the table was built.
//!
//! * `insert`, `remove`: the operations; `items`: finding and changing items in place
//! * `insert_common`: more room where items find no slot, shared with cuckoo tables
//! * `impl_table`: the trait [`Table`](crate::table::Table)
//!
//! Sources: the Horton paper, sections 5.3 (insertion) and 5.4 (removal).

mod impl_table;
mod insert;
pub(crate) mod insert_common;
pub(crate) mod items;
mod remove;
