//! The results of devices' self-tests, remembered.
//!
//! ```text
//!  joins' self-test ─▶ set ─▶ this process, and a file beside the compiled kernels
//!  result ◀─ this process ◀─ <cache>/<sha-256 of device, driver, version of ours>.verdict
//!           "passed SubGroupTile"        "failed repeating keys: 3 of 100 pairs are wrong"
//! ```
//!
//! Drivers compile kernels wrongly now and then, so one is trusted with rows only once it has given
//! right ones. The test itself is of kernels that this layer does not know ([`crate::self_test`]);
//! what it found decides here which device `auto` picks and by which body its lanes talk. A failure
//! that another process may not meet, such as memory that ran out, is not written to the file. One
//! that is written counts for a day, as what was wrong may have been a full disk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::kernel_sources;

use super::cache::{age, cache_file, read_text, store_file};
use super::info::DeviceInfo;
use super::kind::KernelBody;

/// The result of a self-test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelfTestResult {
    /// Right answers, with this body.
    Passed(KernelBody),
    /// This was wrong.
    Failed(String),
}

/// The result for a device, as far as it is known.
#[derive(Debug, Clone, Default)]
enum Known {
    /// Nobody has asked the file.
    #[default]
    Unread,
    /// It was not tested.
    Untested,
    Tested(SelfTestResult),
}

/// Another self-test, or another file: another number.
const VERSION: u32 = 4;

/// The time for which a failure in a file is believed.
const FAILED_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// A device's place.
type Index = (usize, usize);

/// Returns the results that this process knows.
fn known() -> MutexGuard<'static, BTreeMap<Index, Known>> {
    static KNOWN: Mutex<BTreeMap<Index, Known>> = Mutex::new(BTreeMap::new());
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the result of the self-test on a device, if it was run.
pub fn result(info: &DeviceInfo) -> Option<SelfTestResult> {
    let mut known = known();
    let entry = known.entry(info.index).or_default();
    if let Known::Unread = entry {
        *entry = match load(info) {
            Some(result) => {
                warn(info, &result);
                Known::Tested(result)
            }
            None => Known::Untested,
        };
    }
    match entry {
        Known::Tested(result) => Some(result.clone()),
        Known::Unread | Known::Untested => None,
    }
}

/// Warns once in this process that a device failed.
fn warn(info: &DeviceInfo, result: &SelfTestResult) {
    if let SelfTestResult::Failed(reason) = result {
        let device = info.label();
        log::warn!("OpenCL device '{device}' failed its self-test: {reason}; joins do not use it");
    }
}

/// Notes what the self-test found, for later processes too if it `lasts`.
pub(crate) fn set(info: &DeviceInfo, result: SelfTestResult, lasts: bool) {
    if lasts
        && let Some(file) = file(info)
        && let Err(error) = store_file(&file, print(&result).as_bytes())
    {
        log::debug!("verdict {} not written: {error}", file.display());
    }
    warn(info, &result);
    known().insert(info.index, Known::Tested(result));
}

/// Returns the file of a device, what decides about the kernels that it runs, its driver, and this
/// version of the kernels.
fn file(info: &DeviceInfo) -> Option<PathBuf> {
    let what = format!(
        "verdict {VERSION} {} {} {:?} {:?} {} {}",
        env!("CARGO_PKG_VERSION"),
        kernel_sources::version(),
        info.kind,
        info.fastest_body(),
        info.sub_group_width,
        info.extensions
    );
    cache_file(info, &what, "verdict")
}

fn load(info: &DeviceInfo) -> Option<SelfTestResult> {
    let file = file(info)?;
    let result = parse(&read_text(&file)?)?;
    let stands = match result {
        SelfTestResult::Passed(_) => true,
        SelfTestResult::Failed(_) => age(&file).is_none_or(|age| age < FAILED_FOR),
    };
    stands.then_some(result)
}

fn print(result: &SelfTestResult) -> String {
    match result {
        SelfTestResult::Passed(body) => format!("passed {body:?}\n"),
        SelfTestResult::Failed(reason) => format!("failed {}\n", reason.replace('\n', " ")),
    }
}

fn parse(text: &str) -> Option<SelfTestResult> {
    let line = text.strip_suffix('\n')?;
    if let Some(reason) = line.strip_prefix("failed ") {
        return Some(SelfTestResult::Failed(reason.to_owned()));
    }
    let name = line.strip_prefix("passed ")?;
    let body = KernelBody::ALL
        .into_iter()
        .find(|body| format!("{body:?}") == name)?;
    Some(SelfTestResult::Passed(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_parsed_and_anything_else_is_not() {
        let passed = KernelBody::ALL.map(SelfTestResult::Passed);
        let failed = SelfTestResult::Failed("two of ten".to_owned());
        for result in passed.iter().chain([&failed]) {
            assert_eq!(parse(&print(result)).as_ref(), Some(result));
        }
        for text in [
            "",
            "passed",
            "passed Chunk",
            "passed Chunks\n",
            "failed",
            "\n",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
