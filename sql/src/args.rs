//! Flags: those of `datafusion-cli`, and where joins run.
//!
//! ```text
//!  horton-sql [FILE]… [-c SQL]… [-f FILE]… [--format F] [--device NAME] [--set NAME=VALUE]…
//!  horton-sql … --record FOLDER [--join NUMBER]
//!  horton-sql replay FOLDER [--repeat TIMES] [--device NAME] [--set NAME=VALUE]…
//!  horton-sql devices
//! ```

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use datafusion_cli::pool_type::PoolType;
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::MaxRows;

/// An SQL shell on files and object stores whose hash joins run on OpenCL devices.
///
/// Files are tables: horton-sql -c "SELECT count(*) FROM 'trips.parquet'"
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Command to run instead of statements.
    #[command(subcommand)]
    pub task: Option<Task>,

    /// Run the statements of these files and exit, as with -f
    #[arg(value_name = "FILE", value_parser = file)]
    pub scripts: Vec<PathBuf>,

    /// Run these statements and exit, after those of files
    #[arg(short, long, num_args = 1.., value_name = "SQL")]
    pub command: Vec<String>,

    /// Run the statements of these files and exit
    #[arg(short, long, num_args = 1.., value_name = "FILE", value_parser = file)]
    pub file: Vec<PathBuf>,

    /// Run these files before the prompt, instead of ~/.datafusionrc
    #[arg(short, long, num_args = 0.., value_name = "FILE", value_parser = file)]
    pub rc: Option<Vec<PathBuf>>,

    /// Run joins on this device, and wait until it is ready: part of a name, PLATFORM:INDEX, auto
    /// or all
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,

    /// Set an option, such as horton.enabled=always; SHOW ALL lists them
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,

    /// Format of the rows; automatic is table
    #[arg(long, value_enum, default_value_t = PrintFormat::Automatic, hide_default_value = true)]
    pub format: PrintFormat,

    /// Rows of a table that are shown; inf for all
    #[arg(long, default_value = "40", value_name = "ROWS")]
    pub maxrows: MaxRows,

    /// Write a timeline of all statements to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// Record a join of the query instead of running it: its inputs, options and plan, as files
    /// for `horton-sql replay`
    #[arg(long, value_name = "FOLDER", value_parser = absolute)]
    pub record: Option<PathBuf>,

    /// The number of the join to record, if the query has several
    #[arg(long, value_name = "NUMBER", requires = "record")]
    pub join: Option<usize>,

    /// Print rows and errors only
    #[arg(short, long)]
    pub quiet: bool,

    /// Highlight statements at the prompt
    #[arg(long)]
    pub color: bool,

    /// Look for files in this folder
    #[arg(short = 'p', long, value_name = "FOLDER", value_parser = folder)]
    pub data_path: Option<PathBuf>,

    /// Number of rows of a batch
    #[arg(short, long, value_name = "ROWS")]
    pub batch_size: Option<usize>,

    /// Memory that queries may use, such as 10g
    #[arg(short, long, value_name = "BYTES", value_parser = bytes)]
    pub memory_limit: Option<usize>,

    /// Way in which queries share the memory: greedy or fair
    #[arg(long, value_name = "POOL", default_value_t = PoolType::Greedy)]
    pub mem_pool_type: PoolType,

    /// Number of consumers that are named when memory is short
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub top_memory_consumers: usize,

    /// Disk that spilling queries may use, such as 100g
    #[arg(short, long, value_name = "BYTES", value_parser = bytes)]
    pub disk_limit: Option<usize>,
}

/// The commands of the shell besides running statements.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// List the OpenCL devices of this machine, tested
    Devices,
    /// Run a recorded join again: DataFusion's own, ours on the host, and ours on a device
    Replay(Replay),
}

/// The recorded join that is run again, and how.
#[derive(Debug, clap::Args)]
pub struct Replay {
    /// Folder that --record has made
    #[arg(value_name = "FOLDER", value_parser = folder)]
    pub folder: PathBuf,

    /// Number of timed runs of each way, after one that warms up
    #[arg(long, default_value_t = 5, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,

    /// Run it on this device: part of a name, PLATFORM:INDEX or auto
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,

    /// Set an option besides those that were recorded
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,
}

/// Returns the command line `args` so that a statement of `-c` may begin with a comment: behind a
/// space it is no flag.
pub fn with_comments(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut takes_statements = false;
    let each = args.into_iter().map(|arg| {
        let is_comment = takes_statements && arg.to_str().is_some_and(is_comment);
        if is_comment {
            let mut spaced = OsString::from(" ");
            spaced.push(&arg);
            return spaced;
        }
        if arg.to_str().is_some_and(|arg| arg.starts_with('-')) {
            takes_statements = arg == "-c" || arg == "--command";
        }
        arg
    });
    each.collect()
}

/// Returns whether `text` begins with a comment. Flags have neither a space behind their dashes nor
/// a second line.
fn is_comment(text: &str) -> bool {
    text.strip_prefix("--")
        .is_some_and(|rest| rest.starts_with(char::is_whitespace) || rest.contains('\n'))
}

/// Splits `NAME=VALUE`.
fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=');
    let (name, value) = pair.ok_or("expected NAME=VALUE, such as horton.enabled=always")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

fn file(path: &str) -> Result<PathBuf, String> {
    let path = Path::new(path);
    // Absolute, as --data-path changes the working folder. Not a regular file: a pipe, too.
    match path.metadata() {
        Ok(found) if found.is_dir() => Err("is a folder".to_owned()),
        Ok(_) => std::path::absolute(path).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// A path that need not be there. --data-path changes the working folder.
fn absolute(path: &str) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| error.to_string())
}

fn folder(path: &str) -> Result<PathBuf, String> {
    match Path::new(path).metadata() {
        Ok(found) if found.is_dir() => Ok(PathBuf::from(path)),
        Ok(_) => Err("is no folder".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a number of bytes: `100`, `4k`, `20MB`, `1.5g`.
fn bytes(text: &str) -> Result<usize, String> {
    let lower = text.trim().to_lowercase();
    let number = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &lower[number.len()..] {
        "" | "b" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        "t" | "tb" => 40,
        _ => return Err("expected a number of bytes, such as 500m or 10g".to_owned()),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| "expected a number of bytes, such as 500m or 10g".to_owned())?;
    let bytes = number * (1u64 << shift) as f64;
    if bytes < 1.0 || bytes >= usize::MAX as f64 {
        return Err("is out of range".to_owned());
    }
    Ok(bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_agree_with_each_other() {
        Args::command().debug_assert();
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("100"), Ok(100));
        assert_eq!(bytes("4k"), Ok(4096));
        assert_eq!(bytes("1.5GB"), Ok(3 << 29));
        for wrong in ["", "g", "1x", "-1", "0", "1e30t", "nan", "inf"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn statements_may_begin_with_comments() {
        let parsed = |args: &[&str]| {
            let args = with_comments(args.iter().map(OsString::from));
            Args::try_parse_from(args).map(|args| (args.command, args.quiet))
        };
        for flag in ["-c", "--command"] {
            for text in ["-- all\nSELECT 1", "--all\nSELECT 1", "-- nothing"] {
                let (statements, quiet) =
                    parsed(&["horton-sql", flag, "SELECT 0", text, "-q"]).unwrap();
                assert_eq!(
                    statements.iter().map(|s| s.trim()).collect::<Vec<_>>(),
                    ["SELECT 0", text]
                );
                assert!(quiet);
            }
        }
        assert!(parsed(&["horton-sql", "-c", "SELECT 1", "--qiet"]).is_err());
        assert!(parsed(&["horton-sql", "-- all\nSELECT 1"]).is_err());
    }

    #[test]
    fn values_may_have_equals_signs() {
        let parsed = pair("datafusion.format.null = a=b");
        let expected = ("datafusion.format.null".to_owned(), " a=b".to_owned());
        assert_eq!(parsed, Ok(expected));
        assert!(pair("horton.enabled").unwrap_err().contains("NAME=VALUE"));
    }
}
