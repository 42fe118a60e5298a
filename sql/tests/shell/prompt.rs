//! The prompt on a pseudo-terminal.
//!
//! ```text
//!  test ─ keys ─▶ pty ─▶ horton-sql
//!   ▲                        │ echo, drawn again at each key; rows; the line about joins
//!   └──── waits for text ◀───┘
//! ```
//!
//! The prompt is drawn at each key, so tests wait for what only an answer has. Keys that are
//! pressed before the prompt is there may be lost: its hint says when it is.

use std::fs;

use rexpect::process::WaitStatus;
use rexpect::session::{PtySession, spawn_command};

use crate::run::{Place, device, names};

/// Milliseconds that an answer may take.
const PATIENCE: u64 = 60_000;

/// The text at a prompt without any text.
const HINT: &str = "? for help";

const UP: &str = "\u{1b}[A";

/// Starts the program.
fn start(place: &Place, args: &[&str]) -> PtySession {
    spawn_command(place.command(args), Some(PATIENCE)).unwrap()
}

/// Waits for the prompt, and presses `keys`.
fn press(session: &mut PtySession, keys: &str) {
    session.exp_string(HINT).unwrap();
    session.send(keys).unwrap();
    session.flush().unwrap();
}

/// Types `keys` and Enter at the prompt, and waits for each of `texts`.
fn enter(session: &mut PtySession, keys: &str, texts: &[&str]) {
    press(session, &format!("{keys}\r"));
    for text in texts {
        let found = session.exp_string(text);
        found.unwrap_or_else(|error| panic!("{keys:?}: no {text:?}: {error}"));
    }
}

/// Leaves the prompt, whose exit status must be 0.
fn quit(mut session: PtySession, keys: &str) {
    press(&mut session, keys);
    session.exp_eof().unwrap();
    let status = session.process().wait().unwrap();
    assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
}

#[test]
fn statements_are_answered_and_kept_in_the_users_history() {
    let place = Place::new();
    let mut session = start(&place, &[]);
    let answer = "SELECT 41 + 1 AS answer;";
    enter(&mut session, answer, &["| 42     |", "1 row; 0."]);
    // An error ends only its statement.
    enter(
        &mut session,
        "SELECT x;",
        &["error: Schema error: No field named x"],
    );
    enter(&mut session, "SELECT 1 AS a;\u{1}", &["| 1 |", "1 row; "]);
    quit(session, "\\q\r");
    let state = place.home().join("state").join("horton-sql");
    assert_eq!(names(&state), ["history"]);
    let history = fs::read_to_string(state.join("history")).unwrap();
    let lines: Vec<&str> = history.lines().skip(1).collect();
    assert_eq!(lines, [answer, "SELECT x;", "SELECT 1 AS a;", r"\\q"]);
    assert_eq!(place.names(), [""; 0]);
    // The next session has it. Ctrl-D ends it.
    let mut session = start(&place, &[]);
    enter(&mut session, &UP.repeat(4), &["| 42     |", "1 row; "]);
    quit(session, "\u{4}");
}

#[test]
fn the_history_has_no_secrets() {
    let place = Place::new();
    let mut session = start(&place, &[]);
    let secret = "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 'nowhere.csv' \
                  OPTIONS ('aws.secret_access_key' 'hidden');";
    enter(&mut session, secret, &["error: "]);
    enter(
        &mut session,
        "SELECT 47 AS token;",
        &["| 47    |", "1 row; "],
    );
    quit(session, "\\q\r");
    let history = place.home().join("state/horton-sql/history");
    let history = fs::read_to_string(history).unwrap();
    assert!(history.contains("SELECT 47 AS token;"), "{history}");
    assert!(!history.contains("hidden"), "{history}");
}

#[test]
fn the_tab_key_completes_words_options_files_and_names() {
    let place = Place::with_trips();
    let mut session = start(&place, &["--set", "horton.enabled=always"]);
    enter(
        &mut session,
        "sel\t 43 AS answer;",
        &["| 43     |", "1 row; "],
    );
    enter(
        &mut session,
        "SET horton.min_b\t = 7; SHOW horton.min_b\t;",
        &["| horton.min_build_rows | 7     |", "1 row; "],
    );
    enter(
        &mut session,
        "CREATE EXTERNAL TABLE cities STORED AS CSV LOCATION 'citi\tc\t' \
         OPTIONS ('format.has_header' 'true');",
        &[" s\r\n"],
    );
    let joins = format!("1 row; 1 join on {}; ", device());
    enter(
        &mut session,
        "SELECT max(cities.n\t) FROM 'tri\t' t JOIN citi\t ON city = citi\t.i\t;",
        &["| city 99 ", &joins],
    );
    quit(session, "\\q\r");
}

#[test]
fn control_c_ends_the_statement_and_not_the_prompt() {
    let place = Place::new();
    let mut session = start(&place, &[]);
    let long = "SELECT count(DISTINCT value % 1000) FROM range(0, 100000000000);";
    enter(&mut session, long, &[" rows read"]);
    session.send_control('c').unwrap();
    session.exp_string("cancelled\r\n").unwrap();
    enter(
        &mut session,
        "SELECT 44 AS answer;",
        &["| 44     |", "1 row; "],
    );
    // Where nothing runs it ends the line.
    press(&mut session, "SELECT 45 AS\u{3}");
    enter(
        &mut session,
        "SELECT 46 AS answer;",
        &["| 46     |", "1 row; "],
    );
    quit(session, "\\q\r");
}

#[test]
fn commands_change_what_is_printed() {
    let place = Place::new();
    fs::write(
        place.home().join(".datafusionrc"),
        "CREATE TABLE fruit AS VALUES ('fig');\nSET datafusion.format.null = 'nil';",
    )
    .unwrap();
    place.write("more.sql", "SELECT 'of a file' AS told;");
    let mut session = start(&place, &[]);
    enter(&mut session, "SELECT NULL;", &["| nil  |"]);
    enter(&mut session, "\\d", &["fruit"]);
    enter(&mut session, "\\d fruit", &["column1"]);
    enter(&mut session, "\\i more.sql", &["| of a file |"]);
    enter(
        &mut session,
        "\\pset format csv",
        &["Output format is Csv."],
    );
    enter(
        &mut session,
        "SELECT 1 AS a, 2 AS b;",
        &["a,b\r\n1,2\r\n", "1 row; "],
    );
    enter(&mut session, "\\pset", &["format: csv"]);
    enter(&mut session, "\\quiet on", &["Quiet mode set to true"]);
    enter(&mut session, "SELECT 3 AS c;", &["c\r\n3\r\n"]);
    enter(
        &mut session,
        "\\colour red",
        &["error: there is no command \\colour red; \\? lists them"],
    );
    enter(&mut session, "\\?", &["\\q,quit"]);
    quit(session, "\\q\r");
}
