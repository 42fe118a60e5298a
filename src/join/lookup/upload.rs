//! The way of the build side to the device: its keys, which become a table, and its columns.
//!
//! ```text
//!  keys ─────parts, side by side─▶ staging memory ─▶ device: keys ─▶ MultiMap ┐
//!                                                                            ├─▶ JoinTable
//!  columns ──parts, side by side─▶ staging memory ─▶ device: columns ─────────┘
//! ```
//!
//! A part is written to where the device copies it from, by the core that encodes it. So no core
//! waits for the copy of another one's part, and host memory holds no second copy of all keys.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::array::{Array, ArrayData, ArrayRef, BooleanBufferBuilder};

use tracing::{Instrument, trace_span};

use crate::config::HortonConfig;
use crate::device::{Buffer, Device, Placed, Staging, UploadPermit};
use crate::error::{DeviceError, Result};
use crate::join::lookup::columns::{DeviceColumn, log_words};
use crate::join::lookup::table::JoinTable;
use crate::join::lookup::visited_bits::VisitedBits;
use crate::join::metrics::JoinMetrics;
use crate::join::rows::Source;
use crate::keys::source::{KeyPart, KeysToSend};
use crate::parallel::{Morsel, map_parallel, parts};
use crate::table::multimap::{MultiMap, MultiMapInput};

/// Returns the bytes of the memory of `device` that may be in use under the options `config`.
pub fn memory_limit(device: &Placed, config: &HortonConfig) -> u64 {
    config.memory_limit().min(device.budget().limit())
}

/// Takes host memory for so many `words` that `device` copies from, and the permit to fill it.
///
/// # Errors
/// The errors of [`Device::upload`].
pub async fn staging_words(
    device: &Device,
    what: &'static str,
    words: usize,
) -> Result<(UploadPermit, Staging<u32>), DeviceError> {
    let wait = trace_span!("wait for staging memory", row = "waits");
    device.upload(what, words).instrument(wait).await
}

/// Builds the table of `keys` on `device`. Lookups note which of its values they found, if it
/// `notes_visits`.
///
/// # Errors
/// The errors of [`MultiMap::build`].
pub async fn build_table(
    device: &Placed,
    config: &HortonConfig,
    keys: &KeysToSend,
    notes_visits: bool,
    metrics: &JoinMetrics,
) -> Result<JoinTable> {
    let (format, rows) = (keys.format, keys.rows);
    let (limit, index_config) = (config.memory_limit(), config.index_config());
    let (words, numbers) = allocate_keys(device, limit, keys).await?;
    let buffers = (&words, numbers.as_ref());
    send_keys(device, keys, buffers, metrics).await?;
    let built = device.run(move |queue| {
        queue.limit_memory(limit);
        let keys = MultiMapInput {
            keys: &words,
            rows: numbers.as_deref(),
            format,
        };
        let built = MultiMap::build(queue, index_config, keys)?;
        let visited = if notes_visits {
            Some(VisitedBits::new(queue, &built, rows)?)
        } else {
            None
        };
        Ok((built, visited))
    });
    let wait = trace_span!("wait for table", row = "waits");
    let built = built.instrument(wait).await?;
    metrics.add_cost(&built.cost);
    let (built, visited) = built.value;
    metrics.add_table(&built.index);
    Ok(JoinTable {
        device: device.clone(),
        memory_limit: limit,
        failed: AtomicBool::new(false),
        rows,
        built,
        visited,
        columns: Vec::new(),
    })
}

/// Allocates the words of `keys`, and the numbers of their rows. These are needed only if some row
/// has no key, as they are the keys' positions else.
async fn allocate_keys(
    device: &Placed,
    limit: u64,
    keys: &KeysToSend,
) -> Result<(Arc<Buffer<u32>>, Option<Arc<Buffer<u32>>>)> {
    let (n, words) = (keys.count(), keys.format.words());
    let is_numbered = n < keys.rows;
    let buffers = device.run(move |queue| {
        queue.limit_memory(limit);
        let keys = queue.allocate("build keys", n * words)?;
        let rows = if is_numbered {
            Some(Arc::new(queue.allocate("build rows", n)?))
        } else {
            None
        };
        Ok((Arc::new(keys), rows))
    });
    let wait = trace_span!("wait for device memory", row = "waits");
    Ok(buffers.instrument(wait).await?.value)
}

/// Sends the keys of all parts to `words`, one after the other, and the numbers of their rows to
/// `numbers`.
///
/// # Errors
/// [`DeviceMemory`](crate::error::DeviceError::DeviceMemory), OpenCL's own, and those of
/// [`KeyPart::write`].
async fn send_keys(
    device: &Placed,
    keys: &KeysToSend,
    (words, numbers): (&Arc<Buffer<u32>>, Option<&Arc<Buffer<u32>>>),
    metrics: &JoinMetrics,
) -> Result<()> {
    let key_words = keys.format.words();
    let mut at = 0;
    let mut placed = Vec::with_capacity(keys.parts.len());
    for part in &keys.parts {
        placed.push((at, Arc::clone(part)));
        at += part.count();
    }
    let send = |(at, part): (usize, Arc<KeyPart>)| {
        let (device, metrics) = (device.clone(), metrics.clone());
        let (words, numbers) = (Arc::clone(words), numbers.map(Arc::clone));
        async move {
            let n = part.count();
            let write = |out: &mut Staging<u32>| part.write(out);
            let to = (words, at * key_words, n * key_words);
            send_words(&device, "build keys", to, write, &metrics).await?;
            if let Some(numbers) = numbers {
                let write = |out: &mut Staging<u32>| {
                    part.number(out);
                    Ok(())
                };
                send_words(&device, "build rows", (numbers, at, n), write, &metrics).await?;
            }
            Ok(())
        }
    };
    map_parallel(placed, keys.width, send).await?;
    Ok(())
}

/// Sends so many words, which `write` makes, to those of a buffer from a first one on.
async fn send_words(
    device: &Device,
    what: &'static str,
    (buffer, from, words): (Arc<Buffer<u32>>, usize, usize),
    write: impl FnOnce(&mut Staging<u32>) -> Result<()>,
    metrics: &JoinMetrics,
) -> Result<()> {
    let sent = {
        let (permit, mut staging) = staging_words(device, what, words).await?;
        write(&mut staging)?;
        device.run(move |queue| {
            let _permit = permit;
            queue.send_to(&buffer, from, staging)
        })
    };
    let wait = trace_span!("wait for upload", row = "waits");
    metrics.add_cost(&sent.instrument(wait).await?.cost);
    Ok(())
}

/// Sends `arrays`, the values of the column `source` by batch, to the device of `table`, `width`
/// parts at a time. They leave an eighth of its memory to chunks. Returns `None` if they cannot be
/// gathered there ([`log_words`]).
///
/// # Errors
/// [`DeviceMemory`](crate::error::DeviceError::DeviceMemory) and OpenCL's own.
pub async fn send_column(
    table: &JoinTable,
    source: Source,
    arrays: &[ArrayRef],
    width: usize,
    metrics: &JoinMetrics,
) -> Result<Option<DeviceColumn>> {
    let (Some(first), Some(log_words)) = (arrays.first(), log_words(arrays)) else {
        return Ok(None);
    };
    let send = |content| send_content(table, content, (arrays, width), metrics);
    let words = send(Content::Values { log_words }).await?;
    let validity = if arrays.iter().any(|array| array.null_count() > 0) {
        Some(send(Content::Validity).await?)
    } else {
        None
    };
    Ok(Some(DeviceColumn {
        source,
        data_type: first.data_type().clone(),
        log_words,
        words,
        validity,
    }))
}

/// What a device has of a column.
#[derive(Debug, Clone, Copy)]
enum Content {
    /// The values, each of `1 << log_words` words.
    Values { log_words: u32 },
    /// A bit for each row, 32 rows per word.
    Validity,
}

impl Content {
    /// Returns the words of `rows` rows.
    fn words(self, rows: usize) -> usize {
        match self {
            Content::Values { log_words } => rows << log_words,
            Content::Validity => rows.div_ceil(32),
        }
    }

    /// Writes what a part's one column has.
    fn write(self, part: &Morsel, out: &mut [u8]) {
        let _work = trace_span!("copy column").entered();
        match self {
            Content::Values { log_words } => copy_values(part, 4 << log_words, out),
            Content::Validity => copy_validity(part, out),
        }
    }
}

/// Sends `content` of the column of `arrays` to the device of `table`, `width` parts at a time.
async fn send_content(
    table: &JoinTable,
    content: Content,
    (arrays, width): (&[ArrayRef], usize),
    metrics: &JoinMetrics,
) -> Result<Arc<Buffer<u32>>> {
    let rows: usize = arrays.iter().map(|array| array.len()).sum();
    let limit = table.memory_limit.min(table.device.budget().limit()) / 8 * 7;
    let words = table.device.run(move |queue| {
        queue.limit_memory(limit);
        queue.allocate_table("a build column", content.words(rows))
    });
    let wait = trace_span!("wait for device memory", row = "waits");
    let words = Arc::new(words.instrument(wait).await?.value);
    let batches = arrays.iter().map(|array| vec![Arc::clone(array)]);
    let batches: Vec<Vec<ArrayRef>> = batches.collect();
    let send = |part: Morsel| {
        let (device, words) = (table.device.clone(), Arc::clone(&words));
        let metrics = metrics.clone();
        async move {
            debug_assert_eq!(part.first_row % 32, 0, "parts begin with a word of bits");
            let to = (
                words,
                content.words(part.first_row),
                content.words(part.rows),
            );
            let write = |out: &mut Staging<u32>| {
                content.write(&part, out.bytes_mut());
                Ok(())
            };
            send_words(&device, "a build column", to, write, &metrics).await
        }
    };
    map_parallel(parts(&batches), width, send).await?;
    Ok(words)
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

/// Writes a bit for each row of a part's one column: whether it has a value.
fn copy_validity(part: &Morsel, out: &mut [u8]) {
    let mut bits = BooleanBufferBuilder::new(part.rows);
    for column in part.columns.iter().flatten() {
        match column.nulls() {
            Some(nulls) => bits.append_buffer(nulls.inner()),
            None => bits.append_n(column.len(), true),
        }
    }
    let bits = bits.as_slice();
    let (to, rest) = out.split_at_mut(bits.len());
    to.copy_from_slice(bits);
    rest.fill(0);
}

/// Returns the bytes of the values of an array, `width` each. Those of NULLs are whatever they are.
fn value_bytes(data: &ArrayData, width: usize) -> &[u8] {
    let from = data.offset() * width;
    let bytes = data.buffers().first().map_or(&[][..], |b| b.as_slice());
    bytes.get(from..from + data.len() * width).unwrap_or(&[])
}
