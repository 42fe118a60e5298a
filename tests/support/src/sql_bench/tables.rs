//! The two tables of a case, and what every join of them must give.
//!
//! ```text
//!   numbers   0 … present … all        keys are functions of a row's number
//!             ├─ build ─┤              every number below `present`, `copies` times
//!             ├───── probe ─────┤      numbers drawn evenly, so present / all of the rows hit
//!
//!   build rows ─┐  matches: probe rows per number, build rows per probe row
//!   probe rows ─┴▶ each row's cells, as often as it matches ─▶ Answers
//! ```
//!
//! Probe keys are in random order: a sequential probe would read table lines in the order they
//! lie in, and the caches would flatter every join. Each probe batch has its own MT19937-64 seed,
//! and the tables are the same on every machine with any number of threads and partitions.
//!
//! How often a row matches is known from its number. So the answers of every query are known when
//! the tables are made, without joining: [`Answers`]. That, beside the stock plan, is the check.
//!
//! Cost: 16 bytes per row and side (32 with string keys), or about 110 with all wide columns, and 4
//! bytes per key; made with all cores. Files on disk would spare the making, and measure their
//! reader.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::MemTable;
use rand_mt::Mt64;

use super::Result;
use super::columns::{Column, Payload, V, W};
use super::keys::{Keyed, Keys};
use super::random::below;
use super::tally::{Matched, Tally};

/// Rows of a batch: DataFusion's own default.
pub const BATCH_ROWS: u64 = 8192;

/// Sizes and columns of a pair of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The shape of the keys.
    pub keys: Keys,
    /// Columns that a key has.
    pub key_columns: usize,
    /// The other columns.
    pub payload: Payload,
    /// Distinct build keys.
    pub present: u64,
    /// Build rows per key.
    pub copies: u64,
    /// Numbers that probe rows draw from.
    pub all: u64,
    /// Probe rows.
    pub probe_rows: u64,
}

impl Shape {
    /// Rows of the build side.
    pub fn build_rows(&self) -> u64 {
        self.present * self.copies
    }

    fn keyed(&self) -> Keyed {
        Keyed::new(self.keys, self.key_columns, self.present, self.all)
    }

    /// Returns whether both have the same build table.
    fn shares_build(&self, other: &Self) -> bool {
        let build = |shape: &Self| {
            let depends_on_all = Keyed::depends_on_all(shape.keys, shape.key_columns);
            let all = depends_on_all.then_some(shape.all);
            let keys = (
                shape.keys,
                shape.key_columns,
                shape.present,
                shape.copies,
                all,
            );
            (keys, shape.payload.build())
        };
        build(self) == build(other)
    }

    /// Returns whether both have the same probe table, of which as many rows match.
    fn shares_probe(&self, other: &Self) -> bool {
        let payload = self.payload;
        payload.probe() == other.payload.probe() && Self { payload, ..*other } == *self
    }
}

/// What queries over a pair of tables must give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// The build side's columns without its keys.
    pub build: Matched,
    /// The probe side's.
    pub probe: Matched,
    /// `v` and `w` of pairs with `v < w`; nothing for wide tables.
    pub less: Tally,
}

/// The tables at hand. Making others drops these first, so that one pair is in memory at a time,
/// and keeps the side that the next case shares.
#[derive(Default)]
pub struct Tables {
    build: Option<(Shape, Build)>,
    probe: Option<(Shape, Probe)>,
}

/// A build side.
struct Build {
    table: Arc<MemTable>,
    /// Its rows in order.
    batches: Vec<RecordBatch>,
}

/// A probe side.
struct Probe {
    table: Arc<MemTable>,
    matches: Matches,
    answers: Matched,
    less: Tally,
}

/// A pair of tables.
pub struct Pair {
    /// Keys and the build side's columns.
    pub build: Arc<MemTable>,
    /// Keys and the probe side's columns.
    pub probe: Arc<MemTable>,
    /// The answers that joins of them give.
    pub answers: Answers,
}

impl Tables {
    /// Returns the tables of `shape`, each in `partitions` partitions. No one else may hold the
    /// previous ones, or they stay in memory.
    ///
    /// # Errors
    /// Of Arrow and of the thread pool; none that the shape alone causes.
    pub fn make(&mut self, shape: &Shape, partitions: usize) -> Result<Pair> {
        self.build.take_if(|(has, _)| !has.shares_build(shape));
        self.probe.take_if(|(has, _)| !has.shares_probe(shape));
        let build = match self.build.take() {
            Some((_, build)) => build,
            None => Build::make(shape, partitions)?,
        };
        let probe = match self.probe.take() {
            Some((_, probe)) => probe,
            None => Probe::make(shape, partitions)?,
        };
        let pair = Pair {
            build: Arc::clone(&build.table),
            probe: Arc::clone(&probe.table),
            answers: Answers {
                build: build.answers(shape, &probe.matches)?,
                probe: probe.answers.clone(),
                less: probe.less.clone(),
            },
        };
        self.build = Some((*shape, build));
        self.probe = Some((*shape, probe));
        Ok(pair)
    }
}

impl Build {
    fn make(shape: &Shape, partitions: usize) -> Result<Self> {
        let (keyed, payload) = (shape.keyed(), shape.payload.build());
        let schema = schema(&keyed, payload);
        let batches = by_batch(shape.build_rows(), |rows| {
            let numbers: Vec<u64> = rows.clone().map(|row| row % shape.present).collect();
            let mut columns = keyed.make(&numbers);
            columns.extend(cells(payload, rows)?);
            Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?)
        })?;
        Ok(Self {
            table: table(&schema, batches.clone(), partitions)?,
            batches,
        })
    }

    fn answers(&self, shape: &Shape, matches: &Matches) -> Result<Matched> {
        let parts = by_batch(shape.build_rows(), |rows| {
            let Some(batch) = self.batches.get((rows.start / BATCH_ROWS) as usize) else {
                return Err("the build side has fewer batches than its shape".into());
            };
            let matches: Vec<u64> = rows.map(|row| matches.of(row % shape.present)).collect();
            let payload = batch.columns().get(shape.key_columns..).unwrap_or_default();
            Matched::read(&matches, payload)
        })?;
        Ok(sum(shape.payload.build(), &parts))
    }
}

impl Probe {
    fn make(shape: &Shape, partitions: usize) -> Result<Self> {
        let (keyed, payload) = (shape.keyed(), shape.payload.probe());
        let schema = schema(&keyed, payload);
        let matches = Matches::none(shape.present);
        let made = by_batch(shape.probe_rows, |rows| {
            let mut random = Mt64::new(rows.start / BATCH_ROWS);
            let draw = |_| below(random.next_u64(), shape.all);
            let numbers: Vec<u64> = rows.clone().map(draw).collect();
            let hits = numbers.iter().map(|&number| match number {
                number if number < shape.present => shape.copies,
                _ => 0,
            });
            let hits: Vec<u64> = hits.collect();
            numbers.iter().for_each(|&number| matches.add(number));
            let cells = cells(payload, rows.clone())?;
            let answers = Matched::read(&hits, &cells)?;
            let less = less(shape, rows, &numbers);
            let mut columns = keyed.make(&numbers);
            columns.extend(cells);
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
            Ok((batch, (answers, less)))
        })?;
        let (batches, answers): (Vec<_>, Vec<_>) = made.into_iter().unzip();
        let (answers, lesses): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
        let mut less = Tally::empty(2);
        lesses.iter().for_each(|part| less.add(part));
        Ok(Self {
            table: table(&schema, batches, partitions)?,
            matches,
            answers: sum(payload, &answers),
            less,
        })
    }
}

/// `v` and `w` of the pairs of some probe rows in which `v` is less.
fn less(shape: &Shape, rows: Range<u64>, numbers: &[u64]) -> Tally {
    let [mut pairs, mut sum_v, mut sum_w] = [0; 3];
    let has_both = shape.payload.build().contains(&V) && shape.payload.probe().contains(&W);
    let hits = rows
        .zip(numbers)
        .filter(|&(_, &number)| has_both && number < shape.present);
    for (row, &number) in hits {
        let w = W.small(row);
        let copies = (number..shape.build_rows()).step_by(shape.present as usize);
        for v in copies.map(|row| V.small(row)).filter(|&v| v < w) {
            pairs += 1;
            sum_v += v;
            sum_w += w;
        }
    }
    Tally::integers(pairs, &[sum_v, sum_w])
}

fn schema(keyed: &Keyed, payload: &[Column]) -> SchemaRef {
    let payload = payload.iter().map(|column| column.field());
    Arc::new(Schema::new(
        keyed.fields().chain(payload).collect::<Vec<_>>(),
    ))
}

fn cells(payload: &[Column], rows: Range<u64>) -> Result<Vec<ArrayRef>> {
    let make = |column: &Column| column.make(rows.clone());
    payload.iter().map(make).collect()
}

fn sum(payload: &[Column], parts: &[Matched]) -> Matched {
    let mut sum = Matched::empty(payload.len());
    parts.iter().for_each(|part| sum.add(part));
    sum
}

/// Probe rows by number, of the numbers that are on the build side.
struct Matches(Vec<AtomicU32>);

impl Matches {
    fn none(present: u64) -> Self {
        Self((0..present).map(|_| AtomicU32::new(0)).collect())
    }

    fn add(&self, number: u64) {
        if let Some(matches) = self.0.get(number as usize) {
            matches.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn of(&self, number: u64) -> u64 {
        let matches = self.0.get(number as usize);
        matches.map_or(0, |matches| matches.load(Ordering::Relaxed).into())
    }
}

/// Calls `make` for the rows of each batch, on all cores; the results are in order.
fn by_batch<T: Send>(rows: u64, make: impl Fn(Range<u64>) -> Result<T> + Sync) -> Result<Vec<T>> {
    let batches = rows.div_ceil(BATCH_ROWS);
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    let share = batches.div_ceil(threads).max(1);
    let some = |first: u64| {
        (first..(first + share).min(batches))
            .map(|batch| make(batch * BATCH_ROWS..((batch + 1) * BATCH_ROWS).min(rows)))
            .collect::<Result<Vec<T>>>()
    };
    let parts = thread::scope(|scope| {
        let starts = (0..batches).step_by(share as usize);
        let some = &some;
        let running: Vec<_> = starts
            .map(|first| scope.spawn(move || some(first)))
            .collect();
        let joined = running.into_iter().map(|thread| match thread.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect::<Result<Vec<_>>>()
    })?;
    Ok(parts.into_iter().flatten().collect())
}

fn table(
    schema: &SchemaRef,
    batches: Vec<RecordBatch>,
    partitions: usize,
) -> Result<Arc<MemTable>> {
    let share = batches.len().div_ceil(partitions.max(1)).max(1);
    let mut batches = batches.into_iter();
    let parts = (0..partitions.max(1))
        .map(|_| batches.by_ref().take(share).collect())
        .collect();
    Ok(Arc::new(MemTable::try_new(Arc::clone(schema), parts)?))
}

#[cfg(test)]
mod tests {
    use super::super::tally::Reading;
    use super::*;
    use arrow::compute::concat_batches;
    use arrow::util::display::array_value_to_string;
    use datafusion::catalog::TableProvider;
    use futures::FutureExt;
    use std::collections::BTreeMap;

    fn shape(keys: Keys, key_columns: usize, payload: Payload) -> Shape {
        Shape {
            keys,
            key_columns,
            payload,
            present: 3000,
            copies: 4,
            all: 9000,
            probe_rows: 20_000,
        }
    }

    fn rows(table: &MemTable) -> RecordBatch {
        let parts = table.batches.iter();
        let batches = parts.flat_map(|part| part.read().now_or_never().unwrap().clone());
        concat_batches(&table.schema(), &batches.collect::<Vec<_>>()).unwrap()
    }

    /// Rows by key.
    fn by_key(rows: &RecordBatch, key_columns: usize) -> BTreeMap<Vec<String>, Vec<usize>> {
        let mut by_key: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for row in 0..rows.num_rows() {
            let key = |column| array_value_to_string(rows.column(column), row).unwrap();
            let key = (0..key_columns).map(key).collect();
            by_key.entry(key).or_default().push(row);
        }
        by_key
    }

    /// Cells of `column` as numbers, in rows where it is not NULL.
    fn numbers(rows: &RecordBatch, column: usize) -> Vec<Option<u64>> {
        let cell = |row| {
            let cell = rows.column(column).slice(row, 1);
            let tally = Tally::read(1, &[cell], Reading::Cells).unwrap();
            tally.total(0)
        };
        (0..rows.num_rows()).map(cell).collect()
    }

    /// The answers against a join by hand.
    #[test]
    fn answers_are_those_of_a_join() {
        for (keys, key_columns, payload) in [
            (Keys::Sparse, 1, Payload::Narrow),
            (Keys::Text, 1, Payload::Strings),
            (Keys::Holes, 1, Payload::Wide(6)),
            (Keys::Dense, 2, Payload::Wide(12)),
            (Keys::Sparse, 3, Payload::Wide(12)),
        ] {
            let shape = shape(keys, key_columns, payload);
            let pair = Tables::default().make(&shape, 3).unwrap();
            let (build, probe) = (rows(&pair.build), rows(&pair.probe));
            let (build_keys, probe_keys) =
                (by_key(&build, key_columns), by_key(&probe, key_columns));
            assert_eq!(build_keys.len(), 3000);
            let check = |rows: &RecordBatch,
                         own: &BTreeMap<Vec<String>, Vec<usize>>,
                         other: &BTreeMap<Vec<String>, Vec<usize>>,
                         answers: &Matched| {
                let mut times = vec![0; rows.num_rows()];
                for (key, rows) in own {
                    let matches = other.get(key).map_or(0, Vec::len) as u64;
                    rows.iter().for_each(|&row| times[row] = matches);
                }
                let hits = times.iter().filter(|&&times| times > 0).count() as u64;
                assert_eq!(answers.all.rows, rows.num_rows() as u64);
                assert_eq!(
                    (answers.hits.rows, answers.pairs.rows),
                    (hits, times.iter().sum())
                );
                for column in 0..answers.all.columns.len() {
                    let cells = numbers(rows, key_columns + column);
                    let sum = |times: &dyn Fn(u64) -> u64, matches: &[u64]| {
                        let cells = cells.iter().zip(matches);
                        let total = |total: u64, (cell, &matches): (&Option<u64>, &u64)| {
                            total.wrapping_add(cell.unwrap_or(0).wrapping_mul(times(matches)))
                        };
                        Some(cells.fold(0, total))
                    };
                    assert_eq!(answers.all.total(column), sum(&|_| 1, &times));
                    assert_eq!(answers.hits.total(column), sum(&|n| n.min(1), &times));
                    assert_eq!(answers.pairs.total(column), sum(&|n| n, &times));
                }
                hits
            };
            check(&build, &build_keys, &probe_keys, &pair.answers.build);
            let hits = check(&probe, &probe_keys, &build_keys, &pair.answers.probe);
            let rate = hits as f64 / 20_000.0;
            assert!((rate - 1.0 / 3.0).abs() < 0.02, "{rate}");
            let mut less = Tally::empty(2);
            if key_columns == 1 && payload.probe() == [W] {
                let (v, w) = (numbers(&build, 1), numbers(&probe, 1));
                for (key, build_rows) in &build_keys {
                    for &probe_row in probe_keys.get(key).map_or(&[][..], Vec::as_slice) {
                        let pairs = build_rows.iter().map(|&row| [v[row], w[probe_row]]);
                        pairs
                            .filter(|[v, w]| v < w)
                            .for_each(|pair| less.add(&Tally::row(&pair)));
                    }
                }
                assert!(less.rows > 0);
            }
            assert_eq!(pair.answers.less, less);
        }
    }

    #[test]
    fn tables_are_shared_only_where_equal() {
        let first = shape(Keys::Dense, 1, Payload::Narrow);
        let more = Shape { all: 3000, ..first };
        assert!(first.shares_build(&more) && !first.shares_probe(&more));
        for of_all in [
            shape(Keys::Holes, 1, Payload::Narrow),
            shape(Keys::Dense, 2, Payload::Narrow),
        ] {
            assert!(!of_all.shares_build(&Shape {
                all: 3000,
                ..of_all
            }));
        }
        let strings = shape(Keys::Dense, 1, Payload::Strings);
        assert!(first.shares_probe(&strings) && !first.shares_build(&strings));
        let wide = shape(Keys::Dense, 1, Payload::Wide(6));
        assert!(!first.shares_probe(&wide) && !first.shares_build(&wide));
        let mut tables = Tables::default();
        let one = tables.make(&first, 2).unwrap();
        let other = tables.make(&more, 2).unwrap();
        assert!(Arc::ptr_eq(&one.build, &other.build));
        assert!(!Arc::ptr_eq(&one.probe, &other.probe));
        let anew = Tables::default().make(&more, 2).unwrap();
        assert_eq!(other.answers, anew.answers);
    }
}
