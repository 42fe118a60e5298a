//! The byte budget of a device.
//!
//! CPU runtimes allocate lazily and abort the process when memory runs out, GPU drivers
//! fail late and then lose the context, so we count ourselves: every buffer takes a grant
//! before it is created and gives it back when it is dropped. The default budget is 80 %
//! of the device's global memory, but half of it on CPUs and integrated GPUs, whose "device memory"
//! is the host's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::info::{DeviceInfo, DeviceKind};

/// Bytes in use on one device, and how many there may be.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
    peak: AtomicU64,
}

/// A share of a [`Budget`], returned when dropped.
#[derive(Debug)]
pub(super) struct Grant {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub(super) fn for_device(info: &DeviceInfo) -> Arc<Self> {
        let limit = match info.kind == DeviceKind::Cpu || info.unified_memory {
            true => info.global_memory / 2,
            false => info.global_memory / 5 * 4,
        };
        Arc::new(Self {
            limit,
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        })
    }

    /// The budget in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The most bytes that were ever in use.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Takes `bytes` if at most `limit` are in use afterwards, else says how many are in use.
    pub(super) fn take(self: &Arc<Self>, bytes: u64, limit: u64) -> Result<Grant, u64> {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let after = before.saturating_add(bytes);
        if after > limit.min(self.limit) {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(before);
        }
        self.peak.fetch_max(after, Ordering::Relaxed);
        Ok(Grant {
            budget: Arc::clone(self),
            bytes,
        })
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_return_their_bytes() {
        let budget = Arc::new(Budget {
            limit: 100,
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        });
        let first = budget.take(60, u64::MAX).unwrap();
        assert_eq!(budget.take(60, u64::MAX).unwrap_err(), 60);
        assert_eq!(budget.take(20, 70).unwrap_err(), 60);
        drop(first);
        assert_eq!(budget.used(), 0);
        assert_eq!(budget.peak(), 60);
    }
}
