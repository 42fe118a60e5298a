//! Empty. Its dependencies are what counts: see Cargo.toml.
