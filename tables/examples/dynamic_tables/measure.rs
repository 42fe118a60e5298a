//! Jobs with their times on the device's clock, and keys.

use std::sync::Arc;
use std::time::Duration;

use horton_tables::device::{Buffer, Device, Queue};
use horton_tables::error::Result;
use horton_tables::table::baselines::linear::MISS;
use horton_tables::table::primitives::hash::jenkins;

pub struct Bench {
    pub device: Device,
    /// Sizes are divided by 2^scale.
    pub scale: u32,
    pub repeat: usize,
    /// Wrong answers so far.
    pub wrong: usize,
}

/// Words on the device, that jobs share.
pub type Words = Arc<Buffer<u32>>;

impl Bench {
    /// Returns `size`, scaled.
    pub fn scaled(&self, size: usize) -> usize {
        (size >> self.scale).max(1)
    }

    /// Runs a job; the time of its kernels, and its value.
    pub fn timed<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Queue) -> Result<T> + Send + 'static,
    ) -> Result<(Duration, T)> {
        let answer = self.device.run_blocking(job)?;
        Ok((answer.cost.kernel, answer.value))
    }

    pub fn upload(&self, data: Vec<u32>) -> Result<Words> {
        let (_, buffer) = self.timed(move |queue| queue.buffer_from("operands", &data))?;
        Ok(Arc::new(buffer))
    }

    /// Prints a measurement beside the source's.
    pub fn beside(&self, what: &str, measured: f64, (source, whose): (f64, &str)) {
        let times = measured / source;
        println!("{what}: {measured:.1} M/s; {whose}: {source:.1} ({times:.2} times)");
    }

    /// Brings `n` looked-up values back and checks how many are no [`MISS`].
    pub fn expect_found(&mut self, values: Buffer<u32>, n: usize, expected: usize) -> Result<()> {
        let (_, values) = self.timed(move |queue| queue.read(&values, n))?;
        let found = values.iter().filter(|value| **value != MISS).count();
        self.expect("keys found", found, expected);
        Ok(())
    }

    /// Counts an answer that is wrong.
    pub fn expect(&mut self, what: &str, found: usize, expected: usize) {
        if found != expected {
            eprintln!("wrong: {what}: {found}, not {expected}");
            self.wrong += found.abs_diff(expected);
        }
    }
}

/// Millions per second.
pub fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64() / 1e6
}

/// Returns the mean of factors: 1 of none.
pub fn geometric_mean(factors: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = factors.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
}

/// Different keys, in no order: the hash is one-to-one.
pub fn keys(range: std::ops::Range<usize>) -> Vec<u32> {
    range.map(|i| jenkins(i as u32)).collect()
}
