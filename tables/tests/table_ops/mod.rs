//! Bulk operations of every kind of table against a `HashMap`, with the model's `check()` after
//! each. `HORTON_TEST_SMALL=1` keeps the sizes fit for oclgrind, `HORTON_TABLE_OPS` says how many
//! random mixtures of operations are tried, `HORTON_TABLE_SEED` where their seeds start.

mod cost;
mod cuckoo;
mod dynamic;
mod full;
mod fuzz;
mod harness;
mod horton;
mod load;
mod suite;
mod tuning;
