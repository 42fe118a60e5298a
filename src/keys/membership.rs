//! A set of the build side's keys, of one column or of several, and the expression that tests for
//! it.
//!
//! ```text
//!  codes of one column ≤ 64 per row:        Bitmap    code(key) ─▶ bit
//!                                                     0 0 1 0 1 1 0 … one bit per code
//!  no, or of several columns:               Bloom     hash(key) ─▶ word, four of its 64 bits
//!                                                     [..1.1..][1......1] … 16 to 32 bits per row
//! ```
//!
//! A set says "perhaps" of a value that the build side has and mostly "no" of others, at little
//! cost per row. Codes are those of the join's own [`KeyEncoder`], so any type with a range has a
//! bitmap, and what counts as equal is the same. Where there are codes and too many for a bitmap,
//! the code is hashed: a multiplication takes a quarter of the hash of a value. Every other type is
//! hashed as the join hashes it. A Bloom filter of one word per key costs one access to memory
//! (blocked Bloom filter, Putze, Sanders and Singler, 2007). The join's own table would answer
//! exactly, but it is on the device, and a second one on the host takes much longer to fill.
//!
//! A set is filled by the build's [parts](crate::parallel), large ones off the runtime's threads,
//! with its bytes reserved before. Parts make codes and hashes side by side. Where a core's cache
//! holds the set, they set bits in turn: cores that do so at once wait for lines of memory that
//! others have just written. A larger set waits for memory in any case, and there more cores are
//! faster.
//!
//! Filters outlive their query, as plans do, so the expression holds a [`FilterHandle`]: the join
//! empties it when its last stream is gone, and an empty handle lets every row through.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use datafusion::common::hash_utils::create_hashes;
use datafusion::common::{NullEquality, Result as DataFusionResult};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef};
use datafusion::physical_plan::joins::SeededRandomState;

use crate::error::Result;

use crate::keys::encoder::{KeyEncoder, KeyRanges};
use crate::keys::masks;
use crate::keys::verify::comparable;
use crate::parallel::{Morsel, map_blocking, parts};

/// Bits of a bitmap for each build row, at most: as many as eight bytes per row.
const BITMAP_BITS: u64 = 64;

/// Bits of a bitmap that any build side may have, however few its rows: one megabyte, which a
/// core's cache holds. Testing a bit there takes a quarter of a hash. Parts of the build side set
/// the bits of a set of that size in turn.
const SMALL_BITMAP: u64 = 1 << 23;

/// Build rows for each word of a Bloom filter, at most.
const BLOOM_ROWS: usize = 4;

/// Seed of the hashes; any will do, as both sides use it.
const SEED: SeededRandomState = SeededRandomState::with_seed(0x486f_7274);

/// A set of keys: no false negatives.
#[derive(Debug)]
pub struct MembershipFilter {
    kind: Kind,
    /// The type of each column.
    types: Vec<DataType>,
    words: Vec<AtomicU64>,
    /// Held by whoever sets bits of a set that a core's cache holds.
    filling: Mutex<()>,
    _memory: MemoryReservation,
}

#[derive(Debug)]
enum Kind {
    /// One bit per code.
    Bitmap(KeyEncoder),
    /// Four bits of one of `words.len()` words, a power of two, by a hash of the code where there
    /// are codes.
    Bloom(Option<KeyEncoder>),
}

/// The facts of a set that EXPLAIN shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FilterInfo {
    kind: &'static str,
    bytes: usize,
}

impl fmt::Display for FilterInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({} bytes)", self.kind, self.bytes)
    }
}

impl MembershipFilter {
    /// Returns a set without keys, for those whose column `c` is `keys[b][c]`, of the type
    /// `types[c]`, which are looked at `width` parts at a time. Its bytes are taken from `memory`'s
    /// pool.
    ///
    /// # Errors
    /// `ResourcesExhausted` from the memory pool.
    pub async fn empty(
        keys: &[Vec<ArrayRef>],
        types: &[DataType],
        width: usize,
        memory: &MemoryReservation,
    ) -> Result<Self> {
        let encoder = match types {
            [_] => Some(encoder_of(keys, types, width).await?),
            _ => None,
        };
        let rows = keys.iter().flat_map(|columns| columns.first());
        let rows: usize = rows.map(|key| key.len()).sum();
        let most = (BITMAP_BITS * rows as u64).max(SMALL_BITMAP);
        let codes = encoder.as_ref().and_then(KeyEncoder::domain_size);
        let (kind, words) = match (encoder, codes) {
            (Some(encoder), Some(codes)) if codes <= most => {
                let words = codes.div_ceil(64).max(1);
                (Kind::Bitmap(encoder), words as usize)
            }
            (encoder, _) => {
                let words = (rows / BLOOM_ROWS).max(16).next_power_of_two();
                (Kind::Bloom(encoder.filter(KeyEncoder::is_packed)), words)
            }
        };
        let memory = memory.new_empty();
        memory.try_grow(8 * words)?;
        Ok(Self {
            kind,
            types: types.to_vec(),
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            filling: Mutex::default(),
            _memory: memory,
        })
    }

    /// Returns the set with `keys`, those that it was made for. Keys with a NULL are left out.
    ///
    /// # Errors
    /// If the keys cannot be encoded or hashed.
    pub async fn with(self, keys: &[Vec<ArrayRef>], width: usize) -> Result<Arc<Self>> {
        let set = Arc::new(self);
        let of_part = Arc::clone(&set);
        let insert = move |part: Morsel| {
            let mut slices = part.columns.iter();
            slices.try_for_each(|keys| of_part.insert(keys))
        };
        map_blocking(parts(keys), width, insert).await?;
        Ok(set)
    }

    /// Returns whether inserting a key takes less than its hash does: the set is a bitmap that a
    /// core's cache holds.
    pub fn is_filled_fast(&self) -> bool {
        matches!(self.kind, Kind::Bitmap(_)) && self.is_small()
    }

    fn is_small(&self) -> bool {
        64 * self.words.len() as u64 <= SMALL_BITMAP
    }

    /// Returns the facts that EXPLAIN shows.
    pub fn about(&self) -> FilterInfo {
        FilterInfo {
            kind: match self.kind {
                Kind::Bitmap(_) => "bitmap",
                Kind::Bloom(_) => "bloom",
            },
            bytes: 8 * self.words.len(),
        }
    }

    /// Returns the number of values from the smallest key to the largest, or some more; `None` if
    /// keys are hashed.
    pub fn range(&self) -> Option<usize> {
        match self.kind {
            Kind::Bitmap(_) => Some(64 * self.words.len()),
            Kind::Bloom(_) => None,
        }
    }

    /// Inserts the keys of some rows, given by their columns.
    fn insert(&self, keys: &[ArrayRef]) -> Result<()> {
        let last = self.words.len() - 1;
        let bits_of_hash = |hash| (word_of(hash, last), bits_of(hash));
        match &self.kind {
            Kind::Bitmap(encoder) => {
                let bit = |code| ((code >> 6) as usize, 1_u64 << (code & 63));
                self.set_codes(encoder, keys, bit)
            }
            Kind::Bloom(Some(encoder)) => {
                self.set_codes(encoder, keys, |code| bits_of_hash(mixed(code)))
            }
            Kind::Bloom(None) => {
                let nulls = nulls_of_any(keys);
                let valid = nulls.as_ref().map(NullBuffer::inner);
                self.set(of_rows(hashes(keys)?.into_iter(), valid).map(bits_of_hash));
                Ok(())
            }
        }
    }

    /// Sets the bits that `bits` returns for the code of each row of `keys` that has one.
    fn set_codes(
        &self,
        encoder: &KeyEncoder,
        keys: &[ArrayRef],
        bits: impl Fn(u64) -> (usize, u64),
    ) -> Result<()> {
        let mut words = vec![0; row_count(keys) * encoder.words()];
        let has_code = encoder.encode(keys, &mut words)?;
        match words.as_chunks::<2>() {
            (codes, []) if encoder.words() == 2 => {
                let codes = codes
                    .iter()
                    .map(|[low, high]| u64::from(*high) << 32 | u64::from(*low));
                self.set(of_rows(codes, has_code.as_ref()).map(bits));
            }
            _ => {
                let codes = words.iter().map(|code| u64::from(*code));
                self.set(of_rows(codes, has_code.as_ref()).map(bits));
            }
        }
        Ok(())
    }

    /// Sets `bits`: each is a word's number and bits of it.
    fn set(&self, bits: impl Iterator<Item = (usize, u64)>) {
        if !self.is_small() {
            for (word, bits) in bits {
                let word = &self.words[word];
                // Most bits of keys that repeat are already set: looking is cheaper than writing.
                if word.load(Ordering::Relaxed) & bits != bits {
                    word.fetch_or(bits, Ordering::Relaxed);
                }
            }
            return;
        }
        let _filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let add = |word: usize, bits| {
            let word = &self.words[word];
            word.store(word.load(Ordering::Relaxed) | bits, Ordering::Relaxed);
        };
        // Keys in order share a word with the next ones. Loading what was just stored takes longer.
        let (mut last, mut together) = (0, 0);
        for (word, bits) in bits {
            if word != last {
                add(last, together);
                (last, together) = (word, 0);
            }
            together |= bits;
        }
        add(last, together);
    }

    /// Returns whether each key of some rows, given by their columns, may be in the set. A key with
    /// a NULL is not.
    ///
    /// # Errors
    /// If a column is of a type that cannot be cast to that of the set.
    pub fn test(&self, keys: &[ArrayRef]) -> Result<BooleanBuffer> {
        let keys = as_types(keys, &self.types)?;
        let keys = keys.as_slice();
        let words = self.words.as_slice();
        let last = words.len() - 1;
        let has = move |hash| {
            let bits = bits_of(hash);
            words[word_of(hash, last)].load(Ordering::Relaxed) & bits == bits
        };
        match &self.kind {
            Kind::Bitmap(encoder) => encoder.test(&keys[0], move |code| {
                // Values outside the range have any word in place of theirs.
                let word = &words[((code >> 6) as usize).min(last)];
                word.load(Ordering::Relaxed) >> (code & 63) & 1 == 1
            }),
            Kind::Bloom(Some(encoder)) => encoder.test(&keys[0], move |code| has(mixed(code))),
            Kind::Bloom(None) => {
                let bits = masks::collect(&hashes(keys)?, has);
                Ok(match nulls_of_any(keys) {
                    Some(nulls) => &bits & nulls.inner(),
                    None => bits,
                })
            }
        }
    }
}

/// Returns those of `values` whose rows are in `mask`; all if there is none.
fn of_rows(
    values: impl Iterator<Item = u64>,
    mask: Option<&BooleanBuffer>,
) -> impl Iterator<Item = u64> {
    let rows = values.enumerate();
    let rows = rows.filter(move |(row, _)| mask.is_none_or(|mask| mask.value(*row)));
    rows.map(|(_, value)| value)
}

/// Returns a hash of a code: both halves of a product, as wyhash mixes.
#[inline]
fn mixed(code: u64) -> u64 {
    let product = u128::from(code ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93;
    product as u64 ^ (product >> 64) as u64
}

/// Returns the word of a hash, of those up to `last`, whose number is a power of two less one.
fn word_of(hash: u64, last: usize) -> usize {
    (hash >> 24) as usize & last
}

/// Returns four bits of a word; its place comes from other bits of the hash.
fn bits_of(hash: u64) -> u64 {
    [0, 6, 12, 18]
        .into_iter()
        .fold(0, |bits, shift| bits | 1 << ((hash >> shift) & 63))
}

/// Returns columns as they are compared with those of the types `types`.
///
/// # Errors
/// If a column is of a type that cannot be cast to its own.
pub(super) fn as_types(keys: &[ArrayRef], types: &[DataType]) -> Result<Vec<ArrayRef>> {
    let columns = keys.iter().zip(types).map(|(key, data_type)| {
        if comparable(key.data_type(), data_type) {
            // Casting to another time zone would move what is compared as it is.
            Ok(Arc::clone(key))
        } else {
            // A scan may test values as a file has them.
            cast(key, data_type)
        }
    });
    Ok(columns.collect::<Result<_, ArrowError>>()?)
}

/// Returns the hash of each row of columns.
///
/// # Errors
/// If a type cannot be hashed.
pub(super) fn hashes(keys: &[ArrayRef]) -> Result<Vec<u64>> {
    let mut hashes = vec![0; row_count(keys)];
    create_hashes(keys, SEED.random_state(), &mut hashes)?;
    Ok(hashes)
}

fn row_count(keys: &[ArrayRef]) -> usize {
    keys.first().map_or(0, |key| key.len())
}

/// Returns which rows have a NULL in one of `keys`; `None` if none has.
pub(super) fn nulls_of_any(keys: &[ArrayRef]) -> Option<NullBuffer> {
    let nulls = keys.iter().map(|key| key.logical_nulls());
    nulls.fold(None, |any, of_key| {
        NullBuffer::union(any.as_ref(), of_key.as_ref())
    })
}

/// Returns the encoder of the one column that `keys` have, of the one type of `types`.
async fn encoder_of(
    keys: &[Vec<ArrayRef>],
    types: &[DataType],
    width: usize,
) -> Result<KeyEncoder> {
    let of_part = types.to_vec();
    let measure = move |part: Morsel| KeyRanges::measure(&part.columns, &of_part);
    let ranges = map_blocking(parts(keys), width, measure).await?;
    let ranges = match ranges.into_iter().reduce(KeyRanges::union) {
        Some(ranges) => ranges,
        None => KeyRanges::measure(&[], types)?,
    };
    let equality = NullEquality::NullEqualsNothing;
    Ok(KeyEncoder::for_ranges(&ranges, types, equality))
}

/// The place where an expression finds its set; all copies of the expression share it.
#[derive(Debug)]
pub struct FilterHandle(RwLock<Option<Arc<MembershipFilter>>>);

impl FilterHandle {
    /// Returns a handle with `set` in it.
    pub fn new(set: Arc<MembershipFilter>) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Some(set))))
    }

    /// Takes the set out: from now on every row passes.
    pub fn clear(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn get(&self) -> Option<Arc<MembershipFilter>> {
        let set = self.0.read().unwrap_or_else(PoisonError::into_inner);
        set.clone()
    }
}

/// `key IN set`: Boolean, never NULL.
pub struct InFilterExpr {
    /// The columns of the key.
    keys: Vec<PhysicalExprRef>,
    slot: Arc<FilterHandle>,
    about: FilterInfo,
    /// True if a key with a NULL passes.
    nulls_pass: bool,
    /// True if a join looks the same keys up next, as fast as they are tested here.
    is_repeated: bool,
}

impl InFilterExpr {
    /// Returns whether the key with the columns `keys` may be in `set`. One with a NULL is if
    /// `nulls_pass`.
    pub fn new(keys: Vec<PhysicalExprRef>, set: Arc<MembershipFilter>, nulls_pass: bool) -> Self {
        Self {
            keys,
            about: set.about(),
            slot: FilterHandle::new(set),
            nulls_pass,
            is_repeated: false,
        }
    }

    /// Returns the expression as one whose keys a join looks up next if `is_repeated`, as fast as
    /// they are tested here.
    #[must_use]
    pub fn repeated(self, is_repeated: bool) -> Self {
        Self {
            is_repeated,
            ..self
        }
    }

    /// Returns whether a join looks the same keys up next, as fast as they are tested here.
    pub fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    /// Returns where the set is.
    pub fn slot(&self) -> &Arc<FilterHandle> {
        &self.slot
    }
}

impl fmt::Display for InFilterExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.keys.as_slice() {
            [key] => write!(f, "{key} IN {}", self.about),
            keys => {
                let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
                write!(f, "({}) IN {}", keys.join(", "), self.about)
            }
        }
    }
}

impl fmt::Debug for InFilterExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Hash for InFilterExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.keys.hash(state);
        Arc::as_ptr(&self.slot).hash(state);
    }
}

impl PartialEq for InFilterExpr {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys && Arc::ptr_eq(&self.slot, &other.slot)
    }
}

impl Eq for InFilterExpr {}

impl PhysicalExpr for InFilterExpr {
    fn children(&self) -> Vec<&PhysicalExprRef> {
        self.keys.iter().collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<PhysicalExprRef>,
    ) -> DataFusionResult<PhysicalExprRef> {
        Ok(Arc::new(Self {
            keys: children,
            slot: Arc::clone(&self.slot),
            about: self.about.clone(),
            nulls_pass: self.nulls_pass,
            is_repeated: self.is_repeated,
        }))
    }

    fn data_type(&self, _: &Schema) -> DataFusionResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, _: &Schema) -> DataFusionResult<bool> {
        Ok(false)
    }

    fn evaluate(&self, batch: &RecordBatch) -> DataFusionResult<ColumnarValue> {
        let rows = batch.num_rows();
        let Some(set) = self.slot.get() else {
            let all = BooleanArray::new(BooleanBuffer::new_set(rows), None);
            return Ok(ColumnarValue::Array(Arc::new(all)));
        };
        let keys = self.keys.iter();
        let keys = keys.map(|key| key.evaluate(batch)?.into_array(rows));
        let keys: Vec<ArrayRef> = keys.collect::<DataFusionResult<_>>()?;
        let mut passes = set.test(&keys)?;
        if self.nulls_pass
            && let Some(nulls) = nulls_of_any(&keys)
        {
            passes = &passes | &!nulls.inner();
        }
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(
            passes, None,
        ))))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array, StringArray, make_array};
    use arrow::datatypes::{Field, TimeUnit};
    use datafusion::execution::memory_pool::{
        GreedyMemoryPool, MemoryConsumer, MemoryPool, UnboundedMemoryPool,
    };
    use datafusion::physical_expr::expressions::Column;

    fn memory(pool: Arc<dyn MemoryPool>) -> MemoryReservation {
        MemoryConsumer::new("test").register(&pool)
    }

    fn ints(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
        Arc::new(Int64Array::from_iter(values))
    }

    async fn filled(
        keys: &[Vec<ArrayRef>],
        types: &[DataType],
        memory: &MemoryReservation,
    ) -> Result<Arc<MembershipFilter>> {
        let set = MembershipFilter::empty(keys, types, 2, memory).await?;
        set.with(keys, 2).await
    }

    async fn set_of(arrays: &[ArrayRef]) -> Arc<MembershipFilter> {
        let keys: Vec<Vec<ArrayRef>> = arrays.iter().map(|a| vec![Arc::clone(a)]).collect();
        let memory = memory(Arc::new(UnboundedMemoryPool::default()));
        filled(&keys, &[arrays[0].data_type().clone()], &memory)
            .await
            .unwrap()
    }

    /// Returns every third number and NULL, as `data_type`.
    fn thirds(data_type: &DataType, until: i64) -> ArrayRef {
        let numbers = (0..until).map(|n| (n % 7 != 0).then_some(3 * n));
        cast(&ints(numbers), data_type).unwrap()
    }

    #[tokio::test]
    async fn values_of_any_type_are_in_their_set_and_nulls_are_not() {
        use DataType::*;
        let zone = Some("Europe/Oslo".into());
        for data_type in [
            Int16,
            Int32,
            Int64,
            UInt32,
            UInt64,
            Float32,
            Float64,
            Utf8,
            LargeUtf8,
            Utf8View,
            Binary,
            Decimal128(20, 2),
            Decimal256(40, 2),
            Timestamp(TimeUnit::Millisecond, zone),
            Dictionary(Box::new(Int32), Box::new(Utf8)),
        ] {
            let keys = thirds(&data_type, 300);
            let (first, second) = (keys.slice(0, 100), keys.slice(100, 200));
            let set = set_of(&[first, second]).await;
            let passes = set.test(&[Arc::clone(&keys)]).unwrap();
            for row in 0..keys.len() {
                assert_eq!(passes.value(row), row % 7 != 0, "{data_type} {row}");
            }
        }
    }

    #[tokio::test]
    async fn a_bitmap_is_exact_and_a_bloom_filter_lets_few_others_through() {
        let near = set_of(&[thirds(&DataType::Int64, 5000)]).await;
        assert_eq!(near.about().kind, "bitmap");
        let all = ints((-100..20_000).map(Some));
        let passes = near.test(&[all]).unwrap();
        let expected = (0..5000).filter(|n| n % 7 != 0).count();
        assert_eq!(passes.count_set_bits(), expected);

        let far = |n: i64| Some(n * 0x0123_4567_89ab);
        let set = set_of(&[ints((0..5000).map(far))]).await;
        assert_eq!(set.about().kind, "bloom");
        let others = set.test(&[ints((5000..105_000).map(far))]).unwrap();
        let share = others.count_set_bits() as f64 / 1e5;
        assert!(share < 0.02, "{share}");
    }

    /// Of keys far apart, as hashes and identities are, few others pass, whatever the distance.
    #[tokio::test]
    async fn codes_of_any_distance_make_few_others_pass() {
        // Codes of one word, and of two.
        for shift in 12..48 {
            let far = |n: i64| Some(n << shift);
            let set = set_of(&[ints((-2000..3000).map(far))]).await;
            assert_eq!(set.about().kind, "bloom");
            let keys = set.test(&[ints((-2000..3000).map(far))]).unwrap();
            assert_eq!(keys.count_set_bits(), 5000, "{shift}");
            // Between the keys, as those outside of them fail by the range alone.
            let between = (0..100_000_i64).map(|n| ((n % 4999 - 2000) << shift) + 1 + n / 4999);
            let others = set.test(&[ints(between.map(Some))]).unwrap();
            let share = others.count_set_bits() as f64 / 1e5;
            assert!(share < 0.02, "{shift}: {share}");
        }
    }

    #[tokio::test]
    async fn keys_of_several_columns_are_in_their_set_and_few_others_are() {
        let numbers: ArrayRef = ints((0..4000).map(|n| (n % 7 != 0).then_some(n % 100)));
        let letters = (0..4000).map(|n| (n % 5 != 0).then(|| format!("{}", n / 100)));
        let letters: ArrayRef = Arc::new(StringArray::from_iter(letters));
        let keys = vec![vec![Arc::clone(&numbers), Arc::clone(&letters)]];
        let types = [DataType::Int64, DataType::Utf8];
        let memory = memory(Arc::new(UnboundedMemoryPool::default()));
        let set = filled(&keys, &types, &memory).await.unwrap();
        assert_eq!(set.about().kind, "bloom");
        let passes = set.test(&keys[0]).unwrap();
        for row in 0..4000 {
            assert_eq!(passes.value(row), row % 7 != 0 && row % 5 != 0, "{row}");
        }
        // Each column has these values, but no row has both.
        let crossed = cast(&numbers, &DataType::Int32).unwrap();
        let fields = vec![
            Field::new("n", DataType::Int32, true),
            Field::new("s", DataType::Utf8, true),
        ];
        let letters: ArrayRef = Arc::new(StringArray::from(vec!["40"; 4000]));
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(schema, vec![crossed, letters]).unwrap();
        let column = |name: &str, i| Arc::new(Column::new(name, i)) as PhysicalExprRef;
        let passing = |nulls_pass| {
            let columns = vec![column("n", 0), column("s", 1)];
            let expression = InFilterExpr::new(columns, Arc::clone(&set), nulls_pass);
            assert!(expression.to_string().starts_with("(n@0, s@1) IN bloom("));
            let passes = expression.evaluate(&batch).unwrap().into_array(4000);
            let passes = passes.unwrap();
            passes
                .as_any()
                .downcast_ref::<BooleanArray>()
                .unwrap()
                .true_count()
        };
        assert!(passing(false) < 100, "{}", passing(false));
        let with_null = (0..4000).filter(|n| n % 7 == 0).count();
        assert_eq!(passing(true), passing(false) + with_null);
    }

    #[tokio::test]
    async fn equal_values_of_several_columns_pass_whatever_their_bits() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.0, f64::NAN, 2.0]));
        let words: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a"]));
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let memory = memory(Arc::new(UnboundedMemoryPool::default()));
        for of_build in [DataType::Utf8, dictionary.clone()] {
            let keys = vec![vec![Arc::clone(&floats), cast(&words, &of_build).unwrap()]];
            let types = [DataType::Float64, of_build];
            let set = filled(&keys, &types, &memory).await.unwrap();
            for of_probe in [DataType::Utf8, DataType::Utf8View, dictionary.clone()] {
                let floats: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, -f64::NAN, 2.0]));
                let asked = [floats, cast(&words, &of_probe).unwrap()];
                let passes = set.test(&asked).unwrap();
                assert!(passes.value(0) && passes.value(2), "{types:?} {of_probe}");
            }
        }
    }

    /// The bitmap is one word of ones, so that a code outside its range meets a one, too.
    #[tokio::test]
    async fn values_outside_a_bitmaps_range_are_not_in_it() {
        use DataType::*;
        for (data_type, smallest, largest) in [
            (Int8, i8::MIN.into(), i8::MAX.into()),
            (Int16, i16::MIN.into(), i16::MAX.into()),
            (Int32, i32::MIN.into(), i32::MAX.into()),
            (Int64, i64::MIN, i64::MAX),
            (UInt8, 0, u8::MAX.into()),
            (UInt32, 0, u32::MAX.into()),
            (UInt64, 0, i64::MAX),
            (Decimal128(38, 0), i64::MIN, i64::MAX),
        ] {
            let of =
                |values: &[Option<i64>]| cast(&ints(values.iter().copied()), &data_type).unwrap();
            let range: Vec<_> = (20..=83).map(Some).collect();
            let set = set_of(&[of(&range)]).await;
            assert_eq!(set.about().kind, "bitmap");
            let values = [19, 20, 50, 83, 84, smallest, largest].map(Some);
            let passes = set.test(&[of(&values)]).unwrap();
            let passes: Vec<bool> = passes.iter().collect();
            let expected = [false, true, true, true, false, false, false];
            assert_eq!(passes, expected, "{data_type}");

            // The value of a NULL can be any, one of the range's, too.
            let nulls = Some(vec![true, false, true].into());
            let values = of(&[Some(20), Some(50), Some(84)]).to_data().into_builder();
            let values = make_array(values.nulls(nulls).build().unwrap());
            let passes: Vec<bool> = set.test(&[Arc::clone(&values)]).unwrap().iter().collect();
            assert_eq!(passes, [true, false, false], "{data_type}");

            let none = of(&[None, None]);
            let set = set_of(&[none]).await;
            assert_eq!(
                set.test(&[Arc::clone(&values)]).unwrap().count_set_bits(),
                0
            );
        }
    }

    #[tokio::test]
    async fn times_pass_as_they_are_whatever_their_zone() {
        let zone = DataType::Timestamp(TimeUnit::Nanosecond, Some("+02:00".into()));
        let plain = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let numbers = ints([i64::MIN, 0, 5].into_iter().map(Some));
        let set = set_of(&[cast(&numbers, &plain).unwrap()]).await;
        let zoned = numbers.to_data().into_builder().data_type(zone);
        let passes = set.test(&[make_array(zoned.build().unwrap())]).unwrap();
        assert_eq!(passes.count_set_bits(), 3);
    }

    #[tokio::test]
    async fn equal_floats_pass_whatever_their_bits() {
        let keys: ArrayRef = Arc::new(Float64Array::from(vec![0.0, f64::NAN]));
        let set = set_of(&[keys]).await;
        let asked: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, 0.0, f64::NAN, 1.0]));
        let passes = set.test(&[asked]).unwrap();
        assert!(passes.value(0) && passes.value(1) && passes.value(2));
    }

    #[tokio::test]
    async fn a_set_takes_no_more_than_the_pool_has() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(10_000));
        let memory = memory(Arc::clone(&pool));
        let small = vec![vec![ints((0..1000).map(Some))]];
        let types = [DataType::Int64];
        let set = filled(&small, &types, &memory).await.unwrap();
        assert_eq!(pool.reserved(), set.about().bytes);
        let large = vec![vec![ints((0..1000).map(|n| Some(n << 10)))]];
        let refused = filled(&large, &types, &memory).await;
        assert!(refused.unwrap_err().is_pool_memory());
        drop(set);
        assert_eq!(pool.reserved(), 0);
    }

    #[tokio::test]
    async fn an_expression_whose_slot_is_empty_lets_every_row_through() {
        let field = Field::new("s", DataType::Utf8, true);
        let schema = Arc::new(Schema::new(vec![field]));
        let keys: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("b")]));
        let batch = RecordBatch::try_new(schema, vec![Arc::clone(&keys)]).unwrap();
        let set = set_of(&[keys.slice(0, 1)]).await;
        let key: PhysicalExprRef = Arc::new(Column::new("s", 0));
        let passes = |expression: &InFilterExpr| {
            let passes = expression.evaluate(&batch).unwrap().into_array(3).unwrap();
            let passes = passes.as_any().downcast_ref::<BooleanArray>().unwrap();
            passes.values().iter().collect::<Vec<bool>>()
        };
        let without_nulls = InFilterExpr::new(vec![Arc::clone(&key)], Arc::clone(&set), false);
        assert_eq!(passes(&without_nulls), [true, false, false]);
        let with_nulls = InFilterExpr::new(vec![key], set, true);
        assert_eq!(passes(&with_nulls), [true, true, false]);
        with_nulls.slot().clear();
        assert_eq!(passes(&with_nulls), [true, true, true]);
    }
}
