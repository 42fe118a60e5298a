//! Rows of a cluster beside those of DataFusion, and what its plans say.
//!
//! ```text
//!  rows ─▶ cells as text ─▶ sorted, floats by their first digits ─▶ cell by cell, floats nearly
//! ```

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::Result;

use crate::process::PATIENCE;
use datafusion::prelude::{DataFrame, SessionContext};

/// A row as text.
type Row = Vec<String>;

/// By how much of itself a float may differ: sums depend on their order.
const TOLERANCE: f64 = 1e-9;

/// Runs `sql`, and returns its rows.
pub async fn rows(session: &SessionContext, sql: &str) -> Result<Vec<Row>> {
    collect(session.sql(sql).await?).await
}

/// Runs `frame`, and returns its rows in an order that depends on nothing but them.
pub async fn collect(frame: DataFrame) -> Result<Vec<Row>> {
    let batches = bounded(frame).await?;
    let mut rows: Vec<Row> = batches.iter().flat_map(of_batch).collect();
    rows.sort_by_cached_key(|row| row.iter().map(|cell| coarse(cell)).collect::<Row>());
    Ok(rows)
}

/// Returns the rows of `frame`, or a failure of the test if they take too long.
async fn bounded(frame: DataFrame) -> Result<Vec<RecordBatch>> {
    let rows = tokio::time::timeout(PATIENCE, frame.collect()).await;
    rows.expect("the query hangs")
}

fn of_batch(batch: &RecordBatch) -> Vec<Row> {
    let options = FormatOptions::default().with_null("NULL");
    let columns = batch.columns().iter();
    let columns = columns.map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap());
    let columns: Vec<_> = columns.collect();
    let row = |row| columns.iter().map(|c| c.value(row).to_string()).collect();
    (0..batch.num_rows()).map(row).collect()
}

/// Returns a float with its first digits alone, so that nearly equal ones are sorted alike.
fn coarse(cell: &str) -> String {
    match cell.parse::<f64>() {
        Ok(number) if cell.contains('.') => format!("{number:.4e}"),
        _ => cell.to_owned(),
    }
}

/// Fails unless the rows are the same.
pub fn assert_same(found: &[Row], expected: &[Row], what: &str) {
    assert_eq!(found.len(), expected.len(), "rows of {what}");
    for (found, expected) in found.iter().zip(expected) {
        let same =
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| is_same(a, b));
        assert!(same, "{what}: {found:?} instead of {expected:?}");
    }
}

fn is_same(found: &str, expected: &str) -> bool {
    if found == expected {
        return true;
    }
    match (found.parse::<f64>(), expected.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()),
        _ => false,
    }
}

/// Runs `sql` under EXPLAIN ANALYZE, and returns the stages with their metrics.
pub async fn analyzed(session: &SessionContext, sql: &str) -> String {
    analyzed_frame(session.sql(sql).await.unwrap()).await
}

/// Runs `frame` under EXPLAIN ANALYZE, and returns the stages with their metrics.
pub async fn analyzed_frame(frame: DataFrame) -> String {
    let explained = bounded(frame.explain(false, true).unwrap()).await.unwrap();
    let plans: Vec<Row> = explained.iter().flat_map(of_batch).collect();
    plans.concat().join("\n")
}

/// Kernels that joins launched, by the text of EXPLAIN ANALYZE.
pub fn launches(plan: &str) -> usize {
    let counts = plan.split("kernel_launches=").skip(1);
    let digits = |text: &str| {
        text.chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
    };
    counts
        .map(|text| digits(text).parse::<usize>().unwrap())
        .sum()
}
