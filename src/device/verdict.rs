//! What self-tests found of devices, remembered.
//!
//! ```text
//!  joins' self-test ─▶ set ─▶ this process, and a file beside the compiled kernels
//!  of ◀─ this process ◀─ <cache>/<sha-256 of device, driver, version of ours, suite>.verdict
//!           "passed SubGroupTile"        "failed repeating keys: 3 of 100 pairs are wrong"
//! ```
//!
//! Some drivers compile kernels wrongly, so one is trusted only once it has given right rows. The
//! test is of kernels that this layer does not know ([`crate::self_test`]). Its result decides
//! which device `auto` picks, and by which body the lanes talk. Its parts ([`Suite`]) have verdicts
//! of their own, as few joins ask for other tables than the default.
//!
//! A failure that another process may not meet, such as memory that ran out, is not written to the
//! file. A written failure counts for a day, as its cause may have been a full disk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::sources;

use super::cache::{age, cache_file, read_text, store_file};
use super::info::DeviceInfo;
use super::kind::{DEFAULT_SLOTS, KernelBody};

/// What a self-test found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Right answers, with this body.
    Passed(KernelBody),
    /// This was wrong.
    Failed(String),
}

/// What is known of a device.
#[derive(Debug, Clone, Default)]
enum Known {
    /// Nobody has asked the file.
    #[default]
    Unread,
    /// It was not tested.
    Untested,
    Tested(Verdict),
}

/// The version of the self-test and of its file's format.
const VERSION: u32 = 2;

/// How long a failure in a file is believed.
const FAILED_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// A part of the self-test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suite {
    /// Horton tables with this many slots a bucket.
    Buckets(usize),
    /// Linear probing.
    Linear,
    /// Tables of codes, where they are asked for; on CPUs the default has them.
    Codes,
}

impl Suite {
    /// The part that all joins need: buckets of 8 slots, and all kernels without buckets.
    pub const DEFAULT: Suite = Suite::Buckets(DEFAULT_SLOTS);
}

/// A device's place, and a part of its self-test.
type Tested = ((usize, usize), Suite);

/// What this process knows.
fn known() -> MutexGuard<'static, BTreeMap<Tested, Known>> {
    static KNOWN: Mutex<BTreeMap<Tested, Known>> = Mutex::new(BTreeMap::new());
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns what a part of the self-test found of a device, if it was run.
pub fn of(info: &DeviceInfo, suite: Suite) -> Option<Verdict> {
    let mut known = known();
    let entry = known.entry((info.index, suite)).or_default();
    if let Known::Unread = entry {
        *entry = match load(info, suite) {
            Some(verdict) => {
                warn(info, &verdict);
                Known::Tested(verdict)
            }
            None => Known::Untested,
        };
    }
    match entry {
        Known::Tested(verdict) => Some(verdict.clone()),
        Known::Unread | Known::Untested => None,
    }
}

/// Warns once in this process that a device failed.
fn warn(info: &DeviceInfo, verdict: &Verdict) {
    if let Verdict::Failed(reason) = verdict {
        let device = info.label();
        log::warn!("OpenCL device '{device}' failed its self-test: {reason}; joins do not use it");
    }
}

/// Notes what the self-test found, for later processes too if it `lasts`.
pub(crate) fn set(info: &DeviceInfo, suite: Suite, verdict: Verdict, lasts: bool) {
    if lasts
        && let Some(file) = file(info, suite)
        && let Err(error) = store_file(&file, &[print(&verdict).as_bytes()])
    {
        log::debug!("verdict {} not written: {error}", file.display());
    }
    warn(info, &verdict);
    known().insert((info.index, suite), Known::Tested(verdict));
}

/// Returns the path of the verdict of a device, its driver, this version of the kernels and all
/// that decides which of them it runs.
fn file(info: &DeviceInfo, suite: Suite) -> Option<PathBuf> {
    let what = format!(
        "verdict {VERSION} {} {} {suite:?} {:?} {:?} {} {}",
        env!("CARGO_PKG_VERSION"),
        sources::version(),
        info.kind,
        info.fastest_body(),
        info.sub_group_width,
        info.extensions
    );
    cache_file(info, &what, "verdict")
}

fn load(info: &DeviceInfo, suite: Suite) -> Option<Verdict> {
    let file = file(info, suite)?;
    let verdict = parse(&read_text(&file)?)?;
    let stands = match verdict {
        Verdict::Passed(_) => true,
        Verdict::Failed(_) => age(&file).is_none_or(|age| age < FAILED_FOR),
    };
    stands.then_some(verdict)
}

fn print(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Passed(body) => format!("passed {body:?}\n"),
        Verdict::Failed(reason) => format!("failed {}\n", reason.replace('\n', " ")),
    }
}

fn parse(text: &str) -> Option<Verdict> {
    let line = text.strip_suffix('\n')?;
    if let Some(reason) = line.strip_prefix("failed ") {
        return Some(Verdict::Failed(reason.to_owned()));
    }
    let name = line.strip_prefix("passed ")?;
    let body = KernelBody::ALL
        .into_iter()
        .find(|body| format!("{body:?}") == name)?;
    Some(Verdict::Passed(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_parsed_and_anything_else_is_not() {
        let passed = KernelBody::ALL.map(Verdict::Passed);
        let failed = Verdict::Failed("two of ten".to_owned());
        for verdict in passed.iter().chain([&failed]) {
            assert_eq!(parse(&print(verdict)).as_ref(), Some(verdict));
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
