//! `horton-sql`: an SQL shell on files and object stores whose hash joins run on OpenCL devices.
//!
//! ```text
//!  flags ─▶ session ─▶ shell ─┬─ -c, -f, piped input: statements, up to the first that fails
//!                             └─ a terminal: the prompt
//!                                  │ each statement
//!                                  ▼
//!            rows on standard output, one line on standard error: where joins ran, how long
//! ```
//!
//! The parts are those of DataFusion's own shell, `datafusion-cli`: formats, object stores, table
//! functions, highlighting. What runs statements is not: a script ends at the first statement that
//! fails, and the exit status says so.
//!
//! Exit status: 0 if all statements succeeded; 1 if one failed, or the shell could not begin; 2 for
//! flags that cannot be read; 130 after Ctrl-C; 141 if the reader of the output is gone.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod args;
mod complete;
mod failure;
mod interrupts;
mod output;
mod progress;
mod prompt;
mod record;
mod replay;
mod session;
mod shell;
mod split;
mod summary;
mod watch;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use horton_join::report_devices;
use horton_trace::with_trace;
use mimalloc::MiMalloc;

use crate::args::{Args, Replay, Task};
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::shell::Shell;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The log filter without `RUST_LOG`. Object stores warn of each place where they do
/// not find credentials.
const LOG: &str = "error,horton_join=warn,horton_tables=warn,horton_sql=warn";

/// The time for which the end of the process waits for queries that were cut short: until they
/// yield, or have removed their files.
const GRACE: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let args = Args::parse_from(args::with_comments(std::env::args_os()));
    let log = env_logger::Env::default().default_filter_or(LOG);
    env_logger::Builder::from_env(log)
        .format_timestamp(None)
        .init();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the threads of the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = with_trace(args.trace.clone().as_deref(), || {
        runtime.block_on(async {
            match &args.task {
                Some(Task::Devices) => devices().await,
                Some(Task::Replay(replay)) => self::replay(replay).await,
                None => run(args).await,
            }
        })
    });
    let code = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            match &failure {
                Failure::Error(text) => eprintln!("error: {text}"),
                Failure::Interrupted => shell::quit_at_the_next(),
                Failure::ReaderGone => {}
            }
            failure.exit_code()
        }
    };
    runtime.shutdown_timeout(GRACE);
    code
}

/// Runs what the flags say.
async fn run(mut args: Args) -> Result<(), Failure> {
    if let Some(folder) = &args.data_path {
        std::env::set_current_dir(folder)
            .map_err(|error| Failure::Error(format!("{}: {error}", folder.display())))?;
    }
    let mut files = std::mem::take(&mut args.scripts);
    files.append(&mut args.file);
    let commands = std::mem::take(&mut args.command);
    let rc = args.rc.take();
    let has_script = !files.is_empty() || !commands.is_empty();
    let reads_stdin = !has_script || files.iter().any(|file| session::is_stdin(file));
    // Read before anything runs, and while Ctrl-C still ends a process that waits for a pipe.
    let mut scripts = Vec::new();
    for file in &files {
        scripts.push((Some(file.display().to_string()), shell::read(file)?));
    }
    scripts.extend(commands.into_iter().map(|command| (None, command)));
    let has_prompt = !has_script && io::stdin().is_terminal();
    if !has_script && !has_prompt {
        let text = io::read_to_string(io::stdin());
        let text = text.map_err(|error| Failure::Error(format!("standard input: {error}")))?;
        scripts.push((Some("standard input".to_owned()), text));
    }
    // Before a device is opened: drivers with LLVM inside would end the process at Ctrl-C.
    let interrupts = Interrupts::listen()?;
    let session = tokio::select! {
        session = session::open(&args, reads_stdin) => session?,
        () = interrupts.next() => return Err(Failure::Interrupted),
    };
    let shell = Shell::new(&args, session, interrupts);
    if has_prompt {
        return prompt::run(shell, rc).await;
    }
    for (name, text) in &scripts {
        shell.script(name.as_deref(), text).await?;
    }
    shell.ends()
}

/// Runs a recorded join again. Fails if the rows differ.
async fn replay(replay: &Replay) -> Result<(), Failure> {
    match replay::run(replay).await.map_err(Failure::statement)? {
        true => Ok(()),
        false => Err(Failure::Error("the join gave different rows".to_owned())),
    }
}

/// Prints the devices of this machine. Fails if there is none that joins can use.
async fn devices() -> Result<(), Failure> {
    let report = report_devices().await.map_err(Failure::error)?;
    write!(io::stdout(), "{report}").map_err(|_| Failure::ReaderGone)?;
    report.auto().map(drop).map_err(Failure::error)
}
