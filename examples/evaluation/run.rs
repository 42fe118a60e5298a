//! Runs a program, and keeps what it printed.
//!
//! ```text
//!   command ─▶ child process ─ output and errors ─▶ LOG
//!                  └ exit status ─▶ 0, or a failure: the status and the last line of LOG
//! ```

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// The folder of the project's built examples. Cargo puts other programs into the one above.
pub struct Programs(PathBuf);

impl Programs {
    /// Returns the programs in `folder`.
    pub fn in_folder(folder: &Path) -> Self {
        Self(folder.to_path_buf())
    }

    /// Returns the programs beside this one.
    ///
    /// # Errors
    /// If the system does not say where this program is.
    pub fn beside_this() -> Result<Self> {
        let this = std::env::current_exe();
        let this = this.map_err(|e| format!("cannot find this program's own folder: {e}"))?;
        let folder = this.parent().ok_or("this program is in no folder")?;
        Ok(Self::in_folder(folder))
    }

    /// A command that runs the example `name`.
    ///
    /// # Errors
    /// If it is not there, with what to do.
    pub fn command(&self, name: &str) -> Result<Command> {
        let file = format!("{name}{EXE_SUFFIX}");
        let above = self.0.parent().map(|folder| folder.join(&file));
        let mut paths = [Some(self.0.join(&file)), above].into_iter().flatten();
        let found = paths.find(|path| path.is_file()).ok_or_else(|| {
            format!(
                "{name} is not in {}: build it there with 'cargo build --release -p horton-join \
                 -p horton-tables -p horton-robust --examples --bins', or copy it there",
                self.0.display()
            )
        })?;
        Ok(Command::new(found))
    }
}

/// The end of a run.
#[derive(Debug)]
pub struct Finished {
    /// The command line.
    pub command: String,
    /// Time that it ran.
    pub took: Duration,
    /// Reason of its failure, if it failed.
    pub failure: Option<String>,
}

impl Finished {
    /// Returns the end of a run that did not fail.
    pub fn well(command: String, took: Duration) -> Self {
        Self {
            command,
            took,
            failure: None,
        }
    }
}

/// Runs `command` with the file `input`; all that it prints goes to `log`.
pub fn run(mut command: Command, input: Option<&Path>, log: &Path) -> Finished {
    let begun = Instant::now();
    let failure = match wait(&mut command, input, log) {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("{status}: {}", last_line(log))),
        Err(error) => Some(format!(
            "cannot run it with the log {}: {error}",
            log.display()
        )),
    };
    Finished {
        command: command_line(&command, input),
        took: begun.elapsed(),
        failure,
    }
}

fn wait(
    command: &mut Command,
    input: Option<&Path>,
    log: &Path,
) -> io::Result<std::process::ExitStatus> {
    let out = File::create(log)?;
    let errors = out.try_clone()?;
    let input = match input {
        Some(path) => Stdio::from(File::open(path)?),
        None => Stdio::null(),
    };
    command.stdin(input).stdout(out).stderr(errors).status()
}

/// The last line of `log` with text in it.
fn last_line(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or("it printed nothing").trim().to_string()
}

/// The line that a shell runs the same by.
fn command_line(command: &Command, input: Option<&Path>) -> String {
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let mut line: Vec<String> = words.map(quoted).collect();
    if let Some(input) = input {
        line.extend(["<".to_string(), quoted(input.as_os_str())]);
    }
    line.join(" ")
}

/// `word` as a shell takes it for one word.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_beside_the_examples_or_above() {
        let folder = tempfile::tempdir().unwrap();
        let examples = folder.path().join("examples");
        fs::create_dir(&examples).unwrap();
        let programs = Programs::in_folder(&examples);
        let error = programs.command("robust").unwrap_err().to_string();
        assert!(error.starts_with("robust is not in"), "{error}");
        for place in [folder.path(), &examples] {
            let file = place.join(format!("robust{EXE_SUFFIX}"));
            fs::write(&file, "").unwrap();
            let found = programs.command("robust").unwrap();
            assert_eq!(found.get_program(), file);
        }
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        let mut command = Command::new("tpch_join");
        command.args(["--scale", "0.1", "--device", "NVIDIA H100", "it's"]);
        let line = command_line(&command, Some(Path::new("a.sql")));
        assert_eq!(
            line,
            r"tpch_join --scale 0.1 --device 'NVIDIA H100' 'it'\''s' < a.sql"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_failure_has_the_status_and_the_last_line() {
        let folder = tempfile::tempdir().unwrap();
        let (log, input) = (folder.path().join("log"), folder.path().join("input"));
        fs::write(
            &input,
            "echo first; echo 'error: no room' >&2; echo; exit 3",
        )
        .unwrap();
        let finished = run(Command::new("sh"), Some(&input), &log);
        let failure = finished.failure.unwrap();
        assert!(
            failure.contains('3') && failure.ends_with("error: no room"),
            "{failure}"
        );
        assert!(fs::read_to_string(&log).unwrap().starts_with("first\n"));

        fs::write(&input, "exit 0").unwrap();
        assert!(
            run(Command::new("sh"), Some(&input), &log)
                .failure
                .is_none()
        );
        let absent = run(Command::new("/nonexistent"), None, &log)
            .failure
            .unwrap();
        assert!(absent.contains("cannot run"), "{absent}");
    }
}
