//! The reason why the shell stopped, as text and as an exit status.
//!
//! ```text
//!  DataFusionError ─ message ─▶ Error(text) ─▶ error: text   status 1
//!  Ctrl-C ─▶ Interrupted                                     status 130
//!  output that nobody reads ─▶ ReaderGone                    status 141
//! ```

use std::process::ExitCode;

use datafusion::error::DataFusionError;

/// The reason why the shell did not run everything that it was given.
#[derive(Debug)]
pub enum Failure {
    /// A statement failed, or the shell could not begin. The text is for the user.
    Error(String),
    /// The user pressed Ctrl-C.
    Interrupted,
    /// Nobody reads standard output any more.
    ReaderGone,
}

impl Failure {
    /// Returns the failure for any error.
    pub fn error(error: impl ToString) -> Self {
        Self::Error(error.to_string())
    }

    /// Returns the failure for an error of DataFusion.
    pub fn statement(error: DataFusionError) -> Self {
        Self::Error(message(&error))
    }

    /// Returns the exit status. The last two are those that shells give for the signals.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Error(_) => ExitCode::FAILURE,
            Self::Interrupted => ExitCode::from(130),
            Self::ReaderGone => ExitCode::from(141),
        }
    }
}

impl From<horton_trace::Error> for Failure {
    fn from(error: horton_trace::Error) -> Self {
        Self::error(error)
    }
}

/// Returns the text of an error for the user, without a prefix where it is of another crate.
pub fn message(error: &DataFusionError) -> String {
    match error.find_root() {
        DataFusionError::External(inner) => inner.to_string(),
        DataFusionError::SQL(error, _) => error.to_string(),
        DataFusionError::Plan(text) if text.starts_with("table '") => format!(
            "{text}; SHOW TABLES lists the tables, and a quoted path is one if a file is there"
        ),
        root @ (DataFusionError::IoError(_) | DataFusionError::ArrowError(..)) => {
            let root = root.strip_backtrace();
            match innermost_context(error) {
                Some(context) => format!("{context} ({root})"),
                None => root,
            }
        }
        root => root.strip_backtrace(),
    }
}

/// Returns what was said of an error of the system where it happened: which folder it was, and what
/// to do.
fn innermost_context(error: &DataFusionError) -> Option<String> {
    const CAUSED_BY: &str = "\ncaused by\n";
    let text = error.to_string();
    let (contexts, _) = text.rsplit_once(CAUSED_BY)?;
    let context = contexts.rsplit(CAUSED_BY).next()?;
    let context = context.strip_prefix("External error: ").unwrap_or(context);
    Some(context.to_owned())
}
