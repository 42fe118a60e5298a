//! TPC-H's 22 queries at scale 0.01.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatchReader;
use datafusion::catalog::MemTable;
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use tempfile::TempDir;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

use crate::answers::{analyzed, assert_same, launches, rows};
use crate::setup::{Cluster, Executor, Scheduler};

const SCALE: f64 = 0.01;

/// The query's text. The fraction of Q11 depends on the scale.
fn query(number: usize) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tpch_join/queries");
    let text = std::fs::read_to_string(folder.join(format!("q{number}.sql"))).unwrap();
    let fraction = format!("{:.12}", 0.0001 / SCALE);
    match number {
        11 => text.replace("0.0001000000", &fraction),
        _ => text,
    }
}

macro_rules! table {
    ($name:literal, $arrow:ident, $generator:ident) => {
        (
            $name,
            Box::new($arrow::new($generator::new(SCALE, 1, 1))) as Box<dyn RecordBatchReader>,
        )
    };
}

/// Writes the tables, one file each, and returns their folder and names.
async fn write_tables() -> (TempDir, Vec<&'static str>) {
    let dir = tempfile::tempdir().unwrap();
    let tables = [
        table!("region", RegionArrow, RegionGenerator),
        table!("nation", NationArrow, NationGenerator),
        table!("supplier", SupplierArrow, SupplierGenerator),
        table!("customer", CustomerArrow, CustomerGenerator),
        table!("part", PartArrow, PartGenerator),
        table!("partsupp", PartSuppArrow, PartSuppGenerator),
        table!("orders", OrderArrow, OrderGenerator),
        table!("lineitem", LineItemArrow, LineItemGenerator),
    ];
    let mut names = vec![];
    for (name, reader) in tables {
        let schema = reader.schema();
        let batches = reader.collect::<Result<_, _>>().unwrap();
        let table = MemTable::try_new(schema, vec![batches]).unwrap();
        let frame = SessionContext::new().read_table(Arc::new(table)).unwrap();
        let path = dir.path().join(format!("{name}.parquet"));
        let options = DataFrameWriteOptions::new().with_single_file_output(true);
        let path = path.to_str().unwrap();
        frame.write_parquet(path, options, None).await.unwrap();
        names.push(name);
    }
    (dir, names)
}

async fn register(session: &SessionContext, dir: &Path, names: &[&str]) {
    for name in names {
        let path = dir.join(format!("{name}.parquet"));
        let options = ParquetReadOptions::default();
        let path = path.to_str().unwrap();
        session
            .register_parquet(*name, path, options)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_22_queries() {
    let (dir, names) = write_tables().await;
    let stock = SessionContext::new();
    register(&stock, dir.path(), &names).await;
    let cluster = Cluster::start(Scheduler::Ours, &[Executor::always(), Executor::always()]);
    let session = cluster.session(&[]).await;
    register(&session, dir.path(), &names).await;
    let mut with_kernels = 0;
    for number in 1..=22 {
        let sql = query(number);
        let found = rows(&session, &sql).await.unwrap();
        let expected = rows(&stock, &sql).await.unwrap();
        assert_same(&found, &expected, &format!("Q{number}"));
        // All but Q1 and Q6 join.
        let plan = analyzed(&session, &sql).await;
        with_kernels += usize::from(launches(&plan) > 0);
    }
    assert!(
        with_kernels >= 15,
        "only {with_kernels} queries launched kernels"
    );
}
