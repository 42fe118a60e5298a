//! The two tables of a case, and what every join of them must give.
//!
//! ```text
//!   numbers   0 … present … all        a key is a function of its number
//!             ├─ build ─┤              every number below `present`, `copies` times
//!             ├───── probe ─────┤      numbers drawn evenly, so present / all of the rows hit
//!
//!   dense     number ─▶ a permutation of 0..present; misses lie above
//!   holes     number ─▶ a permutation of 0..all, of which `present` are there
//!   sparse    number ─▶ 64 mixed bits: distinct, their range fits no 32 bits
//!   text      'customer#000000123', numbered as dense keys are
//! ```
//!
//! Probe keys are in random order: a sequential probe would read table lines in the order they
//! lie in, and the caches would flatter every join. A permutation is computed, not stored, so
//! that any thread makes any batch; each probe batch has its own MT19937-64 seed, and the tables
//! are the same on every machine with any number of threads and partitions.
//!
//! Payloads are functions of the number too, so the answers of every query are known while the
//! probe table is drawn, without joining: [`Answers`]. That, beside the stock plan, is the check.
//!
//! Cost: 16 bytes per row and side (32 with string keys), made with all cores. Files on disk would
//! spare the making, and measure their reader.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::MemTable;
use rand_mt::Mt64;

use super::Result;
use super::columns::{VALUES, text, text_len, value, views};
use super::keys::{Keyed, Keys};
use super::random::below;

/// Rows of a batch: DataFusion's own default.
pub const BATCH_ROWS: u64 = 8192;

/// Sizes and keys of a pair of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The shape of the keys.
    pub keys: Keys,
    /// Distinct build keys.
    pub present: u64,
    /// Build rows per key.
    pub copies: u64,
    /// Numbers that probe rows draw from.
    pub all: u64,
    /// Probe rows.
    pub probe_rows: u64,
    /// True if the build side has the string column `s`.
    pub strings: bool,
}

impl Shape {
    /// Rows of the build side.
    pub fn build_rows(&self) -> u64 {
        self.present * self.copies
    }

    /// Returns whether both have the same build table.
    fn shares_build(&self, other: &Self) -> bool {
        let numbers = self.keys != Keys::Holes || self.all == other.all;
        let build = |shape: &Self| (shape.keys, shape.present, shape.copies, shape.strings);
        numbers && build(self) == build(other)
    }

    /// Returns whether both have the same probe table, and the same answers.
    fn shares_probe(&self, other: &Self) -> bool {
        let strings = false;
        Self { strings, ..*self } == Self { strings, ..*other }
    }
}

/// The answers that queries over a pair of tables must give, summed up while the probe side is
/// drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Build rows.
    pub build_rows: u64,
    /// Sum of `v` over them.
    pub build_v: u64,
    /// Build rows with a match.
    pub build_hits: u64,
    /// Sum of `v` over them.
    pub build_hits_v: u64,
    /// Probe rows.
    pub probe_rows: u64,
    /// Sum of `w` over them.
    pub probe_w: u64,
    /// Probe rows with a match.
    pub probe_hits: u64,
    /// Sum of `w` over them.
    pub probe_hits_w: u64,
    /// Pairs of rows with equal keys.
    pub pairs: u64,
    /// Sum of `v` over them.
    pub pairs_v: u64,
    /// Sum of `w` over them.
    pub pairs_w: u64,
    /// Sum of the lengths of `s` over them, whether or not the build side has that column.
    pub pairs_text: u64,
    /// Pairs with `v < w`.
    pub less: u64,
    /// Sum of `v` over them.
    pub less_v: u64,
    /// Sum of `w` over them.
    pub less_w: u64,
}

impl Answers {
    /// Counts a probe row of `number` with payload `w`.
    fn add_probe(&mut self, shape: &Shape, number: u64, w: u64) {
        self.probe_rows += 1;
        self.probe_w += w;
        if number >= shape.present {
            return;
        }
        self.probe_hits += 1;
        self.probe_hits_w += w;
        self.pairs += shape.copies;
        self.pairs_w += w * shape.copies;
        self.pairs_text += text_len(number) * shape.copies;
        let first = value(number);
        for v in first..first + shape.copies {
            self.pairs_v += v;
            if v < w {
                self.less += 1;
                self.less_v += v;
                self.less_w += w;
            }
        }
    }

    /// Counts the build rows of `number`.
    fn add_build(&mut self, shape: &Shape, number: u64, is_hit: bool) {
        let first = value(number);
        let v = (first..first + shape.copies).sum::<u64>();
        self.build_rows += shape.copies;
        self.build_v += v;
        if is_hit {
            self.build_hits += shape.copies;
            self.build_hits_v += v;
        }
    }

    fn merge(mut self, other: &Self) -> Self {
        for (sum, part) in [
            (&mut self.build_rows, other.build_rows),
            (&mut self.build_v, other.build_v),
            (&mut self.build_hits, other.build_hits),
            (&mut self.build_hits_v, other.build_hits_v),
            (&mut self.probe_rows, other.probe_rows),
            (&mut self.probe_w, other.probe_w),
            (&mut self.probe_hits, other.probe_hits),
            (&mut self.probe_hits_w, other.probe_hits_w),
            (&mut self.pairs, other.pairs),
            (&mut self.pairs_v, other.pairs_v),
            (&mut self.pairs_w, other.pairs_w),
            (&mut self.pairs_text, other.pairs_text),
            (&mut self.less, other.less),
            (&mut self.less_v, other.less_v),
            (&mut self.less_w, other.less_w),
        ] {
            *sum += part;
        }
        self
    }
}

/// The tables at hand. Making others drops these first, so that one pair is in memory at a time,
/// and keeps the side that the next case shares.
#[derive(Default)]
pub struct Tables {
    build: Option<(Shape, Arc<MemTable>)>,
    probe: Option<(Shape, Arc<MemTable>, Answers)>,
}

/// A pair of tables.
pub struct Pair {
    /// `k`, `v` and perhaps `s`.
    pub build: Arc<MemTable>,
    /// `k` and `w`.
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
        self.probe.take_if(|(has, _, _)| !has.shares_probe(shape));
        let build = match self.build.take() {
            Some((_, table)) => table,
            None => make_build(shape, partitions)?,
        };
        let (probe, answers) = match self.probe.take() {
            Some((_, table, answers)) => (table, answers),
            None => make_probe(shape, partitions)?,
        };
        self.build = Some((*shape, Arc::clone(&build)));
        self.probe = Some((*shape, Arc::clone(&probe), answers));
        Ok(Pair {
            build,
            probe,
            answers,
        })
    }
}

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let field = |(name, data_type): &(&str, DataType)| Field::new(*name, data_type.clone(), false);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

fn make_build(shape: &Shape, partitions: usize) -> Result<Arc<MemTable>> {
    let keyed = Keyed::new(shape.keys, shape.present, shape.all);
    let mut columns = vec![("k", keyed.data_type()), ("v", DataType::Int64)];
    if shape.strings {
        columns.push(("s", DataType::Utf8View));
    }
    let schema = schema(&columns);
    let batches = by_batch(shape.build_rows(), |rows| {
        let numbers = || {
            (0..(rows.end - rows.start) as usize).map(|i| (rows.start + i as u64) % shape.present)
        };
        let values = rows
            .clone()
            .map(|row| (value(row % shape.present) + row / shape.present) as i64);
        let mut columns = vec![
            keyed.column(numbers()),
            Arc::new(Int64Array::from_iter_values(values)),
        ];
        if shape.strings {
            let texts = numbers().map(|number| {
                let mut out = String::with_capacity(32);
                text(number, &mut out);
                out
            });
            columns.push(views(texts, 32));
        }
        Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?)
    })?;
    table(&schema, batches, partitions)
}

fn make_probe(shape: &Shape, partitions: usize) -> Result<(Arc<MemTable>, Answers)> {
    let keyed = Keyed::new(shape.keys, shape.present, shape.all);
    let schema = schema(&[("k", keyed.data_type()), ("w", DataType::Int64)]);
    let seen = Seen::new(shape.present);
    let made = by_batch(shape.probe_rows, |rows| {
        let mut answers = Answers::default();
        let mut random = Mt64::new(rows.start / BATCH_ROWS);
        let mut numbers = Vec::with_capacity((rows.end - rows.start) as usize);
        let mut payload = Vec::with_capacity(numbers.capacity());
        for _ in rows {
            let number = below(random.next_u64(), shape.all);
            let w = below(random.next_u64(), VALUES);
            answers.add_probe(shape, number, w);
            if number < shape.present {
                seen.add(number);
            }
            numbers.push(number);
            payload.push(w as i64);
        }
        let columns = vec![
            keyed.column(numbers.into_iter()),
            Arc::new(Int64Array::from(payload)) as ArrayRef,
        ];
        Ok((RecordBatch::try_new(Arc::clone(&schema), columns)?, answers))
    })?;
    let (batches, answers): (Vec<_>, Vec<_>) = made.into_iter().unzip();
    let of_build = by_batch(shape.present, |numbers| {
        let mut answers = Answers::default();
        numbers.for_each(|number| answers.add_build(shape, number, seen.has(number)));
        Ok(answers)
    })?;
    let answers = answers
        .iter()
        .chain(&of_build)
        .fold(Answers::default(), Answers::merge);
    Ok((table(&schema, batches, partitions)?, answers))
}

/// The numbers that some probe row has.
struct Seen(Vec<AtomicU64>);

impl Seen {
    fn new(count: u64) -> Self {
        Self((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn add(&self, number: u64) {
        // Most are there already, and reading does not take the line from other cores.
        if !self.has(number) {
            self.0[number as usize / 64].fetch_or(1 << (number % 64), Ordering::Relaxed);
        }
    }

    fn has(&self, number: u64) -> bool {
        self.0[number as usize / 64].load(Ordering::Relaxed) >> (number % 64) & 1 == 1
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
    use super::*;
    use std::collections::BTreeMap;

    fn shape(keys: Keys) -> Shape {
        Shape {
            keys,
            present: 3000,
            copies: 4,
            all: 9000,
            probe_rows: 20_000,
            strings: true,
        }
    }

    /// The answers against a join of the numbers by hand.
    #[test]
    fn answers_are_those_of_a_join() {
        let shape = shape(Keys::Sparse);
        let (probe, answers) = make_probe(&shape, 3).unwrap();
        drop(probe);
        let mut probe: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for batch in 0..shape.probe_rows.div_ceil(BATCH_ROWS) {
            let mut random = Mt64::new(batch);
            for _ in batch * BATCH_ROWS..((batch + 1) * BATCH_ROWS).min(shape.probe_rows) {
                let number = below(random.next_u64(), shape.all);
                let w = below(random.next_u64(), VALUES);
                probe.entry(number).or_default().push(w);
            }
        }
        let mut expected = Answers::default();
        for row in 0..shape.build_rows() {
            let number = row % shape.present;
            let v = value(number) + row / shape.present;
            expected.build_rows += 1;
            expected.build_v += v;
            let matches = probe.get(&number).map_or(&[][..], Vec::as_slice);
            if !matches.is_empty() {
                expected.build_hits += 1;
                expected.build_hits_v += v;
            }
            for &w in matches {
                expected.pairs += 1;
                expected.pairs_v += v;
                expected.pairs_w += w;
                expected.pairs_text += text_len(number);
                if v < w {
                    expected.less += 1;
                    expected.less_v += v;
                    expected.less_w += w;
                }
            }
        }
        for (number, payload) in probe {
            let (count, sum) = (payload.len() as u64, payload.iter().sum::<u64>());
            expected.probe_rows += count;
            expected.probe_w += sum;
            if number < shape.present {
                expected.probe_hits += count;
                expected.probe_hits_w += sum;
            }
        }
        assert_eq!(answers, expected);
        let rate = answers.probe_hits as f64 / answers.probe_rows as f64;
        assert!((rate - 1.0 / 3.0).abs() < 0.02, "{rate}");
    }

    #[test]
    fn tables_are_shared_only_where_equal() {
        let shape = shape(Keys::Dense);
        let more = Shape { all: 3000, ..shape };
        assert!(shape.shares_build(&more) && !shape.shares_probe(&more));
        let holes = Shape {
            keys: Keys::Holes,
            ..shape
        };
        assert!(!holes.shares_build(&Shape { all: 3000, ..holes }));
        let mut tables = Tables::default();
        let first = tables.make(&shape, 2).unwrap();
        let second = tables.make(&more, 2).unwrap();
        assert!(Arc::ptr_eq(&first.build, &second.build));
        assert!(!Arc::ptr_eq(&first.probe, &second.probe));
    }
}
