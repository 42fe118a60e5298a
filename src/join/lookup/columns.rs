//! Columns of the build side on the device, to be gathered there.
//!
//! ```text
//!  batches  [a b] [c - e]  ─▶  device: a b c d e        rows numbered through, 32-bit words
//!                                      1 1 1 0 1        32 rows per word, if there are NULLs
//!  build rows of pairs  4 0 3  ─gather_rows─▶  e a d    ─▶ host, in order
//!                              ─gather_bits─▶  1 1 0
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
use crate::error::{DeviceError, Result};
use crate::join::rows::Source;
use crate::table::primitives::rows::{gather_bits, gather_rows};

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

/// A column's values at some rows, as the device gathered them: there, or brought to the host.
#[derive(Debug)]
pub struct GatheredColumn<W> {
    /// The values, in 32-bit words.
    pub words: W,
    /// A bit for each value, 32 per word, if the column has NULLs.
    pub validity: Option<W>,
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
    /// Returns the values at the first `n` of `rows`.
    ///
    /// # Errors
    /// [`DeviceMemory`](DeviceError::DeviceMemory) and OpenCL's own.
    pub fn gather(
        &self,
        queue: &mut Queue,
        rows: &Buffer<u32>,
        n: usize,
    ) -> Result<GatheredColumn<Buffer<u32>>, DeviceError> {
        let validity = match &self.validity {
            Some(validity) => Some(gather_bits(queue, validity, rows, n)?),
            None => None,
        };
        let words = gather_rows(queue, (&self.words, self.log_words), rows, n)?;
        Ok(GatheredColumn { words, validity })
    }

    /// Returns the bytes of a value and its validity, rounded up.
    pub fn width(&self) -> usize {
        self.value_bytes() + usize::from(self.validity.is_some())
    }

    fn value_bytes(&self) -> usize {
        4 << self.log_words
    }

    /// Returns `n` of the values that were `gathered`, from `from` on, as an array.
    ///
    /// # Errors
    /// Arrow's errors, if there are fewer.
    pub fn array(
        &self,
        gathered: &GatheredColumn<Staging<u32>>,
        from: usize,
        n: usize,
    ) -> Result<ArrayRef> {
        let width = self.value_bytes();
        let values = gathered.words.bytes();
        let values = values.get(from * width..(from + n) * width).unwrap_or(&[]);
        let validity = gathered.validity.as_ref();
        let data = ArrayData::builder(self.data_type.clone())
            .len(n)
            .add_buffer(ArrowBuffer::from(values))
            .null_bit_buffer(validity.map(|words| bits(words, from, n)));
        Ok(make_array(data.build()?))
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
