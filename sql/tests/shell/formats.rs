//! Rows in each format.

use crate::run::Place;

const ROWS: &str = "SELECT column1 AS n, column2 AS word FROM (VALUES (1, 'one'), (2, NULL))";

/// Returns what `--format` prints of `query`.
fn printed(format: &str, query: &str) -> String {
    let ended = Place::new().run(&["-q", "--format", format, "-c", query]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    ended.out
}

#[test]
fn each_format_is_as_its_readers_expect() {
    let table = "\
+---+------+
| n | word |
+---+------+
| 1 | one  |
| 2 | NULL |
+---+------+
";
    for (format, expected) in [
        ("csv", "n,word\n1,one\n2,\n"),
        ("tsv", "n\tword\n1\tone\n2\t\n"),
        ("json", "[{\"n\":1,\"word\":\"one\"},{\"n\":2}]\n"),
        ("nd-json", "{\"n\":1,\"word\":\"one\"}\n{\"n\":2}\n"),
        ("table", table),
        ("automatic", table),
    ] {
        assert_eq!(printed(format, ROWS), expected, "{format}");
    }
}

#[test]
fn no_rows_are_a_header_or_an_empty_array() {
    let none = format!("{ROWS} WHERE false");
    for (format, expected) in [
        ("csv", "n,word\n"),
        ("tsv", "n\tword\n"),
        ("json", "[]\n"),
        ("nd-json", ""),
        (
            "table",
            "+---+------+\n| n | word |\n+---+------+\n+---+------+\n",
        ),
    ] {
        assert_eq!(printed(format, &none), expected, "{format}");
    }
}

#[test]
fn only_tables_are_cut() {
    let place = Place::new();
    let query = "SELECT value FROM range(0, 50000)";
    let ended = place.run(&["-c", query]);
    assert_eq!(
        ended.summary(),
        ["50000 rows, 40 shown (--maxrows inf shows all)"]
    );
    // The frame's four lines, and three of dots.
    assert_eq!(ended.out.lines().count(), 40 + 7);
    let ended = place.run(&["--maxrows", "inf", "-c", query]);
    assert_eq!(ended.out.lines().count(), 50_000 + 4);
    assert_eq!(ended.summary(), ["50000 rows"]);
    let ended = place.run(&["--maxrows", "2", "-c", "SELECT value FROM range(0, 2)"]);
    assert_eq!(ended.out.lines().count(), 2 + 4);
    assert_eq!(ended.summary(), ["2 rows"]);
    let ended = place.run(&["--format", "csv", "-c", query]);
    assert_eq!(ended.out.lines().count(), 50_000 + 1);
    assert!(ended.out.ends_with("\n49999\n"));
    let ended = place.run(&["-c", "SHOW ALL"]);
    assert!(ended.out.lines().count() > 100);
    assert!(ended.out.contains("horton.min_build_rows"));
}
