//! Measures both joins on this machine.
//!
//! ```text
//!  build × probe rows   few × few   many × few   few × many   many × many
//!  number keys ┌─▶ device, stock       ▶            ▶             ▶       ─┐
//!  hashed keys │      ▶          ▶, half of       ▶             ▶        │ a round;
//!              │                  them collected                           │ best of each
//!  number keys │               with texts of          with more columns    │
//!              │               the build side;        of the probe side    │
//!              │               keys four times                            ─┤
//!              └───────────────────────────────────────────────────────────┘
//! ```
//!
//! What is timed is a whole query of two tables in memory, planning included, through the same
//! entry that users take: a cost that is forgotten here would be forgotten in every decision.
//! In the first round all warms up, and kernels are compiled that no cache has. How long the second
//! one takes tells how large tables can be: a row's cost is a difference of times, which noise
//! hides where it is small, and few rows stay in caches. (Up to six cores: with more they are nearly
//! as large as any from the start.) As many rounds follow as fit into a second, and the best of all
//! with tables of that size counts: a moment in which the machine has something else to do spoils
//! one time of each case. Even a small probe side has rows for many cores, or what it costs
//! to hand rows from each core to each would count as a cost of rows.
//!
//! The cost: a second, once a machine and device, and while it lasts memory for the tables, 0.2 GB by their sizes and as
//! much again for the smaller ones where they grew.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::Int64Type;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::config::{Enabled, HortonConfig, OnDeviceError};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::join::parts::side_by_side;
use crate::session;

use super::{Costs, Keys, Line, Measured, milliseconds};

/// Rows of a small build side.
const FEW: usize = 1 << 13;

/// Rows of a small probe side: a batch for each core, but no more than an eighth of a large one.
fn few_probe_rows(many: usize, cores: usize) -> usize {
    (BATCH * cores).min(many / 8)
}

/// Rows of a large table for each core, at first; fewer where nothing is optimized, in tests.
const MANY_A_CORE: usize = match cfg!(debug_assertions) {
    true => 1 << 14,
    false => 1 << 16,
};

/// Rows of a large table, however many cores there are and however fast.
const MOST: usize = 5 << 17;

/// Rows of a batch.
const BATCH: usize = 8192;

/// Rounds at most.
const MOST_ROUNDS: usize = 12;

/// Rounds that should fit: tables are as large as they let them be.
const ROUNDS: f64 = 4.0;

/// How many times as large they get; for less it is not worth to make others.
const TIMES: RangeInclusive<f64> = 1.5..=4.0;

/// What all of it may take, if kernels are at hand; the last round may take longer than the one before it.
const ENOUGH: Duration = Duration::from_millis(900);

/// Measures both joins, in a runtime of its own: whoever plans a query may be inside one.
///
/// # Errors
/// The device's, or that no thread could be started.
pub(super) fn calibrate(device: &Device) -> Result<Costs> {
    let measure = || -> Result<Costs> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .build()
            .map_err(|e| Error::Invalid(format!("no runtime to calibrate in: {e}")))?;
        let began = Instant::now();
        let costs = runtime.block_on(measure(device));
        log::info!(
            "calibrated {} in {:?}",
            device.info().label(),
            began.elapsed()
        );
        costs
    };
    std::thread::scope(|scope| {
        let measured = std::thread::Builder::new()
            .name("horton calibration".to_owned())
            .spawn_scoped(scope, measure)
            .map_err(|e| Error::Invalid(format!("no thread to calibrate in: {e}")))?;
        measured
            .join()
            .unwrap_or_else(|_| Err(Error::Invalid("the calibration panicked".to_owned())))
    })
}

/// Columns that a wide probe side of so many rows has beyond its key and one more. With few rows 16 show less than
/// noise does; with the most, 32 would leave no time for a third round.
fn wide_columns(rows: usize) -> usize {
    if rows < MOST { 32 } else { 16 }
}

/// Rows of a key, where keys repeat.
const REPEATS: usize = 4;

/// The part of a large table that is collected: one core builds that, many build all of it.
const COLLECTED_PART: usize = 2;

/// A join that is measured.
struct Case {
    keys: Keys,
    build: Side,
    probe: Side,
    query: String,
    /// The best times on the device and as the stock join, in milliseconds.
    best: [f64; 2],
}

/// One input of a join.
struct Side {
    /// Different keys.
    distinct: usize,
    rows: usize,
    extra: Extra,
    /// The table's.
    name: String,
}

/// Columns of a table beyond `k` and `v`.
#[derive(Debug, Clone, Copy)]
enum Extra {
    None,
    /// `w0`, `w1`, … of numbers: so many.
    Numbers(usize),
    /// One, `t`.
    Texts,
}

impl Extra {
    /// As a part of a table's name.
    fn name(self) -> String {
        match self {
            Extra::Numbers(columns) => format!("numbers_{columns}"),
            Extra::None | Extra::Texts => format!("{self:?}"),
        }
    }
}

impl Side {
    fn new(keys: Keys, distinct: usize, rows: usize, extra: Extra) -> Self {
        Self {
            distinct,
            rows,
            extra,
            name: format!("{keys:?}_{distinct}_{rows}_{}", extra.name()).to_lowercase(),
        }
    }

    /// What a query asks of its extra columns.
    fn sums(&self, table: &str) -> String {
        match self.extra {
            Extra::None => String::new(),
            Extra::Numbers(columns) => (0..columns)
                .map(|i| format!(", sum({table}.w{i})"))
                .collect(),
            // There are NULLs, or it would count rows.
            Extra::Texts => format!(", count({table}.t)"),
        }
    }
}

impl Case {
    fn new(keys: Keys, build: (usize, Extra), probe: (usize, Extra)) -> Self {
        let distinct = build.0;
        let side = |(rows, extra)| Side::new(keys, distinct, rows, extra);
        let (build, probe) = (side(build), side(probe));
        let query = format!(
            "SELECT sum(b.v), sum(p.v){}{} FROM {} b JOIN {} p ON b.k = p.k",
            build.sums("b"),
            probe.sums("p"),
            build.name,
            probe.name
        );
        Self {
            keys,
            build,
            probe,
            query,
            best: [f64::INFINITY; 2],
        }
    }

    /// The case whose build side has each key several times. As many rows join as of a probe side that is
    /// so many times larger.
    fn repeated(build: usize, probe: usize) -> Self {
        let mut case = Self::new(Keys::Number, (build, Extra::None), (probe, Extra::None));
        for side in [&mut case.build, &mut case.probe] {
            let name = format!("repeated_{}", side.name);
            case.query = case.query.replace(&side.name, &name);
            side.distinct = build / REPEATS;
            side.name = name;
        }
        case
    }

    /// Makes its tables, in all sessions.
    async fn register(&self, sessions: &Sessions, cores: usize) -> Result<()> {
        for side in [&self.build, &self.probe] {
            if sessions.device.table_exist(&side.name)? {
                continue;
            }
            let table = table(self.keys, side, cores).await?;
            for context in sessions.all() {
                context.register_table(&side.name, Arc::clone(&table) as _)?;
            }
        }
        Ok(())
    }

    /// Runs it once; returns the better of that time and the best so far, in milliseconds.
    async fn run(&self, context: &SessionContext, best: f64) -> Result<f64> {
        let began = Instant::now();
        context.sql(&self.query).await?.collect().await?;
        Ok(best.min(milliseconds(began.elapsed())))
    }

    /// Notes the better of the known times and those of another run by turns.
    async fn time(&mut self, sessions: &Sessions) -> Result<()> {
        let [device, stock] = self.best;
        self.best = [
            self.run(&sessions.device, device).await?,
            self.run(&sessions.stock, stock).await?,
        ];
        Ok(())
    }
}

/// Where cases run.
struct Sessions {
    device: SessionContext,
    stock: SessionContext,
    /// Whose stock joins collect their build sides, however large.
    collecting: SessionContext,
}

impl Sessions {
    fn new(device: &Device, config: SessionConfig) -> Self {
        let mut collecting = config.clone();
        let optimizer = &mut collecting.options_mut().optimizer;
        optimizer.hash_join_single_partition_threshold = usize::MAX;
        optimizer.hash_join_single_partition_threshold_rows = usize::MAX;
        Self {
            device: horton_context(device, &config),
            stock: SessionContext::new_with_config(config),
            collecting: SessionContext::new_with_config(collecting),
        }
    }

    fn all(&self) -> [&SessionContext; 3] {
        [&self.device, &self.stock, &self.collecting]
    }
}

/// All that is measured.
struct Cases {
    /// Each kind of keys with few and many rows on either side, in the order of [`Measured`]'s fields.
    narrow: [[Case; 4]; 2],
    /// Rows of a small probe side, and of a large table.
    probes: [usize; 2],
    /// The last of number keys with a wide probe side.
    wide: Case,
    /// Many number keys with texts, a few probe rows.
    texts: Case,
    /// Many rows of number keys that repeat, a few probe rows.
    repeated: Case,
    /// A part of many hashed keys, which the stock join collects, a few probe rows: what is collected and large was
    /// taken for small, as joins are, and seldom dense.
    collected: Case,
}

impl Cases {
    fn new(many: usize, cores: usize) -> Self {
        let some = few_probe_rows(many, cores);
        let sizes = [(FEW, some), (many, some), (FEW, many), (many, many)];
        let of_size = |keys| {
            sizes.map(|(build, probe)| Case::new(keys, (build, Extra::None), (probe, Extra::None)))
        };
        Self {
            narrow: Keys::ALL.map(of_size),
            probes: [some, many],
            wide: Case::new(
                Keys::Number,
                (many, Extra::None),
                (many, Extra::Numbers(wide_columns(many))),
            ),
            texts: Case::new(Keys::Number, (many, Extra::Texts), (some, Extra::None)),
            repeated: Case::repeated(many, some / REPEATS),
            collected: Case::new(
                Keys::Hashed,
                ((many / COLLECTED_PART).max(2 * FEW), Extra::None),
                (some, Extra::None),
            ),
        }
    }

    /// Those that both joins run.
    fn of_both(&mut self) -> impl Iterator<Item = &mut Case> {
        let more = [&mut self.wide, &mut self.texts, &mut self.repeated];
        self.narrow.iter_mut().flatten().chain(more)
    }

    /// The same with all of their tables.
    async fn made(many: usize, sessions: &Sessions, cores: usize) -> Result<Self> {
        let mut cases = Self::new(many, cores);
        cases.collected.register(sessions, cores).await?;
        for case in cases.of_both() {
            case.register(sessions, cores).await?;
        }
        Ok(cases)
    }

    /// A round.
    async fn time(&mut self, sessions: &Sessions) -> Result<()> {
        for case in self.of_both() {
            case.time(sessions).await?;
        }
        let (case, [_, stock]) = (&self.collected, self.collected.best);
        self.collected.best[1] = case.run(&sessions.collecting, stock).await?;
        Ok(())
    }

    /// Milliseconds more that the stock join takes for a build row that it collects; `build` for one that it
    /// does not.
    fn collected(&self, build: f64) -> f64 {
        let (few, case) = (&self.narrow[1][0], &self.collected);
        let rows = (case.build.rows - few.build.rows) as f64;
        ((case.best[1] - few.best[1]) / rows - build).max(0.0)
    }

    fn costs(&self) -> Costs {
        let [_, many] = self.probes;
        let lines = |side: usize| {
            self.narrow.each_ref().map(|of_keys| {
                let times = of_keys.each_ref().map(|case| case.best[side]);
                let [few_few, many_few, few_many, many_many] = times;
                let measured = Measured {
                    few_few,
                    many_few,
                    few_many,
                    many_many,
                };
                let probes = self.probes.map(|rows| rows as f64);
                Line::through(measured, [FEW as f64, many as f64], probes)
            })
        };
        let [_, many_few, _, many_many] = &self.narrow[0];
        // Milliseconds more than a case without those columns, a value.
        let more = |case: &Case, without: &Case, values: usize| {
            [0, 1].map(|side| (case.best[side] - without.best[side]) / values as f64)
        };
        let [device, stock] = more(&self.wide, many_many, many * wide_columns(many));
        let moved = (stock - device).max(0.0);
        let [device_text, stock_text] = more(&self.texts, many_few, many);
        let stock = lines(1);
        let collected = self.collected(stock[1].build);
        Costs {
            device: lines(0),
            stock,
            moved,
            // A text that is moved is a view of two values.
            texts: [device_text, stock_text - 2.0 * moved].map(|ms| ms.max(0.0)),
            repeated: more(&self.repeated, many_few, many).map(|ms| ms.max(0.0)),
            collected,
        }
    }
}

async fn measure(device: &Device) -> Result<Costs> {
    // Or the smaller side would be built whatever a case is named.
    let mut config = SessionConfig::new();
    config.options_mut().optimizer.join_reordering = false;
    let cores = config.target_partitions();
    let sessions = Sessions::new(device, config);
    let many = (MANY_A_CORE * cores).min(MOST);
    let mut clock = Clock::start();
    let mut cases = Cases::made(many, &sessions, cores).await?;
    clock.warmed_up(&mut cases, &sessions).await?;
    let more = rows_for(clock.left(), clock.next(), many);
    if more > many {
        cases = Cases::made(more, &sessions, cores).await?;
        clock.warmed_up(&mut cases, &sessions).await?;
    }
    while clock.rounds.len() < MOST_ROUNDS && clock.next() < clock.left() {
        clock.time(&mut cases, &sessions).await?;
    }
    let costs = cases.costs();
    log::debug!("{more} rows, rounds of {:.0?}: {costs:?}", clock.rounds);
    Ok(costs)
}

/// Rows of large tables with which some rounds fit into the time that is `left`, if one with `many` takes so long.
fn rows_for(left: Duration, round: Duration, many: usize) -> usize {
    let times = left.as_secs_f64() / (ROUNDS * round.as_secs_f64());
    let rows = (many as f64 * times.min(*TIMES.end())) as usize;
    match (rows / BATCH * BATCH).min(MOST) {
        rows if rows as f64 >= *TIMES.start() * many as f64 => rows,
        _ => many,
    }
}

/// Times rounds.
struct Clock {
    began: Instant,
    rounds: Vec<Duration>,
}

impl Clock {
    fn start() -> Self {
        Self {
            began: Instant::now(),
            rounds: Vec::new(),
        }
    }

    /// Another round.
    async fn time(&mut self, cases: &mut Cases, sessions: &Sessions) -> Result<()> {
        let round = Instant::now();
        cases.time(sessions).await?;
        self.rounds.push(round.elapsed());
        Ok(())
    }

    /// A round to warm up, and one that counts.
    async fn warmed_up(&mut self, cases: &mut Cases, sessions: &Sessions) -> Result<()> {
        self.time(cases, sessions).await?;
        self.time(cases, sessions).await
    }

    /// What another round is expected to take.
    fn next(&self) -> Duration {
        self.rounds.last().copied().unwrap_or_default()
    }

    fn left(&self) -> Duration {
        left(self.began.elapsed(), &self.rounds)
    }
}

/// The time left after so much has been spent. To warm up, the first round may take twice as long as the second; one that took
/// more than four times as long compiled kernels, for seconds, and counts like another.
fn left(spent: Duration, rounds: &[Duration]) -> Duration {
    let compiling = match rounds {
        [first, second, ..] if *first > 4 * *second => *first - *second,
        _ => Duration::ZERO,
    };
    (ENOUGH + compiling).saturating_sub(spent)
}

fn horton_context(device: &Device, config: &SessionConfig) -> SessionContext {
    let (platform, index) = device.info().index;
    let horton = HortonConfig {
        enabled: Enabled::Always,
        device: format!("{platform}:{index}"),
        // Else the stock join's times would be taken for the device's.
        on_device_error: OnDeviceError::Error,
        ..HortonConfig::default()
    };
    session::context(config.clone().with_option_extension(horton))
}

/// A side's rows, in `partitions`, made by as many cores.
async fn table(keys: Keys, side: &Side, partitions: usize) -> Result<Arc<MemTable>> {
    let &Side {
        distinct,
        rows,
        extra,
        ..
    } = side;
    let starts = (0..rows).step_by(BATCH).collect();
    let made = side_by_side(starts, partitions, |from| {
        let rows = from..rows.min(from + BATCH);
        async move { batch(keys, distinct, rows, extra) }
    });
    let batches = made.await?;
    let schema = batches
        .first()
        .map(RecordBatch::schema)
        .ok_or_else(|| Error::Invalid("a table without rows was to be measured".to_owned()))?;
    let share = batches.len().div_ceil(partitions.max(1)).max(1);
    let partitions = batches.chunks(share).map(<[RecordBatch]>::to_vec).collect();
    Ok(Arc::new(MemTable::try_new(schema, partitions)?))
}

/// Rows of a table with `distinct` keys: `k`, `v`, and what it has more.
fn batch(keys: Keys, distinct: usize, rows: Range<usize>, extra: Extra) -> Result<RecordBatch> {
    let key = |row: usize| match keys {
        // All of them once, in no order, as the multiplier is odd and `distinct` a power of 2
        // or at least without its prime factor.
        Keys::Number => (row.wrapping_mul(SPREAD) % distinct) as i64,
        Keys::Hashed => mix((row.wrapping_mul(SPREAD) % distinct) as u64) as i64,
    };
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone().map(key)));
    let v: ArrayRef = Arc::new(Int64Array::from_iter_values(
        rows.clone().map(|row| row as i64),
    ));
    let mut columns = vec![("k".to_owned(), k), ("v".to_owned(), Arc::clone(&v))];
    match extra {
        Extra::None => {}
        // Each of its own memory.
        Extra::Numbers(more) => columns.extend((0..more).map(|i| {
            let w = v.as_primitive::<Int64Type>().unary::<_, Int64Type>(|x| x);
            (format!("w{i}"), Arc::new(w) as ArrayRef)
        })),
        // As long as a name or a type of something; a view points to it.
        Extra::Texts => {
            let text = |row| (row % 64 > 0).then_some("about as long as a name");
            let t = StringViewArray::from_iter(rows.map(text));
            columns.push(("t".to_owned(), Arc::new(t)));
        }
    }
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// A prime near 2^32 / golden ratio: consecutive rows get keys far apart.
const SPREAD: usize = 2_654_435_761;

/// SplitMix64's finalizer: one-to-one, sparse over 64 bits.
fn mix(key: u64) -> u64 {
    let z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiling_kernels_does_not_count() {
        let ms = Duration::from_millis;
        let rounds = |first| [ms(first), ms(150), ms(160)];
        assert_eq!(left(ms(100), &[]), ENOUGH - ms(100));
        assert_eq!(left(ms(5100), &[ms(5000)]), Duration::ZERO);
        assert_eq!(left(ms(550), &rounds(140)), ENOUGH - ms(550));
        assert_eq!(left(ms(710), &rounds(300)), ENOUGH - ms(710));
        assert_eq!(left(ms(5410), &rounds(5000)), ENOUGH - ms(560));
        assert_eq!(left(ms(5000), &rounds(150)), Duration::ZERO);
    }

    #[test]
    fn tables_grow_where_rounds_are_short() {
        let ms = Duration::from_millis;
        let many = 1 << 17;
        assert_eq!(rows_for(ms(600), ms(300), many), many);
        assert_eq!(rows_for(ms(600), ms(110), many), many);
        assert_eq!(rows_for(ms(600), ms(75), many), 2 * many);
        assert_eq!(rows_for(ms(600), ms(1), many), 4 * many);
        assert_eq!(rows_for(ms(600), ms(1), MOST / 2), MOST);
        assert_eq!(rows_for(ms(600), ms(1), MOST * 3 / 4), MOST * 3 / 4);
        assert_eq!(rows_for(ms(600), ms(1), MOST), MOST);
        assert_eq!(rows_for(ms(0), ms(1), MOST + 1), MOST + 1);
    }

    #[test]
    fn build_keys_are_distinct() {
        for keys in Keys::ALL {
            let rows = 3 * MANY_A_CORE;
            let context = SessionContext::new();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            let distinct = runtime.block_on(async {
                let side = Side::new(keys, rows, rows, Extra::None);
                let table = table(keys, &side, 3).await.unwrap();
                context.register_table("t", table).unwrap();
                let query = context.sql("SELECT DISTINCT k FROM t").await.unwrap();
                query.count().await.unwrap()
            });
            assert_eq!(distinct, 3 * MANY_A_CORE);
        }
    }
}
