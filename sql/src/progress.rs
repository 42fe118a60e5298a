//! One line on the terminal while a statement takes long.
//!
//! ```text
//!  0 s ─▶ 1 s ────────────────────────────▶ end
//!          ⠙ 3 s, 12,345,678 rows read       erased
//! ```
//!
//! On standard error, and only if that is a terminal: neither results nor logs have it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

use crate::watch::Watch;

/// The time that a statement runs before the line appears.
const QUIET: Duration = Duration::from_secs(1);

/// The pause between two drawings of the line.
const TICK: Duration = Duration::from_millis(100);

/// The line, which is erased when this is dropped.
pub struct Progress {
    bar: ProgressBar,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Progress {
    /// Shows the progress of the statement of `watch`, unless it is to be `quiet`.
    pub fn new(watch: &Watch, quiet: bool) -> Self {
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        // indicatif draws on terminals only.
        let is_shown = !quiet && !bar.is_hidden();
        let task = is_shown.then(|| {
            let (bar, watch) = (bar.clone(), watch.clone());
            let began = Instant::now();
            tokio::spawn(async move {
                tokio::time::sleep(QUIET).await;
                loop {
                    let rows = HumanCount(watch.rows_read() as u64);
                    bar.set_message(format!("{} s, {rows} rows read", began.elapsed().as_secs()));
                    bar.tick();
                    tokio::time::sleep(TICK).await;
                }
            })
        });
        Self {
            bar,
            task: Mutex::new(task),
        }
    }

    /// Erases the line.
    pub fn stop(&self) {
        let task = self
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(task) = task {
            task.abort();
            self.bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop();
    }
}
