//! Keys for tables, and jobs whose kernels must have run.

use std::collections::HashSet;

use horton_tables::device::{Answer, Device, KernelBody, Queue};
use horton_tables::error::Result;
use horton_tables::table::primitives::hash::jenkins;
use rand_mt::Mt;

/// Kernel bodies that run on `device`.
pub fn bodies(device: &Device) -> Vec<KernelBody> {
    let all = KernelBody::ALL.into_iter();
    all.filter(|body| device.info().supports(*body)).collect()
}

/// Returns `n` keys all over 32 bits, none twice, in no order.
pub fn distinct_keys(seed: u32, n: usize) -> Vec<u32> {
    let mut random = Mt::new(seed);
    let mut seen = HashSet::with_capacity(n);
    while seen.len() < n {
        seen.insert(random.next_u32());
    }
    let mut keys: Vec<u32> = seen.into_iter().collect();
    keys.sort_unstable_by_key(|key| jenkins(key ^ seed));
    keys
}

/// Runs a job on `device`; checks that it launched kernels.
pub fn run<T: Send + 'static>(
    device: &Device,
    job: impl FnOnce(&mut Queue) -> Result<T> + Send + 'static,
) -> Answer<T> {
    let answer = device.run_blocking(job).unwrap();
    assert!(answer.cost.launches > 0, "no kernel was launched");
    answer
}
