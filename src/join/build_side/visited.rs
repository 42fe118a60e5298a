//! Build rows that were matched, and who emits build rows after the probe.
//!
//! ```text
//!  exact keys, no residual filter   lookups note the rows:  a bit on the device, or here
//!  else                             the host does, once pairs have passed
//! ```

use crate::join::bitmap::Bitmap;
use crate::join::build_side::build_output::BuildOutput;

/// Build rows from which probe streams emit them together.
const OUTPUT_ROWS_SHARED: usize = 1 << 16;

/// The build rows that were matched, for join types that need to know.
#[derive(Debug)]
pub struct Visited {
    rows: Bitmap,
    by_lookups: bool,
    output: BuildOutput,
}

impl Visited {
    /// Notes nothing yet of `rows` rows, which `probes` streams look up. Lookups themselves note
    /// the rows if `by_lookups`.
    pub fn new(rows: usize, by_lookups: bool, probes: usize) -> Self {
        Self {
            rows: Bitmap::new(rows),
            by_lookups,
            output: BuildOutput::new(probes, rows > OUTPUT_ROWS_SHARED),
        }
    }

    /// Returns one bit per row. Where the device notes the rows, they are here once brought back.
    pub fn rows(&self) -> &Bitmap {
        &self.rows
    }

    /// Returns whether lookups note the rows, as they alone decide which are matched.
    pub fn by_lookups(&self) -> bool {
        self.by_lookups
    }

    /// Returns who emits build rows after the probe.
    pub fn output(&self) -> &BuildOutput {
        &self.output
    }
}
