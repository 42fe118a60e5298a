//! Tunings in a file beside the compiled kernels.
//!
//! ```text
//!  <cache>/<sha-256 of device, driver, version>.tuning
//!      Horton 8 Memory tile WarpTile 4 4 32 256 1 Direct .
//!      FirstFit 8 Cached chunk 32 16 Buffered .
//! ```
//!
//! The file of a device is read once in a process. A line that is torn, of another version, or not
//! for this device says nothing, and the default holds; so does one for no file at all.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::cache::{cache_file, read_text, store_file};
use crate::device::{DeviceInfo, KernelBody};
use crate::error::{Error, Result};

use super::{Kind, Residence, Second, Tuning, Workload};

/// Another layout, other kernels: another number.
const VERSION: u32 = 1;

type Tunings = BTreeMap<Workload, Tuning>;

/// What was read, by place of the device.
static READ: Mutex<BTreeMap<(usize, usize), Arc<Tunings>>> = Mutex::new(BTreeMap::new());

fn file(info: &DeviceInfo) -> Option<PathBuf> {
    let what = format!("tuning {VERSION} {}", env!("CARGO_PKG_VERSION"));
    cache_file(info, &what, "tuning")
}

/// The tuning that is remembered for a device, if there is one.
pub fn remembered(info: &DeviceInfo, workload: &Workload) -> Option<Tuning> {
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let tunings = read
        .entry(info.index)
        .or_insert_with(|| Arc::new(load(info)));
    tunings.get(workload).copied()
}

/// Remembers tunings for a device, beside those of other workloads; this process uses them from now on.
/// Returns the file.
///
/// # Errors
/// [`Error::Invalid`] if one does not fit the device, or the file cannot be written.
pub fn store(info: &DeviceInfo, new: &[(Workload, Tuning)]) -> Result<PathBuf> {
    let misfit = |(workload, tuning): &&(Workload, Tuning)| !tuning.fits(info, workload.slots);
    if let Some((workload, tuning)) = new.iter().find(misfit) {
        return Err(Error::Invalid(format!(
            "tuning '{tuning}' with {}-slot buckets does not fit device {}",
            workload.slots,
            info.label()
        )));
    }
    let file = file(info)
        .ok_or_else(|| Error::Invalid("no folder for tunings; set HORTON_CACHE_DIR".to_owned()))?;
    let mut tunings = load(info);
    tunings.extend(new.iter().copied());
    store_file(&file, &[print(&tunings).as_bytes()])
        .map_err(|e| Error::Invalid(format!("cannot write {}: {e}", file.display())))?;
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    read.insert(info.index, Arc::new(tunings));
    Ok(file)
}

fn load(info: &DeviceInfo) -> Tunings {
    let text = file(info).and_then(|file| read_text(&file));
    let lines = text.as_deref().unwrap_or_default().lines();
    lines
        .filter_map(parse)
        .filter(|(workload, tuning)| tuning.fits(info, workload.slots))
        .collect()
}

fn print(tunings: &Tunings) -> String {
    let mut text = String::new();
    for (workload, tuning) in tunings {
        let Workload {
            kind,
            slots,
            residence,
        } = workload;
        let _ = write!(text, "{kind:?} {slots} {residence:?} ");
        let _ = match tuning {
            Tuning::Chunk {
                look_ahead,
                shares,
                second,
            } => writeln!(text, "chunk {look_ahead} {shares} {second:?} ."),
            Tuning::Tile {
                body,
                lanes,
                unroll,
                registers,
                group,
                keys,
                second,
            } => writeln!(
                text,
                "tile {body:?} {lanes} {unroll} {registers} {group} {keys} {second:?} ."
            ),
        };
    }
    text
}

/// The value whose name is `text`.
fn named<T: std::fmt::Debug + Copy>(values: &[T], text: &str) -> Option<T> {
    values.iter().copied().find(|v| format!("{v:?}") == text)
}

fn parse(line: &str) -> Option<(Workload, Tuning)> {
    let fields: Vec<&str> = line.strip_suffix(" .")?.split(' ').collect();
    let (&[kind, slots, residence], values) = fields.split_first_chunk()?;
    let workload = Workload {
        kind: named(&Kind::ALL, kind)?,
        slots: slots.parse().ok()?,
        residence: named(&Residence::ALL, residence)?,
    };
    let second = |text| named(&[Second::Direct, Second::Buffered], text);
    let tuning = match *values {
        ["chunk", look_ahead, shares, when] => Tuning::Chunk {
            look_ahead: look_ahead.parse().ok()?,
            shares: shares.parse().ok()?,
            second: second(when)?,
        },
        ["tile", body, lanes, unroll, registers, group, keys, when] => Tuning::Tile {
            body: named(&KernelBody::ALL, body).filter(|body| *body != KernelBody::Chunk)?,
            lanes: lanes.parse().ok()?,
            unroll: unroll.parse().ok()?,
            registers: registers.parse().ok()?,
            group: group.parse().ok()?,
            keys: keys.parse().ok()?,
            second: second(when)?,
        },
        _ => return None,
    };
    Some((workload, tuning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunings_come_back_as_they_were_and_torn_lines_do_not() {
        let workload = |kind| Workload {
            kind,
            slots: 8,
            residence: Residence::Memory,
        };
        let tunings = Tunings::from([
            (
                workload(Kind::Horton),
                Tuning::Tile {
                    body: KernelBody::WarpTile,
                    lanes: 4,
                    unroll: 2,
                    registers: 32,
                    group: 256,
                    keys: 16,
                    second: Second::Buffered,
                },
            ),
            (
                workload(Kind::FirstFit),
                Tuning::Chunk {
                    look_ahead: 32,
                    shares: 16,
                    second: Second::Direct,
                },
            ),
        ]);
        let text = print(&tunings);
        assert_eq!(text.lines().filter_map(parse).collect::<Tunings>(), tunings);
        for line in text.lines() {
            for end in 0..line.len() {
                assert_eq!(parse(&line[..end]), None, "{end} of {line}");
            }
            let other = line
                .replace(" tile ", " bowl ")
                .replace(" chunk ", " heap ");
            assert_ne!(other, line);
            assert_eq!(parse(&other), None);
        }
    }
}
