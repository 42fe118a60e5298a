//! Filters both ways: scans of the side that is probed get the other one's keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::datasource::MemTable;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::common::collect;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::{SessionConfig, SessionContext, col};
use horton_join::config::{Filters, HortonConfig, Knobs};
use horton_test_support::internals::DynamicFilterExec;

use super::plans::*;
use super::session::*;
use crate::feed::{Then, going_on, partition};
use horton_test_support::joins::*;

/// The device, and the host.
const PLACES: [At; 2] = [At::Device, At::Host];

fn horton_at(at: At) -> HortonConfig {
    HortonConfig {
        min_build_rows: at.min_build_rows(),
        ..horton()
    }
}

/// The same, where a first read has all rows of a side.
fn with_whole_reads(at: At) -> HortonConfig {
    HortonConfig {
        knobs: Knobs {
            sample_rows: 4096,
            ..Knobs::default()
        },
        ..horton_at(at)
    }
}

/// Batches so small that a scan is not read to its end before a build side is chosen. Joins on the
/// host hash their keys, which takes longer than to test a filter.
fn small_batches() -> SessionConfig {
    let arrays = "datafusion.execution.perfect_hash_join_small_build_threshold";
    config().with_batch_size(50).set_usize(arrays, 0)
}

/// Rows into and out of each scan that keeps a filter, in the order of the plan.
fn scanned(plan: &Arc<dyn ExecutionPlan>) -> Vec<(usize, usize)> {
    let scans = nodes::<DynamicFilterExec>(plan).into_iter();
    let of = |node: &Arc<dyn ExecutionPlan>, name| {
        let metrics = node.metrics().unwrap();
        metrics
            .sum(|metric| metric.value().name() == name)
            .map_or(0, |value| value.as_usize())
    };
    scans
        .map(|node| (of(&node, "input_rows"), of(&node, "output_rows")))
        .collect()
}

/// Rows that the scan of `big` let through; there are 3000.
fn passed(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let mut of_big = scanned(plan).into_iter().filter(|(seen, _)| *seen == 3000);
    let (_, passed) = of_big.next().unwrap_or_else(|| panic!("{}", shown(plan)));
    assert_eq!(of_big.next(), None);
    passed
}

/// Rows of `big` whose key is one of `small`.
fn partners(sessions: &Sessions) -> usize {
    let ran = query(
        &sessions.stock,
        "SELECT v FROM big WHERE k IN (SELECT k FROM small)",
    );
    ran.rows.len()
}

/// Rows that are read of a side before the other one is built: a batch or two per
/// partition.
const BEFORE: usize = 2 * 2 * 50;

#[test]
fn the_side_that_is_probed_is_filtered_whichever_it_is() {
    for at in PLACES {
        let sessions = Sessions::new(&small_batches(), horton_at(at));
        let most = partners(&sessions) + BEFORE;
        assert!(most < 1000, "{most}");
        for (text, build) in [
            (
                "SELECT big.v, small.v FROM small JOIN big ON small.k = big.k",
                Left,
            ),
            (
                "SELECT big.v, small.v FROM big JOIN small ON small.k = big.k",
                Right,
            ),
            (
                "SELECT big.v, small.v FROM small LEFT JOIN big ON small.k = big.k",
                Left,
            ),
            (
                "SELECT big.v, small.v FROM big RIGHT JOIN small ON small.k = big.k",
                Right,
            ),
            ("SELECT v FROM big WHERE k IN (SELECT k FROM small)", Right),
            ("SELECT v FROM small WHERE k IN (SELECT k FROM big)", Left),
            (
                "SELECT v FROM small WHERE NOT EXISTS (SELECT 1 FROM big WHERE big.k = small.k)",
                Left,
            ),
            (
                "SELECT v FROM small WHERE v < 3 OR k IN (SELECT k FROM big)",
                Left,
            ),
        ] {
            let ran = sessions.same_rows(text);
            let decisions = decisions(&ran.plan);
            assert_eq!(
                (only(&decisions).build, only(&decisions).rows),
                (build, 40),
                "{text}"
            );
            assert_place(only(&decisions), at, text);
            let passed = passed(&ran.plan);
            assert!(
                passed <= most,
                "{at:?} {passed} of {most}: {text}\n{}",
                shown(&ran.plan)
            );
        }
    }
}

#[test]
fn a_side_that_keeps_all_its_rows_is_not_filtered() {
    for at in PLACES {
        let sessions = Sessions::new(&small_batches(), horton_at(at));
        for text in [
            "SELECT big.v, small.v FROM big LEFT JOIN small ON small.k = big.k",
            "SELECT big.v, small.v FROM small RIGHT JOIN big ON small.k = big.k",
            "SELECT big.v, small.v FROM big FULL JOIN small ON small.k = big.k",
            "SELECT v FROM big WHERE NOT EXISTS (SELECT 1 FROM small WHERE small.k = big.k)",
            "SELECT v FROM big WHERE v < 3 OR k IN (SELECT k FROM small)",
        ] {
            let ran = sessions.same_rows(text);
            assert_eq!(only(&decisions(&ran.plan)).rows, 40, "{text}");
            for (seen, passed) in scanned(&ran.plan) {
                assert_eq!(seen, passed, "{text}\n{}", shown(&ran.plan));
            }
        }
    }
}

#[test]
fn the_side_that_is_built_keeps_all_its_rows() {
    for at in PLACES {
        let sessions = Sessions::new(&small_batches(), horton_at(at));
        for text in [
            "SELECT big.v, small.v FROM small JOIN big ON small.k = big.k",
            "SELECT big.v, small.v FROM big JOIN small ON small.k = big.k",
        ] {
            let ran = sessions.same_rows(text);
            let scans = scanned(&ran.plan);
            let small = scans.iter().filter(|(seen, _)| *seen == 40);
            assert!(small.clone().all(|(_, passed)| *passed == 40), "{scans:?}");
            assert_eq!(only(&decisions(&ran.plan)).rows, 40);
        }
    }
}

/// Checks that no row of `big` without a partner leaves its scan, in reads of `sample_rows` rows.
fn assert_filtered_from_the_first_row_on(text: &str, build: Which, sample_rows: usize) {
    for at in PLACES {
        let horton = HortonConfig {
            knobs: Knobs {
                sample_rows,
                ..Knobs::default()
            },
            ..horton_at(at)
        };
        let sessions = Sessions::new(&small_batches(), horton);
        let ran = sessions.same_rows(text);
        assert_eq!(only(&decisions(&ran.plan)).build, build, "{text}");
        let about = format!("{at:?} {sample_rows} {text}\n{}", shown(&ran.plan));
        assert_eq!(passed(&ran.plan), partners(&sessions), "{about}");
    }
}

#[test]
fn a_left_side_that_ends_in_its_first_read_filters_the_right_one_from_its_first_row_on() {
    let text = "SELECT big.v, small.v FROM small JOIN big ON small.k = big.k";
    for sample_rows in [100, 1 << 20] {
        assert_filtered_from_the_first_row_on(text, Left, sample_rows);
    }
}

#[test]
fn a_right_side_that_is_read_first_filters_the_left_one_from_its_first_row_on() {
    // With fewer rows than a read has, the left side still is the one that is read later.
    let text = "SELECT v FROM big WHERE k IN (SELECT k FROM small LIMIT 99)";
    for sample_rows in [100, 1 << 20] {
        assert_filtered_from_the_first_row_on(text, Right, sample_rows);
    }
}

#[test]
fn filters_pass_through_joins_whose_sides_are_open() {
    // The keys of `small` reach both scans of `big`: those of the join below, too.
    let query = "SELECT x.v, small.v FROM \
                 (SELECT a.k, a.v FROM big a \
                 JOIN (SELECT * FROM big WHERE v < 900) b ON a.k = b.k) x \
                 JOIN small ON small.k = x.k";
    for at in PLACES {
        for sample_rows in [SAMPLE_ROWS, 1 << 20] {
            let horton = HortonConfig {
                knobs: Knobs {
                    sample_rows,
                    ..Knobs::default()
                },
                ..horton_at(at)
            };
            Sessions::new(&small_batches(), horton).same_rows(query);
        }
    }
}

#[test]
fn a_session_without_filters_returns_the_same_rows() {
    let off = HortonConfig {
        filters: Filters::Off,
        ..horton()
    };
    let sessions = Sessions::new(&small_batches(), off);
    for from in ["big JOIN small", "small JOIN big", "big RIGHT JOIN small"] {
        let ran = sessions.same_rows(&format!(
            "SELECT big.v, small.v FROM {from} ON small.k = big.k"
        ));
        assert!(scanned(&ran.plan).is_empty());
        assert_eq!(only(&decisions(&ran.plan)).rows, 40);
    }
}

// ---------------------------------------------------------------- a plan that is executed again

/// Rows of the left and the right table in each run of a plan, and the side that ends first.
const RUNS: [(usize, usize, Which); 4] = [
    (40, 900, Left),
    (900, 40, Right),
    (40, 900, Left),
    (900, 40, Right),
];

/// The rows of a table in run `run`: keys that no other run has.
fn rows_of(run: usize, rows: usize, seed: u32) -> Side {
    let first = 10_000 * run as i64;
    let keys = repeating_keys(seed + run as u32, rows, 300);
    let keys: Vec<Option<i64>> = keys.iter().map(|key| key.map(|key| first + key)).collect();
    Side::new(vec![("k", ints(&keys)), ("v", payload(rows))]).in_batches_of(7)
}

/// A partition with the batches of `runs[n]` when it is read for the `n`-th time.
fn changing(runs: Vec<Side>) -> Arc<dyn PartitionStream> {
    let (schema, next) = (Arc::clone(&runs[0].schema), AtomicUsize::new(0));
    partition(&schema, move || {
        let run = next.fetch_add(1, Ordering::AcqRel);
        let batches: Vec<RecordBatch> = runs[run].partitions[0].clone();
        going_on(batches, Then::End)
    })
}

fn changing_table(session: &SessionContext, name: &str, runs: Vec<Side>) {
    let schema = Arc::clone(&runs[0].schema);
    let table = StreamingTable::try_new(schema, vec![changing(runs)]).unwrap();
    session.register_table(name, Arc::new(table)).unwrap();
}

#[test]
fn a_plan_that_is_executed_again_with_other_rows_decides_again() {
    for at in PLACES {
        let config = small_batches().with_target_partitions(1);
        let session = horton_join::context(config.with_option_extension(horton_at(at)));
        let left: Vec<Side> = (0..RUNS.len())
            .map(|run| rows_of(run, RUNS[run].0, 50))
            .collect();
        let right: Vec<Side> = (0..RUNS.len())
            .map(|run| rows_of(run, RUNS[run].1, 70))
            .collect();
        changing_table(&session, "l", left.clone());
        changing_table(&session, "r", right.clone());
        let plan = plan(
            &session,
            "SELECT l.k, l.v, r.k, r.v FROM l JOIN r ON l.k = r.k",
        );
        for (run, (_, _, build)) in RUNS.iter().enumerate() {
            let case = open(left[run].clone(), right[run].clone(), at);
            let found = rows(&session, &plan);
            assert_eq!(found, expected(&case), "{at:?} run {run}");
            assert!(!found.is_empty());
            let decisions = decisions(&plan);
            assert_eq!(
                (only(&decisions).build, only(&decisions).rows),
                (*build, 40)
            );
            assert_place(only(&decisions), at, "a run");
        }
        let (seen, passed) = scanned(&plan)
            .into_iter()
            .fold((0, 0), |sum, scan| (sum.0 + scan.0, sum.1 + scan.1));
        assert!(seen > 0 && passed < seen, "{passed} of {seen}");
    }
}

#[test]
fn several_keys_filter_together() {
    for at in PLACES {
        let sessions = Sessions::new(&small_batches(), horton_at(at));
        for session in [&sessions.stock, &sessions.horton] {
            let numbers = |of: fn(usize) -> usize| {
                let numbers: Vec<_> = (0..3000).map(|row| Some(of(row) as i64)).collect();
                ints(&numbers)
            };
            let columns = vec![
                ("x", numbers(|row| row % 50)),
                ("y", numbers(|row| row / 50)),
            ];
            let side = Side::new(columns)
                .in_partitions(2, |row| row)
                .in_batches_of(50);
            let table = MemTable::try_new(side.schema, side.partitions).unwrap();
            session.register_table("grid", Arc::new(table)).unwrap();
        }
        // Any `x` and any `y` has a partner, but one pair of fifty.
        let text = "SELECT a.x, a.y FROM (SELECT * FROM grid WHERE x = y) b \
                    JOIN grid a ON a.x = b.x AND a.y = b.y";
        let ran = sessions.same_rows(text);
        let scans = scanned(&ran.plan);
        let passed = scans.iter().map(|(_, passed)| *passed).min().unwrap_or(0);
        assert!(passed <= 60 + BEFORE, "{passed}: {}", shown(&ran.plan));
    }
}

/// An INTERSECT finds NULLs equal, in each key and in both.
#[test]
fn several_keys_with_nulls_that_are_equal_filter_together() {
    for at in PLACES {
        let sessions = Sessions::new(&small_batches(), horton_at(at));
        for some in ["k IS NULL OR k < 20", "k < 20", "v < 100", "k IS NULL"] {
            sessions.same_rows(&format!(
                "SELECT k, v FROM big WHERE {some} INTERSECT SELECT k, v FROM big"
            ));
            sessions.same_rows(&format!(
                "SELECT a.k, b.v FROM (SELECT * FROM big WHERE {some}) a \
                 RIGHT JOIN big b ON a.k = b.k AND a.v = b.v"
            ));
        }
    }
}

/// Of each batch of the right side the first side's keys leave a quarter, or fewer rows.
#[test]
fn a_side_that_the_first_ones_keys_make_much_smaller_is_built() {
    for at in [At::Device, At::Host] {
        let sessions = Sessions::new(&small_batches(), with_whole_reads(at));
        let left = "(SELECT k, v FROM big WHERE v % 4 = 0) a";
        for (common, build) in [(0, Right), (400, Right), (1600, Left)] {
            let right =
                format!("(SELECT k, v FROM big WHERE v % 4 <> 0 OR v < {common}) b ON a.v = b.v");
            for text in [
                format!("SELECT a.k, b.v FROM {left} JOIN {right}"),
                format!("SELECT a.k, a.v FROM {left} LEFT SEMI JOIN {right}"),
                format!("SELECT a.k, b.v FROM {left} LEFT JOIN {right}"),
                format!("SELECT a.k, a.v FROM {left} LEFT ANTI JOIN {right}"),
            ] {
                let (found, expected) = (
                    query(&sessions.horton, &text),
                    query(&sessions.stock, &text),
                );
                assert_eq!(found.rows, expected.rows, "{text}");
                let plan = shown(&found.plan);
                assert_eq!(decisions(&found.plan)[0].build, build, "{text}\n{plan}");
            }
        }
    }
}

/// The other side's table has more rows than a first read, and is read to its end before a row
/// comes.
#[test]
fn a_much_smaller_side_of_a_large_table_is_built_unless_the_first_rows_may_be_enough() {
    let joined = "(SELECT * FROM big WHERE v < 800) a LEFT JOIN \
                  (SELECT * FROM big WHERE v % 10 = 0) b ON a.v = b.v \
                  WHERE b.v IS NULL OR b.v > a.k";
    let all = format!("SELECT a.k, a.v FROM {joined}");
    for at in [At::Device, At::Host] {
        let mut config = with_whole_reads(at);
        config.knobs.sample_rows = 1000;
        let sessions = Sessions::new(&small_batches(), config);
        for (text, build) in [
            (all.clone(), Right),
            (format!("{all} ORDER BY a.v"), Right),
            (
                format!("SELECT a.k, max(a.v) FROM {joined} GROUP BY a.k"),
                Right,
            ),
            (format!("SELECT k, v FROM ({all}) ORDER BY v LIMIT 5"), Left),
        ] {
            let ran = sessions.same_rows(&text);
            let plan = shown(&ran.plan);
            assert_eq!(
                decisions(&ran.plan)[0].build,
                build,
                "{at:?} {text}\n{plan}"
            );
        }
        let rows = query(&sessions.stock, &all).rows;
        for text in [
            format!("{all} LIMIT 5"),
            format!("SELECT DISTINCT a.k, a.v FROM {joined} LIMIT 5"),
        ] {
            let ran = query(&sessions.horton, &text);
            let plan = shown(&ran.plan);
            assert_eq!(decisions(&ran.plan)[0].build, Left, "{at:?} {text}\n{plan}");
            assert_eq!(ran.rows.len(), 5, "{text}");
            assert!(ran.rows.iter().all(|row| rows.contains(row)), "{text}");
        }
    }
}

/// The rows of a side that ended second are partners of one read of the first side. Another read
/// may give others.
#[test]
fn a_plan_whose_smaller_side_is_built_is_read_twice_at_once() {
    for at in [At::Device, At::Host] {
        let config = small_batches()
            .with_target_partitions(1)
            .with_option_extension(with_whole_reads(at));
        let session = horton_join::context(config);
        let left: Vec<Side> = (0..2).map(|run| rows_of(run, 900, 50)).collect();
        // Few partners of either run among others, in each batch.
        let key = |row: i64| match row % 20 {
            0 => row / 20,
            10 => 10_000 + row / 20,
            _ => -row,
        };
        let keys: Vec<Option<i64>> = (0..2000).map(|row| Some(key(row))).collect();
        let right = Side::new(vec![("k", ints(&keys)), ("v", payload(keys.len()))]);
        changing_table(&session, "l", left.clone());
        let table = MemTable::try_new(Arc::clone(&right.schema), right.partitions.clone()).unwrap();
        session.register_table("r", Arc::new(table)).unwrap();
        let plan = plan(
            &session,
            "SELECT l.k, l.v, r.k, r.v FROM l JOIN r ON l.k = r.k",
        );
        let (context, executed) = (session.task_ctx(), Arc::clone(&plan));
        let found = block_on(async move {
            let execute = || executed.execute(0, Arc::clone(&context)).unwrap();
            let [first, second] = [execute(), execute()].map(collect);
            [first.await.unwrap(), second.await.unwrap()]
        });
        for (run, found) in found.into_iter().enumerate() {
            let case = open(left[run].clone(), right.clone(), at);
            let found = sorted(text(&found));
            assert_eq!(found, expected(&case), "{at:?} run {run}");
            assert!(!found.is_empty());
        }
        assert!(
            decisions(&plan)
                .iter()
                .all(|decision| decision.build == Right)
        );
    }
}

/// The scan of `big` tests the comparisons of a WHERE together with the keys.
#[test]
fn a_scan_tests_the_comparisons_of_a_where_together_with_the_keys() {
    for at in PLACES {
        let sessions = Sessions::new(&small_batches(), with_whole_reads(at));
        for (r#where, tested) in [
            ("v < 300", "v@1 < 300"),
            ("k + v <> 3 AND v >= 2700", "v@1 >= 2700"),
        ] {
            let text = format!(
                "SELECT big.v, small.v FROM small JOIN (SELECT * FROM big WHERE {where}) big \
                 ON small.k = big.k"
            );
            let ran = sessions.same_rows(&text);
            let plan = shown(&ran.plan);
            assert!(plan.contains(&format!(", predicate={tested}")), "{plan}");
            assert_eq!(nodes::<FilterExec>(&ran.plan).len(), 1, "{plan}");
            // Of the rows with a partner, those that the WHERE excludes are left out as well.
            let (passed, partners) = (passed(&ran.plan), partners(&sessions));
            assert!(passed < partners, "{passed} of {partners}\n{plan}");
        }
        for other in [
            "v % 10 = 3",
            "v % 10 = 3 AND v < 300",
            "random() < 2 AND v < 300",
        ] {
            let text = format!(
                "SELECT big.v FROM small JOIN (SELECT * FROM big WHERE {other}) big \
                 ON small.k = big.k"
            );
            let plan = shown(&sessions.same_rows(&text).plan);
            assert!(!plan.contains(", predicate="), "{plan}");
        }
    }
}

/// AND divides only where few rows of a batch are left. If the scan left out the others before,
/// there would be many.
#[test]
fn a_condition_that_may_fail_meets_no_other_rows() {
    for at in PLACES {
        let sessions = Sessions::new(&small_batches(), with_whole_reads(at));
        let column = |of: fn(i64) -> i64| {
            let values: Vec<_> = (0..3000).map(|row| Some(of(row))).collect();
            ints(&values)
        };
        let columns = vec![
            ("k", column(|row| row)),
            ("m", column(|row| row % 10)),
            ("z", column(|row| i64::from(row % 10 == 3))),
            ("h", column(|row| i64::from(row % 10 != 3 && row % 10 != 4))),
        ];
        let divided = Side::new(columns).in_batches_of(1000);
        for session in [&sessions.stock, &sessions.horton] {
            let (schema, partitions) = (Arc::clone(&divided.schema), divided.partitions.clone());
            let table = MemTable::try_new(schema, partitions).unwrap();
            session.register_table("divided", Arc::new(table)).unwrap();
        }
        let few = "(SELECT k FROM divided WHERE m IN (3, 4)) s";
        for text in [
            "SELECT d.k FROM (SELECT k FROM divided WHERE k % 3 = 0) s JOIN \
             (SELECT * FROM divided WHERE m % 10 = 3 AND 10 / z > 1 AND h < 1) d ON s.k = d.k"
                .to_owned(),
            format!(
                "SELECT d.k FROM {few} JOIN \
                 (SELECT * FROM divided WHERE m % 10 = 3 AND 10 / z > 1) d ON s.k = d.k"
            ),
            format!(
                "SELECT d.k, d.f FROM {few} JOIN \
                 (SELECT k, m = 3 AND 10 / z > 1 AS f FROM divided) d ON s.k = d.k"
            ),
            format!(
                "SELECT d.k, d.f FROM {few} JOIN \
                 (SELECT k, max(m = 3 AND 10 / z > 1) AS f FROM divided GROUP BY k) d ON s.k = d.k"
            ),
            // Pairs of the lower join, of which the upper one needs a fifth.
            format!(
                "SELECT a.k FROM divided a JOIN divided b \
                 ON a.k = b.k AND a.m + b.m = 6 AND 10 / (a.z * b.z) > 1 JOIN {few} ON s.k = b.k"
            ),
            format!(
                "SELECT a.k FROM divided a JOIN divided b ON a.k = b.k AND \
                 (a.m + b.m = 6 AND 10 / (a.z * b.z) > 1) IS TRUE JOIN {few} ON s.k = b.k"
            ),
        ] {
            assert!(!sessions.same_rows(&text).rows.is_empty(), "{text}");
        }
        // CASE divides for its own rows alone, whatever else is in the batch. So filters pass it.
        let filtered = |condition: &str| {
            let text = format!(
                "SELECT d.k FROM {few} JOIN (SELECT * FROM divided WHERE {condition}) d ON s.k = d.k"
            );
            let ran = sessions.same_rows(&text);
            assert!(!ran.rows.is_empty(), "{text}");
            nodes::<DynamicFilterExec>(&ran.plan).len()
        };
        let [by_batch, by_row] = [
            "m = 3 AND 10 / z > 1",
            "CASE WHEN m = 3 THEN 10 / z END > 1",
        ];
        assert!(filtered(by_batch) < filtered(by_row));
    }
}

/// The rows of each partition of the tables that `plan` scans, in the order of the plan.
fn partition_rows(plan: &Arc<dyn ExecutionPlan>) -> Vec<Vec<usize>> {
    let scans = nodes::<DataSourceExec>(plan).into_iter();
    let of = |node: Arc<dyn ExecutionPlan>| {
        let scan = node.downcast_ref::<DataSourceExec>().unwrap();
        let table = scan.data_source().downcast_ref::<MemorySourceConfig>();
        let partitions = table.unwrap().partitions().iter();
        let rows = partitions.map(|batches| batches.iter().map(RecordBatch::num_rows).sum());
        rows.collect::<Vec<usize>>()
    };
    scans.map(of).collect()
}

#[test]
fn rows_in_one_partition_of_a_table_are_dealt_out_below_joins_alone() {
    const UNEVEN: [usize; 3] = [0, 3000, 0];
    for at in PLACES {
        let sessions = Sessions::new(&small_batches(), horton_at(at));
        for session in [&sessions.horton, &sessions.stock] {
            let keys: Vec<Option<i64>> = (0..3000).map(Some).collect();
            for name in ["uneven", "ordered"] {
                let rows = Side::new(vec![("k", ints(&keys)), ("v", payload(3000))]);
                let rows = rows.in_batches_of(50);
                let partitions = vec![vec![], rows.partitions[0].clone(), vec![]];
                let mut table = MemTable::try_new(rows.schema, partitions).unwrap();
                if name == "ordered" {
                    table = table.with_sort_order(vec![vec![col("k").sort(true, false)]]);
                }
                session.register_table(name, Arc::new(table)).unwrap();
            }
        }
        let of_table = |text: &str| {
            let plan = sessions.same_rows(text).plan;
            let mut of_tables = partition_rows(&plan).into_iter();
            let found = of_tables.find(|rows| rows.iter().sum::<usize>() == 3000);
            found.unwrap_or_else(|| panic!("{}", shown(&plan)))
        };
        let joined = |name: &str| {
            format!("SELECT u.k, u.v, small.v FROM small JOIN {name} u ON small.k = u.k")
        };
        assert_eq!(of_table(&joined("uneven")), [1000, 1000, 1000]);
        assert_eq!(of_table(&joined("ordered")), UNEVEN);
        let first = joined("(SELECT * FROM uneven LIMIT 3000)");
        assert_eq!(of_table(&first), UNEVEN);
        assert_eq!(of_table("SELECT k, v FROM uneven"), UNEVEN);
        assert_eq!(of_table("SELECT count(*), sum(v) FROM uneven"), UNEVEN);
    }
}
