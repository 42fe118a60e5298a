//! Joins whose device fails: at every OpenCL call, at its first, middle and last use.
//!
//! ```text
//!  learn   a case on a device opened again ─▶ uses of every site, in build and in probe
//!  sweep   site × phase × first, middle, last × fallback, error ─▶ the same case again
//!            fallback   exactly the stock join's rows; the next join does not ask the device
//!            error      the device's error, unless the call was one that nothing depends on
//!  hang    a call of each function does not return ─▶ the stock join's rows, once its time is over
//!  beside      a thread loses the context ─▶ jobs beside it fail
//!  reserved    after a build that failed ─▶ as much of the memory pool as without a device
//!  simulated   calls and commands fail, or hang, by a seed (tests/driver) ─▶ the same
//! ```
//!
//! The fault layer is one for the process and exists in debug builds only; so the tests here run
//! one at a time, those that need caches or counts of their own in a child process.

mod beside;
mod cancel;
mod cases;
mod hang;
mod listing;
mod outcome;
mod reserved;
mod session;
mod simulated;
mod sites;
mod sweep;
mod watch;
