//! The Python thread that takes rows, seen from within a C callback.
//!
//! ```text
//!  the thread that asked for the stream:   may hold the GIL ─▶ let go of it, ask for signals
//!  any other thread, such as a library's:  its Python thread may wait for it with the GIL held
//!                                          ─▶ touch no Python
//! ```

use std::pin::pin;
use std::thread::{self, ThreadId};

use pyo3::prelude::*;

use crate::failure::Failure;
use crate::gil;
use crate::runtime::{SIGNALS, until, within};

/// The thread that asked for a stream.
#[derive(Debug, Clone, Copy)]
pub struct Caller(ThreadId);

impl Caller {
    /// Returns this thread, which runs Python.
    pub fn new(_: Python<'_>) -> Self {
        Self(thread::current().id())
    }

    /// Waits for `future`, with an eye on signals where that is right.
    pub fn wait<T: Send>(
        self,
        future: impl Future<Output = Result<T, Failure>> + Send,
    ) -> Result<T, Failure> {
        let mut future = pin!(future);
        if thread::current().id() == self.0 {
            // None: the interpreter has ended.
            let waited = gil::held(|py| until(py, future.as_mut()));
            if let Some(result) = waited {
                return result;
            }
        }
        loop {
            if let Some(result) = within(SIGNALS, future.as_mut()) {
                return result;
            }
        }
    }
}
