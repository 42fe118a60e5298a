//! The test files, in a workspace of their own.
//!
//! ```text
//!  <scratch>/datafusion/sqllogictest/     ◀ working directory
//!      test_files/  data/                   copied from the crate
//!  <scratch>/datafusion/core/tests/       ◀ tables that the crate lacks (data.rs)
//! ```
//!
//! Files name their tables by paths relative to DataFusion's own source tree, and write into
//! folders beside themselves. So that tree is laid out again in a temporary folder, which is
//! deleted at the end. The crate's folder is found through `cargo metadata`.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf, StripPrefixError};
use std::process::Command;

use datafusion_sqllogictest::{Filter, read_dir_recursive, should_skip_file};
use serde_json::Value;
use tempfile::TempDir;

use super::{data, tpch};

const CRATE: &str = "datafusion-sqllogictest";
const FILES: &str = "test_files";
/// The folder of the tables of range_partitioning.slt's context, in the crate's own folder.
const RANGE_TABLES: &str = "test_files/scratch_range_partitioning";

/// The file whose tables are generated.
const TPCH: &str = "tpch/tpch.slt";

/// The unpacked suite; deleted when dropped.
pub struct Suite {
    workspace: TempDir,
    source: PathBuf,
}

/// A test file of the suite.
#[derive(Debug, Clone)]
pub struct TestFile {
    /// The path, seen from the working directory.
    pub path: PathBuf,
    /// Its path in the suite.
    pub relative: PathBuf,
    /// The records to run; empty for all.
    pub records: Vec<Filter>,
}

impl TestFile {
    fn new(path: PathBuf, records: Vec<Filter>) -> Result<Self, StripPrefixError> {
        let relative = path.strip_prefix(FILES)?.to_owned();
        Ok(Self {
            path,
            relative,
            records,
        })
    }

    /// Its path in the suite, as text.
    pub fn name(&self) -> std::path::Display<'_> {
        self.relative.display()
    }
}

impl Suite {
    /// Copies the suite to a new folder and makes that the working directory.
    pub fn unpack() -> Result<Self, Box<dyn Error>> {
        let source = crate_folder()?;
        let workspace = TempDir::new()?;
        let home = workspace.path().join("datafusion/sqllogictest");
        for folder in [FILES, "data"] {
            copy_folder(&source.join(folder), &home.join(folder))?;
        }
        for (path, text) in data::tables() {
            let path = workspace.path().join("datafusion/core/tests").join(path);
            fs::create_dir_all(path.parent().unwrap_or(&path))?;
            fs::write(path, text)?;
        }
        std::env::set_current_dir(&home)?;
        Ok(Self { workspace, source })
    }

    /// Returns how paths of this run read in the files.
    pub fn paths(&self) -> Vec<(String, String)> {
        let root = fs::canonicalize(self.workspace.path())
            .unwrap_or_else(|_| self.workspace.path().to_owned());
        // Object store paths have no leading slash.
        let root = root.to_string_lossy().trim_start_matches('/').to_owned();
        // DataFusion's engine takes the crate for a member of its workspace already.
        let registry: PathBuf = self.source.iter().rev().take(2).collect();
        let member: PathBuf = registry.iter().rev().collect();
        vec![
            (root, "WORKSPACE_ROOT".to_owned()),
            (
                format!("WORKSPACE_ROOT/{}", member.display()),
                "WORKSPACE_ROOT/datafusion/sqllogictest".to_owned(),
            ),
        ]
    }

    /// The files whose path contains one of the names; without names, those with joins that
    /// find all their tables. Generates the tables of TPC-H if they are needed.
    ///
    /// # Errors
    /// A name that can only be a file's has no file.
    pub fn files(&self, names: &[String]) -> Result<Vec<TestFile>, Box<dyn Error>> {
        let mut files = match names {
            [] => files_with_joins()?,
            _ => named_files(names)?,
        };
        files.sort_by(|a, b| a.relative.cmp(&b.relative));
        if files.iter().any(|file| file.relative == Path::new(TPCH)) {
            tpch::write_tables()?;
        }
        Ok(files)
    }
}

impl Drop for Suite {
    fn drop(&mut self) {
        // Most runs leave nothing there.
        drop(fs::remove_dir_all(self.source.join(RANGE_TABLES)));
    }
}

fn files_with_joins() -> Result<Vec<TestFile>, Box<dyn Error>> {
    let (mut files, mut left_out) = (Vec::new(), 0);
    for path in read_dir_recursive(FILES)? {
        let text = text_with_includes(&path)?;
        if !is_test(&path) || !mentions_join(&text) {
            continue;
        }
        match has_tables(&text) {
            true => files.push(TestFile::new(path, Vec::new())?),
            false => left_out += 1,
        }
    }
    println!("{left_out} more files mention JOIN, but read tables that the crate does not have");
    Ok(files)
}

fn named_files(names: &[String]) -> Result<Vec<TestFile>, Box<dyn Error>> {
    // A part of other files runs alone only if it is asked for as such.
    let parts = names.iter().any(|name| name.contains(".part"));
    let mut files = Vec::new();
    for path in read_dir_recursive(FILES)? {
        let named = names_of(path.strip_prefix(FILES)?, names)?;
        if !named.is_empty() && (is_test(&path) || parts) {
            files.push(TestFile::new(path, records(&named)?)?);
        }
    }
    // `cargo test NAME` hands the name of some other test to this binary too.
    match names.iter().find(|name| name.contains(".slt")) {
        Some(name) if files.is_empty() => Err(format!("there is no file {name}").into()),
        _ => Ok(files),
    }
}

/// The names, `file` or `file:line` each, that mean a file.
fn names_of<'a>(relative: &Path, names: &'a [String]) -> Result<Vec<&'a str>, String> {
    let mut found = Vec::new();
    for name in names {
        if !should_skip_file(relative, &[name.parse()?]) {
            found.push(name.as_str());
        }
    }
    Ok(found)
}

/// The records that a file's names ask for; none if a name asks for the whole file.
fn records(named: &[&str]) -> Result<Vec<Filter>, String> {
    match named.iter().all(|name| name.contains(':')) {
        true => named.iter().map(|name| name.parse()).collect(),
        false => Ok(Vec::new()),
    }
}

fn is_test(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "slt")
}

fn mentions_join(text: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|word| word.eq_ignore_ascii_case("join"))
}

/// Returns whether all the tables are there that a file reads and does not write.
fn has_tables(text: &str) -> bool {
    tables(text).all(|table| Path::new(table).exists())
}

/// Quoted paths outside the folder of test files, and of generated TPC-H tables in it.
fn tables(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text
        .lines()
        .flat_map(|line| line.split('\'').skip(1).step_by(2));
    quoted.filter(|path| path.starts_with("../") || path.starts_with(tpch::FOLDER))
}

/// A file and those it includes, except by pattern.
fn text_with_includes(path: &Path) -> io::Result<String> {
    let mut text = fs::read_to_string(path)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let included: Vec<PathBuf> = text
        .lines()
        .filter_map(|line| line.strip_prefix("include "))
        .map(|name| folder.join(name.trim()))
        .filter(|path| path.exists())
        .collect();
    for path in included {
        text.push_str(&text_with_includes(&path)?);
    }
    Ok(text)
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    for file in read_dir_recursive(from)? {
        let copy = to.join(file.strip_prefix(from)?);
        fs::create_dir_all(copy.parent().unwrap_or(to))?;
        fs::copy(file, copy)?;
    }
    Ok(())
}

/// The folder of the crate's sources.
fn crate_folder() -> Result<PathBuf, Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    // For this platform only: other platforms' crates may not have been downloaded.
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version=1",
            "--filter-platform=host-tuple",
        ])
        .arg(concat!(
            "--manifest-path=",
            env!("CARGO_MANIFEST_DIR"),
            "/Cargo.toml"
        ))
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == CRATE)
        .and_then(|package| Path::new(package["manifest_path"].as_str()?).parent())
        .map(Path::to_owned)
        .ok_or_else(|| format!("cargo metadata knows no package {CRATE}").into())
}
