//! The log of a program, as Ballista's own programs write it.
//!
//! ```text
//!  RUST_LOG, or else --log-level-setting ─▶ standard output, or files in --log-dir
//! ```
//!
//! The stock programs do this in their `main`, which no library offers. A folder that cannot be
//! written to is an error here, and not a panic.

use std::error::Error;

use ballista_core::config::LogRotationPolicy;
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::EnvFilter;

/// The lines to log, and the place to log to.
#[derive(Debug)]
pub struct Log<'a> {
    /// Filter of lines where `RUST_LOG` does not say.
    pub levels: &'a str,
    /// True if lines name their thread.
    pub thread_info: bool,
    /// The folder; `None` for standard output.
    pub dir: Option<&'a str>,
    /// Beginning of the names of files.
    pub prefix: String,
    /// Rotation: the time at which a new file begins.
    pub rotation: LogRotationPolicy,
}

impl Log<'_> {
    /// Begins to log.
    ///
    /// # Errors
    /// If the folder cannot be written to, or this process logs already.
    pub fn begin(self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let levels = std::env::var(EnvFilter::DEFAULT_ENV);
        let levels = EnvFilter::new(levels.unwrap_or_else(|_| self.levels.to_owned()));
        let log = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_thread_names(self.thread_info)
            .with_thread_ids(self.thread_info)
            .with_env_filter(levels);
        let Some(dir) = self.dir else {
            return log.try_init();
        };
        let files = RollingFileAppender::builder()
            .rotation(rotation(&self.rotation))
            .filename_prefix(&self.prefix)
            .build(dir)?;
        log.with_writer(files).try_init()
    }
}

fn rotation(policy: &LogRotationPolicy) -> Rotation {
    match policy {
        LogRotationPolicy::Minutely => Rotation::MINUTELY,
        LogRotationPolicy::Hourly => Rotation::HOURLY,
        LogRotationPolicy::Daily => Rotation::DAILY,
        LogRotationPolicy::Never => Rotation::NEVER,
    }
}
