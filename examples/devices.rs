//! Lists the OpenCL platforms and devices of this machine. Of each it says what it supports,
//! whether joins can run there and give right answers, and with which kernels. Each is tested once.
//! One is marked: the one that `horton.device = 'auto'` means.
//!
//! ```text
//!   cargo run --example devices
//!
//!   Platform 0: <name>
//!   * 0:0 <device>             the * marks what 'auto' picks
//!         accepted   yes | no: <reason>
//!         self-test  passed | failed: <reason>
//! ```
//!
//! Exit status: 0 if there is a device to pick, else 1, with what to install.

use std::io::{self, Write};
use std::process::ExitCode;

use horton_join::report_devices;

#[tokio::main]
async fn main() -> ExitCode {
    let report = match report_devices().await {
        Ok(report) => report,
        Err(error) => return failed(&error),
    };
    if write!(io::stdout(), "{report}").is_err() {
        // The reader of our output has seen enough.
        return ExitCode::FAILURE;
    }
    match report.auto() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => failed(error),
    }
}

fn failed(error: &horton_join::error::DeviceError) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}
