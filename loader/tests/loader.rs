//! `ocl` through the forwarders, with and without a library. What a process loads is fixed by
//! its environment at the first call, so every case runs this test binary again as a child.

use std::process::{self, Command};
use std::ptr::null_mut;
use std::time::{Duration, Instant};
use std::{env, fs};

use horton_opencl_loader::{LIBRARY_VARIABLE, LoaderStatus, link, status};
use ocl::{core, ffi};

const CHILD: &str = "HORTON_LOADER_TEST_CHILD";
const NOWHERE: &str = "/nonexistent/libOpenCL.so.1";
const INVALID_OPERATION: i32 = -59;

/// Runs `body` in a child process, which runs only the test `name` and has `variable` set.
fn in_child(name: &str, variable: (&str, &str), body: impl FnOnce()) {
    if env::var_os(CHILD).is_some() {
        return body();
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(variable.0, variable.1)
        .env(CHILD, "1")
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("1 passed"), "no test is called {name}");
}

/// The number of platforms `ocl` sees; that there are none it must learn without its retries.
fn platforms() -> usize {
    link();
    let start = Instant::now();
    let count = core::get_platform_ids().unwrap().len();
    let elapsed = start.elapsed();
    assert!(count > 0 || elapsed < Duration::from_secs(1), "{elapsed:?}");
    count
}

#[test]
fn no_library_no_platforms() {
    let variable = (LIBRARY_VARIABLE, NOWHERE);
    in_child("no_library_no_platforms", variable, || {
        assert_eq!(platforms(), 0);
        let LoaderStatus::Missing(reasons) = status() else {
            panic!("{}", status());
        };
        assert!(reasons.contains(NOWHERE), "{reasons}");
        assert!(status().to_string().starts_with("no OpenCL library ("));
    });
}

#[test]
fn no_library_no_objects() {
    let variable = (LIBRARY_VARIABLE, NOWHERE);
    in_child("no_library_no_objects", variable, || {
        let mut errcode = 0;
        // SAFETY: without a library nothing but `errcode` is looked at, which may be null.
        let (context, kernel, flushed) = unsafe {
            (
                ffi::clCreateContext(null_mut(), 0, null_mut(), None, null_mut(), &mut errcode),
                ffi::clCreateKernel(null_mut(), null_mut(), null_mut()),
                ffi::clFlush(null_mut()),
            )
        };
        assert!(context.is_null() && kernel.is_null());
        assert_eq!((errcode, flushed), (INVALID_OPERATION, INVALID_OPERATION));
    });
}

/// A library that opens and is not OpenCL's.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn foreign_library_no_platforms() {
    let variable = (LIBRARY_VARIABLE, "libc.so.6");
    in_child("foreign_library_no_platforms", variable, || {
        assert_eq!(platforms(), 0);
        assert_eq!(*status(), LoaderStatus::Loaded("libc.so.6".into()));
    });
}

/// OpenCL's library, where it is installed, with no driver behind it.
#[test]
fn no_driver_no_platforms() {
    let vendors = env::temp_dir().join(format!("horton-no-driver-{}", process::id()));
    fs::create_dir_all(&vendors).unwrap();
    let variable = ("OCL_ICD_VENDORS", vendors.to_str().unwrap());
    in_child("no_driver_no_platforms", variable, || {
        assert_eq!(platforms(), 0);
    });
    fs::remove_dir(&vendors).unwrap();
}

/// Passes, and says so, where there is no library to compare with.
#[test]
fn library_platforms() {
    link();
    match status() {
        LoaderStatus::Missing(reasons) => println!("not tested: {reasons}"),
        LoaderStatus::Loaded(name) => assert!(platforms() >= 1, "{name}"),
    }
}
