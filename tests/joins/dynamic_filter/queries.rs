//! Queries of every shape: the same rows as the stock session, over both kinds of tables.

use super::data::*;

/// Every join type, with keys of every kind, and what stands above and between joins.
const QUERIES: [&str; 46] = [
    // Join types.
    "SELECT big.v, small.v FROM small JOIN big ON small.k = big.k",
    "SELECT big.v, small.v FROM small LEFT JOIN big ON small.k = big.k",
    "SELECT big.v, small.v FROM big LEFT JOIN small ON small.k = big.k WHERE big.v < 900",
    "SELECT big.v, small.v FROM small RIGHT JOIN big ON small.k = big.k",
    "SELECT big.v, small.v FROM small FULL JOIN big ON small.k = big.k",
    "SELECT v FROM big WHERE k IN (SELECT k FROM small WHERE v < 50)",
    "SELECT v FROM small WHERE k IN (SELECT k FROM big)",
    "SELECT v FROM big WHERE k NOT IN (SELECT k FROM small WHERE k IS NOT NULL)",
    "SELECT v FROM big WHERE k NOT IN (SELECT k FROM small)",
    "SELECT v FROM small WHERE k NOT IN (SELECT k FROM big WHERE v < 100 AND k IS NOT NULL)",
    "SELECT v FROM small WHERE k NOT IN (SELECT k FROM big WHERE v < 0)",
    "SELECT v FROM small x WHERE NOT EXISTS (SELECT 1 FROM big y WHERE y.k = x.k AND y.v > x.v)",
    "SELECT v FROM big y WHERE EXISTS (SELECT 1 FROM small x WHERE y.k = x.k AND x.v > 100)",
    "SELECT v FROM big WHERE k IN (SELECT k FROM small) OR v < 10",
    // Equal NULLs.
    "SELECT big.v, small.v FROM small JOIN big ON small.k IS NOT DISTINCT FROM big.k",
    "SELECT big.v FROM small RIGHT JOIN big ON small.s IS NOT DISTINCT FROM big.s",
    "SELECT k FROM big INTERSECT SELECT k FROM small",
    "SELECT k FROM small EXCEPT SELECT k FROM big WHERE v < 500",
    // Kinds of keys.
    "SELECT big.v, small.v FROM small JOIN big ON small.s = big.s",
    "SELECT big.v, small.v FROM small JOIN big ON small.w = big.w",
    "SELECT big.v, small.v FROM small JOIN big ON small.f = big.f WHERE small.v < 20",
    "SELECT big.v, small.v FROM small JOIN big ON small.t = big.t",
    "SELECT big.v, small.v FROM small JOIN big ON small.k + 1 = big.k",
    "SELECT big.v, small.v FROM small JOIN big ON CAST(small.k AS DOUBLE) = CAST(big.k AS DOUBLE)",
    "SELECT big.v, small.v FROM small JOIN big ON small.k = big.v",
    "SELECT big.v, small.v FROM small JOIN big ON small.k = big.k AND small.s = big.s AND small.w = big.w",
    "SELECT big.v, small.v FROM small JOIN big ON small.k = big.k AND small.v <= big.t::bigint",
    // Three deep, and bushy.
    "SELECT big.v FROM small JOIN other ON small.k = other.k JOIN big ON big.k = other.k JOIN wide ON wide.w = big.w",
    "SELECT big.v FROM (SELECT * FROM small WHERE v < 30) small JOIN big ON big.k = small.k JOIN wide ON wide.k = big.k LEFT JOIN other ON other.k = wide.k",
    "SELECT a.v FROM (SELECT big.k, big.v FROM big JOIN other ON big.k = other.k) a JOIN (SELECT wide.k FROM wide JOIN small ON wide.k = small.k WHERE small.v < 40) b ON a.k = b.k",
    "SELECT count(*) FROM big b1 JOIN big b2 ON b1.k = b2.k JOIN small ON small.k = b1.k AND small.s = b2.s",
    "SELECT big.v FROM big WHERE k IN (SELECT wide.k FROM wide WHERE w IN (SELECT w FROM small))",
    // Aggregates, projections, unions and sorts between.
    "SELECT small.v, a.n FROM small JOIN (SELECT k, count(*) n FROM big GROUP BY k) a ON a.k = small.k",
    "SELECT small.v, a.n FROM small JOIN (SELECT k, s, max(v) n FROM big GROUP BY GROUPING SETS ((k, s), (k))) a ON a.k = small.k",
    "SELECT small.v, a.n FROM small JOIN (SELECT k + 1 AS k, count(*) n FROM big GROUP BY k + 1) a ON a.k = small.k",
    "SELECT small.v, a.n FROM small LEFT JOIN (SELECT count(*) n, 7 AS k FROM big) a ON a.k = small.k",
    "SELECT v FROM big WHERE k IN (SELECT k FROM wide GROUP BY k HAVING count(*) > 4)",
    "SELECT small.v, u.v FROM small JOIN (SELECT k, v FROM big UNION ALL SELECT v AS k, v FROM wide) u ON u.k = small.k",
    "SELECT small.v, u.v FROM small JOIN (SELECT k, v FROM big UNION SELECT k, v FROM wide) u ON u.k = small.k",
    "SELECT small.v, w.r FROM small JOIN (SELECT k, row_number() OVER (PARTITION BY k ORDER BY v) r FROM big) w ON w.k = small.k",
    "SELECT small.v, l.v FROM small JOIN (SELECT k, v FROM big ORDER BY v LIMIT 700) l ON l.k = small.k",
    // LIMIT and TopK above.
    "SELECT big.v, small.v FROM small JOIN big ON small.k = big.k ORDER BY big.v DESC, small.v LIMIT 7",
    "SELECT big.v, small.v FROM small JOIN big ON small.k = big.k ORDER BY big.t, big.v, small.v LIMIT 9",
    "SELECT count(*) FROM (SELECT big.v FROM small JOIN big ON small.k = big.k LIMIT 20)",
    // Recursion.
    "WITH RECURSIVE r AS (SELECT k, 0 d FROM small WHERE v < 3 UNION ALL SELECT big.v % 200, d + 1 FROM r JOIN big ON big.k = r.k WHERE d < 3) SELECT * FROM r",
    "WITH RECURSIVE r AS (SELECT k, 0 d FROM small WHERE v < 3 UNION ALL SELECT other.v, d + 1 FROM r JOIN big ON big.k = r.k JOIN other ON other.k = big.k WHERE d < 2) SELECT * FROM r",
];

/// Options under which all queries are run.
const OPTIONS: [&[(&str, &str)]; 4] = [
    &[],
    &[("horton.filters", "off")],
    &[("horton.enabled", "auto")],
    &[("datafusion.execution.parquet.pushdown_filters", "true")],
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_those_of_the_stock_session() {
    let tables = Tables::new().await;
    for place in PLACES {
        let stock = tables.stock(place).await;
        let mut sessions = vec![(OPTIONS[0], tables.as_planned(place, OPTIONS[0]).await)];
        for options in OPTIONS {
            sessions.push((options, tables.horton(place, options).await));
        }
        for (options, horton) in sessions {
            let (mut kernels, mut seen, mut passed) = (0, 0, 0);
            for query in QUERIES {
                let expected = run(&stock, query).await.rows;
                let found = run(&horton, query).await;
                assert_eq!(found.rows, expected, "{place:?} {options:?} {query}");
                let (of_query, out) = scanned(&found.plan);
                kernels += launches(&found.plan);
                seen += of_query;
                passed += out;
            }
            match options {
                [("horton.enabled", _)] => {}
                _ => assert!(kernels > 0, "{place:?} {options:?}"),
            }
            match options {
                [("horton.filters", _)] => assert_eq!(seen, 0, "{place:?}"),
                [("datafusion.execution.parquet.pushdown_filters", _)]
                    if place == Place::Parquet => {}
                _ => assert!(
                    2 * passed < seen,
                    "{place:?} {options:?}: {passed} of {seen}"
                ),
            }
        }
    }
}
