//! The warnings of this crate, kept for a test to read. A process has one logger: such a test has
//! a process of its own.

use std::sync::{Mutex, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};

struct Warnings(Mutex<Vec<String>>);

static WARNINGS: Warnings = Warnings(Mutex::new(Vec::new()));

impl Log for Warnings {
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.level() <= Level::Warn && metadata.target().starts_with("horton")
    }

    fn log(&self, record: &Record) {
        if self.enabled(record.metadata()) {
            let mut warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            warnings.push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Keeps warnings from here on.
pub fn keep() {
    log::set_logger(&WARNINGS).unwrap();
    log::set_max_level(LevelFilter::Warn);
}

/// Returns the warnings so far.
pub fn kept() -> Vec<String> {
    let warnings = WARNINGS.0.lock().unwrap_or_else(PoisonError::into_inner);
    warnings.clone()
}
