//! The child processes, and joins in them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Output;

use arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::{SessionConfig, SessionContext};
use horton_join::config::{HortonConfig, Knobs};
use horton_join::table::multimap::IndexKind;
use horton_test_support::child;
pub use horton_test_support::child::role;

const LIBRARY: &str = "HORTON_OPENCL_LIBRARY";
const SHIM: &str = "HORTON_SHIM";
const CACHE: &str = "HORTON_CACHE_DIR";

/// The shim, which cargo builds beside the tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libhorton_opencl_shim.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// A driver that keeps no compiled programs, as far as its name says.
pub const WITHOUT_CACHE: &str = "platform=Another";

/// Returns the variables by which a process has the driver that `shim` says.
pub fn driver(shim: &str) -> [(&'static str, OsString); 2] {
    [(LIBRARY, library().into()), (SHIM, shim.into())]
}

/// Makes PoCL offer its device twice, for tests of several.
fn devices(test: &str) -> Option<(&'static str, &'static str)> {
    let is_of_several = test.starts_with("several::");
    is_of_several.then_some(("POCL_DEVICES", "pthread pthread"))
}

/// Runs the test named `test` (with its module here) again in a child process whose driver is as
/// `shim` says.
pub fn outcome(test: &str, role: &str, shim: &str, cache: &Path) -> Output {
    child::command(&format!("drivers::{test}"), role)
        .envs(driver(shim))
        .env(CACHE, cache)
        .envs(devices(test))
        .output()
        .unwrap()
}

/// The same, which must pass. Returns what it printed.
pub fn run(test: &str, role: &str, shim: &str, cache: &Path) -> String {
    let output = outcome(test, role, shim, cache);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{role}, {shim}: {text}\n{errors}");
    assert!(text.contains("1 passed"), "{text}");
    text
}

/// The same once, with nothing remembered. Whether this is the child.
pub fn is_child(test: &str, shim: &str) -> bool {
    if role().is_none() {
        let cache = tempfile::tempdir().unwrap();
        run(test, "only", shim, cache.path());
        return false;
    }
    true
}

/// A session with two tables, whose joins all go to the device.
pub async fn session() -> SessionContext {
    session_over(IndexKind::Auto).await
}

/// The same, whose joins build indexes of this kind.
pub async fn session_over(index: IndexKind) -> SessionContext {
    let config = SessionConfig::new()
        .with_target_partitions(2)
        .with_option_extension(HortonConfig {
            knobs: Knobs {
                index,
                ..Knobs::default()
            },
            ..HortonConfig::default()
        });
    let session = horton_join::context(config);
    for statement in [
        "SET horton.enabled = 'always'",
        "CREATE TABLE city AS SELECT value * 3 AS id, 'city ' || value AS name, value % 100 AS size
           FROM range(0, 3000)",
        "CREATE TABLE trip AS SELECT value AS id, value * 7 % 12000 AS city, value % 13 AS km
           FROM range(0, 20000)",
    ] {
        sql(&session, statement).await;
    }
    session
}

/// Queries with joins of several types and keys; each gives one row of sums.
pub const QUERIES: [&str; 5] = [
    "SELECT count(*), sum(km), sum(size) FROM trip JOIN city ON trip.city = city.id",
    "SELECT count(*), sum(km), count(name) FROM trip LEFT JOIN city ON trip.city = city.id",
    "SELECT count(*), min(name), max(name) FROM city WHERE id NOT IN (SELECT city FROM trip WHERE km > 3)",
    "SELECT count(*), sum(a.km) FROM trip a JOIN trip b ON a.city = b.city AND a.km < b.km",
    "SELECT count(*), sum(km) FROM trip JOIN city ON 'city ' || (trip.city / 3) = name AND km = size",
];

/// Returns the answer of a statement as a table.
pub async fn sql(session: &SessionContext, statement: &str) -> String {
    let batches = session
        .sql(statement)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

/// Asserts that the rows of all queries are the stock joins'.
pub async fn check_rows(session: &SessionContext) {
    for query in QUERIES {
        let rows = sql(session, query).await;
        sql(session, "SET horton.enabled = 'never'").await;
        assert_eq!(rows, sql(session, query).await, "{query}");
        sql(session, "SET horton.enabled = 'always'").await;
    }
}

/// The number that a query's metrics add up to under `name`, by EXPLAIN ANALYZE.
pub async fn metric(session: &SessionContext, query: &str, name: &str) -> u64 {
    let plan = sql(session, &format!("EXPLAIN ANALYZE {query}")).await;
    let name = format!("{name}=");
    plan.split(&name)
        .skip(1)
        .map(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().unwrap_or(0)
        })
        .sum()
}
