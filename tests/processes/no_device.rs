//! A machine without OpenCL: programs start, joins run on the host, and that is said once.
//!
//! Each test runs itself again in a process whose loader finds no libOpenCL: the library's name
//! is read once, so it must be in the environment before anything asks for a device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::Result;
use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use horton_join::device;
use horton_join::error::DeviceError;
use horton_test_support::plans::sorted;
use horton_test_support::text::text;
use horton_test_support::{child, test_name, warnings};

/// Names the OpenCL library to open; see the loader crate.
const LIBRARY: &str = "HORTON_OPENCL_LIBRARY";
const NOWHERE: &str = "/nowhere/libOpenCL.so.1";

/// Returns whether this process has no OpenCL; if it has, runs `test` in one that has none.
fn without_opencl(test: &str) -> bool {
    with_variable(test, LIBRARY, NOWHERE)
}

/// Returns whether `variable` is set to `value` here; if it is not, runs `test` where it is.
fn with_variable(test: &str, variable: &str, value: &str) -> bool {
    child::is_child(&test_name!(test), &[(variable, value.as_ref())])
}

/// The sorted rows of a statement.
async fn sql(session: &SessionContext, statement: &str) -> Result<Vec<String>> {
    let batches = session.sql(statement).await?.collect().await?;
    Ok(sorted(&batches))
}

async fn session(enabled: &str) -> SessionContext {
    let session = horton_join::context(SessionConfig::new().with_target_partitions(2));
    for statement in [
        "CREATE TABLE l AS VALUES (1, 'one'), (2, 'two'), (NULL, 'none'), (2, 'zwei')",
        "CREATE TABLE r AS VALUES (2, 20), (3, 30), (NULL, 0)",
        &format!("SET horton.enabled = '{enabled}'"),
    ] {
        sql(&session, statement).await.unwrap();
    }
    session
}

const INNER: &str = "SELECT l.column2, r.column2 FROM l JOIN r ON l.column1 = r.column1";

/// The plan of [`INNER`] after it ran. Before, it was known what device there is.
async fn planned_and_run(session: &SessionContext) -> String {
    let frame = session.sql(INNER).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    let error = horton_join::warm_up(session).await.unwrap_err();
    assert!(
        error.to_string().contains("no OpenCL platform found"),
        "{error}"
    );
    let batches = collect(Arc::clone(&plan), session.task_ctx()).await;
    assert_eq!(text(&batches.unwrap()).len(), 2);
    displayable(plan.as_ref()).indent(false).to_string()
}

#[tokio::test]
async fn joins_run_on_the_host_and_the_warning_comes_once() {
    if !without_opencl("joins_run_on_the_host_and_the_warning_comes_once") {
        return;
    }
    warnings::keep();
    let session = session("always").await;
    let queries: [(&str, &[&str]); 6] = [
        (INNER, &["two | 20", "zwei | 20"]),
        (
            "SELECT l.column2, r.column2 FROM l LEFT JOIN r ON l.column1 = r.column1",
            &["none | NULL", "one | NULL", "two | 20", "zwei | 20"],
        ),
        (
            "SELECT l.column2, r.column2 FROM l FULL JOIN r ON l.column1 = r.column1",
            &[
                "NULL | 0",
                "NULL | 30",
                "none | NULL",
                "one | NULL",
                "two | 20",
                "zwei | 20",
            ],
        ),
        (
            "SELECT column2 FROM l WHERE column1 IN (SELECT column1 FROM r)",
            &["two", "zwei"],
        ),
        (
            "SELECT column2 FROM r WHERE NOT EXISTS \
             (SELECT 1 FROM l WHERE l.column1 = r.column1)",
            &["0", "30"],
        ),
        (
            "SELECT column2 FROM l WHERE column1 NOT IN (SELECT column1 FROM r)",
            &[],
        ),
    ];
    for (query, rows) in queries {
        assert_eq!(sql(&session, query).await.unwrap(), rows, "{query}");
    }
    let warnings = warnings::kept();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("no OpenCL platform found"),
        "{warnings:?}"
    );
    assert!(
        warnings[0].contains("joins stay on the host"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn explain_says_why_a_join_stays_on_the_host() {
    if !without_opencl("explain_says_why_a_join_stays_on_the_host") {
        return;
    }
    for enabled in ["always", "auto"] {
        let plan = planned_and_run(&session(enabled).await).await;
        let line = plan
            .lines()
            .find(|line| line.contains("HortonJoinExec"))
            .unwrap();
        assert!(
            line.contains("rows, on the host: no device: no OpenCL platform found"),
            "{line}"
        );
        assert!(line.contains(NOWHERE), "{line}");
    }
}

/// Each plan starts a new search for a device. A join can run before that ends.
#[tokio::test]
async fn a_join_under_auto_gives_the_reason_of_the_last_try() {
    if !without_opencl("a_join_under_auto_gives_the_reason_of_the_last_try") {
        return;
    }
    let session = session("auto").await;
    horton_join::warm_up(&session).await.unwrap_err();
    for _ in 0..50 {
        let frame = session.sql(INNER).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let batches = collect(Arc::clone(&plan), session.task_ctx()).await;
        assert_eq!(text(&batches.unwrap()).len(), 2);
        let plan = displayable(plan.as_ref()).indent(false).to_string();
        assert!(plan.contains("rows, on the host: no device: "), "{plan}");
    }
}

#[tokio::test]
async fn never_says_nothing() {
    if !without_opencl("never_says_nothing") {
        return;
    }
    warnings::keep();
    let session = session("never").await;
    assert_eq!(sql(&session, INNER).await.unwrap().len(), 2);
    assert_eq!(warnings::kept(), [""; 0]);
}

#[tokio::test]
async fn a_named_device_is_no_reason_to_fail_where_there_is_none_at_all() {
    if !without_opencl("a_named_device_is_no_reason_to_fail_where_there_is_none_at_all") {
        return;
    }
    let session = session("always").await;
    sql(&session, "SET horton.device = '0:0'").await.unwrap();
    assert_eq!(sql(&session, INNER).await.unwrap().len(), 2);
}

#[test]
fn listing_devices_says_at_once_that_there_is_no_platform() {
    if !without_opencl("listing_devices_says_at_once_that_there_is_no_platform") {
        return;
    }
    let start = Instant::now();
    for _ in 0..3 {
        let error = device::list().unwrap_err();
        assert!(matches!(error, DeviceError::NoPlatform(_)), "{error}");
        assert!(error.to_string().contains(NOWHERE), "{error}");
        assert!(error.to_string().contains("apt-get install"), "{error}");
        assert!(matches!(
            device::pick("auto"),
            Err(DeviceError::NoPlatform(_))
        ));
        assert!(device::Device::open("0:0").is_err());
    }
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_loader_without_a_platform_is_as_good_as_none() {
    // The variable of both common loaders for the folder that lists the drivers.
    let test = "a_loader_without_a_platform_is_as_good_as_none";
    if !with_variable(test, "OCL_ICD_VENDORS", "/nowhere/vendors") {
        return;
    }
    let start = Instant::now();
    let error = device::list().unwrap_err();
    assert!(matches!(error, DeviceError::NoPlatform(_)), "{error}");
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    let session = session("always").await;
    assert_eq!(sql(&session, INNER).await.unwrap().len(), 2);
    let plan = planned_and_run(&session).await;
    assert!(plan.contains("rows, on the host: no device: "), "{plan}");
}
