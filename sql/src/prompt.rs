//! The prompt: lines with history and completion, until `\q` or Ctrl-D.
//!
//! ```text
//!  line ─┬─ \command ─▶ its own answer
//!        └─ statement; ─▶ shell ─▶ rows, or an error, or Ctrl-C ─▶ the next line
//!  history: $XDG_STATE_HOME/horton-sql/history, a line after each statement
//! ```
//!
//! The history leaves statements out that name secrets: it is a file that others may come to read.
//!
//! An error ends nothing here: the user sees it. A device is made ready while the first statement
//! is typed.

use std::io::{self, Write};
use std::path::PathBuf;

use datafusion_cli::command::{Command, OutputFormat};
use horton_join::warm_up;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{CompletionType, Config, Editor};

use crate::complete::Assistant;
use crate::failure::{Failure, message};
use crate::shell::Shell;

type Lines = Editor<Assistant, DefaultHistory>;

const PROMPT: &str = "horton> ";

/// Statements that the history keeps.
const HISTORY: usize = 10_000;

/// Runs the prompt, after the files of `rc`; by default `~/.datafusionrc`.
///
/// # Errors
/// If the terminal cannot be read, or its reader is gone.
pub async fn run(mut shell: Shell, rc: Option<Vec<PathBuf>>) -> Result<(), Failure> {
    let context = shell.context.clone();
    // Why joins stay on the host is shown where they do.
    tokio::spawn(async move { drop(warm_up(&context).await) });
    if !shell.print.quiet {
        eprintln!(
            "horton-sql {} on DataFusion {}",
            env!("CARGO_PKG_VERSION"),
            datafusion_cli::DATAFUSION_CLI_VERSION
        );
    }
    let mut lines = editor(&shell).map_err(Failure::error)?;
    let history = history();
    if let Some(file) = &history
        && file.exists()
        && let Err(error) = lines.load_history(file)
    {
        log::warn!("{}: {error}", file.display());
    }
    for file in rc.unwrap_or_else(own_rc) {
        report(shell.file(&file).await)?;
    }
    loop {
        if let Some(assistant) = lines.helper_mut() {
            assistant.learn(&shell.context).await;
        }
        let line = match lines.readline(PROMPT) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                if let Some(assistant) = lines.helper() {
                    assistant.reset_hint();
                }
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(Failure::error(error)),
        };
        if !names_secret(&line) {
            remember(&mut lines, line.trim_end(), history.as_ref());
        }
        match line.strip_prefix('\\') {
            Some("q") => return Ok(()),
            Some(command) => report(execute(&mut shell, command).await)?,
            None => report(shell.script(None, &line).await)?,
        }
    }
}

fn editor(shell: &Shell) -> rustyline::Result<Lines> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY)?
        .build();
    let mut lines = Editor::with_config(config)?;
    let state = shell.context.state();
    let dialect = &state.config_options().sql_parser.dialect;
    lines.set_helper(Some(Assistant::new(dialect, shell.print.color)));
    Ok(lines)
}

/// Returns the file of the history; `None` where the user has no folder for it.
fn history() -> Option<PathBuf> {
    // Systems without a folder for state have one for data.
    let folder = dirs::state_dir().or_else(dirs::data_local_dir)?;
    let folder = folder.join("horton-sql");
    if let Err(error) = std::fs::create_dir_all(&folder) {
        log::warn!("no history: {}: {error}", folder.display());
        return None;
    }
    Some(folder.join("history"))
}

/// Adds `line` to the history, at once: the process may be killed.
fn remember(lines: &mut Lines, line: &str, history: Option<&PathBuf>) {
    let added = lines.add_history_entry(line);
    if let (Ok(true), Some(file)) = (added, history)
        && let Err(error) = lines.append_history(file)
    {
        log::warn!("{}: {error}", file.display());
    }
}

/// Parts of the names that options with secrets have, those of object stores and of encryption.
const SECRETS: [&str; 11] = [
    "access_key",
    "account_key",
    "connection_string",
    "credential",
    "encryption",
    "passw",
    "private_key",
    "sas_",
    "secret",
    "service_account_key",
    "token",
];

/// Returns whether `line` has options or settings of which one is likely a secret.
pub fn names_secret(line: &str) -> bool {
    let line = line.to_lowercase();
    let is_set = |line: &str| line.trim_start().starts_with("set ");
    let sets = line.contains("options") || line.lines().any(is_set);
    sets && SECRETS.iter().any(|name| line.contains(name))
}

fn own_rc() -> Vec<PathBuf> {
    let file = dirs::home_dir().map(|home| home.join(".datafusionrc"));
    file.filter(|file| file.is_file()).into_iter().collect()
}

/// Reports a failure to the user, unless it ends the prompt.
fn report(result: Result<(), Failure>) -> Result<(), Failure> {
    match result {
        Err(Failure::Error(text)) => eprintln!("error: {text}"),
        // In the place of the terminal's own ^C.
        Err(Failure::Interrupted) => eprintln!("\rcancelled"),
        Err(Failure::ReaderGone) => return Err(Failure::ReaderGone),
        Ok(()) => {}
    }
    Ok(())
}

/// Runs a command. Those of `datafusion-cli` that run statements are run by the shell.
async fn execute(shell: &mut Shell, text: &str) -> Result<(), Failure> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let unknown = || Failure::Error(format!("there is no command \\{text}; \\? lists them"));
    let command: Command = text.parse().map_err(|()| unknown())?;
    match command {
        Command::ListTables => shell.statement("SHOW TABLES").await,
        Command::DescribeTableStmt(table) => {
            shell.statement(&format!("SHOW COLUMNS FROM {table}")).await
        }
        Command::Include(Some(file)) => shell.file(file.as_ref()).await,
        Command::OutputFormat(None) => {
            let format = format!("format: {:?}", shell.print.format).to_lowercase();
            writeln!(io::stdout(), "{format}").map_err(Failure::error)
        }
        Command::OutputFormat(Some(setting)) => {
            let setting: OutputFormat = setting.parse().map_err(|()| unknown())?;
            setting.execute(&mut shell.print).map_err(failure)
        }
        Command::QuietMode(_) => command
            .execute(&shell.context, &mut shell.print)
            .await
            .map_err(failure),
        Command::Quit | Command::ObjectStoreProfileMode(_) => Err(unknown()),
        _ => {
            let mut print = shell.print.clone();
            print.quiet = true;
            let done = command.execute(&shell.context, &mut print).await;
            done.map_err(failure)
        }
    }
}

fn failure(error: datafusion::error::DataFusionError) -> Failure {
    Failure::Error(message(&error))
}
