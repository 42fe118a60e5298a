//! A limit on the memory that a query reserves, and how much it reserves without one.

use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::{
    GreedyMemoryPool, MemoryPool, PeakRecordingPool, TrackConsumersPool, UnboundedMemoryPool,
};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::SessionContext;

use crate::Result;

/// Least bytes that a share of a query's memory comes to: below it, DataFusion's scans and
/// aggregates have none to work with.
const LEAST_SHARE: usize = 16 << 20;

/// Consumers of memory that an error names.
const NAMED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4);

/// The memory that a query may reserve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// A number of bytes.
    Bytes(usize),
    /// A share of what the stock plan reserves without a limit.
    Share(f64),
}

impl Limit {
    /// Bytes for a query that reserves `peak` without a limit.
    pub fn bytes(self, peak: usize) -> usize {
        match self {
            Limit::Bytes(bytes) => bytes,
            Limit::Share(share) => LEAST_SHARE.max((peak as f64 * share) as usize),
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "a size as 64M or 2G, or a share as 1/4".to_string();
        if let Some((part, all)) = text.split_once('/') {
            let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong());
            let share = number(part)? / number(all)?;
            let is_share = share > 0.0 && share <= 1.0;
            return is_share.then_some(Limit::Share(share)).ok_or_else(wrong);
        }
        match SessionContext::parse_capacity_limit("--memory-limit", text) {
            Ok(bytes) if bytes > 0 => Ok(Limit::Bytes(bytes)),
            _ => Err(wrong()),
        }
    }
}

/// Returns `context` with a memory pool that notes its peak, and has at most `limit` bytes.
///
/// # Errors
/// If DataFusion cannot make the runtime environment.
pub fn pooled(context: &SessionContext, limit: Option<usize>) -> Result<SessionContext> {
    let pool: Arc<dyn MemoryPool> = match limit {
        Some(bytes) => Arc::new(TrackConsumersPool::new(GreedyMemoryPool::new(bytes), NAMED)),
        None => Arc::new(UnboundedMemoryPool::default()),
    };
    let runtime = RuntimeEnvBuilder::from_runtime_env(&context.runtime_env());
    let runtime = runtime.with_memory_pool(Arc::new(PeakRecordingPool::new(pool)));
    let state = SessionStateBuilder::new_from_existing(context.state());
    let state = state.with_runtime_env(runtime.build_arc()?).build();
    Ok(SessionContext::new_with_state(state))
}

/// Returns the most bytes that queries of `context` reserved since it was last asked.
///
/// # Errors
/// If the context is not one of [`pooled`].
pub fn take_peak(context: &SessionContext) -> Result<usize> {
    let runtime = context.runtime_env();
    let pool = PeakRecordingPool::from_pool(runtime.memory_pool.as_ref());
    let pool = pool.ok_or("the memory pool notes no peak")?;
    let peak = pool.peak_reserved();
    pool.reset_peak();
    Ok(peak)
}

/// Returns whether a query failed as its memory pool had too little.
pub fn is_exhausted(error: &crate::Error) -> bool {
    let error = error.downcast_ref::<DataFusionError>();
    error.is_some_and(|e| matches!(e.find_root(), DataFusionError::ResourcesExhausted(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_shares() {
        assert_eq!("64M".parse(), Ok(Limit::Bytes(64 << 20)));
        assert_eq!("1/4".parse(), Ok(Limit::Share(0.25)));
        for wrong in ["", "x", "0K", "5/4", "1/0", "-1/2"] {
            assert!(wrong.parse::<Limit>().is_err(), "{wrong}");
        }
        assert_eq!(Limit::Share(0.5).bytes(100 << 20), 50 << 20);
        assert_eq!(Limit::Share(0.1).bytes(100 << 20), LEAST_SHARE);
    }
}
