//! Columns of the build side on the device, to be gathered there.
//!
//! ```text
//!  batches  [a b] [c - e]  ─▶  device: a b c d e        rows numbered through, 32-bit words
//!                                      1 1 1 0 1        32 rows per word, if there are NULLs
//!  build rows of pairs  4 0 3  ─gather_rows─▶  e a d   ┐ side by side, and so
//!                              ─gather_bits─▶  1 1 0   ┘ by one copy ─▶ host, in order
//! ```
//!
//! The build rows of a probe chunk are random, and so is every access to their columns. A GPU hides
//! the latency of such accesses, a host core waits for each. Fixed-width columns of 4, 8 or 16
//! bytes per value qualify; others are gathered by the host. String views have 16 bytes, too, but a
//! wrong one would point anywhere. To check it takes the access that was to be saved.

use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, make_array};
use arrow::buffer::{BooleanBuffer, Buffer as ArrowBuffer};
use arrow::datatypes::DataType;

use crate::device::{Buffer, Queue, Staging};
use crate::error::{DeviceError, Error, Result};
use crate::join::rows::Source;
use crate::table::primitives::rows::{gather_bits_to, gather_rows_to};

/// One column on the device.
#[derive(Debug)]
pub struct DeviceColumn {
    /// Place that it comes from.
    pub source: Source,
    /// Type of the values.
    pub(super) data_type: DataType,
    /// Logarithm of the 32-bit words of a value.
    pub(super) log_words: u32,
    /// The values.
    pub(super) words: Arc<Buffer<u32>>,
    /// A bit for each row: whether it has a value. `None` if all have.
    pub(super) validity: Option<Arc<Buffer<u32>>>,
}

/// Words that the elements of a gathered column are a divisor of.
const ALIGNED_WORDS: usize = 8;

/// Words of all gathered columns of a window, at most: kernels count them in 32 bits. A window of
/// more is halved.
const WORDS_MAX: usize = u32::MAX as usize;

/// The places of columns' values at some rows, in one piece of memory.
#[derive(Debug, Default)]
pub struct GatheredLayout {
    places: Vec<Place>,
    words: usize,
}

/// The words at which a column's values begin, and its bits if it has NULLs.
#[derive(Debug, Clone, Copy)]
struct Place {
    values: usize,
    validity: Option<usize>,
}

impl GatheredLayout {
    /// Returns that of `n` rows of `columns`.
    pub fn new(columns: &[DeviceColumn], n: usize) -> Self {
        let mut words = 0;
        let mut take = |taken: usize| {
            let at = words;
            words = (at + taken).next_multiple_of(ALIGNED_WORDS);
            at
        };
        let place = |column: &DeviceColumn| Place {
            values: take(n << column.log_words),
            validity: column.validity.as_ref().map(|_| take(n.div_ceil(32))),
        };
        let places = columns.iter().map(place).collect();
        Self { places, words }
    }

    /// Returns the values of `columns` at the first `n` of `rows`.
    ///
    /// # Errors
    /// [`DeviceMemory`](DeviceError::DeviceMemory) and OpenCL's own.
    pub fn gather(
        &self,
        queue: &mut Queue,
        columns: &[DeviceColumn],
        rows: (&Buffer<u32>, usize),
    ) -> Result<Buffer<u32>, DeviceError> {
        let out = queue.allocate("gathered columns", self.words)?;
        if out.len() > WORDS_MAX {
            return Err(DeviceError::DeviceMemory {
                what: "gathered columns",
                device: queue.info().label(),
                wanted: out.bytes(),
                limit: size_of::<u32>() as u64 * WORDS_MAX as u64,
                used: 0,
            });
        }
        for (column, place) in columns.iter().zip(&self.places) {
            let values = (&*column.words, column.log_words);
            gather_rows_to(queue, values, rows, (&out, place.values))?;
            if let (Some(validity), Some(at)) = (&column.validity, place.validity) {
                gather_bits_to(queue, validity, rows, (&out, at))?;
            }
        }
        Ok(out)
    }
}

/// Columns' values at some rows, on the host.
#[derive(Debug)]
pub struct GatheredColumns {
    /// Their places.
    pub layout: GatheredLayout,
    /// What is there.
    pub words: Staging<u32>,
}

impl GatheredColumns {
    /// Returns `n` of the values of column `at`, which is `column` on the device, from `from` on,
    /// as an array.
    ///
    /// # Errors
    /// [`Error::Internal`] if there is no such column; Arrow's errors, if there are fewer values.
    pub fn array(
        &self,
        (at, column): (usize, &DeviceColumn),
        from: usize,
        n: usize,
    ) -> Result<ArrayRef> {
        let Some(place) = self.layout.places.get(at) else {
            return Err(Error::Internal(format!("column {at} was not gathered")));
        };
        let width = column.value_bytes();
        let first = size_of::<u32>() * place.values + from * width;
        let values = self.words.bytes().get(first..first + n * width);
        let bits = place.validity.map(|at| {
            let words = self.words.get(at..).unwrap_or(&[]);
            bits(words, from, n)
        });
        let data = ArrayData::builder(column.data_type.clone())
            .len(n)
            .add_buffer(ArrowBuffer::from(values.unwrap_or(&[])))
            .null_bit_buffer(bits);
        Ok(make_array(data.build()?))
    }
}

/// Returns the logarithm of the 32-bit words of a value, if columns of `arrays` can be gathered on
/// a device.
pub fn log_words(arrays: &[ArrayRef]) -> Option<u32> {
    let data_type = arrays.first()?.data_type();
    if !arrays.iter().all(|array| array.data_type() == data_type) {
        return None;
    }
    match data_type.primitive_width()? {
        4 => Some(0),
        8 => Some(1),
        16 => Some(2),
        _ => None,
    }
}

impl DeviceColumn {
    /// Returns the bytes of a value and its validity, rounded up.
    pub fn width(&self) -> usize {
        self.value_bytes() + usize::from(self.validity.is_some())
    }

    fn value_bytes(&self) -> usize {
        4 << self.log_words
    }

    /// Returns the bytes on the device.
    pub fn bytes(&self) -> u64 {
        self.words.bytes() + self.validity.as_ref().map_or(0, |bits| bits.bytes())
    }
}

/// Returns `n` bits of `words`, from bit `from` on; fewer if there are fewer.
fn bits(words: &[u32], from: usize, n: usize) -> ArrowBuffer {
    let end = (from + n).div_ceil(32).min(words.len());
    let words = words.get(from / 32..end).unwrap_or(&[]);
    let held = (32 * words.len()).saturating_sub(from % 32);
    BooleanBuffer::new(ArrowBuffer::from_slice_ref(words), from % 32, n.min(held)).sliced()
}
