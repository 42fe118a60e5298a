//! The GIL, taken by a C callback.
//!
//! ```text
//!  Python ─▶ PyO3: frame.to_arrow ─▶ pyarrow, lets go of the GIL ─▶ C: get_next ─▶ held ─▶ Python
//!            counts 1 entry           PyO3 does not see this                       asks CPython
//! ```
//!
//! `Python::attach` believes PyO3's count. Here it would believe that the GIL is held, and the
//! process would end. CPython's own call is right for any stack.

#![allow(unsafe_code)]

use pyo3::{Python, ffi};

struct Ensured(ffi::PyGILState_STATE);

impl Drop for Ensured {
    fn drop(&mut self) {
        // SAFETY: it is the state of the one `PyGILState_Ensure` that made this guard, in this
        // thread, as raw states are not `Send`-ed: the guard lives in `held` alone.
        unsafe { ffi::PyGILState_Release(self.0) }
    }
}

/// Runs `work` with the GIL, which this thread may hold already; `None` where Python has ended.
pub fn held<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // SAFETY: may be called at any time.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        return None;
    }
    // SAFETY: Python is there, and this may be called with the GIL as well as without.
    let ensured = Ensured(unsafe { ffi::PyGILState_Ensure() });
    // SAFETY: the line above took the GIL, and the guard keeps it for longer than the token lives.
    let done = work(unsafe { Python::assume_attached() });
    drop(ensured);
    Some(done)
}
