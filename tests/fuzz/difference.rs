//! What a check of random cases says: nothing, or what differs.
//!
//! ```text
//!  check ─▶ Ok
//!        └▶ what differs, by which a smaller case is found that fails alike; how, for the reader
//! ```

use std::fmt;

use datafusion::error::DataFusionError;

/// A difference: what differs, and how.
#[derive(Debug)]
pub struct Difference {
    pub what: &'static str,
    pub how: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.how)
    }
}

impl Difference {
    /// Adds the run that it is of.
    #[cfg(debug_assertions)]
    pub fn with(self, run: &str) -> Self {
        let how = format!("{}\n{run}", self.how);
        Self { how, ..self }
    }
}

/// Makes a difference of an error where nothing may fail.
impl From<DataFusionError> for Difference {
    fn from(error: DataFusionError) -> Self {
        let how = error.to_string();
        Self { what: "test", how }
    }
}

pub type Checked<T> = std::result::Result<T, Difference>;

pub fn differ<T>(what: &'static str, how: impl fmt::Display) -> Checked<T> {
    let how = how.to_string();
    Err(Difference { what, how })
}
