//! The way of a chunk's keys to the engine that answers.
//!
//! ```text
//!  gathered ─▶ keys encoded ─┬▶ staging memory ─▶ a device that has the table
//!                            └▶ host memory ────▶ the host, if no device has it any more
//! ```
//!
//! Keys are encoded where the device copies them from. A row that cannot match has no key, or one
//! that no build row has.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tracing::trace_span;

use crate::device::{Answer, Staging, UploadPermit};
use crate::error::{Error, Result};
use crate::join::build_side::replicate::fail_over;
use crate::join::build_side::side::BuildSide;
use crate::join::lookup::device;
use crate::join::lookup::result::{LookupKind, LookupResult};
use crate::join::lookup::table::JoinTable;
use crate::join::lookup::upload::staging_words;
use crate::join::memory::ProbeMemory;
use crate::join::metrics::JoinMetrics;

use super::chunk::ProbeBatch;
use super::gather::GatheredBatches;
use super::host_lookup::lookup_on_host;
use super::spec::ProbeSpec;

/// A chunk on its way through the device.
pub struct LookupInFlight {
    /// The batches of the chunk.
    pub batches: VecDeque<ProbeBatch>,
    /// Memory that is reserved for the chunk.
    pub memory: ProbeMemory,
    /// The form in which its matches come back.
    pub wanted: LookupKind,
    /// The table that is asked; `None` for the host's, or if no row can match.
    pub table: Option<Arc<JoinTable>>,
    /// What is found.
    pub answer: BoxFuture<'static, Result<Answer<LookupResult>>>,
}

/// The reason why a chunk was not sent.
pub struct Refused {
    /// The table whose device had no room; `None` if the error is of another kind.
    pub table: Option<Arc<JoinTable>>,
    /// The error, of the device or of the key expressions.
    pub error: Error,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { table: None, error }
    }
}

impl LookupInFlight {
    /// Encodes what was `gathered` and hands its keys to the device, or to the host in its place.
    /// The matches come back in the form that is `wanted`.
    ///
    /// # Errors
    /// The device's, which has no room, or another one.
    pub async fn send(
        spec: &ProbeSpec,
        build: &Arc<BuildSide>,
        gathered: GatheredBatches,
        wanted: LookupKind,
        metrics: &JoinMetrics,
    ) -> Result<Self, Refused> {
        let GatheredBatches {
            batches,
            rows,
            memory,
            ..
        } = gathered;
        let words = build.encoder().words();
        let mut keys = if build.can_match() {
            Some(ChunkKeys::allocate(build, rows * words, metrics).await?)
        } else {
            None
        };
        let _work = trace_span!("encode keys", rows).entered();
        let _timer = metrics.join_time.timer();
        let mut place = 0;
        let mut chunk = VecDeque::with_capacity(batches.len());
        for (batch, columns) in batches {
            if spec.null_aware {
                build.null_aware().note(&columns);
            }
            let from = place;
            let mut with_key = None;
            if let Some(keys) = &mut keys {
                let (at, rows) = (place * words, batch.num_rows());
                let out = &mut keys.words()[at..at + rows * words];
                with_key = build.encoder().encode_probe(&columns, out)?;
                place += with_key.as_ref().map_or(rows, Vec::len);
            }
            let columns = if build.encoder().is_exact() && !build.visits_on_device() {
                Vec::new()
            } else {
                columns
            };
            let places = from as u32..place as u32;
            chunk.push_back(ProbeBatch::new(batch, columns, places, with_key));
        }
        let (table, answer) = match keys.filter(|_| place > 0) {
            Some(ChunkKeys::ForDevice(table, mut keys, permit)) => {
                keys.truncate(place * words);
                let found = device::lookup(Arc::clone(&table), keys, permit, wanted);
                (Some(table), found)
            }
            Some(ChunkKeys::ForHost(mut keys)) => {
                keys.truncate(place * words);
                (None, lookup_on_host(Arc::clone(build), keys, wanted))
            }
            None => (None, nothing_found()),
        };
        Ok(Self {
            batches: chunk,
            memory,
            wanted,
            table,
            answer,
        })
    }

    /// Returns the same, with its answer if no device gives one. The host looks keys up while it is
    /// asked. Each stream does so for itself, as one polls what streams share.
    pub async fn answered_by_host(mut self) -> Self {
        if self.table.is_none() {
            let answer = self.answer.await;
            self.answer = futures::future::ready(answer).boxed();
        }
        self
    }
}

/// The keys of a chunk, where the engine that answers wants them.
enum ChunkKeys {
    ForDevice(Arc<JoinTable>, Staging<u32>, UploadPermit),
    ForHost(Vec<u32>),
}

impl ChunkKeys {
    /// Returns room for a chunk's keys of so many words, where the engine that answers wants them.
    async fn allocate(
        build: &Arc<BuildSide>,
        words: usize,
        metrics: &JoinMetrics,
    ) -> Result<Self, Refused> {
        while let Some(table) = build.tables().answering() {
            let keys = staging_words(&table.device, "probe keys", words).await;
            match keys.map_err(Error::from) {
                Ok((permit, keys)) => return Ok(ChunkKeys::ForDevice(table, keys, permit)),
                // Smaller chunks may have room.
                Err(error) if error.is_device_memory() => {
                    let table = Some(table);
                    return Err(Refused { table, error });
                }
                Err(error) => {
                    fail_over(build, &table, error, metrics).await?;
                }
            }
        }
        Ok(ChunkKeys::ForHost(vec![0; words]))
    }

    fn words(&mut self) -> &mut [u32] {
        match self {
            ChunkKeys::ForDevice(_, words, _) => words,
            ChunkKeys::ForHost(words) => words,
        }
    }
}

/// Returns the answer to a chunk of which no row can match.
fn nothing_found() -> BoxFuture<'static, Result<Answer<LookupResult>>> {
    let nothing = Answer {
        value: LookupResult::default(),
        cost: Default::default(),
    };
    futures::future::ready(Ok(nothing)).boxed()
}
