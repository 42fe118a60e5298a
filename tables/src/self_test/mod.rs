//! The self-test of a device's kernels: run once, before a join trusts the device with rows.
//!
//! ```text
//!  join ─▶ self_test ─▶ known? (device::self_test_cache) ─yes─▶ go on │ the host
//!                            └no─▶ every case, lanes in the fastest way ─right─▶ Passed(that)
//!                                       └wrong, does not compile or fit
//!                                          └─▶ every case, local tiles ─right─▶ Passed(LocalTile)
//!                                                            └────────────────▶ Failed: the host
//! ```
//!
//! OpenCL drivers miscompile: PoCL 3.1 around early returns, PoCL 5 with sub-groups, Intel's CPU
//! runtime with plain stores to local memory. Rows would be wrong, and no error would say so. So
//! every kernel family that a join may use runs once for each device, driver and version of this
//! crate. It runs on a few thousand keys, and its answers are compared with those of a hash map
//! (`cases`). That takes milliseconds, apart from the compilation of kernels that joins need
//! anyway. A device that fails costs time and no rows: the joins that ask for it run on the host.
//!
//! It may take seconds where kernels are not compiled yet. Joins run it in the background, from the
//! first planned one on.

mod cases;

use std::time::Instant;

use crate::device::self_test_cache::{self, SelfTestResult};
use crate::device::{Device, DeviceInfo, KernelBody};
use crate::error::{Error, Result};

/// Runs the self-test on the device, unless this version has done so before on its driver.
///
/// # Errors
/// [`Error::SelfTest`] if its answers are wrong, its kernels do not compile, or they could not be
/// run now for lack of memory; [`Error::OpenCl`] and [`Error::QueueStopped`] if it failed in
/// another way, which is not remembered.
pub async fn self_test(device: &Device) -> Result<()> {
    match self_test_cache::result(device.info()) {
        Some(SelfTestResult::Passed(_)) => Ok(()),
        Some(SelfTestResult::Failed(reason)) => Err(failure(device.info(), reason)),
        None => run(device).await,
    }
}

/// Runs the self-test on a device that has passed it before, and failed since.
///
/// # Errors
/// As of [`self_test`].
pub async fn self_test_again(device: &Device) -> Result<()> {
    run_with(device, device.info().body(), Known::IsTestedAgain).await
}

/// What becomes of a device that is known to pass.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    IsTrusted,
    IsTestedAgain,
}

fn failure(info: &DeviceInfo, reason: String) -> Error {
    Error::SelfTest {
        device: info.label(),
        reason,
    }
}

async fn run(device: &Device) -> Result<()> {
    let info = device.info();
    let fastest = info.fastest_body();
    let Err(error) = run_with(device, fastest, Known::IsTrusted).await else {
        self_test_cache::set(info, SelfTestResult::Passed(fastest), true);
        return Ok(());
    };
    let mut lasts = lasts(&error);
    let local = KernelBody::LocalTile;
    if matches!(fastest, KernelBody::SubGroupTile | KernelBody::WarpTile) {
        match run_with(device, local, Known::IsTrusted).await {
            Ok(()) => {
                log::info!(
                    "{}; lanes talk through local memory instead",
                    error.problem()
                );
                self_test_cache::set(info, SelfTestResult::Passed(local), lasts);
                return Ok(());
            }
            Err(other) => lasts &= self::lasts(&other),
        }
    }
    let reason = match &error {
        Error::SelfTest { reason, .. } | Error::WrongAnswer { what: reason, .. } => reason.clone(),
        other => other.brief(),
    };
    if lasts {
        self_test_cache::set(info, SelfTestResult::Failed(reason.clone()), true);
        return Err(failure(info, reason));
    }
    match error {
        Error::OpenCl { .. } | Error::QueueStopped { .. } => Err(error),
        error => {
            log::warn!(
                "the self-test of {} did not end: {}",
                info.label(),
                error.problem()
            );
            Err(failure(info, format!("not ended: {reason}")))
        }
    }
}

/// Returns whether another process will meet the error, too: kernels that are wrong or do not
/// compile.
fn lasts(error: &Error) -> bool {
    !matches!(
        error,
        Error::OpenCl { .. } | Error::QueueStopped { .. } | Error::DeviceMemory { .. }
    )
}

/// Runs all cases, unless another query has done so meanwhile. No two wait for each other, as one
/// may hang. Two tests at a time cost time and nothing else.
async fn run_with(device: &Device, body: KernelBody, known: Known) -> Result<()> {
    let began = Instant::now();
    let info = device.info().clone();
    let answer = device
        .run(move |queue| {
            let passes = self_test_cache::result(&info) == Some(SelfTestResult::Passed(body));
            if passes && known == Known::IsTrusted {
                return Ok(());
            }
            cases::all(queue, body)
        })
        .await?;
    log::debug!(
        "self-test of {} with '{body}': {} launches, {:?} on the device, {:?} in all",
        device.info().label(),
        answer.cost.launches,
        answer.cost.kernel,
        began.elapsed()
    );
    Ok(())
}
