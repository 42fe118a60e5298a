//! Options as Python gives them, made into a session's configuration.
//!
//! ```text
//!  {'horton.enabled': 'always', 'datafusion.execution.batch_size': 4096}, device, memory_limit …
//!      ─▶ SessionConfig and RuntimeEnv         a bad one is a ValueError that names it
//! ```

use std::num::NonZeroUsize;
use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionConfig;
use horton_join::config::HortonConfig;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyString};

use crate::failure::Failure;

/// The options that a session is made of.
pub struct Options {
    config: SessionConfig,
    runtime: Arc<RuntimeEnv>,
}

impl Options {
    /// Reads them.
    pub fn new(
        options: Option<&Bound<'_, PyDict>>,
        device: &str,
        memory_limit: Option<usize>,
        target_partitions: Option<usize>,
    ) -> PyResult<Self> {
        let mut config = SessionConfig::new()
            .with_information_schema(true)
            .with_option_extension(HortonConfig::default());
        if let Some(partitions) = target_partitions {
            let partitions = positive("target_partitions", partitions)?;
            config = config.with_target_partitions(partitions);
        }
        if device != HortonConfig::AUTO {
            set(&mut config, "horton.device", device)?;
        }
        for (name, value) in options.into_iter().flatten() {
            let name: String = name.extract().map_err(|_| {
                PyTypeError::new_err(format!("names of options are strings, not {name}"))
            })?;
            if name.starts_with("datafusion.runtime.") {
                return Err(PyValueError::new_err(format!(
                    "option {name} is none of a session's: use the argument memory_limit"
                )));
            }
            if name == "horton.device" && device != HortonConfig::AUTO {
                return Err(PyValueError::new_err(
                    "option horton.device is given twice: by the argument device, too",
                ));
            }
            set(&mut config, &name, &written(&name, &value)?)?;
        }
        let mut runtime = RuntimeEnvBuilder::new();
        if let Some(bytes) = memory_limit {
            runtime = runtime.with_memory_limit(positive("memory_limit", bytes)?, 1.0);
        }
        let runtime = runtime.build_arc().map_err(Failure::from)?;
        Ok(Self { config, runtime })
    }

    /// Returns the options, and the memory that they limit.
    pub fn into_parts(self) -> (SessionConfig, Arc<RuntimeEnv>) {
        (self.config, self.runtime)
    }

    /// Returns a session with DataFusion's functions and formats.
    pub fn into_builder(self) -> SessionStateBuilder {
        SessionStateBuilder::new()
            .with_config(self.config)
            .with_runtime_env(self.runtime)
            .with_default_features()
    }
}

fn positive(name: &str, number: usize) -> PyResult<usize> {
    let number = NonZeroUsize::new(number).map(NonZeroUsize::get);
    number.ok_or_else(|| PyValueError::new_err(format!("{name} must be at least 1")))
}

fn set(config: &mut SessionConfig, name: &str, value: &str) -> PyResult<()> {
    config.options_mut().set(name, value).map_err(|error| {
        PyValueError::new_err(format!("option {name}: {}", error.strip_backtrace()))
    })
}

/// Returns `value` as SQL's SET would have it.
fn written(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(value.is_true().to_string());
    }
    if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyString>() {
        return Ok(value.str()?.to_string());
    }
    let kind = value.get_type();
    Err(PyTypeError::new_err(format!(
        "option {name} must be a str, int or bool, not {}",
        kind.name()?
    )))
}
