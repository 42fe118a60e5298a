//! Keys that DataFusion looks up in an array: where the host keeps its build side whole for them,
//! and where it partitions both sides.

use std::sync::Arc;

use datafusion::datasource::MemTable;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use horton_join::HortonJoinExec;
use horton_join::config::HortonConfig;

use super::consumers::tables_filled;
use super::plans::*;
use super::session::*;
use horton_test_support::joins::*;

/// Registers `name` with the columns `k` and `v`, in three partitions.
fn register(session: &SessionContext, name: &str, keys: impl Iterator<Item = i64>) {
    let keys: Vec<Option<i64>> = keys.map(Some).collect();
    let side = Side::new(vec![("k", ints(&keys)), ("v", payload(keys.len()))]);
    let side = in_parts(side, 3);
    let table = MemTable::try_new(side.schema, side.partitions).unwrap();
    session.register_table(name, Arc::new(table)).unwrap();
}

/// `facts` has 3000 rows and `few` 500, with keys of `dense`, which has 200 rows, and some others.
/// Those of `wide` are a thousand times as large.
fn sessions() -> Sessions {
    let horton = HortonConfig {
        min_build_rows: At::HostParts.min_build_rows(),
        ..horton_cold()
    };
    let mut config = At::HostParts.config();
    // So density decides.
    let options = &mut config.options_mut().execution;
    options.perfect_hash_join_small_build_threshold = 0;
    let sessions = Sessions::new(&config, horton);
    for session in [&sessions.horton, &sessions.stock] {
        register(session, "facts", (0..3000).map(|i| i * 7 % 220));
        register(session, "few", (0..500).map(|i| i * 7 % 220));
        register(session, "dense", 0..200);
        register(session, "wide", (0..200).map(|i| i * 1000));
        register(session, "wide_facts", (0..3000).map(|i| i * 7 % 220 * 1000));
    }
    sessions
}

#[test]
fn keys_of_an_array_stay_whole_where_many_rows_are_looked_up_and_none_is_grouped() {
    let sessions = sessions();
    let whole = [
        "SELECT count(*), sum(d.v) FROM facts f JOIN dense d ON f.k = d.k",
        "SELECT f.v, d.v FROM facts f JOIN dense d ON f.k = d.k AND f.v + d.v > 100",
        "SELECT sum(f.v), sum(d.v) FROM facts f LEFT JOIN dense d ON f.k = d.k",
        "SELECT f.v FROM facts f WHERE NOT EXISTS (SELECT 1 FROM dense d WHERE d.k = f.k)",
        "SELECT f.v FROM facts f WHERE EXISTS (SELECT 1 FROM dense d WHERE d.k = f.k)",
        "SELECT d.v, f.v FROM facts f JOIN dense d ON f.k = d.k ORDER BY f.v, d.v",
        "SELECT max(n) FROM (SELECT f.v + d.v AS n FROM facts f JOIN dense d ON f.k = d.k)",
    ];
    let partitioned = [
        // An aggregate has fewer groups in each partition.
        "SELECT d.v, count(*) FROM facts f JOIN dense d ON f.k = d.k GROUP BY d.v",
        "SELECT count(DISTINCT d.v) FROM facts f JOIN dense d ON f.k = d.k",
        // No array.
        "SELECT count(*) FROM wide_facts f JOIN wide d ON f.k = d.k",
        "SELECT count(*) FROM facts f JOIN dense d ON f.k = d.k AND f.v = d.v",
        "SELECT count(*) FROM facts f JOIN dense d ON f.k IS NOT DISTINCT FROM d.k",
        // Build rows are marked.
        "SELECT count(*) FROM dense d LEFT JOIN facts f ON f.k = d.k",
        // One core would fill the array for longer than all look it up.
        "SELECT count(*) FROM few f JOIN dense d ON f.k = d.k",
    ];
    let all = whole.map(|text| (text, true)).into_iter();
    for (text, is_whole) in all.chain(partitioned.map(|text| (text, false))) {
        let ran = sessions.same_rows(text);
        let joins = HortonJoinExec::all_in(&ran.plan);
        let [join] = joins.as_slice() else {
            panic!("{text}: {} joins", joins.len());
        };
        assert_eq!(tables_filled(join) == 1, is_whole, "{text}");
        if !is_whole {
            continue;
        }
        let metrics = join.metrics().unwrap();
        let arrays = metrics.sum(|metric| metric.value().name() == "array_map_created_count");
        assert_eq!(arrays.map(|n| n.as_usize()), Some(1), "{text}");
        let decisions = join.decisions();
        assert_eq!(only(&decisions).rows, 200, "{text}");
        assert!(!join.stock().null_aware, "{text}");
    }
}
