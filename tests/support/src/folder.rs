//! Folders of Parquet files and of SQL files.
//!
//! ```text
//!   DIR ─▶ lineitem.parquet | lineitem/*.parquet ─▶ ListingTable ─ in memory? ─▶ MemTable
//!   DIR ─▶ q01.sql, q02.sql …                    ─▶ queries, one a statement
//! ```
//!
//! Parquet files are read by every query again, as in a program that queries them. Each session
//! opens files for itself, as the one that scans a table first caches its metadata.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::TableReference;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use datafusion::sql::parser::DFParser;

use crate::Result;

/// Named tables, to be registered in every context.
pub struct Data {
    /// Name and contents.
    pub tables: Vec<(String, Arc<dyn TableProvider>)>,
    /// One line for the user.
    pub about: String,
}

impl Data {
    /// Makes the tables known to `context`.
    ///
    /// # Errors
    /// A table of that name exists already.
    pub fn register(&self, context: &SessionContext) -> Result<()> {
        for (name, table) in &self.tables {
            context.register_table(TableReference::bare(name.as_str()), Arc::clone(table))?;
        }
        Ok(())
    }
}

/// Returns the same tables, read into memory in `partitions` partitions each.
///
/// # Errors
/// Names the table that cannot be read.
pub async fn in_memory(data: Data, partitions: usize) -> Result<Data> {
    let context = SessionContext::new();
    data.register(&context)?;
    let mut tables = vec![];
    for (name, table) in &data.tables {
        let frame = context.table(TableReference::bare(name.as_str())).await?;
        let batches = frame.collect().await;
        let batches = batches.map_err(|e| format!("cannot read table '{name}': {e}"))?;
        let share = batches.len().div_ceil(partitions).max(1);
        let parts = batches.chunks(share).map(<[RecordBatch]>::to_vec);
        let mut parts: Vec<Vec<RecordBatch>> = parts.collect();
        // A table without rows has a partition without batches.
        parts.resize_with(parts.len().max(1), Vec::new);
        let contents = MemTable::try_new(table.schema(), parts)?;
        tables.push((name.clone(), Arc::new(contents) as Arc<dyn TableProvider>));
    }
    Ok(Data {
        about: format!("{}, read into memory", data.about),
        tables,
    })
}

/// Opens every table found in `dir`: `NAME.parquet`, or a folder `NAME` of Parquet files. Those
/// that are `required` must be among them.
///
/// # Errors
/// Names the folder or file that cannot be read, or the table that is missing.
pub async fn open(dir: &Path, required: &[&str]) -> Result<Data> {
    let found = find_tables(dir)?;
    for name in required {
        if !found.contains_key(*name) {
            let dir = dir.display();
            return Err(format!(
                "table '{name}' is missing: there is no {dir}/{name}.parquet and no folder \
                 {dir}/{name} with .parquet files"
            )
            .into());
        }
    }
    let context = SessionContext::new();
    let mut tables = vec![];
    for (name, path) in found {
        let table = open_table(&context, &name, &path).await;
        let table =
            table.map_err(|e| format!("cannot read table '{name}' at {}: {e}", path.display()))?;
        tables.push((name, table));
    }
    Ok(Data {
        about: format!("{} tables of Parquet in {}", tables.len(), dir.display()),
        tables,
    })
}

async fn open_table(
    context: &SessionContext,
    name: &str,
    path: &Path,
) -> Result<Arc<dyn TableProvider>> {
    let text = path.to_str().ok_or("the path is not valid UTF-8")?;
    let name = TableReference::bare(name);
    context
        .register_parquet(name.clone(), text, ParquetReadOptions::default())
        .await?;
    Ok(context.table_provider(name).await?)
}

/// Returns the tables in `dir` by name (in lower case, as SQL folds unquoted names).
fn find_tables(dir: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut tables = BTreeMap::new();
    for path in entries(dir)? {
        let is_table = if path.is_dir() {
            entries(&path)?.iter().any(|file| is_parquet(file))
        } else {
            is_parquet(&path)
        };
        let name = if is_parquet(&path) {
            path.file_stem()
        } else {
            path.file_name()
        };
        let Some(name) = name.filter(|_| is_table) else {
            continue;
        };
        let name = name.to_string_lossy().to_lowercase();
        if let Some(other) = tables.insert(name.clone(), path.clone()) {
            let (one, other) = (path.display(), other.display());
            return Err(format!("table '{name}' is there twice: {one} and {other}").into());
        }
    }
    Ok(tables)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let describe = |e| format!("cannot read data directory {}: {e}", dir.display());
    let entries = fs::read_dir(dir).map_err(describe)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    Ok(paths.collect::<Result<_, _>>().map_err(describe)?)
}

fn is_parquet(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "parquet")
}

/// One query of a folder, or one to run.
pub struct Query {
    /// Its name.
    pub label: String,
    /// Its text.
    pub sql: String,
}

/// Returns the queries in `dir`: its `.sql` files by name, one query per statement (`q14.1`,
/// `q14.2` if a file has several).
///
/// # Errors
/// Names the folder or file that cannot be read, or the folder without any query.
pub fn of_folder(dir: &Path) -> Result<Vec<Query>> {
    let describe = |path: &Path, e| format!("cannot read queries at {}: {e}", path.display());
    let mut files = vec![];
    for entry in fs::read_dir(dir).map_err(|e| describe(dir, e))? {
        let path = entry.map_err(|e| describe(dir, e))?.path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            files.push(path);
        }
    }
    files.sort();
    let mut queries = vec![];
    for file in &files {
        let text = fs::read_to_string(file).map_err(|e| describe(file, e))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let statements = statements(&text);
        let several = statements.len() > 1;
        for (i, sql) in statements.into_iter().enumerate() {
            let label = match several {
                true => format!("{name}.{}", i + 1),
                false => name.to_string(),
            };
            queries.push(Query { label, sql });
        }
    }
    match queries.is_empty() {
        true => Err(format!("there is no .sql file with a query in {}", dir.display()).into()),
        false => Ok(queries),
    }
}

/// Returns the statements of `text`, which semicolons separate; a text that is no SQL is one
/// statement, whose error the run shows.
fn statements(text: &str) -> Vec<String> {
    let parsed = DFParser::parse_sql(text);
    parsed.map_or_else(
        |_| vec![text.to_string()],
        |parsed| parsed.iter().map(ToString::to_string).collect(),
    )
}

/// Writes `table` of `context` as one file.
///
/// # Errors
/// Names the file that cannot be written.
pub async fn copy(context: &SessionContext, table: &str, path: &Path) -> Result<()> {
    let describe = |e| format!("cannot write {}: {e}", path.display());
    let text = path.to_str().ok_or("the path is not valid UTF-8")?;
    if text.contains(['*', '?', '[']) {
        // DataFusion takes such a path for a pattern of names.
        return Err(format!("cannot write {text}: choose a folder without *, ? and [").into());
    }
    let sql = format!(
        "COPY {table} TO '{}' STORED AS PARQUET",
        text.replace('\'', "''")
    );
    let frame = context.sql(&sql).await.map_err(describe)?;
    frame.collect().await.map_err(describe)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_queries() {
        let dir = tempfile::tempdir().unwrap();
        assert!(of_folder(dir.path()).is_err());
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("b.sql", "select 1; -- one\nselect ';' as x;");
        write("a.sql", "-- a comment; with a semicolon\nselect 2");
        write("c.txt", "select 3");
        let queries = of_folder(dir.path()).unwrap();
        let labels: Vec<_> = queries.iter().map(|query| query.label.as_str()).collect();
        assert_eq!(labels, ["a", "b.1", "b.2"]);
        assert!(queries[2].sql.contains("';'"));
    }

    #[test]
    fn tables_are_files_or_folders() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("Nation.parquet"), "").unwrap();
        fs::write(dir.path().join("readme.txt"), "").unwrap();
        fs::create_dir(dir.path().join("empty")).unwrap();
        fs::create_dir(dir.path().join("orders")).unwrap();
        fs::write(dir.path().join("orders/part-0.parquet"), "").unwrap();
        let found: Vec<_> = find_tables(dir.path()).unwrap().into_keys().collect();
        assert_eq!(found, ["nation", "orders"]);
    }

    #[tokio::test]
    async fn bad_folders_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let message = |result: Result<Data>| result.err().map(|e| e.to_string()).unwrap();

        let missing = message(open(dir.path(), &["lineitem"]).await);
        assert!(missing.contains("table 'lineitem' is missing"), "{missing}");

        let absent = message(open(&dir.path().join("absent"), &[]).await);
        assert!(absent.contains("cannot read data directory"), "{absent}");

        let broken = dir.path().join("nation.parquet");
        fs::write(&broken, "not a Parquet file").unwrap();
        let corrupt = message(open(dir.path(), &[]).await);
        assert!(corrupt.contains("nation.parquet"), "{corrupt}");

        fs::create_dir(dir.path().join("nation")).unwrap();
        fs::write(dir.path().join("nation/0.parquet"), "").unwrap();
        let twice = message(open(dir.path(), &[]).await);
        assert!(twice.contains("twice"), "{twice}");
    }
}
