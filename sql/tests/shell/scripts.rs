//! Statements of files and pipes, up to the first that fails.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{Ended, Place, ended};

const CSV: [&str; 3] = ["-q", "--format", "csv"];

fn run(place: &Place, args: &[&str]) -> Ended {
    place.run(&[&CSV[..], args].concat())
}

#[test]
fn a_file_ends_at_the_first_statement_that_fails() {
    let place = Place::new();
    place.write(
        "script.sql",
        "-- a comment; with a semicolon\nSELECT 1 AS a;\n\nSELECT b\n FROM nowhere;\nSELECT 3 AS c;\n",
    );
    let failed = run(&place, &["-f", "script.sql", "-c", "SELECT 4 AS d"]);
    assert_eq!(failed.code, Some(1));
    assert_eq!(failed.out, "a\n1\n");
    let (at, text) = failed.err.split_once("script.sql:4: ").unwrap();
    assert!(at.starts_with("error: "), "{failed:?}");
    assert!(
        text.contains("nowhere' not found; SHOW TABLES lists the tables"),
        "{failed:?}"
    );
}

#[test]
fn a_statement_of_the_command_line_that_fails_is_reported() {
    let place = Place::new();
    let failed = run(&place, &["-c", "SELECT 1 AS a; SELECT x", "-c", "SELECT 2"]);
    assert_eq!(failed.code, Some(1));
    assert_eq!(failed.out, "a\n1\n");
    assert!(
        failed
            .err
            .starts_with("error: Schema error: No field named x")
    );
    let failed = run(&place, &["-c", "SELEC 1"]);
    assert!(
        failed
            .err
            .starts_with("error: sql parser error: Expected: an SQL statement, found: SELEC"),
        "{failed:?}"
    );
    for wrong in ["SELEC 1", "SELECT 1 / 0", "SELECT 'no end"] {
        let failed = run(&place, &["-c", wrong]);
        assert_eq!((failed.code, failed.out.as_str()), (Some(1), ""), "{wrong}");
        assert!(failed.err.starts_with("error: "), "{failed:?}");
    }
}

#[test]
fn files_are_arguments_and_statements_begin_with_comments() {
    let place = Place::new();
    place.write("script.sql", "SELECT 1 AS a");
    let text = "-- two\nSELECT 2 AS b";
    let both = run(&place, &["script.sql", "-c", text]);
    assert_eq!((both.code, both.out.as_str()), (Some(0), "a\n1\nb\n2\n"));
    let wrong = place.run(&["nowhere.sql"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("No such file"), "{wrong:?}");
}

#[test]
fn a_script_of_several_files_and_commands_keeps_its_session() {
    let place = Place::new();
    place.write(
        "one.sql",
        "#!/usr/bin/env -S horton-sql -f\nCREATE TABLE t AS VALUES (1);",
    );
    place.write("two.sql", "INSERT INTO t VALUES (41)");
    let ended = run(
        &place,
        &[
            "-f",
            "one.sql",
            "two.sql",
            "-c",
            "SELECT sum(column1) AS s FROM t;",
        ],
    );
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    assert_eq!(ended.out, "count\n1\ns\n42\n");
}

#[test]
fn a_pipe_is_a_script() {
    let place = Place::new();
    let ended = place.pipe(&CSV, "SELECT 1 AS a;\nSELECT ';' AS b;\n");
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    assert_eq!(ended.out, "a\n1\nb\n;\n");
    let failed = place.pipe(&CSV, "SELECT 1 AS a;\nSELECT x;\nSELECT 2");
    assert_eq!((failed.code, failed.out.as_str()), (Some(1), "a\n1\n"));
    assert!(
        failed.err.starts_with("error: standard input:2: "),
        "{failed:?}"
    );
    let ended = place.pipe(&CSV, "");
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""));
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn files_and_flags_that_are_wrong_are_reported_before_anything_runs() {
    let place = Place::new();
    let cases: [(&[&str], &str); 6] = [
        (&["-c", "SELECT 1", "-f", "nowhere.sql"], "No such file"),
        (&["-c", "SELECT 1", "-p", "nowhere"], "No such file"),
        (&["-c", "SELECT 1", "-f", "."], "is a folder"),
        (&["-c", "SELECT 1", "--format", "xml"], "nd-json"),
        (&["-c", "SELECT 1", "-m", "lots"], "such as 500m or 10g"),
        (&["-c", "SELECT 1", "--set", "horton.enabled"], "NAME=VALUE"),
    ];
    for (args, text) in cases {
        let failed = place.run(args);
        assert_eq!(
            (failed.code, failed.out.as_str()),
            (Some(2), ""),
            "{args:?}"
        );
        assert!(failed.err.contains(text), "{failed:?}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_program_silently() {
    let place = Place::new();
    let query = "SELECT value FROM range(0, 100000000)";
    let mut child = place
        .command(&["-q", "--format", "csv", "-c", query])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "value\n");
    drop(reader);
    let ended = ended(child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.err.as_str()), (Some(141), ""));
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_a_program_that_waits_for_a_pipe() {
    use std::os::unix::process::ExitStatusExt;

    let place = Place::new();
    let mut command = place.command(&["-q"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    interrupt(child.id());
    assert_eq!(child.wait().unwrap().signal(), Some(2));
}

/// DataFusion's own join makes all pairs of a batch before it yields.
#[cfg(unix)]
#[test]
fn an_interrupt_ends_a_join_that_does_not_yield() {
    let place = Place::new();
    let pairs = "SELECT 0 AS ready; SELECT count(*), sum(a.v * b.v) \
                 FROM (SELECT 1 AS k, value AS v FROM range(0, 300000)) a \
                 JOIN (SELECT 1 AS k, value AS v FROM range(0, 300000)) b ON a.k = b.k";
    for enabled in ["auto", "always", "never"] {
        let option = format!("horton.enabled={enabled}");
        let mut child = place
            .command(&["-q", "--format", "csv", "--set", &option, "-c", pairs])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        reader.read_line(&mut String::new()).unwrap();
        std::thread::sleep(Duration::from_secs(1));
        let began = Instant::now();
        interrupt(child.id());
        let ended = ended(child.wait_with_output().unwrap());
        let took = began.elapsed();
        assert_eq!(ended.code, Some(130), "{enabled}: {ended:?}");
        assert!(took < Duration::from_secs(2), "{enabled}: {took:?}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_script() {
    let place = Place::new();
    place.write(
        "long.sql",
        "SELECT 1 AS a; SELECT count(DISTINCT value) FROM range(0, 100000000000); SELECT 2 AS b",
    );
    let mut child = place
        .command(&["-q", "--format", "csv", "-f", "long.sql"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The first statement is over.
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    interrupt(child.id());
    let mut rest = String::new();
    reader.read_line(&mut rest).unwrap();
    let ended = ended(child.wait_with_output().unwrap());
    assert_eq!((line.as_str(), rest.as_str()), ("a\n", "1\n"));
    assert_eq!((ended.code, ended.err.as_str()), (Some(130), ""));
}

/// DataFusion's own join keeps the only worker of the runtime busy until it has ended.
#[cfg(unix)]
#[test]
fn an_interrupt_is_heard_while_all_workers_are_busy() {
    let place = Place::new();
    place.write(
        "long.sql",
        "CREATE TABLE a AS SELECT 1 AS k, value AS v FROM range(0, 100000); SELECT 1 AS made; \
         SELECT count(*), sum(a.v * b.v) FROM a JOIN a b ON a.k = b.k",
    );
    let mut child = place
        .command(&[
            "-q",
            "--format",
            "csv",
            "--set",
            "horton.enabled=never",
            "-f",
            "long.sql",
        ])
        .env("TOKIO_WORKER_THREADS", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let pressed = Instant::now();
    interrupt(child.id());
    let code = child.wait().unwrap().code();
    let took = pressed.elapsed();
    assert_eq!((line.as_str(), code), ("made\n", Some(130)));
    // The join takes minutes in a debug build.
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[cfg(unix)]
fn interrupt(process: u32) {
    let mut kill = Command::new("kill");
    let sent = kill.args(["-INT", &process.to_string()]).status();
    assert!(sent.unwrap().success());
}
