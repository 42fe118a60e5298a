//! The result of a job, and its cost.
//!
//! ```text
//!  Device::run(job) ─▶ Answer { value, cost: Cost { launches, upload, kernel, download, … } }
//! ```
//!
//! Times are those of the device's event clock, but for the time in line.

use std::time::Duration;

/// The cost of a job on the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Number of kernels launched.
    pub launches: u64,
    /// Time of host-to-device transfers, from the device's event clock.
    pub upload: Duration,
    /// Time of kernels and fills.
    pub kernel: Duration,
    /// Time of device-to-host transfers.
    pub download: Duration,
    /// Bytes sent to the device.
    pub uploaded: u64,
    /// Bytes brought back.
    pub downloaded: u64,
    /// Time in line before it began, from the host's clock.
    pub waited: Duration,
}

impl Cost {
    /// Returns the time of transfers and kernels together.
    pub fn busy(&self) -> Duration {
        self.upload + self.kernel + self.download
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.launches += other.launches;
        self.upload += other.upload;
        self.kernel += other.kernel;
        self.download += other.download;
        self.uploaded += other.uploaded;
        self.downloaded += other.downloaded;
        self.waited += other.waited;
    }
}

/// A job's result and its cost.
#[derive(Debug)]
pub struct Answer<T> {
    /// Value that the job returned.
    pub value: T,
    /// Cost of the job on the device.
    pub cost: Cost,
}
