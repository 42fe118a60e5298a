//! The object that `datafusion.SessionContext.with_extensions` takes.
//!
//! ```text
//!  with_extensions ─▶ __datafusion_session_components__ ─▶ both codecs
//!                  └▶ __datafusion_session_planner__    ─▶ the rule is added; no planner: None
//! ```
//!
//! `datafusion` 55 has no place for rules among the components. The second hook is called once the
//! codecs are there, which is when the host's planner writes with them.

use std::sync::{Arc, LazyLock};

use datafusion::execution::TaskContextProvider;
use datafusion::prelude::SessionContext;
use datafusion_ffi::execution::FFI_TaskContextProvider;
use datafusion_ffi::physical_optimizer::FFI_PhysicalOptimizerRule;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::proto::physical_extension_codec::FFI_PhysicalExtensionCodec;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::decision::JoinDecision;
use crate::memory_limit;
use crate::options::Options;
use crate::runtime;
use crate::version;

use super::codec::Codec;
use super::decisions::Decisions;
use super::host;
use super::parcel;
use super::rule::JoinOnDevices;
use super::session::Session;

/// Joins of PyPI's `datafusion` 55 on OpenCL devices:
/// `ctx = datafusion.SessionContext().with_extensions(horton_join.Extension())`.
///
/// Frames of such a context are used as all others. Scans, functions, tables and statements stay
/// DataFusion's. A join that cannot go to a device is DataFusion's, too.
///
/// Args:
///     options: options by their full names, 'horton.…'. Those of DataFusion are the context's.
///     device: as that of SessionContext.
///     memory_limit: bytes of host memory for joins; as many as the context may use by default.
///         They do not count there.
#[pyclass(module = "horton_join", frozen, skip_from_py_object)]
pub struct Extension {
    options: Py<PyDict>,
    device: String,
    memory_limit: Option<usize>,
    decisions: Decisions,
}

impl Extension {
    fn options(&self, py: Python<'_>, memory_limit: Option<usize>) -> PyResult<Options> {
        Options::new(
            Some(self.options.bind(py)),
            &self.device,
            memory_limit,
            None,
        )
    }
}

#[pymethods]
impl Extension {
    #[new]
    #[pyo3(signature = (options=None, *, device="auto", memory_limit=None))]
    fn new(
        py: Python<'_>,
        options: Option<&Bound<'_, PyDict>>,
        device: &str,
        memory_limit: Option<usize>,
    ) -> PyResult<Self> {
        let options = match options {
            Some(options) => options.copy()?,
            None => PyDict::new(py),
        };
        for name in options.keys() {
            if name.to_string().starts_with("datafusion.") {
                return Err(PyValueError::new_err(format!(
                    "option {name} is the context's: give it to datafusion.SessionConfig"
                )));
            }
        }
        let extension = Self {
            options: options.unbind(),
            device: device.to_owned(),
            memory_limit,
            decisions: Decisions::default(),
        };
        // A wrong option is an error here, not where the extension is used.
        extension.options(py, memory_limit)?;
        Ok(extension)
    }

    /// Returns where each join of the last query was done, and why. Queries that run at the same
    /// time are not told apart.
    #[getter]
    fn decisions(&self) -> Vec<JoinDecision> {
        self.decisions.all()
    }

    /// Returns how many plans are on their way through bytes. For python/tests.
    #[staticmethod]
    fn _plans_under_way() -> usize {
        parcel::count()
    }

    fn __datafusion_session_components__<'py>(
        &self,
        py: Python<'py>,
        ctx: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = ctx;
        version::check(py, "horton_join.Extension is for")?;
        let components = PyDict::new(py);
        for kind in ["logical_extension_codecs", "physical_extension_codecs"] {
            components.set_item(kind, (Codecs,))?;
        }
        let class = py
            .import("datafusion")?
            .getattr("SessionExtensionComponents")?;
        class.call((), Some(&components))
    }

    fn __datafusion_session_planner__(
        &self,
        py: Python<'_>,
        ctx: &Bound<'_, PyAny>,
        fallback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        // The context's own planner writes its joins, whichever planners come before in the call.
        let _ = fallback;
        let memory_limit = match self.memory_limit {
            None => memory_limit::bytes(ctx)?,
            given => given,
        };
        let (config, memory) = self.options(py, memory_limit)?.into_parts();
        let session = Session::new(
            &host::planner(ctx)?,
            host::contexts(ctx)?,
            config,
            memory,
            runtime::handle()?,
            self.decisions.clone(),
        );
        let rule = Rule(Arc::new(session));
        ctx.call_method1("add_physical_optimizer_rule", (rule,))?;
        Ok(())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!(
            "Extension({}, device={:?})",
            self.options.bind(py),
            self.device
        )
    }
}

/// The rule, as `add_physical_optimizer_rule` takes it.
#[pyclass(frozen, skip_from_py_object)]
struct Rule(Arc<Session>);

#[pymethods]
impl Rule {
    fn __datafusion_physical_optimizer_rule__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let rule = JoinOnDevices(Arc::clone(&self.0));
        let rule = FFI_PhysicalOptimizerRule::new(Arc::new(rule), None);
        PyCapsule::new_with_value(py, rule, c"datafusion_physical_optimizer_rule")
    }
}

/// The codecs, as a session's components have them.
#[pyclass(frozen, skip_from_py_object)]
struct Codecs;

/// Returns contexts for the codecs' calls, which read nothing in them.
fn contexts() -> FFI_TaskContextProvider {
    static OWN: LazyLock<Arc<SessionContext>> = LazyLock::new(Arc::default);
    let own = Arc::clone(&OWN) as Arc<dyn TaskContextProvider>;
    FFI_TaskContextProvider::from(&own)
}

#[pymethods]
impl Codecs {
    /// Bytes of a plan name the codec that wrote them.
    #[classattr]
    #[pyo3(name = "__datafusion_codec_id__")]
    const ID: &'static str = "horton_join";

    fn __datafusion_logical_extension_codec__<'py>(
        &self,
        py: Python<'py>,
        session: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = session;
        let codec = FFI_LogicalExtensionCodec::new(Arc::new(Codec), None, contexts());
        PyCapsule::new_with_value(py, codec, c"datafusion_logical_extension_codec")
    }

    fn __datafusion_physical_extension_codec__<'py>(
        &self,
        py: Python<'py>,
        session: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = session;
        let codec = FFI_PhysicalExtensionCodec::new(Arc::new(Codec), None, contexts());
        PyCapsule::new_with_value(py, codec, c"datafusion_physical_extension_codec")
    }
}
