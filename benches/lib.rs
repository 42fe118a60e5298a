//! Nothing: a package needs a target beside its benchmarks. See `join.rs`.
