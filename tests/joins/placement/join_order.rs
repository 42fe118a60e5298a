//! Inner joins that make many rows of few, and the order in which they are planned.
//!
//! ```text
//!  few.g = other.g                 540,000 pairs
//!     ⋈ link on both ids            3,000 rows
//!
//!  few ⋈ link ⋈ other              3,000 rows in each join
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec};
use datafusion::prelude::{SessionConfig, SessionContext, col};
use horton_join::HortonJoinExec;
use horton_join::config::HortonConfig;
use horton_test_support::plans::launches;

use super::session::*;

/// Rows of `few` and of `link`.
const ROWS: i64 = 3000;

/// Rows of the join of `few` and `other` by their groups.
const PAIRS: usize = 540_000;

/// Columns of all three tables, of which `few` and `other` share names.
const COLUMNS: &str = "few.id, other.id, other.v, few.v, link.v, few.s";

const EXPANDS: &str = "few JOIN other ON few.g = other.g \
                       JOIN link ON few.id = link.few_id AND other.id = link.other_id";

fn config() -> SessionConfig {
    SessionConfig::new().with_target_partitions(3)
}

/// Options of sessions that keep the order as written.
fn as_written() -> SessionConfig {
    let mut config = config();
    config.options_mut().optimizer.join_reordering = false;
    config
}

/// Registers `name` with these columns, in batches of 250 rows.
fn register(session: &SessionContext, name: &str, columns: Vec<(&str, ArrayRef)>) {
    let columns = columns
        .into_iter()
        .map(|(name, values)| (name, values, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let batches = (0..batch.num_rows()).step_by(250);
    let batches = batches.map(|at| batch.slice(at, 250.min(batch.num_rows() - at)));
    let partitions = vec![batches.collect()];
    let mut table = MemTable::try_new(batch.schema(), partitions).unwrap();
    if name == "sorted" {
        table = table.with_sort_order(vec![vec![col("few_id").sort(true, false)]]);
    }
    session.register_table(name, Arc::new(table)).unwrap();
}

/// A session with the tables.
fn session(config: SessionConfig, options: Option<HortonConfig>) -> SessionContext {
    let session = match options {
        Some(options) => horton_join::context(config.with_option_extension(options)),
        None => SessionContext::new_with_config(config),
    };
    let column = |rows: i64, value: &dyn Fn(i64) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values((0..rows).map(value)))
    };
    for (name, rows) in [("few", ROWS), ("other", 2000)] {
        let strings = (0..rows).map(|row| (row % 10).to_string());
        let groups = (0..rows).map(|row| Some(row % 10).filter(|group| *group < 9));
        let columns = vec![
            ("id", column(rows, &|row| row)),
            ("g", Arc::new(Int64Array::from_iter(groups)) as ArrayRef),
            ("v", column(rows, &|row| row * 7 % 100)),
            (
                "s",
                Arc::new(StringArray::from_iter_values(strings)) as ArrayRef,
            ),
        ];
        register(&session, name, columns);
    }
    let narrow = "CREATE TABLE narrow AS SELECT arrow_cast(id, 'Int32') AS id, \
                  arrow_cast(g, 'Int32') AS g, v, s FROM few";
    sql(&session, narrow).unwrap();
    for name in ["link", "sorted"] {
        let columns = vec![
            ("few_id", column(ROWS, &|row| row)),
            ("other_id", column(ROWS, &|row| row % 2000)),
            ("v", column(ROWS, &|row| row * 3 % 50)),
        ];
        register(&session, name, columns);
    }
    session
}

/// Returns the rows of the largest join of `plan`.
fn most_rows(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let joins = nodes::<HortonJoinExec>(plan).into_iter();
    let joins = joins.chain(nodes::<HashJoinExec>(plan));
    let joins = joins.chain(nodes::<CrossJoinExec>(plan));
    let rows = joins.map(|join| join.metrics().and_then(|metrics| metrics.output_rows()));
    rows.map(|rows| rows.expect("an executed join"))
        .max()
        .expect("a join")
}

/// Runs `text` with the order as planned, as written, and by DataFusion. Checks that the rows are
/// equal. Returns the plan of the first.
fn same_rows(text: &str) -> Arc<dyn ExecutionPlan> {
    let found = query(&session(config(), Some(horton())), text);
    let written = query(&session(as_written(), Some(horton())), text);
    let stock = query(&session(config(), None), text);
    assert!(!stock.rows.is_empty(), "{text}");
    assert_eq!(found.rows, stock.rows, "{text}");
    assert_eq!(written.rows, stock.rows, "{text}");
    found.plan
}

fn select(from: &str) -> String {
    format!("SELECT {COLUMNS} FROM {from}")
}

#[test]
fn a_join_that_expands_comes_after_those_that_do_not() {
    for text in [
        select(EXPANDS),
        select(&format!("{EXPANDS} WHERE few.v < other.v OR link.v < 20")),
        select(&format!("{EXPANDS} AND few.v < other.v + 40")),
        select(&format!("{EXPANDS} WHERE few.v < 50 AND link.v > 3")),
        select(
            "link JOIN (few JOIN other ON few.g = other.g) \
             ON few.id = link.few_id AND other.id = link.other_id",
        ),
        // Five tables, and conditions over three of them.
        format!(
            "SELECT few.id, m.v, o.id FROM {EXPANDS} JOIN link m ON m.few_id = few.id \
             JOIN other o ON o.id = m.other_id AND o.v + few.v > link.v \
             WHERE m.v + other.v < few.v + 40"
        ),
        // Keys of two types.
        select(&EXPANDS.replace("few JOIN", "narrow few JOIN")),
        // Below another join, and below an aggregate.
        format!(
            "SELECT x.i, x.w, y.v FROM (SELECT few.id AS i, other.v AS w FROM {EXPANDS}) x \
             LEFT JOIN few y ON x.i = y.id"
        ),
        format!("SELECT few.g, count(*), sum(other.v) FROM {EXPANDS} GROUP BY few.g"),
    ] {
        let plan = same_rows(&text);
        assert!(
            most_rows(&plan) <= ROWS as usize,
            "{text}\n{}",
            shown(&plan)
        );
        assert!(launches(&plan) > 0, "{text}");
    }
}

/// Statistics do not tell how many rows a filter leaves of a table in memory.
#[test]
fn an_expanding_join_of_few_rows_that_a_filter_leaves_stays_first() {
    // Names of the keys of the join that comes first.
    let first = |filter: &str| {
        let plan = same_rows(&select(&format!("{EXPANDS} WHERE {filter}")));
        let joins = nodes::<HortonJoinExec>(&plan);
        let join = joins
            .last()
            .and_then(|node| HortonJoinExec::downcast(node.as_ref()));
        let on = join.expect("a join").stock().on();
        let names = on
            .iter()
            .map(|(left, _)| left.downcast_ref::<Column>().unwrap().name());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    // 30 rows of 3000, and 1500.
    assert_eq!(first("few.v < 1"), ["g"]);
    assert_ne!(first("few.v < 50"), ["g"]);
}

#[test]
fn datafusions_option_keeps_the_order_as_written() {
    let ran = query(&session(as_written(), Some(horton())), &select(EXPANDS));
    assert_eq!(most_rows(&ran.plan), PAIRS);
}

#[test]
fn an_order_stays_where_moving_it_could_be_seen() {
    let on = "few.id = link.few_id AND other.id = link.other_id";
    let sorted = EXPANDS.replace("JOIN link", "JOIN sorted link");
    for text in [
        // Conditions that may fail, or are drawn.
        select(&format!("{EXPANDS} AND 10 / (few.v + other.v + 1) >= 0")),
        select(&format!("{EXPANDS} AND few.v + other.v + random() >= 0")),
        select(&format!(
            "{EXPANDS} AND CAST(few.s AS BIGINT) = link.few_id % 10"
        )),
        // The same in a table's own condition, in a column, and below an aggregate.
        select(&format!("{EXPANDS} WHERE 10 / (other.v + 1) >= 0")),
        select(&EXPANDS.replace(
            "JOIN other",
            "JOIN (SELECT id, 10 * g / 10 AS g, v FROM other) other",
        )),
        select(&EXPANDS.replace(
            "JOIN link",
            "JOIN (SELECT few_id, other_id, max(10 / (v + 1)) AS v FROM link GROUP BY few_id, \
             other_id) link",
        )),
        // Rows that match nothing.
        select(&format!(
            "few JOIN other ON few.g = other.g LEFT JOIN link ON {on}"
        )),
        // The rows of `sorted` come in order.
        select(&sorted),
        // NULL equals NULL.
        "SELECT x.f, x.o, link.v FROM (SELECT few.id AS f, other.id AS o FROM few \
         JOIN other ON few.g IS NOT DISTINCT FROM other.g) x \
         JOIN link ON x.f = link.few_id AND x.o = link.other_id"
            .to_owned(),
    ] {
        let plan = same_rows(&text);
        assert!(most_rows(&plan) >= PAIRS, "{text}\n{}", shown(&plan));
    }
}

#[test]
fn a_product_of_tables_becomes_joins_where_equalities_allow() {
    let text = "SELECT x.f, x.v, link.v \
                FROM (SELECT few.id AS f, other.id AS o, other.v FROM few CROSS JOIN other) x \
                JOIN link ON x.f = link.few_id AND x.o = link.other_id";
    let stock = query(&session(config(), None), text);
    assert_eq!(nodes::<CrossJoinExec>(&stock.plan).len(), 1);
    let plan = same_rows(text);
    assert_eq!(nodes::<CrossJoinExec>(&plan).len(), 0);
    assert!(most_rows(&plan) <= ROWS as usize, "{}", shown(&plan));
}

/// Keys of which little is known: `s` has two values, and `h` and `i` follow from `g`.
const DOUBTFUL: [&str; 3] = [
    "CREATE TABLE a AS SELECT value AS id, value % 200 AS x, value % 28 AS g, value % 28 AS h, \
     value % 28 * 3 AS i, CASE WHEN value % 2 = 0 THEN 'even' ELSE 'odd' END AS s, \
     value % 2 * 500000 AS far FROM range(0, 4000)",
    "CREATE TABLE b AS SELECT value AS id, value * 31 % 200 AS x FROM range(0, 4000)",
    "CREATE TABLE c AS SELECT value AS b, value / 5 % 28 AS g, value / 5 % 28 AS h, \
     value / 5 % 28 * 3 AS i, CASE WHEN value % 2 = 0 THEN 'even' ELSE 'odd' END AS s, \
     value % 2 * 500000 AS far FROM range(0, 4000)",
];

/// The join of `a` and `b` has 80,000 rows. Those of `a` and `c` have 570,000 to 8 million.
#[test]
fn keys_that_may_repeat_come_no_earlier_than_written() {
    let memory = horton_join::context(config().with_option_extension(horton()));
    for table in DOUBTFUL {
        sql(&memory, table).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let files = horton_join::context(config().with_option_extension(horton()));
    for name in ["a", "b", "c"] {
        let path = folder.path().join(format!("{name}.parquet"));
        let path = path.display();
        sql(&memory, &format!("COPY {name} TO '{path}'")).unwrap();
        let create = "CREATE EXTERNAL TABLE";
        let create = format!("{create} {name} STORED AS PARQUET LOCATION '{path}'");
        sql(&files, &create).unwrap();
    }
    let dictionary = "arrow_cast(s, 'Dictionary(Int32, Utf8)') AS s";
    for name in ["a", "c"] {
        let create =
            format!("CREATE TABLE d{name} AS SELECT * EXCEPT (s), {dictionary} FROM {name}");
        sql(&memory, &create).unwrap();
    }
    for (session, a, c, key) in [
        (&files, "a", "c", "a.s = c.s"),
        (&files, "a", "c", "a.far = c.far"),
        (&files, "a", "c", "a.g = c.g AND a.h = c.h AND a.i = c.i"),
        (&memory, "a", "c", "a.g = c.g AND a.h = c.h AND a.i = c.i"),
        (&memory, "a", "c", "a.s = c.s"),
        (&memory, "da", "dc", "a.s = c.s"),
    ] {
        let text = format!(
            "SELECT count(*) FROM {a} a JOIN b ON a.x = b.x JOIN {c} c ON b.id = c.b AND {key}"
        );
        let ran = query(session, &text);
        assert!(
            most_rows(&ran.plan) <= 80_000,
            "{text}\n{}",
            shown(&ran.plan)
        );
    }
}

#[test]
fn statistics_of_files_show_what_expands() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let written = session(config(), None);
    for name in ["few", "other", "link"] {
        sql(
            &written,
            &format!("COPY {name} TO '{}.parquet'", path(name)),
        )?;
    }
    let files = horton_join::context(config().with_option_extension(horton()));
    for name in ["few", "other", "link"] {
        let at = path(name);
        let create = "CREATE EXTERNAL TABLE";
        sql(
            &files,
            &format!("{create} {name} STORED AS PARQUET LOCATION '{at}.parquet'"),
        )?;
    }
    let found = query(&files, &select(EXPANDS));
    assert_eq!(found.rows, query(&written, &select(EXPANDS)).rows);
    assert!(
        most_rows(&found.plan) <= ROWS as usize,
        "{}",
        shown(&found.plan)
    );
    Ok(())
}
