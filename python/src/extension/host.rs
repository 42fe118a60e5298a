//! Calls into `datafusion`'s library that `datafusion-ffi` has no safe function for.
//!
//! ```text
//!  capsules of Python ─▶ FFI_QueryPlanner, FFI_TaskContextProvider
//!  run: a node over there with a context from over there ─▶ its memory limit, its object stores
//! ```
//!
//! `ForeignExecutionPlan::execute` sends a context of this library, which arrives with neither.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_ffi::execution::{FFI_TaskContext, FFI_TaskContextProvider};
use datafusion_ffi::execution_plan::FFI_ExecutionPlan;
use datafusion_ffi::query_planner::FFI_QueryPlanner;
use datafusion_ffi::util::FFI_Result;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::failure::HortonError;

/// Returns a copy of what the capsule `name` holds that `getter` of `context` returns.
///
/// # Safety
/// Capsules of that name hold a `T`.
unsafe fn held<T: Clone>(context: &Bound<'_, PyAny>, getter: &str, name: &CStr) -> PyResult<T> {
    let capsule = context.call_method0(getter)?;
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(name))?;
    // SAFETY: the name was checked, so it is a `T`, says the caller. The capsule owns it and lives.
    Ok(unsafe { pointer.cast::<T>().as_ref() }.clone())
}

/// Returns the query planner of the `datafusion.SessionContext`.
///
/// # Errors
/// If it is of another major version.
pub fn planner(context: &Bound<'_, PyAny>) -> PyResult<FFI_QueryPlanner> {
    let name = c"datafusion_query_planner";
    // SAFETY: that name is this type's in `datafusion`'s interface for extensions.
    let planner: FFI_QueryPlanner = unsafe { held(context, "__datafusion_query_planner__", name) }?;
    // SAFETY: the function takes nothing, and its library stays loaded.
    let (version, ours) = (unsafe { (planner.version)() }, datafusion_ffi::version());
    if version != ours {
        return Err(HortonError::new_err(format!(
            "horton_join.Extension is for datafusion {ours}, not {version}; \
             pip install 'datafusion=={ours}.*'"
        )));
    }
    Ok(planner)
}

/// Returns what gives contexts of the `datafusion.SessionContext`. It does not keep that alive.
///
/// # Errors
/// If there is none.
pub fn contexts(context: &Bound<'_, PyAny>) -> PyResult<FFI_TaskContextProvider> {
    let name = c"datafusion_task_context_provider";
    // SAFETY: that name is this type's in `datafusion`'s interface for extensions.
    unsafe { held(context, "__datafusion_task_context_provider__", name) }
}

/// Returns a context of the session, if that is still there.
pub fn context(contexts: &FFI_TaskContextProvider) -> Option<FFI_TaskContext> {
    // SAFETY: the function is of the library that made the struct, and gets that struct.
    match unsafe { (contexts.task_ctx)(contexts) } {
        FFI_Result::Ok(context) => Some(context),
        FFI_Result::Err(_) => None,
    }
}

/// Runs a partition of `plan`, a node of the library that `context` comes from.
///
/// # Errors
/// Those of the node.
pub fn run(
    plan: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: FFI_TaskContext,
) -> Result<SendableRecordBatchStream> {
    // The struct of the node's own library: a foreign node is unwrapped.
    let plan = FFI_ExecutionPlan::new(Arc::clone(plan), None);
    // SAFETY: the function is of the library that made the struct, and gets that struct.
    match unsafe { (plan.execute)(&plan, partition, context) } {
        FFI_Result::Ok(stream) => Ok(Box::pin(stream)),
        FFI_Result::Err(text) => Err(DataFusionError::Execution(text.to_string())),
    }
}
