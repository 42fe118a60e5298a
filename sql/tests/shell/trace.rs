//! `--trace`: a file of all statements, none without the flag, and errors that say what to do.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::run::Place;

const JOIN: &str = "SELECT count(*) FROM 'trips.parquet' t JOIN 'cities.csv' c ON t.city = c.id";

#[test]
fn a_trace_has_each_statement_and_no_secrets() {
    let place = Place::with_trips();
    let secret = "SET datafusion.format.null = 'password'";
    let ended = place.run(&[
        "--set",
        "horton.enabled=always",
        "--trace",
        "trace.json",
        "-c",
        JOIN,
        secret,
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let text = fs::read_to_string(place.work().join("trace.json")).unwrap();
    assert!(!text.contains("password"));
    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
    let of = |kind: &str| {
        let events = events.iter().filter(|event| event["cat"] == kind);
        let names = events.map(|event| event["name"].as_str().unwrap());
        names.collect::<BTreeSet<_>>()
    };
    assert_eq!(
        of("queries"),
        BTreeSet::from([JOIN, "a statement with a secret"])
    );
    assert!(of("horton::operator").contains("HortonJoinExec"));
    assert!(!of("kernel").is_empty());
}

#[test]
fn nothing_is_written_without_the_flag() {
    let place = Place::with_trips();
    let before = place.names();
    assert_eq!(place.run(&["-c", JOIN]).code, Some(0));
    assert_eq!(place.names(), before);
}

#[test]
fn a_trace_that_cannot_be_written_is_an_error() {
    let place = Place::new();
    for wrong in [".", "no/such/folder/trace.json", "/dev/full"] {
        let ended = place.run(&["--trace", wrong, "-c", "SELECT 1"]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.err.contains("name a file in a folder"), "{ended:?}");
    }
}
