//! What planners and consumers may rely on beyond a query's rows.
//!
//! ```text
//!  deep         many joins, one on top of the other
//!  order        sorts that DataFusion leaves out for what a join promises
//!  limits       rows that are read for a LIMIT
//!  guards       a WHERE or a join that keeps an expression from rows on which it fails
//!  executions   partitions with a context each, asked for late or again; copies of a node
//!  shared       streams that share the rows of all probe partitions
//!  waits        streams that are left in the middle of a poll, beside others that go on
//! ```
//!
//! Each runs on the host and on the device, beside DataFusion's own joins or what they should
//! return. `tests/fuzz` draws such plans, consumers and queries at random.

mod deep;
mod executions;
mod guards;
mod limits;
mod order;
mod sessions;
mod shared;
mod waits;
