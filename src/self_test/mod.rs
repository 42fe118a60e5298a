//! Whether a device's kernels are right: asked once, before a join trusts it with rows.
//!
//! ```text
//!  build side ─▶ passed ─▶ known? (device::verdict) ─yes─▶ go on │ the host
//!                            └no─▶ every case, lanes talking in the fastest way ─right─▶ Passed(that)
//!                                       └wrong, does not compile or fit
//!                                              └─▶ every case with local tiles ──right─▶ Passed(LocalTile)
//!                                                              └───────────────────────▶ Failed: the host
//! ```
//!
//! OpenCL drivers miscompile: PoCL 3.1 around early returns, PoCL 5 with sub-groups, Intel's CPU runtime with plain stores to
//! local memory, and rows would be wrong without a word. So every kernel family that a join may use runs once
//! for each device, driver and version of ours, on a few thousand keys, and is compared with a hash map
//! (`cases`). That takes milliseconds beside the compilation of kernels that joins need anyway. A device that fails
//! costs time and no rows: the join that asked goes on on the host, and later joins are planned so.
//!
//! It is asked by builds and not by the planner, as it may take seconds where kernels are not compiled yet.

mod cases;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::device::verdict::{self, Verdict};
use crate::device::{Device, DeviceInfo, KernelBody};
use crate::error::{Error, Result};
use crate::table::horton::BucketSize;

/// Tests the device for tables with buckets of this size, unless that was done before by this version on its driver.
///
/// # Errors
/// [`Error::SelfTest`] if its answers are wrong, its kernels do not compile, or they could not be run now for lack of memory;
/// [`Error::OpenCl`] and [`Error::QueueStopped`] if it failed in another way, which is not remembered.
pub async fn passed(device: &Device, bucket_size: BucketSize) -> Result<()> {
    let known = || verdict::of(device.info(), bucket_size.slots());
    if let Some(verdict) = known() {
        return of_verdict(device.info(), verdict);
    }
    let turn = turn(device);
    let _turn = turn.lock().await;
    match known() {
        Some(verdict) => of_verdict(device.info(), verdict),
        None => run(device, bucket_size).await,
    }
}

fn of_verdict(info: &DeviceInfo, verdict: Verdict) -> Result<()> {
    match verdict {
        Verdict::Passed(_) => Ok(()),
        Verdict::Failed(reason) => Err(failure(info, reason)),
    }
}

fn failure(info: &DeviceInfo, reason: String) -> Error {
    Error::SelfTest {
        device: info.label(),
        reason,
    }
}

/// Queries that ask at once wait for one test.
fn turn(device: &Device) -> Arc<tokio::sync::Mutex<()>> {
    type Turns = BTreeMap<(usize, usize), Arc<tokio::sync::Mutex<()>>>;
    static TURNS: Mutex<Turns> = Mutex::new(Turns::new());
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(turns.entry(device.info().index).or_default())
}

async fn run(device: &Device, bucket_size: BucketSize) -> Result<()> {
    let info = device.info();
    let set = |verdict, lasts| verdict::set((info, bucket_size.slots()), verdict, lasts);
    let fastest = info.fastest_body();
    let Err(error) = run_with(device, fastest, bucket_size).await else {
        set(Verdict::Passed(fastest), true);
        return Ok(());
    };
    let local = KernelBody::LocalTile;
    let has_other = matches!(fastest, KernelBody::SubGroupTile | KernelBody::WarpTile);
    if has_other && run_with(device, local, bucket_size).await.is_ok() {
        log::info!("{error}; lanes talk through local memory instead");
        set(Verdict::Passed(local), lasts(&error));
        return Ok(());
    }
    if lasts(&error) {
        let reason = match &error {
            Error::SelfTest { reason, .. } | Error::WrongAnswer { what: reason, .. } => {
                reason.clone()
            }
            other => other.brief(),
        };
        set(Verdict::Failed(reason.clone()), true);
        return Err(failure(info, reason));
    }
    match error {
        Error::DeviceMemory { .. } => Err(failure(info, format!("not run: {}", error.brief()))),
        error => Err(error),
    }
}

/// Whether another process will meet the error, too: kernels that are wrong or do not compile.
fn lasts(error: &Error) -> bool {
    !matches!(
        error,
        Error::OpenCl { .. } | Error::QueueStopped { .. } | Error::DeviceMemory { .. }
    )
}

async fn run_with(device: &Device, body: KernelBody, bucket_size: BucketSize) -> Result<()> {
    let began = Instant::now();
    let answer = device
        .run(move |queue| cases::all(queue, body, bucket_size))
        .await?;
    log::debug!(
        "self-test of {} with '{body}', {bucket_size} slots: {} launches, {:?} on the device, {:?} in all",
        device.info().label(),
        answer.cost.launches,
        answer.cost.kernel,
        began.elapsed()
    );
    Ok(())
}
