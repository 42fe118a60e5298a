//! Devices by name, options by name, and machines without OpenCL.

use std::process::Stdio;

use crate::run::{Ended, Place, device, ended};

const JOIN: &str =
    "SELECT count(*) AS n FROM range(0, 9) a JOIN range(4, 20) b ON a.value = b.value";

#[test]
fn devices_are_listed_and_tested() {
    let ended = Place::new().run(&["devices"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let auto = horton_join::device::pick("auto").unwrap().label();
    let picks = format!("* 'auto' picks {auto}");
    assert_eq!(ended.out.lines().last(), Some(picks.as_str()));
    assert!(ended.out.starts_with("Platform 0: "), "{ended:?}");
    let entry = format!("* {auto}\n");
    let (_, entry) = ended.out.split_once(&entry).unwrap();
    assert!(entry.contains("self-test       passed\n"), "{ended:?}");
}

#[test]
fn a_named_device_runs_the_joins() {
    let place = Place::new();
    let auto = horton_join::device::pick("auto").unwrap();
    let index = format!("{}:{}", auto.index.0, auto.index.1);
    for name in [&index, "auto", &auto.name] {
        let ended = place.run(&[
            "--set",
            "horton.enabled=always",
            "--device",
            name,
            "-c",
            JOIN,
        ]);
        let joins = format!("1 join on {}", device());
        assert_eq!(ended.summary(), ["1 row", &joins], "{name}");
    }
    let shown = place.run(&[
        "-q",
        "--format",
        "csv",
        "--device",
        &index,
        "-c",
        "SHOW horton.device",
    ]);
    assert_eq!(shown.out, format!("name,value\nhorton.device,{index}\n"));
}

#[test]
fn a_device_that_is_not_there_is_an_error_with_those_that_are() {
    let place = Place::new();
    let auto = horton_join::device::pick("auto").unwrap().label();
    let set = ["--set", "horton.device=nowhere's"];
    for flags in [&["--device", "nowhere's"][..], &set] {
        let failed = place.run(&[flags, &["-c", "SELECT 1"]].concat());
        assert_eq!((failed.code, failed.out.as_str()), (Some(1), ""));
        let text = "error: no OpenCL device matches 'nowhere's'; available: ";
        let available = failed.err.strip_prefix(text);
        assert!(
            available.is_some_and(|list| list.contains(&auto)),
            "{failed:?}"
        );
    }
    // Joins that use no device need none.
    let ended = place.run(&[
        "--set",
        "horton.enabled=never",
        "--device",
        "nowhere",
        "-c",
        JOIN,
    ]);
    assert_eq!(ended.code, Some(0));
}

#[test]
fn options_are_set_and_wrong_ones_reported() {
    let place = Place::new();
    let ended = place.run(&[
        "-q",
        "--format",
        "csv",
        "--set",
        "datafusion.execution.batch_size=77",
        "--set",
        "datafusion.format.null=it's = null",
        "-c",
        "SELECT name, value FROM information_schema.df_settings WHERE name IN \
         ('datafusion.execution.batch_size', 'datafusion.format.null') ORDER BY name",
    ]);
    assert_eq!(
        ended.out,
        "name,value\ndatafusion.execution.batch_size,77\ndatafusion.format.null,it's = null\n"
    );
    for (set, text) in [
        (
            "horton.colour=red",
            "there is no option horton.colour; options: enabled",
        ),
        (
            "horton.enabled=maybe",
            "expected 'auto', 'always' or 'never'",
        ),
        ("datafusion.colour=red", "\"colour\" not found"),
        ("colour=red", "'SHOW ALL' lists the options"),
    ] {
        let failed = place.run(&["--set", set, "-c", "SELECT 1"]);
        assert_eq!((failed.code, failed.out.as_str()), (Some(1), ""), "{set}");
        assert!(
            failed.err.starts_with(&format!("error: --set {set}: ")),
            "{failed:?}"
        );
        assert!(failed.err.contains(text), "{failed:?}");
    }
}

/// Runs the program where no OpenCL is.
fn without_opencl(args: &[&str]) -> Ended {
    let place = Place::new();
    let mut command = place.command(args);
    command.env("HORTON_OPENCL_LIBRARY", "/nowhere/libOpenCL.so.1");
    ended(command.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn without_opencl_joins_run_on_the_host_and_devices_fails() {
    let ended = without_opencl(&[
        "--set",
        "horton.enabled=always",
        "--format",
        "csv",
        "-c",
        JOIN,
    ]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "n\n5\n"));
    let (warning, summary) = ended.err.trim_end().split_once('\n').unwrap();
    assert!(warning.contains("joins stay on the host"), "{ended:?}");
    assert!(
        summary.starts_with("1 row; 1 join on the host (no device: no OpenCL platform found"),
        "{ended:?}"
    );
    let failed = without_opencl(&["devices"]);
    assert_eq!((failed.code, failed.out.as_str()), (Some(1), ""));
    assert!(
        failed.err.starts_with("error: no OpenCL platform found"),
        "{failed:?}"
    );
    assert!(failed.err.contains("apt-get install"), "{failed:?}");
}
