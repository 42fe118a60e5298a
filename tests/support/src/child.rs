//! A test that runs itself again, in a process of its own.
//!
//! ```text
//!  test ─▶ is there ROLE? no ─▶ this program again: TEST --exact, with ROLE and other variables
//!                         yes ─▶ the test itself
//! ```

use std::ffi::OsStr;
use std::process::{Command, Output};

/// Says in a child process what it is there for.
const ROLE: &str = "HORTON_TEST_ROLE";

/// The name of a test of this module, as the test harness has it: `test_name!("a_test")`.
#[macro_export]
macro_rules! test_name {
    ($name:expr) => {
        $crate::child::name(module_path!(), $name)
    };
}

/// Returns the test `name` of the module whose path begins with the crate's name.
pub fn name(module: &str, name: &str) -> String {
    match module.split_once("::") {
        Some((_, module)) => format!("{module}::{name}"),
        None => name.to_owned(),
    }
}

/// Returns what this process is there for; `None` where it was not started by a test.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Returns the command that runs the test `test` again, as `role`. Its output is not captured.
pub fn command(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture"])
        .env(ROLE, role);
    command
}

/// Returns what a child printed; panics if it did not pass, or was no test.
pub fn passed(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "no such test: {text}");
    text
}

/// Returns whether this is the process of the test `test` alone; if it is not, runs it in one, with
/// `variables`, where it must pass.
pub fn is_child(test: &str, variables: &[(&str, &OsStr)]) -> bool {
    if role().is_some() {
        return true;
    }
    let mut command = command(test, "only");
    command.envs(variables.iter().copied());
    passed(&command.output().unwrap());
    false
}
