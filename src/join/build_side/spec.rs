//! The facts of a join that a build needs, read off the plan.

use arrow::datatypes::DataType;
use datafusion::common::NullEquality;
use datafusion::physical_expr::PhysicalExprRef;

use crate::config::HortonConfig;
use crate::device::Placed;

/// The facts of a join that a build needs.
#[derive(Debug, Clone)]
pub struct BuildSpec {
    /// Key expressions over the build side.
    pub on: Vec<PhysicalExprRef>,
    /// Types of the key columns.
    pub key_types: Vec<DataType>,
    /// Says whether NULL keys match each other.
    pub null_equality: NullEquality,
    /// True if the join type needs to know which build rows were matched.
    pub visited: bool,
    /// True if matches must pass a residual filter.
    pub filtered: bool,
    /// Columns that pairs bring to the output or the residual filter.
    pub columns: Vec<usize>,
    /// Columns that build rows bring to the output, with a match or at the end.
    pub output_columns: Vec<usize>,
    /// Parts of the build side that are worked on at once.
    pub width: usize,
    /// Streams that will probe the table.
    pub probes: usize,
    /// Device of the table.
    pub device: Placed,
    /// The session's options.
    pub config: HortonConfig,
}
