//! A program in a process of its own, and its log.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The longest that anything here takes, on a machine that others use, too.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Lines of a log that are shown when a test fails.
const SHOWN_LINES: usize = 60;

/// Returns once `holds`, and fails the test if that takes too long.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited too long for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A running program. It is killed when this is dropped.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, whose output goes to a log in `dir`.
    pub fn start(name: &str, command: &mut Command, dir: &Path) -> Self {
        let log = dir.join(format!("{name}.log"));
        let file = File::create(&log).unwrap();
        let errors = file.try_clone().unwrap();
        let command = command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = command.spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        Self {
            name: name.to_owned(),
            child,
            log,
        }
    }

    /// Returns what it has written so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Returns how it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        wait_until(&self.name.clone(), || self.ended().is_some());
        self.child.wait().unwrap()
    }

    /// Kills it with a signal that it cannot handle.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
            eprintln!("---- {} ----\n{}", self.name, shown.join("\n"));
        }
    }
}
