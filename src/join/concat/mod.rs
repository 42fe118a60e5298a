//! One array of the arrays that a column has in many batches.
//!
//! ```text
//!  Int32, FixedSizeBinary, views …   concat; bytes of views in many buffers are copied together
//!  Struct, List, Map …               each child concatenated, offsets and NULLs around them
//!  Dictionary   keys k₀ k₁ k₂, values v v v   v is shared, keys alone are concatenated
//!               keys k₀ k₁ k₂, values v v w   used values are numbered again, each once
//! ```
//!
//! Arrow's kernels append the values of dictionaries without looking at them, once per array, and
//! panic where the sum outgrows the type of the keys. So an output batch interleaved from a
//! thousand slices of one batch would carry its dictionary a thousand times. Here a value stands
//! once, and keys that have no room are an error, after which the column can stay as it is.

mod children;
pub mod concatenate;
mod dictionaries;
pub mod size;
pub mod types;
