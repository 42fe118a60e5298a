//! TPC-H as files, for other programs and other runs.
//!
//! ```text
//!   scale ─┬▶ tables in memory ─▶ DIR/tables/lineitem.parquet …   --data DIR/tables
//!          └▶ 22 texts         ─▶ DIR/queries/q01.sql …           --queries DIR/queries
//! ```
//!
//! Names have two digits, so that their order is the queries' order.

use std::fs;
use std::path::Path;

use datafusion::prelude::SessionContext;

use horton_test_support::folder::{Data, Query, copy};

use crate::Result;

/// Writes the tables of `data` and `queries` into `dir`.
///
/// # Errors
/// Names the file or folder that cannot be written.
pub async fn write(dir: &Path, data: &Data, queries: &[Query]) -> Result<()> {
    let (tables, texts) = (dir.join("tables"), dir.join("queries"));
    for folder in [&tables, &texts] {
        fs::create_dir_all(folder)
            .map_err(|e| format!("cannot create {}: {e}", folder.display()))?;
    }
    let context = SessionContext::new();
    data.register(&context)?;
    for (name, _) in &data.tables {
        copy(&context, name, &tables.join(format!("{name}.parquet"))).await?;
    }
    for (number, query) in (1..).zip(queries) {
        let path = texts.join(format!("q{number:02}.sql"));
        fs::write(&path, &query.sql)
            .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;
    use crate::queries::Selection;
    use horton_test_support::folder::of_folder;

    #[tokio::test]
    async fn what_is_written_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("it's");
        let made = data::generate(0.001, 2).unwrap();
        let queries = Selection::All.queries(0.001);
        write(&dir, &made, &queries).await.unwrap();

        let read = data::open(&dir.join("tables"), true).await.unwrap();
        assert_eq!(read.tables.len(), 8);
        let context = SessionContext::new();
        read.register(&context).unwrap();
        let orders = context.table("orders").await.unwrap();
        assert_eq!(orders.count().await.unwrap(), 1500);

        let texts = of_folder(&dir.join("queries")).unwrap();
        let labels: Vec<_> = texts.iter().map(|query| query.label.as_str()).collect();
        assert_eq!((labels.len(), labels[0], labels[21]), (22, "q01", "q22"));
        assert!(texts[10].sql.contains("0.1000"), "{}", texts[10].sql);
    }
}
