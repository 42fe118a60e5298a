//! Timelines of queries for [Perfetto](https://ui.perfetto.dev): where the time of a device join
//! goes, on the host and on the device.
//!
//! ```text
//!  horton-join    spans: encode keys, gather, emit … ┐
//!  horton-tables  span: job; events: commands        ├─▶ tracing ─▶ layer ─▶ file ─▶ FILE
//!  operators      a span per poll, datafusion-tracing┘              slices   JSON
//! ```
//!
//! [`with_trace`] writes a timeline of what a process does. [`instrument`] has the operators of a
//! session in it, [`query`] and [`planned`] mark a query and its planning. The file is in Chrome's
//! trace event format, which Perfetto opens. `docs/debugging.md` says what its rows mean.
//!
//! * `layer`: spans and events become slices
//! * `file`: slices become a file, on a thread of its own
//!
//! The crate `tracing-chrome` does the same for spans. It has no slices with times of their own, as
//! a device's commands are, and its line of events grows without bound.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod file;
mod layer;

use std::fmt::Display;
use std::fs::File;
use std::path::Path;

use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use datafusion_tracing::{InstrumentationOptions, instrument_with_trace_spans};
use tracing::{Instrument, Level, Span, trace_span};
use tracing_subscriber::layer::SubscriberExt;

use file::Writer;
use layer::{QUERIES, Slices};

/// The target of spans of operators.
const OPERATORS: &str = "horton::operator";

/// The reason why there is no timeline, and what to do.
#[derive(Debug)]
pub struct Error(String);

impl Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl Error {
    fn unwritable(path: &Path, error: &std::io::Error) -> Self {
        Self(format!(
            "the trace {} cannot be written: {error}; name a file in a folder that exists, has \
             room, and may be written to",
            path.display()
        ))
    }
}

/// Does `work`, and writes a trace of the process to the file at `path` meanwhile, if there is one.
/// Makes the file anew, and blocks until it is written. A process has one trace, which is the
/// subscriber of `tracing`.
///
/// ```
/// use datafusion::error::DataFusionError;
/// use datafusion::prelude::SessionContext;
/// use horton_trace::{query, traced, with_trace};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let file = folder.path().join("trace.json");
/// let runtime = tokio::runtime::Runtime::new()?;
/// let rows = with_trace::<_, Box<dyn std::error::Error>>(Some(&file), || {
///     runtime.block_on(async {
///         let session = traced(&SessionContext::new());
///         let _shown = query("the first");
///         Ok(session.sql("SELECT 1").await?.collect().await?)
///     })
/// })?;
/// # assert_eq!(rows.len(), 1);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of `work`, then that the file cannot be written, or that there is a trace already.
pub fn with_trace<T, E: From<Error>>(
    path: Option<&Path>,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let Some(path) = path else {
        return work();
    };
    let unwritable = |error| Error::unwritable(path, &error);
    let file = File::create(path).map_err(unwritable)?;
    let writer = Writer::begin(file).map_err(unwritable)?;
    let subscriber = tracing_subscriber::registry().with(Slices::new(writer.line()));
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|_| Error("a process has one trace, or another subscriber".to_owned()))?;
    let done = work();
    let lost = writer.finish().map_err(unwritable);
    let done = done?;
    match lost? {
        0 => {}
        lost => log::warn!("{}: {lost} slices came too fast", path.display()),
    }
    Ok(done)
}

/// Gives each operator of a session's plans a span, which is entered when it is polled. Comes after
/// all other rules; does nothing while there is no trace.
pub fn instrument(builder: SessionStateBuilder) -> SessionStateBuilder {
    if !tracing::enabled!(target: OPERATORS, Level::TRACE) {
        return builder;
    }
    let options = InstrumentationOptions::default();
    let rule = instrument_with_trace_spans!(target: OPERATORS, options: options);
    builder.with_physical_optimizer_rule(rule)
}

/// Returns the session of `context`, whose operators are in the trace, if there is one.
pub fn traced(context: &SessionContext) -> SessionContext {
    let builder = SessionStateBuilder::new_from_existing(context.state());
    SessionContext::new_with_state(instrument(builder).build())
}

/// Returns the span of a query, which is in the row "queries" under `name` until it is dropped.
pub fn query(name: impl Display) -> Span {
    trace_span!("query", row = QUERIES, otel.name = %name)
}

/// Does the `planning` of a query, which its thread shows as "plan".
pub async fn planned<T>(planning: impl Future<Output = T>) -> T {
    planning.instrument(trace_span!("plan")).await
}
