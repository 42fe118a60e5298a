//! Joins drawn at random (from fixed seeds), so that properties meet that no list pairs up.

use std::ops::Range;

use arrow::array::ArrayRef;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::physical_plan::joins::PartitionMode;
use horton_join::table::horton::BucketSize;
use rand_mt::Mt;

use super::harness::*;

struct Random(Mt);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0.next_u32() as usize % n
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Key values of both sides: row counts, duplicates and NULLs as they come.
fn keys(random: &mut Random, columns: usize) -> [Vec<Vec<Option<i64>>>; 2] {
    let distinct = random.pick(&[5, 30, 500]);
    let nulls = random.pick(&[2, 8, 1000]);
    [
        random.pick(&[0, 1, 17, 90, 200]),
        random.pick(&[0, 1, 33, 120, 300]),
    ]
    .map(|rows| {
        let shift = random.below(distinct) as i64 / 2;
        let mut key = || match random.one_in(nulls) {
            true => None,
            false => Some(random.below(distinct) as i64 + shift),
        };
        let column = |_| (0..rows).map(|_| key()).collect();
        (0..columns).map(column).collect()
    })
}

fn column(keys: &[Option<i64>], data_type: &DataType) -> ArrayRef {
    match data_type {
        DataType::Utf8 => strings(keys),
        other => cast(&ints(keys), other).unwrap(),
    }
}

fn side(random: &mut Random, keys: &[Vec<Option<i64>>], types: &[DataType]) -> Side {
    let rows = keys[0].len();
    let mut columns: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .zip(keys.iter().zip(types))
        .map(|(name, (keys, to))| (name, column(keys, to)))
        .collect();
    let at = random.below(columns.len() + 1);
    columns.insert(at, ("v", payload(rows)));
    Side::new(columns)
}

fn draw(seed: u32) -> Case {
    use DataType::*;
    let random = &mut Random(Mt::new(seed));
    let columns = 1 + random.below(3);
    let all = [
        Int64,
        Int16,
        UInt32,
        Decimal128(30, 4),
        Utf8,
        Float64,
        Utf8View,
        Date64,
    ];
    let types: Vec<DataType> = (0..columns).map(|_| random.pick(&all)).collect();
    let [mut left, mut right] = keys(random, columns);
    let sorted = random.one_in(3);
    if sorted {
        left[0].sort_unstable();
        right[0].sort_unstable();
    }
    let mode = random.pick(&[PartitionMode::CollectLeft, PartitionMode::Partitioned]);
    let parts = 1 + random.below(4);
    let (build, probe) = (side(random, &left, &types), side(random, &right, &types));
    let of = |key: Option<i64>| key.map_or(0, |key| key as usize);
    let (build, probe) = match mode {
        PartitionMode::Partitioned => (
            build.in_partitions(parts, |row| of(left[0][row])),
            probe.in_partitions(parts, |row| of(right[0][row])),
        ),
        _ => (build, probe.in_partitions(parts, |row| row / 5)),
    };
    let build = build.in_batches_of(random.pick(&[1, 10, 64, 1000]));
    let mut probe = probe.in_batches_of(random.pick(&[1, 10, 64, 1000]));
    let at = |side: &Side, name: &str| side.schema.index_of(name).unwrap();
    if sorted && !matches!(types[0], Utf8 | Utf8View) {
        probe = probe.clone().sorted_by(at(&probe, "a"));
    }
    let mut case = Case::new(build, probe);
    let key = |name: &&str| {
        let build = case.build.column(at(&case.build, name));
        (build, case.probe.column(at(&case.probe, name)))
    };
    case.on = ["a", "b", "c"][..columns].iter().map(key).collect();
    case.mode = mode;
    case.join_type = random.pick(&JOIN_TYPES);
    case.null_equality = random.pick(&NULL_EQUALITIES);
    case.batch_size = random.pick(&[1, 2, 30, 128, 8192]);
    case.config.chunk_rows = random.pick(&[1, 20, 300, 1 << 18]);
    case.config.bucket_size =
        random.pick(&[BucketSize::Four, BucketSize::Eight, BucketSize::Sixteen]);
    case.config.load_factor = random.pick(&[0.2, 0.8, 0.9, 1.0]);
    if random.one_in(2) {
        let (b, p) = (at(&case.build, "v"), at(&case.probe, "v"));
        case = case.with_filter(b, p);
    }
    if random.one_in(3) {
        let columns = case.stock().join_schema().fields().len();
        let wanted = random.below(columns + 1);
        case.projection = Some((0..columns).filter(|c| c % 3 != wanted).collect());
    }
    case
}

fn check_seeds(seeds: Range<u32>) {
    let (mut launched, mut rows) = (0, 0);
    for seed in seeds {
        let case = draw(seed);
        let looked_up =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case.check_rows()));
        let run = looked_up.unwrap_or_else(|_| panic!("seed {seed}: {case}"));
        let launches = run.metric("kernel_launches");
        assert!(
            launches > 0 || !case.has_matchable_row(),
            "seed {seed}: {case}"
        );
        launched += usize::from(launches > 0);
        rows += run.count();
    }
    assert!(
        launched > 100 && rows > 10_000,
        "{launched} joins on the device, {rows} rows"
    );
}

#[test]
fn joins_drawn_at_random_return_the_rows_of_the_stock_join() {
    check_seeds(0..150);
}

#[test]
fn more_joins_drawn_at_random_return_the_rows_of_the_stock_join() {
    check_seeds(150..300);
}
