//! The decision where a join ran and why, as Python sees it.
//!
//! ```text
//!  HortonJoinExec.decisions()
//!      ─▶ JoinDecision(join='Inner', build='left', rows=…, device=…, reason=…)
//! ```

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use horton_join::{Decision, HortonJoinExec, Place};
use pyo3::prelude::*;

/// The place where a join of the last run was done, and why. A join with several builds has one for
/// each.
#[pyclass(
    name = "Decision",
    module = "horton_join",
    frozen,
    eq,
    skip_from_py_object
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinDecision {
    /// The join's type: 'Inner', 'Left', …
    #[pyo3(get)]
    join: String,
    /// Its keys: 'a = b AND …'.
    #[pyo3(get)]
    keys: String,
    /// The side that the table was built of: 'left' or 'right'.
    #[pyo3(get)]
    build: String,
    /// Rows of that side.
    #[pyo3(get)]
    rows: usize,
    /// The device that joined; None for the host.
    #[pyo3(get)]
    device: Option<String>,
    /// The reason for the host; None for a device.
    #[pyo3(get)]
    reason: Option<String>,
    /// Whether these rows are those of one spill partition, which waited on disk.
    #[pyo3(get)]
    is_spilled: bool,
}

impl JoinDecision {
    /// Returns those of all joins in `plan`, those above before those below.
    pub fn all_in(plan: &Arc<dyn ExecutionPlan>) -> Vec<Self> {
        let joins = HortonJoinExec::all_in(plan).into_iter();
        let of = |join: &HortonJoinExec| {
            let decisions = join.decisions().into_iter();
            let decisions = decisions.map(|decision| Self::new(join, &decision));
            decisions.collect::<Vec<_>>()
        };
        joins.flat_map(of).collect()
    }

    fn new(join: &HortonJoinExec, decision: &Decision) -> Self {
        let (device, reason) = match &decision.place {
            Place::Device(device) => (Some(device.info().name.clone()), None),
            Place::Host(reason) => (None, Some(reason.to_string())),
        };
        let keys = join.stock().on().iter();
        let keys = keys.map(|(left, right)| format!("{left} = {right}"));
        Self {
            join: join.stock().join_type().to_string(),
            keys: keys.collect::<Vec<_>>().join(" AND "),
            build: decision.build.to_string(),
            rows: decision.rows,
            device,
            reason,
            is_spilled: decision.is_spilled,
        }
    }
}

#[pymethods]
impl JoinDecision {
    fn __repr__(&self) -> String {
        let place = match (&self.device, &self.reason) {
            (Some(device), _) => format!("on {device}"),
            (None, Some(reason)) => format!("on the host: {reason}"),
            (None, None) => "nowhere".to_owned(),
        };
        format!(
            "Decision({} join of {}: build={}, {} rows, {place})",
            self.join, self.keys, self.build, self.rows
        )
    }
}
