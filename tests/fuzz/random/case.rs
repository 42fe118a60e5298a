//! A join as plain data, and drawing one at random.
//!
//! A [`Case`] is all there is to know about a join: printed with `Debug` it is Rust text again once
//! each `[` is a `vec![`, so a failing case is pasted as a test ([`Case::as_test`]; what it names
//! is imported there). Values are abstract numbers that each [`Kind`](super::data::Kind) turns into
//! values of its type. So a column's type can change while its equalities stay (nearly) the same.
//!
//! Most cases are tiny: a bug that needs three thousand rows is rare, and two rows run
//! a hundred times as fast.

use std::collections::HashMap;

use datafusion::common::{JoinType, NullEquality};
use horton_join::table::horton::MAX_VALUE;
use horton_join::table::multimap::IndexKind;

use super::super::numbers::Random;
use super::data::Kind;

/// A join and how to run it.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub build: Side,
    pub probe: Side,
    pub on: Vec<Key>,
    pub join_type: JoinType,
    pub mode: Mode,
    pub null_equality: NullEquality,
    pub null_aware: bool,
    pub filter: Option<Filter>,
    /// Output columns, modulo their number.
    pub projection: Option<Vec<usize>>,
    pub fetch: Option<usize>,
    pub batch_size: usize,
    /// Partitions of the probe side, and of the build side where both are split.
    pub partitions: usize,
    /// Rows after which the other side is read, too, where either may be built.
    pub sample_rows: usize,
    /// Rows of a build side from which the device is asked; `None`: whatever they are.
    pub min_build_rows: Option<usize>,
    /// True if DataFusion's own join repartitions its inputs, where it may.
    pub host_splits: bool,
    /// Partitions run at the same time, not one after the other.
    pub side_by_side: bool,
    /// Partitions of each input wait until all of them are polled.
    pub gathers: bool,
    /// The plan runs a second time after `reset_state`.
    pub again: bool,
    /// Bytes of the memory pool; 0: no limit.
    pub pool_limit: usize,
    /// Polls of its streams after which a first run of the plan is dropped.
    pub cancel_after: Option<usize>,
    /// An OpenCL call that fails in one more run of the plan.
    pub strike: Option<Strike>,
    pub table: Table,
    /// The plan runs once more over these scans, which get the build side's keys.
    pub scan: Option<Scan>,
    /// The seed of a consumer that misbehaves, by which the plan is read once more.
    pub consumer: Option<u64>,
}

/// Scans that keep filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// Batches in memory.
    Memory,
    /// A Parquet file per partition.
    Parquet,
}

/// One input.
#[derive(Debug, Clone, PartialEq)]
pub struct Side {
    pub columns: Vec<Column>,
    /// Rows of the batches, over and over until all rows are used up.
    pub batches: Vec<usize>,
    /// Batches are slices of arrays with other rows in front.
    pub sliced: bool,
    /// Rows are sorted by this column, and the plan says so.
    pub sorted_by: Option<usize>,
    /// One more column has the number of its rows' partition, and the plan says so.
    pub tagged: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub kind: Kind,
    pub values: Vec<Option<i64>>,
}

/// A pair of key columns, both cast to text or as they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    pub build: usize,
    pub probe: usize,
    pub as_text: bool,
}

/// An OpenCL call that fails, in debug builds: numbers are modulo how many there are.
#[derive(Debug, Clone, PartialEq)]
pub struct Strike {
    /// Number of the site among those that the case uses.
    pub site: usize,
    /// Number of the use of that site.
    pub nth: usize,
    /// Number of the status code.
    pub status: usize,
    /// True if all later calls fail, too.
    pub lasts: bool,
    /// True if the host is to go on, false if the query is to end.
    pub falls_back: bool,
}

/// The way in which the inputs are partitioned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// `CollectLeft`: build in one partition, probe batches dealt out in turn.
    Collected,
    /// `CollectLeft`, probe rows dealt out by a `RepartitionExec`, and the plan says so: a join
    /// that keeps them where they are says so, too.
    Kept,
    /// `Partitioned`: both sides split by the hash of their keys beforehand.
    Split,
    /// `Partitioned`: both sides split by `RepartitionExec`.
    Repartitioned,
    /// `Auto`: either side may be built; batches of both dealt out in turn.
    Open {
        /// Partitions of the planned build side.
        build: usize,
    },
}

/// A residual filter.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    Constant(Option<bool>),
    Less(Term, Term),
    Same(Term, Term),
    IsNull(Term),
}

/// An `Int32` of a filter: a column (of that type) or a constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Term {
    Build(usize),
    Probe(usize),
    Value(i32),
}

/// Settings of the device side.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub chunk_rows: usize,
    pub normalized_key_bits: u32,
    /// The kind of index.
    pub index: IndexKind,
    /// Bytes in use on the device at most; 0: the default.
    pub device_limit: u64,
    /// Rows of one table at most.
    pub max_rows: usize,
}

impl Side {
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |c| c.values.len())
    }
}

impl Case {
    /// The case as a test to paste into `regressions.rs`.
    pub fn as_test(&self, seed: u64) -> String {
        let mut case = format!("{self:?}").replace('[', "vec![");
        case = case.replace("index: ", "index: IndexKind::");
        for variant in ["Constant(", "Less(", "Same(", "IsNull("] {
            case = case.replace(variant, &format!("Filter::{variant}"));
        }
        for variant in ["Build(", "Probe(", "Value("] {
            case = case.replace(variant, &format!("Term::{variant}"));
        }
        format!("#[test]\nfn fuzz_{seed:x}() {{\n    check(&{case});\n}}\n")
    }

    /// The case that `seed` stands for.
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut case = draw(&mut random);
        case.bound_output(&mut random);
        if random.one_in(8) {
            // By consumers that poll all partitions, and over inputs that filters need not pass.
            (case.gathers, case.side_by_side) = (true, true);
            (case.scan, case.consumer) = (None, None);
        }
        case
    }

    /// Drops probe rows until the pairs are few enough, and unfit knobs then.
    fn bound_output(&mut self, random: &mut Random) {
        const PAIRS: usize = 20_000;
        let mut builds: HashMap<Vec<Option<i64>>, usize> = HashMap::new();
        for row in 0..self.build.rows() {
            *builds.entry(self.key(row, true)).or_default() += 1;
        }
        let mut pairs = 0;
        let mut kept = 0;
        while kept < self.probe.rows() && pairs <= PAIRS {
            pairs += builds.get(&self.key(kept, false)).copied().unwrap_or(0);
            kept += 1;
        }
        for column in &mut self.probe.columns {
            column.values.truncate(kept);
        }
        // Not more than some hundred steps or batches per case.
        let rows = pairs + self.build.rows() + self.probe.rows();
        self.batch_size = self.batch_size.max(rows / 200);
        for side in [&mut self.build, &mut self.probe] {
            let most = 64 * side.batches.iter().sum::<usize>() / side.batches.len();
            if side.rows() > most {
                side.batches = vec![side.rows() / (1 + random.below(20))];
            }
        }
    }

    /// A key row, in numbers that are equal at least where the keys are.
    fn key(&self, row: usize, build: bool) -> Vec<Option<i64>> {
        let reduced = |key: &Key| {
            let column = match build {
                true => &self.build.columns[key.build],
                false => &self.probe.columns[key.probe],
            };
            column.values[row].and_then(|value| column.kind.reduce(value))
        };
        self.on.iter().map(reduced).collect()
    }
}

const JOIN_TYPES: [JoinType; 10] = [
    JoinType::Inner,
    JoinType::Left,
    JoinType::Right,
    JoinType::Full,
    JoinType::LeftSemi,
    JoinType::RightSemi,
    JoinType::LeftAnti,
    JoinType::RightAnti,
    JoinType::LeftMark,
    JoinType::RightMark,
];

fn draw(random: &mut Random) -> Case {
    let keys = random.pick(&[1, 1, 1, 1, 2, 2, 3, 4]);
    let (rows, probe_rows) = (row_count(random), row_count(random));
    let mut build = Vec::new();
    let mut probe = Vec::new();
    let mut on = Vec::new();
    let unique = keys == 1 && random.one_in(3);
    for key in 0..keys {
        let (kind, other) = random.pick(&Kind::KEYS);
        let domain = Domain::random(random, kind, rows);
        build.push(Column {
            kind,
            values: match unique {
                true => domain.distinct(random, rows),
                false => domain.draw(random, rows, 0),
            },
        });
        let shift = random.pick(&[0, 0, 1, domain.size as i64 / 2, domain.size as i64]);
        probe.push(Column {
            kind: if random.one_in(3) { other } else { kind },
            values: domain.draw(random, probe_rows, shift),
        });
        on.push(Key {
            build: key,
            probe: key,
            as_text: kind.is_integer() && other == kind && random.one_in(12),
        });
    }
    if keys > 1 && random.one_in(16) {
        // One probe column against two build columns.
        let again = Key {
            probe: 0,
            ..on[1].clone()
        };
        if build[1].kind == build[0].kind && probe[1].kind == probe[0].kind {
            on.push(again);
        }
    }
    payload(random, &mut build, rows);
    payload(random, &mut probe, probe_rows);
    let filter = random
        .one_in(3)
        .then(|| Filter::random(random, &build, &probe));
    let join_type = random.pick(&JOIN_TYPES);
    // The stock join's NOT IN asks for the NULLs that a null buffer has, and overlooks others.
    let nulls_in_buffer = !matches!(build[0].kind, Kind::Null | Kind::DictionaryUtf8);
    let null_aware =
        join_type == JoinType::LeftAnti && on.len() == 1 && nulls_in_buffer && random.one_in(2);
    let mode = match null_aware {
        true => Mode::Collected,
        false => random.pick(&[
            Mode::Collected,
            Mode::Collected,
            Mode::Kept,
            Mode::Kept,
            Mode::Split,
            Mode::Split,
            Mode::Repartitioned,
            Mode::Open { build: 1 },
            Mode::Open { build: 1 },
            Mode::Open { build: 2 },
            Mode::Open { build: 3 },
        ]),
    };
    // From less than a batch of a few rows to more than most cases have.
    let pool_limit = match random.one_in(4) {
        true => 1 << (8 + random.below(8)),
        false => 0,
    };
    Case {
        build: side(random, build, rows),
        probe: side(random, probe, probe_rows),
        on,
        join_type,
        mode,
        null_equality: match null_aware || random.one_in(2) {
            true => NullEquality::NullEqualsNothing,
            false => NullEquality::NullEqualsNull,
        },
        null_aware,
        filter,
        projection: random.one_in(3).then(|| {
            let columns = random.below(6);
            (0..columns).map(|_| random.below(12)).collect()
        }),
        fetch: random
            .one_in(5)
            .then(|| random.pick(&[0, 1, 1, 2, 3, 5, 10, 50, 1000])),
        batch_size: random.pick(&[1, 2, 3, 7, 16, 100, 1024, 8192, 8192]),
        partitions: random.pick(&[1, 1, 2, 3, 4]),
        sample_rows: random.pick(&[1, 2, 7, 30, 200, 1 << 20]),
        min_build_rows: random.one_in(4).then(|| match random.below(4) {
            0 => usize::MAX,
            1 => rows.max(1),
            2 => rows + 1,
            _ => 1 + random.below(1 + rows.max(probe_rows)),
        }),
        side_by_side: random.one_in(6),
        gathers: false,
        again: random.one_in(16),
        pool_limit,
        // A RepartitionExec of several inputs that spills can wait for itself
        // (apache/datafusion#24883).
        host_splits: pool_limit == 0 && random.one_in(2),
        cancel_after: random.one_in(8).then(|| random.below(40)),
        // Most take the context with them, and compiling its programs again takes the time of
        // twenty cases.
        strike: random.one_in(24).then(|| Strike::random(random)),
        table: Table {
            chunk_rows: random.pick(&[1, 2, 5, 17, 100, 1000, 65536, 65536, 65536]),
            normalized_key_bits: random.pick(&[0, 1, 3, 5, 8, 12, 32, 32, 32, 32]),
            index: random.pick(&[
                IndexKind::Auto,
                IndexKind::Horton,
                IndexKind::Direct,
                IndexKind::CacheLine,
            ]),
            device_limit: match random.one_in(6) {
                true => random.pick(&[10_000, 100_000, 150_000, 250_000, 400_000]),
                false => 0,
            },
            max_rows: match random.one_in(8) {
                true => random.pick(&[1, 3, 20, 100]),
                false => MAX_VALUE as usize,
            },
        },
        scan: random
            .one_in(3)
            .then(|| random.pick(&[Scan::Memory, Scan::Memory, Scan::Parquet])),
        consumer: (!random.one_in(3)).then(|| random.number()),
    }
}

fn row_count(random: &mut Random) -> usize {
    match random.below(100) {
        0..6 => 0,
        6..40 => 1 + random.below(8),
        40..85 => 1 + random.below(80),
        85..97 => 1 + random.below(500),
        _ => 1 + random.below(3000),
    }
}

/// Appends up to 4 columns; the first two are `Int32`, for filters and to tell rows apart.
fn payload(random: &mut Random, columns: &mut Vec<Column>, rows: usize) {
    for column in 0..random.below(5) {
        let kind = match column {
            0 | 1 => Kind::Int32,
            _ => random.pick(&Kind::PAYLOADS),
        };
        let values = match column {
            0 => (0..rows as i64).map(Some).collect(),
            _ => Domain::random(random, kind, rows).draw(random, rows, 0),
        };
        columns.push(Column { kind, values });
    }
}

fn side(random: &mut Random, columns: Vec<Column>, rows: usize) -> Side {
    let batches = match random.below(4) {
        0 => vec![rows.max(1)],
        1 => vec![1 + random.below(10)],
        2 => vec![
            1 + random.below(100),
            0,
            1 + random.below(5),
            random.below(30),
        ],
        _ => vec![0, 1 + random.below(1 + rows)],
    };
    let sortable = columns.iter().position(|column| column.kind.is_sortable());
    Side {
        columns,
        batches,
        sliced: random.one_in(3),
        sorted_by: sortable.filter(|_| random.one_in(4)),
        tagged: random.one_in(4),
    }
}

impl Strike {
    fn random(random: &mut Random) -> Self {
        Self {
            site: random.below(1000),
            nth: random.below(1000),
            status: random.below(1000),
            lasts: random.one_in(2),
            falls_back: !random.one_in(4),
        }
    }
}

impl Filter {
    fn random(random: &mut Random, build: &[Column], probe: &[Column]) -> Self {
        match random.below(8) {
            0 => Filter::Constant(random.pick(&[Some(true), Some(false), None])),
            1 => Filter::IsNull(Term::random(random, build, probe)),
            2..4 => Filter::Same(
                Term::random(random, build, probe),
                Term::random(random, build, probe),
            ),
            _ => Filter::Less(
                Term::random(random, build, &[]),
                Term::random(random, &[], probe),
            ),
        }
    }
}

impl Term {
    fn random(random: &mut Random, build: &[Column], probe: &[Column]) -> Self {
        let ints = |columns: &[Column], term: fn(usize) -> Term| -> Vec<Term> {
            let ints = columns.iter().enumerate();
            let ints = ints.filter(|(_, column)| column.kind == Kind::Int32);
            ints.map(|(index, _)| term(index)).collect()
        };
        let mut terms = ints(build, Term::Build);
        terms.extend(ints(probe, Term::Probe));
        if terms.is_empty() || random.one_in(6) {
            return Term::Value(random.below(20) as i32);
        }
        random.pick(&terms)
    }
}

/// The numbers that a column draws from: `first + step · (0..size)`.
struct Domain {
    first: i64,
    step: i64,
    size: usize,
    /// One in so many values is NULL.
    nulls: usize,
    /// Values of ten that are the hot one.
    hot: usize,
}

/// Values at the ends of some type's range.
const EXTREMES: [i64; 14] = [
    i64::MIN,
    i64::MIN + 1,
    i32::MIN as i64,
    i16::MIN as i64,
    -1,
    0,
    1,
    i8::MAX as i64,
    u8::MAX as i64,
    i16::MAX as i64,
    i32::MAX as i64,
    u32::MAX as i64,
    i64::MAX - 1,
    i64::MAX,
];

impl Domain {
    fn random(random: &mut Random, kind: Kind, rows: usize) -> Self {
        let few = 1 + random.below(6);
        let (first, step) = match random.below(10) {
            // Step 0 stands for the extremes.
            0 => (0, 0),
            1 => (-4, 0x0123_4567_89ab_cdef),
            2 => (1 << 40, 1),
            3 => (0, 1 << random.below(40)),
            4..6 => (-6, 1),
            _ => (0, 1),
        };
        Self {
            first: if kind.is_float() { -6 } else { first },
            step: if kind.is_float() { 1 } else { step },
            size: random
                .pick(&[few, few, rows / 4, rows, 2 * rows, 20 * rows])
                .max(1),
            nulls: random.pick(&[1, 2, 8, 8, 1000, usize::MAX, usize::MAX]),
            hot: random.pick(&[0, 0, 0, 5, 9]),
        }
    }

    fn value(&self, i: i64) -> i64 {
        match self.step {
            0 => EXTREMES[i.rem_euclid(EXTREMES.len() as i64) as usize],
            step => self.first.wrapping_add(step.wrapping_mul(i)),
        }
    }

    fn draw(&self, random: &mut Random, rows: usize, shift: i64) -> Vec<Option<i64>> {
        let mut value = || {
            if random.one_in(self.nulls) {
                return None;
            }
            let i = match random.below(10) < self.hot {
                true => 0,
                false => random.below(self.size),
            };
            Some(self.value(i as i64 + shift))
        };
        (0..rows).map(|_| value()).collect()
    }

    /// Returns values as [`draw`](Self::draw) does, without repeats (of numbers).
    fn distinct(&self, random: &mut Random, rows: usize) -> Vec<Option<i64>> {
        let mut numbers: Vec<i64> = (0..rows as i64).collect();
        for at in (1..rows).rev() {
            numbers.swap(at, random.below(at + 1));
        }
        let value = |i: i64| match random.one_in(self.nulls) {
            true => None,
            false => Some(self.value(i)),
        };
        numbers.into_iter().map(value).collect()
    }
}
