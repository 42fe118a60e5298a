//! `--record` and `replay`: a join by itself has the rows that it had in its query.

use std::fs;

use crate::run::Place;

const TABLES: &str = "'trips.parquet' t";
const JOIN: &str =
    "SELECT t.id, c.name FROM 'trips.parquet' t JOIN 'cities.csv' c ON t.city = c.id";

/// The row numbers that a replay printed, and where it ran: stock, host, device.
fn ways(out: &str) -> Vec<(&str, &str, String)> {
    let lines = out.lines().skip(1);
    let each = lines.map(|line| {
        let mut words = line.split_whitespace();
        let way = words.next().unwrap();
        let rows = words.nth(1).unwrap();
        (way, rows, words.collect::<Vec<_>>().join(" "))
    });
    each.collect()
}

#[test]
fn a_recorded_join_has_the_rows_of_its_query() {
    let place = Place::with_trips();
    let queries = [
        JOIN.to_owned(),
        format!("{JOIN} AND t.id % 7 < c.id % 5"),
        format!("SELECT c.id, t.id FROM 'cities.csv' c LEFT JOIN {TABLES} ON c.id = t.id - 50"),
        format!("SELECT c.id, t.id FROM 'cities.csv' c FULL JOIN {TABLES} ON c.id = t.id - 50"),
        format!("SELECT t.id FROM {TABLES} WHERE t.city NOT IN (SELECT id FROM 'cities.csv')"),
        format!(
            "SELECT c.id FROM 'cities.csv' c WHERE EXISTS
                (SELECT 1 FROM {TABLES} WHERE t.city = c.id)"
        ),
        // Two batches, each with a dictionary of its own.
        "SELECT * FROM (SELECT value v, arrow_cast(concat('k', value), 'Dictionary(Int32, Utf8)') e
            FROM range(0, 200)) a JOIN 'cities.csv' c ON a.v = c.id"
            .to_owned(),
    ];
    for (number, query) in queries.iter().enumerate() {
        let count = format!("SELECT count(*) FROM ({query})");
        let counted = place.run(&["-q", "--format", "csv", "-c", &count]);
        let rows = counted.out.lines().nth(1).unwrap();
        let folder = format!("recorded-{number}");
        let set = "datafusion.execution.batch_size=100";
        let recorded = place.run(&["--set", set, "--record", &folder, "-c", query]);
        assert_eq!(recorded.code, Some(0), "{recorded:?}");
        assert!(recorded.out.is_empty(), "{recorded:?}");
        assert!(recorded.err.contains("recorded join 1"), "{recorded:?}");
        let options = fs::read_to_string(place.work().join(&folder).join("options.txt"));
        assert!(options.unwrap().contains(set));
        let replayed = place.run(&["replay", &folder, "--repeat", "1"]);
        assert_eq!(replayed.code, Some(0), "{query}: {replayed:?}");
        let ways = ways(&replayed.out);
        let [stock, host, device] = &ways[..] else {
            panic!("{replayed:?}");
        };
        assert_eq!([stock.0, host.0, device.0], ["stock", "host", "device"]);
        assert_eq!([stock.1, host.1, device.1], [rows; 3], "{query}");
        assert!(stock.2.contains("HashJoinExec"), "{stock:?}");
        assert!(host.2.contains("on the host"), "{host:?}");
        let is_on_device = device.2.contains("1 join on ") && !device.2.contains("the host");
        assert!(is_on_device, "{device:?}");
    }
}

/// The values of scalar subqueries come from a node above the join, which does not run.
#[test]
fn a_join_beside_a_scalar_subquery_is_recorded() {
    let place = Place::with_trips();
    let query = &format!("{JOIN} WHERE t.id > (SELECT avg(id) FROM 'cities.csv')");
    let recorded = place.run(&["--record", "recorded", "-c", query]);
    assert_eq!(recorded.code, Some(0), "{recorded:?}");
    let replayed = place.run(&["replay", "recorded", "--repeat", "1"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    // The subquery's condition is above the join.
    assert!(ways(&replayed.out).iter().all(|way| way.1 == "2000"));
}

#[test]
fn one_of_several_joins_is_chosen_by_its_number() {
    let place = Place::with_trips();
    let query = &format!("SELECT count(*) FROM ({JOIN}) a JOIN 'cities.json' b ON a.name = b.name");
    let ended = place.run(&["--record", "recorded", "-c", query]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.err.contains("choose one by --join NUMBER"),
        "{ended:?}"
    );
    assert!(ended.err.contains("\n  1: HashJoinExec") && ended.err.contains("\n  2: HashJoinExec"));
    for wrong in ["0", "3"] {
        let ended = place.run(&["--record", "recorded", "--join", wrong, "-c", query]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
    }
    let ended = place.run(&["--record", "recorded", "--join", "2", "-c", query]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(place.run(&["replay", "recorded"]).code, Some(0));
    // What is there is not written over.
    let ended = place.run(&["--record", "recorded", "--join", "1", "-c", query]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.err.contains("name a folder that is new or empty"),
        "{ended:?}"
    );
    let ended = place.run(&["--record", "none", "-c", "SELECT 1"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("no hash join"), "{ended:?}");
    let ended = place.run(&[
        "--record",
        "none",
        "-c",
        &format!("CREATE TABLE a AS {JOIN}"),
    ]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("nothing was recorded"), "{ended:?}");
}

#[test]
fn a_folder_without_a_join_says_so() {
    let place = Place::with_trips();
    let ended = place.run(&["replay", "."]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.err.contains("inputs.txt") && ended.err.contains("--record"),
        "{ended:?}"
    );
    assert_eq!(
        place.run(&["--record", "recorded", "-c", JOIN]).code,
        Some(0)
    );
    let fails_with = |name: &str| {
        let ended = place.run(&["replay", "recorded"]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.err.contains(name), "{ended:?}");
    };
    place.write("recorded/left-0.arrows", "no Arrow file");
    fails_with("left-0.arrows");
    fs::remove_file(place.work().join("recorded/left-0.arrows")).unwrap();
    fails_with("left-0.arrows");
    place.write("recorded/options.txt", "horton.enabled");
    place.write("recorded/inputs.txt", "left=0\nright=0\n");
    fails_with("options.txt");
    place.write("recorded/options.txt", "");
    place.write("recorded/join.pb", "no plan");
    fails_with("join.pb");
}
