//! Frames of PyPI's `datafusion`, planned there and run here.
//!
//! ```text
//!  datafusion.DataFrame ─▶ execution_plan().to_bytes() ─▶ decoded
//!      ─▶ its HashJoinExecs put on the device ─▶ DataFrame of this package
//! ```
//!
//! The two packages share no types: each has a DataFusion of its own. So the plan goes as protobuf
//! bytes, which hold files by their paths and tables in memory by their rows. What is a Python
//! object over there, or memory of that context, cannot go, and is an error that says so.

use std::sync::{Arc, LazyLock};

use datafusion::common::{Result, plan_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use datafusion_proto::bytes::physical_plan_from_bytes_with_extension_codec;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use horton_join::{Health, on_device};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::HortonError;
use crate::frame::Frame;
use crate::memory_limit;
use crate::options::Options;
use crate::query::Query;
use crate::runtime::wait;
use crate::version;

/// The failures of the devices of this process.
static HEALTH: LazyLock<Health> = LazyLock::new(Health::default);

/// Takes a frame of PyPI's `datafusion` 55, and returns the same rows with joins on OpenCL devices.
///
/// Files are opened again, and tables in memory are copied. Python functions and tables that are
/// Python objects, such as datasets of pyarrow, are an error. So is the memory limit of `context`.
///
/// Args:
///     df: the datafusion.DataFrame. It is planned now, and runs when rows are taken.
///     options, device, memory_limit: as those of SessionContext. The plan's partitions stay.
///     context: the datafusion.SessionContext of the frame. Give it to be told what of it is lost
///         here.
#[pyfunction]
#[pyo3(signature = (df, options=None, *, device="auto", memory_limit=None, context=None))]
pub fn collect(
    py: Python<'_>,
    df: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
    device: &str,
    memory_limit: Option<usize>,
    context: Option<&Bound<'_, PyAny>>,
) -> PyResult<Frame> {
    check_kind(df)?;
    let options = Options::new(options, device, memory_limit, None)?;
    if let (Some(context), None) = (context, memory_limit) {
        check_memory(context)?;
    }
    let bytes = encoded(df, context)?;
    let session = SessionContext::new_with_state(options.into_builder().build());
    wait(py, async move {
        let task = session.task_ctx();
        let plan = physical_plan_from_bytes_with_extension_codec(&bytes, &task, &Refuse)?;
        let plan = on_device(plan, session.state().config_options(), &HEALTH)?;
        Ok(Query::Plan(plan, task))
    })
    .map(Frame::new)
}

/// Checks that `df` is what its name says, of a version whose plans are ours.
fn check_kind(df: &Bound<'_, PyAny>) -> PyResult<()> {
    let kind = df.get_type();
    if !kind.module()?.to_string().starts_with("datafusion.") || !df.hasattr("execution_plan")? {
        return Err(PyTypeError::new_err(format!(
            "collect takes a datafusion.DataFrame, of PyPI's datafusion {}, not {}.{}",
            version::MAJOR,
            kind.module()?,
            kind.name()?
        )));
    }
    version::check(df.py(), "collect understands plans of")
}

/// Checks that `context` has no memory limit.
fn check_memory(context: &Bound<'_, PyAny>) -> PyResult<()> {
    match memory_limit::text(context)? {
        Some(limit) => Err(HortonError::new_err(format!(
            "the context's memory limit of {limit} does not bind collect, whose query runs in a \
             session of its own; give collect(…, memory_limit=<bytes>)"
        ))),
        None => Ok(()),
    }
}

/// Returns the plan of `df` as bytes.
fn encoded(df: &Bound<'_, PyAny>, context: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<u8>> {
    let plan = df.call_method0("execution_plan")?;
    let bytes = plan.call_method1("to_bytes", (context,));
    let bytes = bytes.map_err(|error| HortonError::new_err(unsent(&error.to_string())));
    bytes?.extract()
}

/// Returns what to do where `datafusion` cannot write a plan as bytes, and says this.
fn unsent(text: &str) -> String {
    let brief: String = text
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(200)
        .collect();
    if text.contains("HortonJoinExec") {
        return "the frame's context has horton_join.Extension: use its frames as they are, \
                df.collect() joins on devices"
            .to_owned();
    }
    // What follows are all the innards of the node.
    match text.split_once("Plan: ") {
        Some((_, node)) => format!(
            "datafusion cannot send {} to another package, as tables that are Python objects stay \
             there; register the data by register_parquet, register_csv or from_arrow, or with \
             horton_join.SessionContext ({brief})",
            node.split([' ', '{', '(']).next().unwrap_or_default()
        ),
        None => format!(
            "datafusion cannot send this plan to another package; run the query in \
             horton_join.SessionContext ({brief})"
        ),
    }
}

/// Refuses nodes and functions of others, and says what to do instead.
#[derive(Debug)]
struct Refuse;

fn python_function<T>(kind: &str, name: &str) -> Result<T> {
    plan_err!(
        "{kind} function '{name}' is no function of DataFusion: Python functions do not run in \
         collect; put it into DataFusion's own functions, or call it on the result"
    )
}

impl PhysicalExtensionCodec for Refuse {
    fn try_decode(
        &self,
        _buf: &[u8],
        _inputs: &[Arc<dyn ExecutionPlan>],
        _ctx: &TaskContext,
        _proto_converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan_err!(
            "the plan has a node of another extension, which does not run in collect; register its \
             data with horton_join.SessionContext"
        )
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        _buf: &mut Vec<u8>,
        _proto_converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        plan_err!("plans are not sent from here: {}", node.name())
    }

    fn try_decode_udf(&self, name: &str, _buf: &[u8]) -> Result<Arc<ScalarUDF>> {
        python_function("scalar", name)
    }

    fn try_decode_udaf(&self, name: &str, _buf: &[u8]) -> Result<Arc<AggregateUDF>> {
        python_function("aggregate", name)
    }

    fn try_decode_udwf(&self, name: &str, _buf: &[u8]) -> Result<Arc<WindowUDF>> {
        python_function("window", name)
    }
}
