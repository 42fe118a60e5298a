//! A session: tables by name, options, and SQL whose joins run on devices.
//!
//! ```text
//!  SessionContext ─┬─ register_parquet, register_csv, register_json, register_arrow
//!                  ├─ sql ─▶ DataFrame           SET and CREATE run at once, queries when taken
//!                  └─ warm_up ─▶ devices are open, their kernels compiled
//! ```

use std::path::PathBuf;

use datafusion::prelude::{CsvReadOptions, JsonReadOptions, ParquetReadOptions, SessionContext};
use horton_join::config::HortonConfig;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Failure;
use crate::frame::Frame;
use crate::ingest;
use crate::options::Options;
use crate::query::Query;
use crate::runtime::wait;

/// A session of DataFusion whose hash joins run on OpenCL devices.
///
/// Args:
///     options: options by their full names, 'horton.…' and 'datafusion.…'.
///     device: the OpenCL device: 'auto', 'PLATFORM:INDEX', part of a name, 'all', or a list with
///         commas.
///     memory_limit: bytes of host memory for joins, sorts and aggregates; what needs more goes to
///         disk.
///     target_partitions: threads of a query; as many as there are cores by default.
#[pyclass(
    name = "SessionContext",
    module = "horton_join",
    frozen,
    skip_from_py_object
)]
pub struct Session(SessionContext);

impl Session {
    /// Runs `work` with a session that it may keep.
    fn with<T, F>(&self, py: Python<'_>, work: impl FnOnce(SessionContext) -> F) -> PyResult<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        wait(py, work(self.0.clone()))
    }
}

#[pymethods]
impl Session {
    #[new]
    #[pyo3(signature = (options=None, *, device="auto", memory_limit=None, target_partitions=None))]
    fn new(
        options: Option<&Bound<'_, PyDict>>,
        device: &str,
        memory_limit: Option<usize>,
        target_partitions: Option<usize>,
    ) -> PyResult<Self> {
        let options = Options::new(options, device, memory_limit, target_partitions)?;
        let builder = horton_join::install(options.into_builder());
        Ok(Self(SessionContext::new_with_state(builder.build())))
    }

    /// Returns the result of `query`. A query runs when its rows are taken. CREATE, DROP and SET
    /// run at once; INSERT and COPY do when their result is taken, as by count().
    fn sql(&self, py: Python<'_>, query: String) -> PyResult<Frame> {
        let frame = self.with(py, |session| async move { Ok(session.sql(&query).await?) })?;
        Ok(Frame::new(Query::Frame(Box::new(frame))))
    }

    /// Returns the plan of `query`; with `analyze`, runs it. See DataFrame.explain.
    #[pyo3(signature = (query, analyze=false))]
    fn explain(&self, py: Python<'_>, query: String, analyze: bool) -> PyResult<String> {
        self.sql(py, query)?.explain(py, analyze)
    }

    /// Makes a Parquet file, or a folder of them, the table `name`.
    fn register_parquet(&self, py: Python<'_>, name: String, path: PathBuf) -> PyResult<()> {
        let path = text(path)?;
        self.with(py, |session| async move {
            let options = ParquetReadOptions::default();
            Ok(session.register_parquet(name, path, options).await?)
        })
    }

    /// Makes a CSV file, or a folder of them, the table `name`.
    #[pyo3(signature = (name, path, *, has_header=true, delimiter=','))]
    fn register_csv(
        &self,
        py: Python<'_>,
        name: String,
        path: PathBuf,
        has_header: bool,
        delimiter: char,
    ) -> PyResult<()> {
        let path = text(path)?;
        let delimiter = u8::try_from(delimiter)
            .map_err(|_| PyValueError::new_err("delimiter must be one byte"))?;
        self.with(py, |session| async move {
            let options = CsvReadOptions::new()
                .has_header(has_header)
                .delimiter(delimiter);
            Ok(session.register_csv(name, path, options).await?)
        })
    }

    /// Makes a file of JSON objects, one per line, the table `name`.
    fn register_json(&self, py: Python<'_>, name: String, path: PathBuf) -> PyResult<()> {
        let path = text(path)?;
        self.with(py, |session| async move {
            let options = JsonReadOptions::default();
            Ok(session.register_json(name, path, options).await?)
        })
    }

    /// Makes `data` the table `name`: any object with `__arrow_c_stream__` or `__arrow_c_array__`,
    /// such as pyarrow.Table, polars.DataFrame, and a DataFrame of this package. Nothing is copied.
    /// A stream is read to its end.
    fn register_arrow(&self, name: &str, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let table = ingest::table(data)?;
        let registered = self.0.register_table(name, std::sync::Arc::new(table));
        registered.map(drop).map_err(Failure::from)?;
        Ok(())
    }

    /// Waits until the device is open and its kernels are compiled, and returns the names of the
    /// devices. Without this call, queries under 'auto' run on the host until then.
    fn warm_up(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let config = self.0.copied_config();
        let config = config.options().extensions.get::<HortonConfig>();
        let config = config.cloned().unwrap_or_default();
        wait(py, async move {
            let devices = horton_join::warm_up_for(&config).await?;
            let names = devices.all().iter();
            Ok(names.map(|device| device.info().name.clone()).collect())
        })
    }

    fn __repr__(&self) -> String {
        let config = self.0.copied_config();
        let horton = config.options().extensions.get::<HortonConfig>();
        let pairs = horton.map(HortonConfig::to_pairs).unwrap_or_default();
        let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
        format!("SessionContext({})", pairs.collect::<Vec<_>>().join(", "))
    }
}

fn text(path: PathBuf) -> PyResult<String> {
    let path = path.into_os_string().into_string();
    path.map_err(|path| PyValueError::new_err(format!("not UTF-8: {}", path.display())))
}
