//! Runs the same queries in DuckDB, if it is there: its Python module, or its shell.
//!
//! ```text
//!   tables, queries ─▶ a script ─▶ duckdb < SCRIPT   or   python duckdb_runner.py < SCRIPT
//!                                     └ "query q01"  "Run Time (s): real 0.012" …  ─▶ medians
//! ```
//!
//! Both get one script and print alike, so one parser reads either. It has the files, the number
//! of threads and the number of runs that the other side has. A query's rows go into a table in
//! memory, as DataFusion's go into batches. The first of its runs warms up. Nothing is installed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::median::median;

/// Times in milliseconds by the query's name.
pub type Times = BTreeMap<String, f64>;

/// The program that stands for the shell where there is only the Python module.
const RUNNER: &str = include_str!("duckdb_runner.py");

/// DuckDB as it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct DuckDb {
    /// Its version.
    pub version: String,
    /// The Python that has the module; `None` for the shell.
    python: Option<String>,
}

impl DuckDb {
    /// Looks for the module in `python`, and then for the shell.
    pub fn find(python: &str) -> Option<Self> {
        let ask = "import duckdb; print(duckdb.__version__)";
        let module = answer(Command::new(python).args(["-c", ask])).map(|version| Self {
            version: format!("{version}, {python}'s module"),
            python: Some(python.to_string()),
        });
        module.or_else(|| {
            let version = answer(Command::new("duckdb").arg("--version"))?;
            Some(Self {
                version: format!("{version}, the shell"),
                python: None,
            })
        })
    }

    /// A command that runs a script from its standard input; the runner is put into `folder`.
    ///
    /// # Errors
    /// If the runner cannot be written.
    pub fn command(&self, folder: &Path) -> Result<Command> {
        let Some(python) = &self.python else {
            return Ok(Command::new("duckdb"));
        };
        let path = folder.join("duckdb_runner.py");
        fs::write(&path, RUNNER).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        let mut command = Command::new(python);
        command.arg(path);
        Ok(command)
    }
}

/// The first line that a program prints, if it runs and does not fail.
pub fn answer(command: &mut Command) -> Option<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next().unwrap_or_default().trim().to_string();
    (output.status.success() && !line.is_empty()).then_some(line)
}

/// The queries that are to be measured.
#[derive(Debug)]
pub struct Task<'a> {
    /// A folder of tables and of queries.
    pub folder: &'a Path,
    /// True if tables are read into memory first.
    pub in_memory: bool,
    /// Threads of DuckDB.
    pub threads: usize,
    /// Timed runs of a query.
    pub repeat: usize,
}

impl Task<'_> {
    /// The script, and the names of its queries.
    ///
    /// # Errors
    /// Names the folder or file that cannot be read.
    pub fn script(&self) -> Result<(String, Vec<String>)> {
        let kind = if self.in_memory { "table" } else { "view" };
        // The shell prints the time of a statement that fails, too: it must stop there.
        let mut script = format!(".bail on\nset threads = {};\n", self.threads);
        for path in entries(&self.folder.join("tables"))? {
            let name = stem(&path);
            let files = match path.is_dir() {
                true => path.join("*.parquet"),
                false => path,
            };
            let files = files.display().to_string().replace('\'', "''");
            script += &format!("create {kind} {name} as select * from '{files}';\n");
        }
        script += ".timer on\n";
        let mut names = vec![];
        for path in entries(&self.folder.join("queries"))? {
            let text = fs::read_to_string(&path);
            let text = text.map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            let run = format!(
                "create or replace temp table answer as {};\n",
                one_line(&text)
            );
            script += &format!(".print query {}\n", stem(&path));
            script += &run.repeat(self.repeat + 1);
            names.push(stem(&path));
        }
        Ok((script, names))
    }

    /// Medians of the queries whose runs were all `printed`.
    pub fn times(&self, printed: &str) -> Times {
        let mut queries: Vec<(&str, Vec<f64>)> = vec![];
        for line in printed.lines() {
            if let Some(name) = line.strip_prefix("query ") {
                queries.push((name.trim(), vec![]));
            } else if let (Some(seconds), Some((_, runs))) = (seconds(line), queries.last_mut()) {
                runs.push(seconds);
            }
        }
        let complete = queries
            .iter()
            .filter(|(_, runs)| runs.len() == self.repeat + 1);
        let medians = complete.filter_map(|(name, runs)| {
            let median = median(runs.iter().skip(1).copied())?;
            Some((name.to_string(), median * 1e3))
        });
        medians.collect()
    }
}

/// The time in a line as `Run Time (s): real 0.012 user 0.020 sys 0.001`.
fn seconds(line: &str) -> Option<f64> {
    let rest = line.strip_prefix("Run Time (s): real ")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// A query's text without comments, on one line.
fn one_line(text: &str) -> String {
    let code = text
        .lines()
        .map(|line| line.split("--").next().unwrap_or_default().trim());
    let code: Vec<&str> = code.filter(|line| !line.is_empty()).collect();
    code.join(" ").trim_end_matches(';').to_string()
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let describe = |e| format!("cannot read {}: {e}", folder.display());
    let entries = fs::read_dir(folder).map_err(describe)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> = paths.collect::<Result<_, _>>().map_err(describe)?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(folder: &Path, in_memory: bool) -> Task<'_> {
        Task {
            folder,
            in_memory,
            threads: 3,
            repeat: 2,
        }
    }

    #[test]
    fn scripts_have_a_statement_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir_all(folder.join("tables/x")).unwrap();
        fs::create_dir(folder.join("queries")).unwrap();
        fs::write(folder.join("tables/part.parquet"), "").unwrap();
        fs::write(
            folder.join("queries/q1.sql"),
            "-- one\nselect 1 -- a\n  from x;\n",
        )
        .unwrap();
        let (script, names) = task(folder, true).script().unwrap();
        let lines: Vec<&str> = script.lines().collect();
        let run = "create or replace temp table answer as select 1 from x;";
        assert_eq!(lines[..2], [".bail on", "set threads = 3;"]);
        assert!(lines[2].starts_with("create table part as ") && lines[2].contains("part.parquet"));
        assert!(lines[3].ends_with("/tables/x/*.parquet';"), "{}", lines[3]);
        assert_eq!(lines[4..], [".timer on", ".print query q1", run, run, run]);
        assert_eq!(names, ["q1"]);
        let (script, _) = task(folder, false).script().unwrap();
        assert!(script.contains("create view part as"));
        let absent = task(&folder.join("absent"), true).script().unwrap_err();
        assert!(absent.to_string().contains("absent"));
    }

    #[test]
    fn medians_leave_out_the_first_run_and_queries_that_failed() {
        let printed = "Run Time (s): real 9 user 1\nquery q1\n\
            Run Time (s): real 5.0 user 0.1 sys 0.1\nRun Time (s): real 0.010 user 0.1\n\
            Run Time (s): real 0.020\nquery q2\nRun Time (s): real 1.0\nBinder Error: x\n";
        let times = task(Path::new(""), true).times(printed);
        assert_eq!(times.len(), 1);
        assert!((times["q1"] - 15.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        assert_eq!(answer(&mut Command::new("/nonexistent/python")), None);
        assert_eq!(
            answer(Command::new("sh").args(["-c", "echo 1; exit 1"])),
            None
        );
    }
}
