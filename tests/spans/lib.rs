//! Nothing: a package needs a target beside its test. See `main.rs`.
