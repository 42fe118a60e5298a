//! The exit status of a program that compares rows.
//!
//! ```text
//!  0  no difference    1  rows differ    2  an error, which standard error shows
//! ```
//!
//! A reader that has seen enough, as `head` has, is no error.

use std::io;
use std::process::ExitCode;

use crate::{Error, Result};

/// Returns the status of a program that found so many differences, or failed.
pub fn status(differences: Result<usize>) -> ExitCode {
    match differences {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether the reader of our output has seen enough.
fn is_closed_pipe(error: &Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
