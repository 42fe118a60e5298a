//! A join of two Arrow tables on the device, and its rows.
//!
//! ```text
//!   cargo run --example first_join
//!
//!   RecordBatch ─▶ register_batch ─▶ SQL ─▶ HortonJoinExec ─▶ RecordBatch
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::util::pretty::pretty_format_batches;
use datafusion::error::Result;
use datafusion::prelude::SessionConfig;

#[tokio::main]
async fn main() -> Result<()> {
    let ctx = horton_join::context(SessionConfig::new());
    // Without it, the first joins run on the host while kernels are compiled.
    horton_join::warm_up(&ctx).await?;
    // These tables are tiny: 'auto', the default, would leave their join to DataFusion.
    ctx.sql("SET horton.enabled = 'always'").await?;

    let cities: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(Int64Array::from(vec![1, 2, 3]))),
        (
            "name",
            Arc::new(StringArray::from(vec!["Oslo", "Lima", "Graz"])),
        ),
    ];
    let trips: [(&str, ArrayRef); 2] = [
        (
            "city",
            Arc::new(Int64Array::from(vec![Some(2), Some(1), None, Some(2)])),
        ),
        ("km", Arc::new(Int64Array::from(vec![7, 5, 4, 9]))),
    ];
    ctx.register_batch("city", RecordBatch::try_from_iter(cities)?)?;
    ctx.register_batch("trip", RecordBatch::try_from_iter(trips)?)?;

    let query = "SELECT name, sum(km) AS km FROM city LEFT JOIN trip ON city.id = trip.city \
                 GROUP BY name ORDER BY name";
    let rows = ctx.sql(query).await?.collect().await?;
    println!("{}", pretty_format_batches(&rows)?);
    Ok(())
}
