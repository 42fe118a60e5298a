//! A trace of a join on a device, as Perfetto will read it. Its slices are held against each other.
//!
//! ```text
//!  query ──────────────────────────────────────────── in row "queries"
//!    threads   operator ─ join ─ gather, encode, emit    nested
//!    waits     upload, table, lookup                     in rows of their own
//!    devices   upload, kernel, download                  within the jobs of their threads
//! ```
//!
//! A binary of its own: a process has one trace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use datafusion::prelude::{SessionConfig, SessionContext};
use horton_trace::{Error, planned, query, traced, with_trace};
use serde_json::Value;

/// A slice of the file, in nanoseconds.
#[derive(Debug, Clone)]
struct Slice {
    /// Process and thread.
    row: (u64, u64),
    kind: String,
    name: String,
    begin: i64,
    end: i64,
}

impl Slice {
    fn contains(&self, other: &Slice) -> bool {
        self.begin <= other.begin && other.end <= self.end
    }
}

fn nanos(event: &Value, field: &str) -> i64 {
    (event[field].as_f64().unwrap() * 1e3).round() as i64
}

/// The slices of the file at `path`: those of threads, and those of rows of their own.
fn slices(path: &Path) -> (Vec<Slice>, Vec<Slice>) {
    let events: Vec<Value> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let (mut threads, mut own, mut open) = (vec![], vec![], BTreeMap::new());
    for event in &events {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let number = |field: &str| event[field].as_u64().unwrap_or_default();
        let mut slice = Slice {
            row: (number("pid"), number("tid")),
            kind: text("cat"),
            name: text("name"),
            begin: 0,
            end: 0,
        };
        match text("ph").as_str() {
            "X" => {
                slice.begin = nanos(event, "ts");
                slice.end = slice.begin + nanos(event, "dur");
                threads.push(slice);
            }
            "b" => drop(open.insert((text("cat"), number("id")), nanos(event, "ts"))),
            "e" => {
                slice.begin = open.remove(&(text("cat"), number("id"))).unwrap();
                slice.end = nanos(event, "ts");
                own.push(slice);
            }
            phase => assert_eq!(phase, "M"),
        }
    }
    assert!(open.is_empty());
    (threads, own)
}

/// Checks that slices of one row contain each other, or do not meet.
fn check_nested(slices: &[Slice]) {
    let mut rows: BTreeMap<_, Vec<&Slice>> = BTreeMap::new();
    for slice in slices {
        rows.entry(slice.row).or_default().push(slice);
    }
    for row in rows.values_mut() {
        row.sort_by_key(|slice| (slice.begin, -slice.end));
        let mut open: Vec<&Slice> = vec![];
        for slice in row {
            while open.pop_if(|last| last.end <= slice.begin).is_some() {}
            let is_nested = open.last().is_none_or(|last| last.contains(slice));
            assert!(is_nested, "{slice:?} crosses {:?}", open.last());
            open.push(slice);
        }
    }
}

const SQL: &str = "SELECT a.value % 7 AS k, count(*), max(b.v) FROM range(0, 50000) a
    JOIN (SELECT value, concat('v', value) AS v FROM range(100, 3000)) b ON a.value = b.value
    WHERE a.value > 10 GROUP BY k ORDER BY k";

async fn run(session: &SessionContext) -> usize {
    let rows = planned(session.sql(SQL)).await.unwrap().collect();
    let rows = rows.await.unwrap();
    rows.iter().map(|batch| batch.num_rows()).sum()
}

/// A session whose joins are all on the device.
async fn on_device() -> SessionContext {
    let session = horton_join::context(SessionConfig::new().with_target_partitions(2));
    let set = session.sql("SET horton.enabled = 'always'").await.unwrap();
    set.collect().await.unwrap();
    session
}

/// One test, as a process has one trace.
#[test]
fn a_trace_has_host_and_device_and_nothing_is_traced_without() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    for wrong in [folder.path(), Path::new("/nowhere/trace.json")] {
        let error = with_trace(Some(wrong), || Ok::<_, Error>(())).unwrap_err();
        assert!(
            error.to_string().contains("name a file in a folder"),
            "{error}"
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).build().unwrap();
    let session = runtime.block_on(on_device());
    // Without a trace, a session stays as it is, and no span is made.
    let rules = |session: &SessionContext| session.state().physical_optimizers().len();
    assert_eq!(rules(&traced(&session)), rules(&session));
    assert!(query("none").is_disabled());
    assert_eq!(runtime.block_on(run(&session)), 7);

    let traced_runs = || {
        runtime.block_on(async {
            let session = traced(&session);
            for name in ["first", "second"] {
                let _shown = query(name);
                assert_eq!(run(&session).await, 7);
            }
        });
        Ok::<_, Error>(())
    };
    with_trace(Some(&file), traced_runs).unwrap();
    // What comes later is not in the file.
    let written = fs::metadata(&file).unwrap().len();
    assert_eq!(runtime.block_on(run(&session)), 7);
    assert_eq!(fs::metadata(&file).unwrap().len(), written);
    check(&file);
}

/// Checks what the file shows of two queries.
fn check(file: &Path) {
    let (threads, own) = slices(file);
    let names: BTreeSet<&str> = threads.iter().map(|slice| slice.name.as_str()).collect();
    for name in [
        "plan",
        "start join",
        "prepare join",
        "read input",
        "evaluate keys",
        "encode keys",
        "gather chunk",
        "gather columns",
        "emit",
        "job",
        "HortonJoinExec",
        "AggregateExec",
        "FilterExec",
    ] {
        assert!(names.contains(name), "no {name}: {names:?}");
    }
    assert!(threads.iter().chain(&own).all(|s| s.begin <= s.end));
    check_nested(&threads);

    let (queries, waits): (Vec<_>, Vec<_>) = own.iter().partition(|s| s.kind == "queries");
    assert_eq!(queries.len(), 2);
    assert!(queries[0].name == "first" && queries[0].end <= queries[1].begin);
    for query in &queries {
        let is_lookup = |wait: &&&Slice| wait.name == "wait for lookup" && query.contains(wait);
        assert!(waits.iter().any(|wait| is_lookup(&wait)), "{waits:?}");
    }

    let (devices, host): (Vec<_>, Vec<_>) = threads.iter().partition(|slice| slice.row.0 == 2);
    let kinds: BTreeSet<&str> = devices.iter().map(|slice| slice.kind.as_str()).collect();
    assert_eq!(kinds, BTreeSet::from(["download", "kernel", "upload"]));
    for command in devices {
        let is_of_job = |s: &&&Slice| s.name == "job" && s.row.1 == command.row.1;
        let mut jobs = host.iter().filter(is_of_job);
        assert!(jobs.any(|job| job.contains(command)), "{command:?}");
        assert!(queries.iter().any(|query| query.contains(command)));
    }
}
