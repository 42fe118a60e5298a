//! A process that exits while its driver compiles ends with its own status.
//!
//! ```text
//!  shim, compile=MS   clBuildProgram ─▶ registers a clean-up ─▶ sleeps ─▶ compiles
//!  child              exits meanwhile: the clean-up aborts if the compiler still runs
//! ```

use std::process::Output;
use std::time::{Duration, Instant};

use horton_join::device::ProgramText;
use horton_join::device::{Arg, Device, faults};

use super::child::{outcome, role};

/// The exit status of the child.
const STATUS: i32 = 7;

/// Runs this test in a child, as `role`, whose compiler takes `compile` milliseconds.
fn exits(test: &str, role: &str, compile: u64) -> (Output, Duration) {
    let cache = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let output = outcome(test, role, &format!("compile={compile}"), cache.path());
    (output, began.elapsed())
}

/// Makes a queue thread compile a program, and exits in the midst of that.
fn exit_while_compiling(timeout: u64) -> ! {
    faults::set_exit_timeout(timeout);
    faults::begin(None);
    let device = Device::open("auto").unwrap();
    let source = "__kernel void one(__global uint *out) { out[0] = 1; }";
    let text = ProgramText::new("exit", &[], &[("exit.cl", source)]);
    let job = device.run(move |queue| {
        let out = queue.allocate("test", 1)?;
        queue.launch(&text, "one", (1, 1), &[Arg::Words(&out)])
    });
    while !faults::report().last.starts_with("clBuildProgram") {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The clean-up is registered, and so is the handler that must run before it.
    std::thread::sleep(Duration::from_millis(100));
    drop(job);
    println!("exits now");
    std::process::exit(STATUS);
}

#[test]
fn an_exit_beside_a_compiler_that_hangs_ends_with_its_status() {
    let test = "exit::an_exit_beside_a_compiler_that_hangs_ends_with_its_status";
    if role().is_some() {
        exit_while_compiling(500);
    }
    let hangs = 60_000;
    let (output, took) = exits(test, "hangs", hangs);
    assert_eq!(output.status.code(), Some(STATUS), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("exits now"));
    assert!(took < Duration::from_millis(hangs) / 2, "{took:?}");
}

#[test]
fn an_exit_waits_for_a_compiler_that_is_slow() {
    let test = "exit::an_exit_waits_for_a_compiler_that_is_slow";
    if role().is_some() {
        exit_while_compiling(60_000);
    }
    let (output, _) = exits(test, "slow", 1000);
    assert_eq!(output.status.code(), Some(STATUS), "{output:?}");
}
