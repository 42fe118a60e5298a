//! Columns that share a name: a filter must not end at the wrong one.
//!
//! DataFusion hands a filter through most nodes by the name of its column. In these queries the
//! first column of that name is another one.

use datafusion::prelude::{SessionConfig, SessionContext};

use super::data::*;

const QUERIES: [&str; 7] = [
    // Two columns k below one join, where the second is the key.
    "SELECT count(*), sum(big.v) FROM (SELECT other.k a, big.k, big.v FROM other JOIN big ON other.v = big.v) big \
     JOIN small ON small.k = big.k",
    "SELECT small.v, o.k, b.k FROM other o JOIN big b ON o.v = b.v JOIN small ON small.k = b.k",
    "SELECT small.v, o.k, b.k FROM other o LEFT JOIN big b ON o.v = b.v JOIN small ON small.k = b.k",
    "SELECT small.v, x.n FROM small JOIN (SELECT b.k, count(*) n FROM other o JOIN big b ON o.v = b.v GROUP BY b.k, o.k) x \
     ON x.k = small.k",
    // A union whose parts have the names the other way round.
    "SELECT small.v, u.v FROM small JOIN (SELECT k, v FROM big UNION ALL SELECT v, k FROM wide) u ON u.k = small.k",
    // A semi join whose other side has a column of that name that is no key.
    "SELECT o.v FROM (SELECT k, v FROM other WHERE k IN (SELECT v FROM big)) o JOIN small ON small.k = o.k",
    // A group that is not the column of its name.
    "SELECT small.v, x.n FROM small JOIN (SELECT CAST(k / 2 AS BIGINT) AS k, count(*) n FROM big GROUP BY CAST(k / 2 AS BIGINT)) x \
     ON x.k = small.k",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_reach_their_own_columns() {
    let tables = Tables::new().await;
    for place in PLACES {
        let stock = tables.stock(place).await;
        for enabled in ["always", "auto"] {
            let options = [("horton.enabled", enabled)];
            let horton = tables.horton(place, &options).await;
            for query in QUERIES {
                let expected = run(&stock, query).await.rows;
                let found = run(&horton, query).await.rows;
                assert!(!expected.is_empty(), "{query}");
                assert_eq!(found, expected, "{place:?} {enabled} {query}");
            }
        }
    }
}

/// Rows of a sorted table that a LIMIT takes first, of which a join above keeps some.
const LIMITED: [&str; 4] = [
    "SELECT x.v, small.v FROM (SELECT * FROM sorted WHERE v <> 3 ORDER BY v LIMIT 300) x \
     JOIN small ON x.k = small.k",
    "SELECT x.v, small.v FROM (SELECT * FROM sorted ORDER BY v LIMIT 300) x JOIN small ON x.k = small.k",
    "SELECT x.v, small.v FROM (SELECT s.k, s.v FROM sorted s JOIN other t ON s.v = t.v ORDER BY s.v LIMIT 90) x \
     JOIN small ON x.k = small.k",
    "SELECT v FROM (SELECT * FROM sorted WHERE v <> 3 ORDER BY v LIMIT 150) x WHERE k IN (SELECT k FROM small)",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_stay_above_a_limit() {
    let tables = Tables::new().await;
    for partitions in [1, 3] {
        let config = || SessionConfig::new().with_target_partitions(partitions);
        let stock = SessionContext::new_with_config(config());
        tables.register(&stock, Place::Parquet).await;
        tables.register_sorted(&stock).await;
        for enabled in ["always", "auto"] {
            let options = [("horton.enabled", enabled)];
            let horton = tables.horton_of(config(), Place::Parquet, &options).await;
            tables.register_sorted(&horton).await;
            for query in LIMITED {
                let expected = run(&stock, query).await.rows;
                let found = run(&horton, query).await.rows;
                assert!(!expected.is_empty(), "{query}");
                assert_eq!(found, expected, "{partitions} {enabled} {query}");
            }
        }
    }
}
