//! Files as tables, and joins of them on the device.

use crate::run::{Place, device};

/// Joins the trips with the cities of `file`; 2,000 of them have a city.
fn join(file: &str) -> String {
    format!(
        "SELECT count(*) AS n, min(name) AS first FROM 'trips.parquet' t JOIN '{file}' c ON t.city = c.id"
    )
}

/// Metric `name` of the line of `plan` that has the join.
fn metric(plan: &str, name: &str) -> usize {
    let line = plan.lines().find(|line| line.contains("HortonJoinExec"));
    let line = line.unwrap_or_else(|| panic!("no HortonJoinExec: {plan}"));
    let (_, value) = line.split_once(&format!("{name}=")).expect(line);
    let end = value.find([',', ']']).expect(line);
    value[..end].trim().parse().expect(line)
}

#[test]
fn a_join_of_a_parquet_file_runs_on_the_device() {
    let place = Place::with_trips();
    let always = ["--set", "horton.enabled=always", "--format", "csv", "-c"];
    for file in ["cities.csv", "cities.json"] {
        let ended = place.run(&[&always[..], &[&join(file)]].concat());
        assert_eq!(ended.out, "n,first\n2000,city 0\n");
        let joins = format!("1 join on {}", device());
        assert_eq!(ended.summary(), ["1 row", &joins]);
        assert_eq!(ended.code, Some(0));
    }
    let explain = format!("EXPLAIN ANALYZE {}", join("cities.csv"));
    let ended = place.run(&[&always[..], &[&explain]].concat());
    assert!(metric(&ended.out, "kernel_launches") > 0, "{ended:?}");
    assert_eq!(ended.summary()[1], format!("1 join on {}", device()));
}

#[test]
fn the_line_says_why_joins_stay_on_the_host() {
    let place = Place::with_trips();
    let few = [
        "--set",
        "horton.min_build_rows=100000",
        "--device",
        "auto",
        "-c",
        &join("cities.csv"),
    ];
    assert_eq!(
        place.run(&few).summary(),
        [
            "1 row",
            "1 join on the host (fewer than horton.min_build_rows = 100000)"
        ]
    );
    let never = ["--set", "horton.enabled=never", "-c", &join("cities.csv")];
    assert_eq!(
        place.run(&never).summary(),
        ["1 row", "1 join on the host (HashJoinExec)"]
    );
    let both = format!(
        "SELECT * FROM ({}) CROSS JOIN range(0, 3)",
        join("cities.csv")
    );
    let both = ["--set", "horton.enabled=always", "-c", &both];
    let joins = format!("2 joins: 1 on the host (CrossJoinExec), 1 on {}", device());
    assert_eq!(place.run(&both).summary(), ["3 rows", &joins]);
}

#[test]
fn joins_under_other_statements_are_seen() {
    let place = Place::with_trips();
    let joins = format!("1 join on {}", device());
    let copy = format!("COPY ({}) TO 'joined.parquet'", join("cities.csv"));
    let ended = place.run(&["--set", "horton.enabled=always", "-c", &copy]);
    assert_eq!(ended.summary(), [&joins]);
    let table = format!("CREATE TABLE joined AS {}", join("cities.csv"));
    let ended = place.run(&["--set", "horton.enabled=always", "-c", &table]);
    assert_eq!(ended.summary(), [&joins]);
    assert_eq!(ended.out, "");
    let ended = place.run(&[
        "-q",
        "--format",
        "csv",
        "-c",
        "SELECT * FROM 'joined.parquet'",
    ]);
    assert_eq!(ended.out, "n,first\n2000,city 0\n");
}

#[test]
fn external_tables_and_folders_are_tables() {
    let place = Place::with_trips();
    let script = "CREATE EXTERNAL TABLE trips STORED AS PARQUET LOCATION 'trips.parquet'; \
        CREATE EXTERNAL TABLE cities STORED AS CSV LOCATION 'cities.csv' \
            OPTIONS ('format.has_header' 'true'); \
        SELECT count(*) AS n FROM trips JOIN cities ON city = cities.id";
    let ended = place.run(&["-q", "--format", "csv", "-c", script]);
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("n\n2000\n", ""));
    let script = "COPY (SELECT 1 AS a) TO 'folder/one.parquet'; \
        COPY (SELECT 2 AS a) TO 'folder/two.parquet'; SELECT sum(a) AS sum FROM 'folder/'";
    let ended = place.run(&["-q", "--format", "csv", "-c", script]);
    assert!(ended.out.ends_with("sum\n3\n"), "{ended:?}");
}

#[test]
fn standard_input_can_be_a_table() {
    let place = Place::new();
    let script = "CREATE EXTERNAL TABLE piped STORED AS CSV LOCATION '/dev/stdin' \
        OPTIONS ('format.has_header' 'true'); SELECT sum(a) AS sum FROM piped";
    let ended = place.pipe(&["-q", "--format", "csv", "-c", script], "a\n1\n2\n");
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("sum\n3\n", ""));
}

#[test]
fn paths_are_of_the_folder_that_is_named() {
    let place = Place::with_trips();
    std::fs::rename(place.work(), place.home().join("data")).unwrap();
    std::fs::create_dir(place.work()).unwrap();
    place.write("q.sql", "SELECT count(*) AS n FROM 'trips.parquet'");
    let ended = place.run(&["-q", "--format", "csv", "-p", "../home/data", "-f", "q.sql"]);
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("n\n3000\n", ""));
}

#[test]
fn queries_keep_to_the_memory_limit() {
    let place = Place::new();
    // Rows of a string and an array of both: more than a sort may have.
    let sort = "SELECT array_agg(repeat(value::TEXT, 100)) FROM range(0, 100000)";
    let ended = place.run(&["-q", "-m", "1m", "--mem-pool-type", "fair", "-c", sort]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("Resources exhausted"), "{ended:?}");
    let ended = place.run(&["-q", "-m", "1000m", "-c", "SELECT 1"]);
    assert_eq!(ended.code, Some(0));
}
