//! Statements, one after the other, up to the first that fails.
//!
//! ```text
//!  script ─ split ─▶ statement ─▶ plan ─▶ rows ─▶ standard output
//!                       │                    └──▶ 3 rows, 1 join on NVIDIA H200, 0.42 s
//!                       ├─ fails:  FILE:LINE: …, and no other statement runs
//!                       └─ Ctrl-C: it is dropped, and so are its joins
//! ```
//!
//! A statement has a thread of its own. Some of DataFusion's operators work for many seconds
//! between two yields, and whoever polls them hears nothing of Ctrl-C meanwhile ([`Interrupts`]).
//!
//! Statements that name object stores, `CREATE EXTERNAL TABLE` and `COPY`, are left to
//! `datafusion-cli`, which opens the stores.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use datafusion::common::{exec_datafusion_err, exec_err};
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_plan::{ExecutionPlanProperties, execute_stream};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::{Dialect, dialect_from_str};
use datafusion_cli::exec::exec_from_commands;
use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreRegistry;
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::{MaxRows, PrintOptions};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::args::Args;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::output::{self, Out, Printed, Style};
use crate::progress::Progress;
use crate::prompt::names_secret;
use crate::record::Record;
use crate::session::Session;
use crate::split::split;
use crate::summary;
use crate::watch::Watch;

/// Makes the next Ctrl-C end the process at once: it ends already, but may wait for a driver.
pub fn quit_at_the_next() {
    #[cfg(unix)]
    {
        use signal_hook::consts::SIGINT;
        use signal_hook::flag::register_conditional_shutdown;
        let ends = Arc::new(AtomicBool::new(true));
        if let Err(error) = register_conditional_shutdown(SIGINT, 130, ends) {
            log::warn!("a second Ctrl-C does not end the process: {error}");
        }
    }
}

/// Returns the text of `file`.
///
/// # Errors
/// If it cannot be read.
pub fn read(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file);
    text.map_err(|error| Failure::Error(format!("{}: {error}", file.display())))
}

/// A session with what is printed of it. Clones share the session.
#[derive(Clone)]
pub struct Shell {
    /// The session.
    pub context: SessionContext,
    /// Way in which rows are printed.
    pub print: PrintOptions,
    watch: Watch,
    interrupts: Interrupts,
    /// Queries are recorded instead of run.
    record: Option<Arc<Record>>,
}

impl Shell {
    /// Returns the shell of `session`, whose statements Ctrl-C ends.
    pub fn new(args: &Args, session: Session, interrupts: Interrupts) -> Self {
        Self {
            context: session.context,
            watch: session.watch,
            interrupts,
            record: (args.record.clone()).map(|folder| Arc::new(Record::new(folder, args.join))),
            print: PrintOptions {
                format: args.format,
                quiet: args.quiet,
                maxrows: args.maxrows,
                color: args.color,
                instrumented_registry: Arc::new(InstrumentedObjectStoreRegistry::new()),
            },
        }
    }

    /// Fails if a join was to be recorded, and none was.
    ///
    /// # Errors
    /// What to do.
    pub fn ends(&self) -> Result<(), Failure> {
        let is_missing = |record: &Arc<Record>| !record.is_done();
        match self.record.as_ref().is_some_and(is_missing) {
            true => Err(Failure::Error(
                "nothing was recorded: --record takes the join of a SELECT statement".to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// Runs the statements of `file`.
    ///
    /// # Errors
    /// If the file cannot be read, or one of its statements fails.
    pub async fn file(&self, file: &Path) -> Result<(), Failure> {
        let text = read(file)?;
        self.script(Some(&file.display().to_string()), &text).await
    }

    /// Runs the statements of `script`. Its `name`, if it has one, is in front of errors.
    ///
    /// # Errors
    /// That of the first statement that fails.
    pub async fn script(&self, name: Option<&str>, script: &str) -> Result<(), Failure> {
        let at = |line: u64, text: String| match name {
            Some(name) => Failure::Error(format!("{name}:{line}: {text}")),
            None => Failure::Error(text),
        };
        // A script can be a program: #!/usr/bin/env -S horton-sql -f
        let comment = script.starts_with("#!").then(|| format!("--{script}"));
        let script = comment.as_deref().unwrap_or(script);
        let dialect = self.dialect().map_err(Failure::statement)?;
        let parts = split(script, dialect.as_ref())
            .map_err(|error| at(error.location.line, error.to_string()))?;
        for part in parts {
            self.statement(part.text)
                .await
                .map_err(|failure| match failure {
                    Failure::Error(text) => at(part.line, text),
                    other => other,
                })?;
        }
        Ok(())
    }

    /// Runs one statement, and says on standard error where its joins ran.
    ///
    /// # Errors
    /// Its own; [`Failure::Interrupted`] after Ctrl-C.
    pub async fn statement(&self, text: &str) -> Result<(), Failure> {
        let began = Instant::now();
        let _shown = horton_trace::query(shown(text));
        let (out, is_gone) = Out::open();
        let progress = Arc::new(Progress::new(&self.watch, self.print.quiet));
        // Dropped with this function: the statement ends then, too, once it yields.
        let (_goes_on, ends) = oneshot::channel::<()>();
        let running = {
            let (shell, text, progress) = (self.clone(), text.to_owned(), Arc::clone(&progress));
            let runtime = Handle::current();
            spawn_blocking(move || {
                runtime.block_on(async move {
                    tokio::select! {
                        printed = shell.run(&text, out, &progress) => printed,
                        _ = ends => exec_err!("cancelled"),
                    }
                })
            })
        };
        let printed = tokio::select! {
            printed = running => Some(printed),
            () = self.interrupts.next() => None,
        };
        progress.stop();
        let plans = self.watch.take();
        let printed = printed.ok_or(Failure::Interrupted)?;
        let printed = printed.map_err(Failure::error)?;
        if is_gone.load(Ordering::Relaxed) {
            return Err(Failure::ReaderGone);
        }
        let printed = printed.map_err(Failure::statement)?;
        if !self.print.quiet {
            let rows = printed.map(describe);
            let parts = rows.into_iter().chain(summary::joins(&plans));
            let took = format!("{:.2} s", began.elapsed().as_secs_f64());
            let parts: Vec<String> = parts.chain([took]).collect();
            eprintln!("{}", parts.join("; "));
        }
        Ok(())
    }

    /// Runs a statement. Returns what it printed; nothing if it has no rows.
    async fn run(&self, text: &str, out: Out, progress: &Progress) -> Result<Option<Printed>> {
        let Some(statement) = self.parse(text)? else {
            return Ok(None);
        };
        if matches!(
            statement,
            Statement::CreateExternalTable(_) | Statement::CopyTo(_)
        ) {
            let print = PrintOptions {
                quiet: true,
                ..self.print.clone()
            };
            exec_from_commands(&self.context, vec![text.to_owned()], &print).await?;
            return Ok(None);
        }
        let is_query = matches!(&statement, Statement::Statement(statement)
            if matches!(**statement, ast::Statement::Query(_)));
        let state = self.context.state();
        let logical = horton_trace::planned(state.statement_to_plan(statement)).await?;
        if let Some(record) = self.record.as_ref().filter(|_| is_query) {
            let recorded = record.run(&state, &logical, text).await?;
            progress.stop();
            // It has not run.
            self.watch.take();
            if !self.print.quiet {
                eprintln!("{recorded}");
            }
            return Ok(None);
        }
        let frame = self.context.execute_logical_plan(logical).await?;
        let plan = horton_trace::planned(frame.create_physical_plan()).await?;
        let has_rows = !plan.schema().fields().is_empty();
        let format = match self.print.format {
            PrintFormat::Automatic if plan.boundedness().is_unbounded() => PrintFormat::Csv,
            PrintFormat::Automatic => PrintFormat::Table,
            format => format,
        };
        let task = self.context.task_ctx();
        let memory = MemoryConsumer::new("horton-sql").register(task.memory_pool());
        let style = Style {
            format,
            // What explains or lists is shown as a whole.
            maxrows: if is_query {
                self.print.maxrows
            } else {
                MaxRows::Unlimited
            },
            values: &task.session_config().options().format.clone(),
        };
        let rows = execute_stream(plan, task)?;
        let printed = output::print(rows, style, &memory, out, || progress.stop()).await?;
        Ok(has_rows.then_some(printed))
    }

    /// Returns the statement of `text`, if it has one.
    fn parse(&self, text: &str) -> Result<Option<Statement>> {
        let dialect = self.dialect()?;
        let mut statements = DFParser::parse_sql_with_dialect(text, dialect.as_ref())?;
        Ok(statements.pop_front())
    }

    /// Returns the session's dialect of SQL.
    fn dialect(&self) -> Result<Box<dyn Dialect>> {
        let state = self.context.state();
        let name = state.config_options().sql_parser.dialect;
        dialect_from_str(name)
            .ok_or_else(|| exec_datafusion_err!("there is no SQL dialect '{name}'"))
    }
}

/// Returns what a trace shows of a statement: others may come to read it.
fn shown(text: &str) -> &str {
    if names_secret(text) {
        "a statement with a secret"
    } else {
        text.trim()
    }
}

fn describe(printed: Printed) -> String {
    let rows = match printed.rows {
        1 => "1 row".to_owned(),
        rows => format!("{rows} rows"),
    };
    match printed.hidden {
        0 => rows,
        hidden => format!(
            "{rows}, {} shown (--maxrows inf shows all)",
            printed.rows - hidden
        ),
    }
}
