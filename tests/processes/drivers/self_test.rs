//! Drivers that are wrong: a self-test tells, or the command's status; rows come from the host, and
//! why is said.

use std::time::Duration;

use datafusion::prelude::SessionContext;
use horton_join::device::{Device, DeviceKind, KernelBody, pick};
use horton_join::error::DeviceError;
use horton_join::self_test;
use horton_join::table::multimap::IndexKind;
use horton_test_support::internals::self_test_cache::{self, SelfTestResult};
use horton_test_support::warnings;

use super::child::{QUERIES, check_rows, is_child, metric, role, run, session, session_over, sql};

/// The plan of a join that has run says that it was on the host, and this.
async fn explains(session: &SessionContext, reason: &str) {
    let plan = sql(session, &format!("EXPLAIN ANALYZE {}", QUERIES[0])).await;
    assert!(plan.contains("rows, on the host: "), "{plan}");
    assert!(plan.contains(reason), "{reason}: {plan}");
}

/// A join meets the wrong driver first, later ones know; so do later processes.
async fn is_distrusted(reason: &str) {
    warnings::keep();
    let device = Device::open("0:0").unwrap();
    let result = self_test_cache::result(device.info());
    match role().as_deref() {
        Some("later") => assert!(
            matches!(result, Some(SelfTestResult::Failed(_))),
            "{result:?}"
        ),
        _ => assert_eq!(result, None),
    }
    let session = session().await;
    check_rows(&session).await;
    explains(&session, "on the host: no device: no usable OpenCL device").await;
    explains(&self::session().await, reason).await;
    let place = device.info().index;
    let asked = format!("SET horton.device = '{}:{}'", place.0, place.1);
    sql(&session, &asked).await;
    check_rows(&session).await;
    explains(&session, "failed its self-test: ").await;
    explains(&session, reason).await;
    assert!(matches!(pick("auto"), Err(DeviceError::NoUsableDevice(_))));
    let warnings = warnings::kept();
    let with_reason = warnings.iter().filter(|text| text.contains(reason));
    assert!((1..=2).contains(&with_reason.count()), "{warnings:?}");
}

/// Checks a process that meets the driver first, and one that has read of it.
async fn check_distrust(test: &str, shim: &str, reason: &str) {
    if role().is_some() {
        return is_distrusted(reason).await;
    }
    let cache = tempfile::tempdir().unwrap();
    for role in ["first", "later"] {
        run(test, role, shim, cache.path());
    }
}

#[tokio::test]
async fn a_driver_that_does_not_compile_is_not_used() {
    let test = "self_test::a_driver_that_does_not_compile_is_not_used";
    check_distrust(test, "refuse=fill_range", "did not compile").await;
}

#[tokio::test]
async fn a_driver_that_skips_a_kernel_is_not_used() {
    let test = "self_test::a_driver_that_skips_a_kernel_is_not_used";
    check_distrust(test, "skip=write_pairs", "distinct keys: ").await;
}

#[tokio::test]
async fn a_command_that_fails_late_gives_no_row() {
    let test = "self_test::a_command_that_fails_late_gives_no_row";
    match role().as_deref() {
        None => {
            let cache = tempfile::tempdir().unwrap();
            run(test, "right", "", cache.path());
            for kernel in ["count_pairs", "write_pairs", "lookup_direct"] {
                run(test, "wrong", &format!("fail={kernel}"), cache.path());
            }
            run(test, "wrong", "late=write_pairs", cache.path());
        }
        Some("right") => {
            let session = session().await;
            check_rows(&session).await;
            assert!(metric(&session, QUERIES[0], "kernel_launches").await > 0);
        }
        Some(_) => {
            warnings::keep();
            // The table of dense keys, on every kind of device.
            let fresh = session_over(IndexKind::Direct).await;
            // Its columns are the host's to gather: no kernel works on what the failed one has
            // left.
            let failing = QUERIES[1];
            assert!(metric(&fresh, failing, "device_errors").await > 0);
            let session = session_over(IndexKind::Direct).await;
            let rows = sql(&session, failing).await;
            sql(&session, "SET horton.enabled = 'never'").await;
            assert_eq!(rows, sql(&session, failing).await);
            sql(&session, "SET horton.enabled = 'always'").await;
            check_rows(&session).await;
            explains(&session, "on the host: device failed: ").await;
            let warnings = warnings::kept();
            let status = "CL_OUT_OF_RESOURCES";
            assert!(
                warnings.iter().any(|text| text.contains(status)),
                "{warnings:?}"
            );
        }
    }
}

/// Claims of a driver about its sub-groups are not believed. Their program does not compile here,
/// or they are too narrow.
#[tokio::test]
async fn a_driver_that_lies_about_sub_groups_uses_local_tiles() {
    let test = "self_test::a_driver_that_lies_about_sub_groups_uses_local_tiles";
    if role().is_none() {
        for (role, shim) in [
            ("lies", "gpu sub-groups=32"),
            ("narrow", "gpu sub-groups=2"),
        ] {
            let cache = tempfile::tempdir().unwrap();
            run(test, role, shim, cache.path());
        }
        return;
    }
    let device = Device::open("auto").unwrap();
    let believed = match role().as_deref() {
        Some("lies") => KernelBody::SubGroupTile,
        _ => KernelBody::LocalTile,
    };
    assert_eq!(device.info().body(), believed);
    let session = session_over(IndexKind::Horton).await;
    check_rows(&session).await;
    for query in QUERIES {
        assert!(
            metric(&session, query, "kernel_launches").await > 0,
            "{query}"
        );
        assert_eq!(metric(&session, query, "device_errors").await, 0, "{query}");
    }
    assert_eq!(device.info().body(), KernelBody::LocalTile);
}

/// Kernels whose absence need not be seen, as they rarely have anything to do.
#[cfg(debug_assertions)]
const UNSEEN: [&str; 2] = ["order_groups", "release"];

/// A self-test misses every other kernel that it launches. Where later kernels take for places what
/// was left in memory, the driver may end the process instead: no row comes of that either.
#[test]
#[cfg(debug_assertions)]
fn no_kernel_can_be_skipped_unseen() {
    use horton_test_support::internals::faults;

    use super::child::outcome;

    let test = "self_test::no_kernel_can_be_skipped_unseen";
    const KERNEL: &str = "clEnqueueNDRangeKernel ";
    let Some(role) = role() else {
        let cache = tempfile::tempdir().unwrap();
        let text = run(test, "list", "", cache.path());
        let kernels = text.lines().filter_map(|line| line.strip_prefix(KERNEL));
        let kernels: Vec<&str> = kernels.filter(|kernel| !UNSEEN.contains(kernel)).collect();
        assert!(kernels.len() > 20, "{text}");
        let mut ended = Vec::new();
        for kernel in &kernels {
            // Else a process that was right before would be believed.
            for file in std::fs::read_dir(cache.path()).unwrap() {
                let file = file.unwrap().path();
                if file
                    .extension()
                    .is_some_and(|extension| extension == "verdict")
                {
                    std::fs::remove_file(file).unwrap();
                }
            }
            let output = outcome(test, "wrong", &format!("skip={kernel}"), cache.path());
            match output.status.code() {
                Some(0) => assert!(
                    String::from_utf8_lossy(&output.stdout).contains("1 passed"),
                    "{output:?}"
                ),
                Some(_) => panic!("{kernel}: {}", String::from_utf8_lossy(&output.stderr)),
                None => ended.push(kernel),
            }
        }
        assert!(ended.len() < kernels.len() / 4, "{ended:?}");
        return;
    };
    let device = Device::open("auto").unwrap();
    faults::begin(None);
    let passed = futures::executor::block_on(self_test(&device));
    let uses = faults::end().uses;
    if role == "list" {
        passed.unwrap();
        return uses.keys().for_each(|site| println!("{site}"));
    }
    // What is left in memory may also be a count beyond all memory; it is no reason to panic.
    assert!(
        matches!(
            passed,
            Err(DeviceError::SelfTest { .. } | DeviceError::OpenCl { .. })
        ),
        "{passed:?}"
    );
    let result = self_test_cache::result(device.info());
    assert!(
        !matches!(result, Some(SelfTestResult::Passed(_))),
        "{result:?}"
    );
}

#[test]
fn what_passed_is_remembered() {
    let test = "self_test::what_passed_is_remembered";
    let Some(role) = role() else {
        let cache = tempfile::tempdir().unwrap();
        run(test, "first", "", cache.path());
        return drop(run(test, "later", "skip=write_pairs", cache.path()));
    };
    let device = Device::open("auto").unwrap();
    let result = self_test_cache::result(device.info());
    assert_eq!(result.is_some(), role == "later");
    // The later process would fail, were it tested.
    futures::executor::block_on(self_test(&device)).unwrap();
}

/// The same driver may offer a device as another kind, with other kernels: a new cache entry.
#[test]
fn what_passed_as_another_kind_is_not_believed() {
    let test = "self_test::what_passed_as_another_kind_is_not_believed";
    let Some(_) = role() else {
        let cache = tempfile::tempdir().unwrap();
        for shim in ["", "gpu", "without=cl_khr_int64_base_atomics"] {
            run(test, shim, shim, cache.path());
        }
        return;
    };
    let device = Device::open("auto").unwrap();
    let fastest = match device.info().kind {
        DeviceKind::Cpu => KernelBody::Chunk,
        _ => KernelBody::LocalTile,
    };
    assert_eq!(self_test_cache::result(device.info()), None);
    futures::executor::block_on(self_test(&device)).unwrap();
    assert_eq!(device.info().body(), fastest);
}

/// A query waits for the self-test while another is planned, and runs, on the only thread.
#[tokio::test]
async fn a_query_beside_a_self_test_ends() {
    if !is_child("self_test::a_query_beside_a_self_test_ends", "") {
        return;
    }
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(120));
        eprintln!("it hangs");
        std::process::exit(3);
    });
    let (tested, planned) = (session().await, session().await);
    sql(&planned, "SET horton.enabled = 'auto'").await;
    sql(&planned, "SET horton.min_build_rows = 1").await;
    let beside = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        sql(&planned, QUERIES[0]).await
    };
    let (rows, beside) = tokio::join!(sql(&tested, QUERIES[0]), beside);
    assert_eq!(rows, beside);
}

/// Whatever index and keys, joins launch no kernel that no self-test has launched.
#[tokio::test]
#[cfg(debug_assertions)]
async fn every_kernel_of_a_join_is_tested() {
    use std::collections::BTreeSet;

    use horton_test_support::internals::faults;

    if !is_child("self_test::every_kernel_of_a_join_is_tested", "") {
        return;
    }
    let kernels = || -> BTreeSet<String> {
        let sites = faults::end().uses.into_keys();
        sites
            .filter_map(|site| Some(site.strip_prefix("clEnqueueNDRangeKernel ")?.to_owned()))
            .collect()
    };
    let device = Device::open("auto").unwrap();
    faults::begin(None);
    self_test(&device).await.unwrap();
    let tested = kernels();
    faults::begin(None);
    let mut kinds = vec![IndexKind::Auto, IndexKind::Horton, IndexKind::Direct];
    // Joins of other devices have no such tables.
    if device.info().kind == DeviceKind::Cpu {
        kinds.push(IndexKind::CacheLine);
    }
    for index in kinds {
        let session = session_over(index).await;
        // Keys that repeat, some of them often, and keys of several words.
        sql(
            &session,
            "CREATE TABLE many AS SELECT CASE WHEN value % 4 = 0 THEN 7 ELSE value % 9000 END AS k,
               value % 9000 * 10000000000 AS far, value AS v FROM range(0, 60000)",
        )
        .await;
        for query in QUERIES.into_iter().chain([
            "SELECT count(*), sum(v) FROM many JOIN trip ON many.k = trip.id",
            "SELECT count(*), sum(v) FROM trip LEFT JOIN many ON many.far = trip.id * 10000000000",
            "SELECT count(*) FROM many WHERE EXISTS
               (SELECT 1 FROM trip WHERE trip.id = k AND trip.km = v AND trip.city = far)",
        ]) {
            sql(&session, query).await;
        }
    }
    let launched = kernels();
    assert!(launched.len() > 20, "{launched:?}");
    let untested: Vec<_> = launched.difference(&tested).collect();
    assert!(untested.is_empty(), "{untested:?}");
}
