//! The Python package `horton_join`: SQL whose hash joins run on OpenCL devices.
//!
//! ```text
//!  Python                      this crate                                       horton-join
//!  SessionContext.sql ───────▶ context ─▶ query ─┐
//!  collect(datafusion frame) ▶ foreign ─▶ query ─┼─▶ run ─▶ runtime: a task ──▶ HortonJoinExec
//!  pyarrow, polars, duckdb ◀── stream ◀── frame ◀┘         (no GIL, Ctrl-C)         ▲
//!  datafusion.SessionContext ▶ extension ──────────────────────────────────────────┘
//! ```
//!
//! * `context`: a session, its tables and options (`options`); `ingest`: Arrow data of other
//!   packages
//! * `extension`: joins in sessions of PyPI's `datafusion`; `foreign`: plans of it, run here;
//!   `memory_limit`, `version`: what is asked of it
//! * `frame`: a query as Python sees it; `schema`, `text`, `decision`: what it shows
//! * `query`: what can be run, again and again; `run`: one run of it
//! * `stream`: rows on their way out, by Arrow's C interface
//! * `runtime`, `caller`, `gil`: threads that run, and the Python thread that waits for them
//! * `failure`: errors; `device`: what `devices()` lists
//!
//! `arrow-pyarrow` and PyO3's capsules hold all of Arrow's pointers, so none are here. `gil` and
//! `extension::host` are the two homes of `unsafe`.

#![deny(missing_docs, unsafe_code)]

mod caller;
mod context;
mod decision;
mod device;
mod extension;
mod failure;
mod foreign;
mod frame;
mod gil;
mod ingest;
mod memory_limit;
mod options;
mod query;
mod run;
mod runtime;
mod schema;
mod stream;
mod text;
mod version;

/// The extension module; `horton_join` exports what is in it.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::context::Session;
    #[pymodule_export]
    use crate::decision::JoinDecision;
    #[pymodule_export]
    use crate::device::{Device, devices};
    #[pymodule_export]
    use crate::extension::Extension;
    #[pymodule_export]
    use crate::failure::HortonError;
    #[pymodule_export]
    use crate::foreign::collect;
    #[pymodule_export]
    use crate::frame::Frame;
    #[pymodule_export]
    use crate::schema::Columns;

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        use pyo3::types::PyModuleMethods;
        // Silent unless RUST_LOG asks. A host program may have a logger of its own.
        let _ = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("off"))
            .try_init();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
