//! Writes every OpenCL program of this crate into a folder, complete with its defines, as the
//! device layer hands them to a driver; for offline compilers (`make portability`).
//!
//! ```text
//!   cargo run -p horton-tables --example emit_kernels -- DIR
//!
//!   DIR/horton_8_local_tile.cl         for every compiler
//!   DIR/horton_8_warp_tile.nvidia.cl   with inline PTX: for NVIDIA's only
//! ```

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    let (Some(folder), None) = (args.next().map(PathBuf::from), args.next()) else {
        eprintln!("usage: emit_kernels DIR");
        return ExitCode::from(2);
    };
    match emit(&folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn emit(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, program) in horton_tables::table::programs() {
        let options = match program.options() {
            "" => String::new(),
            options => format!("// options: {options}\n"),
        };
        let text = options + program.source();
        fs::write(folder.join(format!("{name}.cl")), text)?;
    }
    Ok(())
}
