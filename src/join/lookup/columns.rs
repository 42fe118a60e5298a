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

use crate::device::{Buffer, Placed, Queue};
use crate::error::{DeviceError, Result};
use crate::join::rows::Source;
use crate::table::primitives::rows::gather_rows;

use crate::join::metrics::JoinMetrics;
use crate::parallel::{Morsel, map_parallel, parts};

/// One column on the device.
#[derive(Debug)]
pub struct DeviceColumn {
    /// Place that it comes from.
    pub source: Source,
    data_type: DataType,
    log_words: u32,
    words: Arc<Buffer<u32>>,
}

/// The destination of columns, and the way there.
#[derive(Debug, Clone, Copy)]
pub struct Upload<'a> {
    /// Device that the columns go to.
    pub device: &'a Placed,
    /// Device memory limit in bytes.
    pub memory_limit: u64,
    /// Parts that are worked on at once.
    pub width: usize,
    /// Metrics that their cost is added to.
    pub metrics: &'a JoinMetrics,
}

impl Upload<'_> {
    /// Returns the same for columns, which leave an eighth of the memory to chunks.
    pub fn of_columns(self) -> Self {
        Self {
            memory_limit: self.limit() / 8 * 7,
            ..self
        }
    }

    /// Returns the bytes that may be in use on the device.
    pub fn limit(&self) -> u64 {
        self.memory_limit.min(self.device.budget().limit())
    }
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
    /// Sends `arrays`, a column's values by batch, to the device; `None` if they cannot be gathered
    /// there ([`log_words`]).
    ///
    /// # Errors
    /// [`DeviceMemory`](DeviceError::DeviceMemory) and OpenCL's own.
    pub async fn send(
        upload: Upload<'_>,
        source: Source,
        arrays: &[ArrayRef],
    ) -> Result<Option<Self>> {
        let (Some(first), Some(log_words)) = (arrays.first(), log_words(arrays)) else {
            return Ok(None);
        };
        let data_type = first.data_type().clone();
        let rows: usize = arrays.iter().map(|array| array.len()).sum();
        let limit = upload.memory_limit;
        let words = upload.device.run(move |queue| {
            queue.limit_memory(limit);
            queue.allocate_table("a build column", rows << log_words)
        });
        let words = Arc::new(words.await?.value);
        let batches = arrays.iter().map(|array| vec![Arc::clone(array)]);
        let batches: Vec<Vec<ArrayRef>> = batches.collect();
        let send = |part: Morsel| {
            let (device, words) = (upload.device.clone(), Arc::clone(&words));
            let metrics = upload.metrics.clone();
            async move {
                let sent = {
                    let permit = device.upload().await?;
                    let mut staging =
                        permit.staging::<u32>("a build column", part.rows << log_words)?;
                    copy_values(&part, 4 << log_words, staging.bytes_mut());
                    let at = part.first_row << log_words;
                    device.run(move |queue| {
                        let _permit = permit;
                        queue.send_to(&words, at, staging)
                    })
                };
                metrics.add_cost(&sent.await?.cost);
                Ok(())
            }
        };
        map_parallel(parts(&batches), upload.width, send).await?;
        Ok(Some(Self {
            source,
            data_type,
            log_words,
            words,
        }))
    }

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

/// Copies the values of a part's one column, `width` bytes each.
fn copy_values(part: &Morsel, width: usize, out: &mut [u8]) {
    let mut rest = out;
    for column in part.columns.iter().flatten() {
        let data = column.to_data();
        let values = value_bytes(&data, width);
        let (to, after) = rest.split_at_mut(values.len());
        to.copy_from_slice(values);
        rest = after;
    }
}

/// Returns the bytes of the values of an array without NULLs, `width` each.
fn value_bytes(data: &ArrayData, width: usize) -> &[u8] {
    let from = data.offset() * width;
    let bytes = data.buffers().first().map_or(&[][..], |b| b.as_slice());
    bytes.get(from..from + data.len() * width).unwrap_or(&[])
}
