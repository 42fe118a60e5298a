//! A query in DuckDB, beside the other engines.
//!
//! ```text
//!   DIR/tables, DIR/queries ─▶ script ─▶ duckdb ─▶ times printed ─▶ median
//!                                           └─▶ DIR/duckdb.parquet ─▶ rows, cast ─▶ the same?
//! ```
//!
//! DuckDB's sums have 128 bits, which Parquet has not. So its values are cast before they are
//! compared.

use std::fs::{self, File};
use std::path::Path;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::compute::cast;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use horton_test_support::Result;
use horton_test_support::duckdb::{DuckDb, Task};
use std::sync::Arc;

use crate::engines::Engine;
use crate::turns::{Measured, Outcome, Rows, Turns};

/// The pause between two looks at whether DuckDB is done.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Returns DuckDB, the module of `python` or the shell.
///
/// # Errors
/// If there is none.
pub fn find(python: &str) -> Result<DuckDb> {
    let found = DuckDb::find(python);
    Ok(found.ok_or_else(|| {
        format!(
            "--duckdb: {python} has no module 'duckdb' (pip install duckdb), \
             and no shell 'duckdb' is in PATH"
        )
    })?)
}

/// Runs the only query of `task`, and compares its rows with those expected.
///
/// # Errors
/// Files that cannot be written. That DuckDB fails is none.
pub fn run(
    duckdb: &DuckDb,
    task: &Task<'_>,
    turns: &Turns,
    expected: Option<&Rows>,
) -> Result<Measured> {
    let folder = task.folder;
    let answer = folder.join("duckdb.parquet");
    let (mut script, names) = task.script()?;
    let path = answer.display().to_string().replace('\'', "''");
    // The time of the copy is none of the query's.
    script += &format!(".print query answer\ncopy answer to '{path}' (format parquet);\n");
    let (input, output) = (folder.join("duckdb.txt"), folder.join("duckdb.log"));
    fs::write(&input, script).map_err(|e| format!("cannot write {}: {e}", input.display()))?;
    let mut child = duckdb
        .command(folder)?
        .stdin(File::open(&input)?)
        .stdout(File::create(&output)?)
        .stderr(File::create(folder.join("duckdb.err"))?)
        .spawn()?;
    let runs = u32::try_from(task.repeat + 1)?;
    let mut measured = Measured {
        engine: Engine::DuckDb,
        outcome: Outcome::Stopped,
        differences: 0,
    };
    if !ends_within(&mut child, turns.limit * runs)? {
        return Ok(measured);
    }
    let times = task.times(&fs::read_to_string(&output)?);
    let Some(ms) = names.first().and_then(|name| times.get(name)) else {
        let why = fs::read_to_string(folder.join("duckdb.err"))?;
        let why = why
            .lines()
            .next()
            .unwrap_or("it printed no time")
            .to_owned();
        measured.outcome = Outcome::Failed(why);
        return Ok(measured);
    };
    measured.outcome = Outcome::Took(Duration::from_secs_f64(ms / 1e3));
    if let Some(expected) = expected {
        let rows = turns.runtime.block_on(read(&answer, expected))?;
        measured.differences = expected.differences(&rows)?;
    }
    Ok(measured)
}

/// Waits for the end of `child`; returns false if it was ended, as it took longer than `limit`.
fn ends_within(child: &mut Child, limit: Duration) -> Result<bool> {
    let since = Instant::now();
    while child.try_wait()?.is_none() {
        if since.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        sleep(LOOK_EVERY);
    }
    Ok(true)
}

/// Reads the rows of a file with the types that are expected.
async fn read(path: &Path, expected: &Rows) -> Result<Rows> {
    let path = path.to_str().ok_or("the path is not valid UTF-8")?;
    let session = SessionContext::new();
    let frame = session
        .read_parquet(path, ParquetReadOptions::default())
        .await?;
    let schema = Arc::clone(&expected.schema);
    let mut batches = vec![];
    for batch in frame.collect().await? {
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| cast(column, field.data_type()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        batches.push(RecordBatch::try_new(Arc::clone(&schema), columns)?);
    }
    Ok(Rows { schema, batches })
}
