//! The program, run in a folder of its own.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A working folder and a home, which are empty at first.
pub struct Place {
    folder: TempDir,
}

/// Returns what the program printed, and its exit status.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "home"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    /// A place with trips to cities: `trips.parquet` has 3,000 rows, `cities.csv` and
    /// `cities.json` 100.
    pub fn with_trips() -> Self {
        let place = Self::new();
        let cities = "SELECT value AS id, concat('city ', value) AS name FROM range(0, 100)";
        let ended = place.run(&[
            "-q",
            "-c",
            "COPY (SELECT value AS id, value % 150 AS city FROM range(0, 3000)) TO 'trips.parquet'",
            &format!("COPY ({cities}) TO 'cities.csv' OPTIONS ('format.has_header' 'true')"),
            &format!("COPY ({cities}) TO 'cities.json'"),
        ]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        place
    }

    /// The working folder.
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Writes a file into the working folder.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.work().join(name), text).unwrap();
    }

    /// The program with `args`, not started yet.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_horton-sql"));
        command
            .args(args)
            .current_dir(self.work())
            .env("HOME", self.home())
            .env("XDG_STATE_HOME", self.home().join("state"))
            .env("TERM", "xterm")
            .env_remove("RUST_LOG");
        // Compiled kernels are kept there: compiling them again would take seconds per test.
        if let Some(cache) = dirs::cache_dir() {
            command.env("XDG_CACHE_HOME", cache);
        }
        command
    }

    /// Runs the program with `args`, and with nothing to read.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Ended {
        ended(self.command(args).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs the program with `args`, and with `text` in a pipe.
    pub fn pipe<S: AsRef<OsStr>>(&self, args: &[S], text: &str) -> Ended {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        drop(stdin);
        ended(child.wait_with_output().unwrap())
    }

    /// The names in the working folder, sorted.
    pub fn names(&self) -> Vec<String> {
        names(&self.work())
    }
}

/// The names in `folder`, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub fn ended(output: Output) -> Ended {
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Ended {
    /// The parts of the only line on standard error, but for the time, which is the last.
    pub fn summary(&self) -> Vec<&str> {
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        let mut parts: Vec<&str> = self.err.trim_end().split("; ").collect();
        let took = parts.pop().unwrap();
        let seconds = took.strip_suffix(" s").map(str::parse::<f64>);
        assert!(matches!(seconds, Some(Ok(_))), "{self:?}");
        parts
    }
}

/// The device that joins run on here.
pub fn device() -> String {
    horton_join::device::pick("auto").unwrap().name
}
