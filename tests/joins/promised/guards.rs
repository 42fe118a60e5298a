//! Expressions that fail on some rows, or differ each time, in keys of joins whose filters reach
//! scans.
//!
//! ```text
//!  small ─┐                     the filter of x.k: not below WHERE ok, which it would evaluate
//!         ├ small.k = x.k       CAST(s AS INT) without
//!  t ─ WHERE ok ─ CAST(s AS INT) AS k ┘
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::ArrayRef;
use arrow::array::Int64Array;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::prelude::SessionContext;
use horton_join::HortonJoinExec;
use horton_join::config::{Filters, HortonConfig};
use horton_test_support::internals::DynamicFilterExec;
use horton_test_support::plans::nodes;

use super::sessions::*;

/// Tables, in memory; `t` also as Parquet files in `folder` where it is one.
const TABLES: [&str; 5] = [
    "CREATE TABLE zero AS SELECT CAST(0 AS BIGINT) AS k",
    "CREATE TABLE t AS SELECT value AS id, value % 5 AS d, value % 2 = 0 AS ok, \
     CASE WHEN value % 2 = 0 THEN CAST(value AS VARCHAR) ELSE 'none' END AS s \
     FROM range(0, 1000)",
    "CREATE TABLE good AS SELECT value * 2 AS id FROM range(0, 500)",
    "CREATE TABLE small AS SELECT CAST(4 AS INT) AS k, CAST(5 AS BIGINT) AS five",
    "CREATE TABLE many AS SELECT value FROM range(0, 20000)",
];

/// Queries whose keys fail on rows that a guard keeps them from, and their counts.
const GUARDED: [(&str, i64); 5] = [
    (
        "SELECT count(*) FROM small JOIN (SELECT CAST(s AS INT) AS k FROM t WHERE ok) x \
         ON x.k = small.k",
        1,
    ),
    (
        "SELECT count(*) FROM small JOIN t ON 20 / t.d = small.five WHERE t.d <> 0",
        200,
    ),
    (
        "SELECT count(*) FROM small JOIN \
         (SELECT CAST(t.s AS INT) AS k FROM t JOIN good ON good.id = t.id) x ON x.k = small.k",
        1,
    ),
    (
        "SELECT count(*) FROM small JOIN \
         (SELECT k FROM (SELECT CAST(s AS INT) AS k, ok FROM t) WHERE ok) x ON x.k = small.k",
        1,
    ),
    (
        "SELECT count(*) FROM (SELECT CAST(s AS INT) AS k FROM t WHERE ok) x \
         WHERE x.k IN (SELECT k FROM small)",
        1,
    ),
];

/// Sessions at both places, with filters and without.
fn options() -> Vec<HortonConfig> {
    let at = |at: At| {
        [Filters::Auto, Filters::Off].map(|filters| HortonConfig {
            filters,
            ..at.options()
        })
    };
    At::BOTH.into_iter().flat_map(at).collect()
}

async fn count(session: &SessionContext, sql: &str) -> Result<i64> {
    let (_, batches) = query(session, sql).await?;
    Ok(first_column(&batches)[0])
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_can_fail_are_not_tested_below_what_guards_them() {
    for options in options() {
        let session = session(options.clone());
        run_all(&session, &TABLES).await;
        for (sql, expected) in GUARDED {
            let found = count(&session, sql).await;
            let about = format!("{:?}, {:?}: {sql}", options.enabled, options.filters);
            assert_eq!(found.map_err(|e| e.to_string()), Ok(expected), "{about}");
        }
    }
}

/// A scan of files tests filters before it computes columns. AND would divide for half of the rows
/// that are left.
#[tokio::test(flavor = "multi_thread")]
async fn scans_that_compute_conditions_that_can_fail_are_not_filtered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.parquet");
    let path = path.to_str().unwrap();
    let setup = [
        "SET datafusion.execution.parquet.pushdown_filters = true",
        "CREATE TABLE few AS SELECT value AS k FROM range(0, 1000) WHERE value % 10 IN (3, 4)",
        &format!(
            "COPY (SELECT value AS k, value % 10 AS m, CAST(value % 10 = 3 AS INT) AS z \
             FROM range(0, 3000)) TO '{path}'"
        ),
        &format!("CREATE EXTERNAL TABLE d STORED AS PARQUET LOCATION '{path}'"),
    ];
    let sql = "SELECT count(*) FROM few JOIN (SELECT k, m = 3 AND 10 / z > 1 AS f FROM d) d \
               ON few.k = d.k WHERE d.f OR few.k >= 0";
    for options in options() {
        let session = session(options.clone());
        run_all(&session, &setup).await;
        let found = count(&session, sql).await;
        let about = format!("{:?}, {:?}", options.enabled, options.filters);
        assert_eq!(found.map_err(|e| e.to_string()), Ok(200), "{about}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_can_fail_are_not_tested_by_scans_that_compute_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let path = path.to_str().unwrap();
    let copy = format!("COPY t TO '{path}'");
    let create = format!("CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{path}'");
    for options in options() {
        let session = session(options.clone());
        run_all(&session, &TABLES).await;
        run_all(&session, &[&copy, "DROP TABLE t", &create]).await;
        run_all(
            &session,
            &["SET datafusion.execution.parquet.pushdown_filters = true"],
        )
        .await;
        for (sql, expected) in GUARDED {
            let found = count(&session, sql).await;
            let about = format!("{:?}, {:?}: {sql}", options.enabled, options.filters);
            assert_eq!(found.map_err(|e| e.to_string()), Ok(expected), "{about}");
        }
    }
}

/// A function that returns 0, 1, 2 … 9, 0, 1 … whatever its argument: a volatile one of which it is
/// known how often it returns what.
#[derive(Debug)]
struct Draw {
    signature: Signature,
    drawn: AtomicUsize,
}

impl PartialEq for Draw {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Draw {}

impl std::hash::Hash for Draw {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self).hash(state);
    }
}

impl ScalarUDFImpl for Draw {
    fn name(&self) -> &str {
        "draw"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let from = self.drawn.fetch_add(args.number_rows, Ordering::Relaxed);
        let values = (from..from + args.number_rows).map(|n| (n % 10) as i64);
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        Ok(ColumnarValue::Array(values))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn volatile_keys_are_drawn_once() {
    let queries = [
        "SELECT count(*) FROM zero z JOIN (SELECT draw(value) AS k FROM many) r ON r.k = z.k",
        "SELECT count(*) FROM zero z JOIN many ON draw(value) = z.k",
        "SELECT count(*) FROM (SELECT draw(value) AS k FROM many) r WHERE r.k IN (SELECT k FROM zero)",
    ];
    for options in options() {
        for sql in queries {
            let session = session(options.clone());
            run_all(&session, &TABLES).await;
            session.register_udf(ScalarUDF::new_from_impl(Draw {
                signature: Signature::any(1, Volatility::Volatile),
                drawn: AtomicUsize::new(0),
            }));
            let found = count(&session, sql).await;
            let about = format!("{:?}, {:?}: {sql}", options.enabled, options.filters);
            assert_eq!(found.map_err(|e| e.to_string()), Ok(2000), "{about}");
        }
    }
}

/// DataFusion's join hands filters on by the names of columns, of which there are two here. The one
/// that it makes itself has its partitions wait for each other.
#[tokio::test(flavor = "multi_thread")]
async fn joins_that_draw_at_random_stay_without_filters() {
    let tables = [
        "CREATE TABLE d AS SELECT value + 50000 AS v FROM range(0, 100)",
        "CREATE TABLE a AS SELECT value AS k, value AS id, value % 10 AS g FROM range(0, 20000)",
        "CREATE TABLE b AS SELECT value AS k, value + 50000 AS id FROM range(0, 20000)",
        "CREATE TABLE c AS SELECT value AS k, value % 7 AS h FROM range(0, 30000)",
    ];
    let sql = "SELECT count(*) FROM d JOIN (SELECT a.id AS aid, b.id AS bid FROM a \
               JOIN b ON a.k = b.k JOIN c ON a.k = c.k AND a.g + c.h + random() >= 0) q \
               ON d.v = q.bid";
    for options in options() {
        let session = session(options.clone());
        run_all(&session, &tables).await;
        let found = count(&session, sql).await;
        let about = format!("{:?}, {:?}", options.enabled, options.filters);
        assert_eq!(found.map_err(|e| e.to_string()), Ok(100), "{about}");
        let plan = plan(&session, sql).await;
        let [drawing] = &nodes::<HashJoinExec>(&plan)[..] else {
            panic!("{about}: one join draws at random");
        };
        for input in drawing.children() {
            let has_join = !HortonJoinExec::all_in(input).is_empty();
            let has_filter = !nodes::<DynamicFilterExec>(input).is_empty();
            assert!(has_join || !has_filter, "{about}");
        }
    }
}
