//! Measures both joins on this machine.
//!
//! ```text
//!  build × probe rows    few × few    many × few    few × many    many × many
//!  number keys           stock, device, each twice, the better time
//!  hashed keys           the same
//! ```
//!
//! What is timed is a whole query of two tables in memory, planning included, through the same
//! entry that users take: a cost that is forgotten here would be forgotten in every decision.
//! A second or less; on a machine with more cores the tables are larger, or nothing but fixed
//! costs would show.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::config::{Enabled, HortonConfig};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::session;

use super::{Costs, Keys, Line, Measured, milliseconds};

/// Rows of a small table.
const FEW: usize = 1 << 13;

/// Rows of a large table for each core; fewer where nothing is optimized, in tests.
const MANY_A_CORE: usize = match cfg!(debug_assertions) {
    true => 1 << 14,
    false => 1 << 18,
};

/// Rows of a batch.
const BATCH: usize = 8192;

const QUERY: &str = "SELECT sum(build.v), sum(probe.v) FROM build JOIN probe ON build.k = probe.k";

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

async fn measure(device: &Device) -> Result<Costs> {
    let config = SessionConfig::new();
    let cores = config.target_partitions();
    let (horton, stock) = (
        horton_context(device, &config),
        SessionContext::new_with_config(config),
    );
    let many = MANY_A_CORE * cores;
    let mut lines = Vec::new();
    for keys in Keys::ALL {
        let mut measured = [[0.0; 4]; 2];
        for (i, (build, probe)) in [(FEW, FEW), (many, FEW), (FEW, many), (many, many)]
            .into_iter()
            .enumerate()
        {
            for context in [&horton, &stock] {
                context.register_table("build", table(keys, build, build, cores)?)?;
                context.register_table("probe", table(keys, build, probe, cores)?)?;
            }
            // By turns, so that a machine that slows down slows both.
            for run in 0..3 {
                for (context, times) in [&horton, &stock].into_iter().zip(&mut measured) {
                    let time = milliseconds(time(context).await?);
                    times[i] = match run {
                        0 | 1 => time,
                        _ => f64::min(times[i], time),
                    };
                }
            }
            for context in [&horton, &stock] {
                context.deregister_table("build")?;
                context.deregister_table("probe")?;
            }
        }
        lines.push(measured.map(|[few_few, many_few, few_many, many_many]| {
            let measured = Measured {
                few_few,
                many_few,
                few_many,
                many_many,
            };
            Line::through(measured, [FEW as f64, many as f64])
        }));
    }
    match lines[..] {
        [[device, stock], [device_hashed, stock_hashed]] => Ok(Costs {
            device: [device, device_hashed],
            stock: [stock, stock_hashed],
        }),
        _ => Err(Error::Invalid(
            "a calibration has two kinds of keys".to_owned(),
        )),
    }
}

fn horton_context(device: &Device, config: &SessionConfig) -> SessionContext {
    let (platform, index) = device.info().index;
    let horton = HortonConfig {
        enabled: Enabled::Always,
        device: format!("{platform}:{index}"),
        ..HortonConfig::default()
    };
    session::context(config.clone().with_option_extension(horton))
}

async fn time(context: &SessionContext) -> Result<Duration, DataFusionError> {
    let began = Instant::now();
    context.sql(QUERY).await?.collect().await?;
    Ok(began.elapsed())
}

/// `rows` rows whose keys are among `distinct` of their kind, in `partitions`.
fn table(
    keys: Keys,
    distinct: usize,
    rows: usize,
    partitions: usize,
) -> Result<Arc<MemTable>, DataFusionError> {
    let batch = |from: usize| -> Result<RecordBatch, DataFusionError> {
        let rows = from..rows.min(from + BATCH);
        let key = |row: usize| match keys {
            // All of them once, in no order, as the multiplier is odd and `distinct` a power of 2
            // or at least without its prime factor.
            Keys::Number => (row.wrapping_mul(SPREAD) % distinct) as i64,
            Keys::Hashed => mix((row.wrapping_mul(SPREAD) % distinct) as u64) as i64,
        };
        let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone().map(key)));
        let v: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.map(|row| row as i64)));
        Ok(RecordBatch::try_from_iter([("k", k), ("v", v)])?)
    };
    let batches: Vec<RecordBatch> = (0..rows)
        .step_by(BATCH)
        .map(batch)
        .collect::<Result<_, _>>()?;
    let schema = batches
        .first()
        .map(RecordBatch::schema)
        .ok_or_else(|| DataFusionError::Internal("a table without rows".to_owned()))?;
    let share = batches.len().div_ceil(partitions.max(1)).max(1);
    let partitions = batches.chunks(share).map(<[RecordBatch]>::to_vec).collect();
    Ok(Arc::new(MemTable::try_new(schema, partitions)?))
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
    fn build_keys_are_distinct() {
        for keys in Keys::ALL {
            let table = table(keys, 3 * MANY_A_CORE, 3 * MANY_A_CORE, 3).unwrap();
            let context = SessionContext::new();
            context.register_table("t", table).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            let distinct = runtime.block_on(async {
                let query = context.sql("SELECT DISTINCT k FROM t").await.unwrap();
                query.count().await.unwrap()
            });
            assert_eq!(distinct, 3 * MANY_A_CORE);
        }
    }
}
