//! Columns of the build side on the device, to be gathered there.
//!
//! ```text
//!  batches  [a b] [c d e]  ─▶  device: a b c d e        rows numbered through, 32-bit words
//!  build rows of pairs  4 0 4  ─gather_rows─▶  e a e    ─▶ host, in order
//! ```
//!
//! The build rows of a probe chunk are random, and so is every access to their columns. A GPU hides
//! the latency of such accesses, a host core waits for each. Fixed-width columns without NULLs of
//! 4, 8 or 16 bytes per value qualify; others are gathered by the host.

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, make_array};
use arrow::buffer::Buffer as ArrowBuffer;
use arrow::datatypes::DataType;

use crate::device::{Buffer, Queue};
use crate::error::{DeviceError, Result};
use crate::join::rows::Source;
use crate::table::primitives::rows::gather_rows;

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
}

/// Returns the logarithm of the 32-bit words of a value, if columns of `arrays` can be gathered on
/// a device.
pub fn log_words(arrays: &[ArrayRef]) -> Option<u32> {
    let data_type = arrays.first()?.data_type();
    let fits = |array: &ArrayRef| array.null_count() == 0 && array.data_type() == data_type;
    if !arrays.iter().all(fits) {
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
    /// Returns the values at the first `n` of `rows`, in 32-bit words.
    ///
    /// # Errors
    /// [`DeviceMemory`](DeviceError::DeviceMemory) and OpenCL's own.
    pub fn gather(
        &self,
        queue: &mut Queue,
        rows: &Buffer<u32>,
        n: usize,
    ) -> Result<Buffer<u32>, DeviceError> {
        gather_rows(queue, (&self.words, self.log_words), rows, n)
    }

    /// Returns the bytes of a value.
    pub fn width(&self) -> usize {
        4 << self.log_words
    }

    /// Returns `n` values from `from` on of those that were gathered into `bytes`, as an array.
    ///
    /// # Errors
    /// Arrow's errors, if there are fewer.
    pub fn array(&self, bytes: &[u8], from: usize, n: usize) -> Result<ArrayRef> {
        let width = self.width();
        let values = bytes.get(from * width..(from + n) * width).unwrap_or(&[]);
        let data = ArrayData::builder(self.data_type.clone())
            .len(n)
            .add_buffer(ArrowBuffer::from(values));
        Ok(make_array(data.build()?))
    }

    /// Returns the bytes on the device.
    pub fn bytes(&self) -> u64 {
        self.words.bytes()
    }
}
