//! Describes the machine: what a reader must know to judge a time, and to measure it again.
//!
//! ```text
//!   /proc, /etc/os-release, uname, sysctl, git, date ─▶ (name, value) …
//!   examples/devices tells of OpenCL: a part of its own
//! ```
//!
//! What a system does not tell is "unknown". That keeps no program from being measured.

use std::env;
use std::fs;
use std::process::Command;

use horton_test_support::duckdb::{DuckDb, answer};

/// Beginnings of names of variables that change what OpenCL and Horton do.
const VARIABLES: [&str; 6] = ["OCL_", "POCL_", "CUDA_", "HORTON_", "RUSTICL_", "RUST_LOG"];

/// A name and what it is.
pub type Fact = (&'static str, String);

/// Facts of the machine and of the build; `commit` is told by whoever knows it better.
pub fn describe(commit: Option<&str>, duckdb: Option<&DuckDb>) -> Vec<Fact> {
    let known = |fact: Option<String>| fact.unwrap_or_else(|| "unknown".to_string());
    vec![
        ("date", known(date())),
        (
            "horton-join",
            format!("{}, {}", env!("CARGO_PKG_VERSION"), profile()),
        ),
        (
            "commit",
            known(commit.map(str::to_string).or_else(git_commit)),
        ),
        ("DataFusion", datafusion::DATAFUSION_VERSION.to_string()),
        (
            "DuckDB",
            duckdb.map_or("not found".to_string(), |found| found.version.clone()),
        ),
        ("CPU", known(cpu())),
        ("cores", format!("{} for this process", cores())),
        ("memory", known(memory())),
        ("system", known(system())),
        ("variables", variables()),
        ("command", command()),
    ]
}

/// Returns the command line of this program.
fn command() -> String {
    let words = env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.collect::<Vec<_>>().join(" ")
}

/// Threads of each side: DataFusion's default as well.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn date() -> Option<String> {
    answer(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))
}

fn profile() -> &'static str {
    match cfg!(debug_assertions) {
        true => "a debug build, whose times say nothing",
        false => "a release build",
    }
}

/// Returns the commit of the sources, if this runs in their folder.
fn git_commit() -> Option<String> {
    let package = fs::read_to_string("Cargo.toml").unwrap_or_default();
    if !package.contains("name = \"horton-join\"") {
        return None;
    }
    let commit = answer(Command::new("git").args(["rev-parse", "HEAD"]))?;
    let changed =
        answer(Command::new("git").args(["status", "--porcelain", "--untracked-files=no"]))
            .is_some();
    Some(match changed {
        true => format!("{commit} with changes"),
        false => commit,
    })
}

fn cpu() -> Option<String> {
    let file = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let lscpu = || run("lscpu", &[]);
    let sysctl = || answer(Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"]));
    value(&file, "model name")
        .or_else(|| value(&lscpu()?, "Model name"))
        .or_else(sysctl)
}

/// All that a program prints.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn memory() -> Option<String> {
    let file = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let sysctl = || {
        let bytes = answer(Command::new("sysctl").args(["-n", "hw.memsize"]))?;
        bytes.parse::<u64>().ok()
    };
    let bytes = kibibytes(&file).map(|kib| kib << 10).or_else(sysctl)?;
    Some(format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)))
}

/// `MemTotal` of /proc/meminfo.
fn kibibytes(meminfo: &str) -> Option<u64> {
    value(meminfo, "MemTotal")?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

fn system() -> Option<String> {
    let kernel = answer(Command::new("uname").arg("-srm"));
    let file = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let names = [release(&file), kernel];
    let names: Vec<String> = names.into_iter().flatten().collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// `PRETTY_NAME` of /etc/os-release.
fn release(text: &str) -> Option<String> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim().trim_matches('"').to_string())
}

/// The value in the first line as `name : value`.
fn value(text: &str, name: &str) -> Option<String> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    let value = pairs
        .filter(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim());
    value.map(str::to_string).next()
}

fn variables() -> String {
    let is_ours = |name: &str| VARIABLES.iter().any(|start| name.starts_with(start));
    let found = env::vars_os().filter_map(|(name, value)| {
        let name = name.to_string_lossy().into_owned();
        is_ours(&name).then(|| format!("{name}={}", value.to_string_lossy()))
    });
    let mut found: Vec<String> = found.collect();
    found.sort();
    match found.is_empty() {
        true => "none that matters here".to_string(),
        false => found.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_are_read() {
        let cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC\nprocessor\t: 1\nmodel name\t: B\n";
        assert_eq!(value(cpuinfo, "model name"), Some("AMD EPYC".to_string()));
        assert_eq!(value("", "model name"), None);
        assert_eq!(
            kibibytes("MemFree: 1 kB\nMemTotal:   1024 kB\n"),
            Some(1024)
        );
        let text = "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n";
        assert_eq!(release(text), Some("Debian GNU/Linux 12".to_string()));
    }

    #[test]
    fn nothing_is_left_out() {
        let facts = describe(Some("abc"), None);
        assert!(
            facts.iter().all(|(_, value)| !value.is_empty()),
            "{facts:?}"
        );
        assert!(facts.contains(&("commit", "abc".to_string())));
    }
}
