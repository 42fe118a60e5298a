//! Checks of this project's source that no linter of the language makes.
//!
//! `cargo run -p horton-lint -- modules` checks the imports; `modules --draw` draws them anew.

use std::path::Path;
use std::process::ExitCode;
use std::{env, io};

mod modules;

const USAGE: &str = "usage: horton-lint modules [--draw]";

fn main() -> io::Result<ExitCode> {
    // Read at run time: a checkout elsewhere may have built this program.
    let here = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| "scripts/lint".into());
    let root = Path::new(&here).join("../..");
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_well = match arguments[..] {
        ["modules"] => modules::run(&root, false)?,
        ["modules", "--draw"] => modules::run(&root, true)?,
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
