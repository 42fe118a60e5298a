//! Checks of this project's source that no linter of the language makes.
//!
//! `cargo run -p horton-lint -- modules` checks the imports; `modules --draw` draws them again.
//! `cargo run -p horton-lint -- words` checks comments, and sentences and links in Markdown.
//! `cargo run -p horton-lint -- awaits` checks what is changed before an await.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs, io};

mod awaits;
mod english;
mod links;
mod modules;
mod words;

const USAGE: &str = "usage: horton-lint modules [--draw] | words | awaits";

/// Returns the paths of the files below `root` that git tracks and that are there.
fn tracked(root: &Path) -> io::Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("git ls-files: {reason}")));
    }
    let files = String::from_utf8_lossy(&output.stdout);
    let files = files.split_terminator('\0').map(str::to_owned);
    Ok(files.filter(|file| root.join(file).is_file()).collect())
}

/// Prints comments and pages that are hard to read and links that lead nowhere, below `root`.
/// Returns whether there are none.
fn check_words(root: &Path) -> io::Result<bool> {
    let mut files = links::Files::new();
    let mut found = Vec::new();
    for file in tracked(root)? {
        let is_page = file.ends_with(".md");
        if !is_page && !words::is_checked(&file) {
            files.insert(file, None);
            continue;
        }
        let text = fs::read_to_string(root.join(&file))?;
        found.extend(words::findings(&file, &text));
        found.extend(english::findings(&file, &text));
        files.insert(file, is_page.then_some(text));
    }
    found.extend(files.keys().flat_map(|file| links::findings(&files, file)));
    found.iter().for_each(|finding| println!("{finding}"));
    Ok(found.is_empty())
}

/// Prints where shared state is changed before an await, below `root`. Returns whether there is no
/// such place.
fn check_awaits(root: &Path) -> io::Result<bool> {
    let mut found = Vec::new();
    for file in tracked(root)?
        .iter()
        .filter(|file| awaits::is_checked(file))
    {
        let text = fs::read_to_string(root.join(file))?;
        found.extend(awaits::findings(file, &text).map_err(io::Error::other)?);
    }
    found.iter().for_each(|finding| println!("{finding}"));
    Ok(found.is_empty())
}

fn main() -> io::Result<ExitCode> {
    // Read at run time: a checkout elsewhere may have built this program.
    let here = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| "scripts/lint".into());
    let root = Path::new(&here).join("../..");
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_well = match arguments[..] {
        ["modules"] => modules::run(&root, false)?,
        ["modules", "--draw"] => modules::run(&root, true)?,
        ["words"] => check_words(&root)?,
        ["awaits"] => check_awaits(&root)?,
        _ => {
            eprintln!("{USAGE}");
            return Ok(ExitCode::FAILURE);
        }
    };
    Ok(if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
