//! Picking a device, and the kernel body that it runs.
//!
//! ```text
//!  open('auto')                GPU > accelerator > CPU > software renderer; then the most compute
//!                              units; then 64-bit atomics; none that failed its self-test
//!                = '0:1'       second device of the first platform
//!                = 'radeon'    part of a device, board or platform name, any case
//!                = 'all'       as 'auto', and all others of that kind with memory of their own
//!                = '0:0, 0:1'  a list of the above: all of them
//! ```
//!
//! What a device says of itself (`info`) and what its self-test found (`self_test_cache`) decide
//! together. They are apart from here because the file of a result is named after the device's
//! description.

use std::fmt;

use crate::error::{Error, Result};

use super::info::{DeviceInfo, list};
use super::kind::{DEFAULT_SLOTS, KernelBody};
use super::self_test_cache::{self, SelfTestResult};

impl DeviceInfo {
    /// Returns the lookup kernel body that this device runs: the fastest, or the one that its
    /// self-test found to work.
    pub fn body(&self) -> KernelBody {
        match self_test_cache::result(self) {
            Some(SelfTestResult::Passed(body)) => body,
            _ => self.fastest_body(),
        }
    }

    /// Returns whether kernels with this body run there, with buckets of the default size. The
    /// device must have what they need, and its self-test must not have found them wrong.
    pub fn supports(&self, body: KernelBody) -> bool {
        self.runs(body, DEFAULT_SLOTS / 2)
    }

    /// Returns whether tiles of `lanes` lanes talk by `body` there.
    pub(crate) fn runs(&self, body: KernelBody, lanes: usize) -> bool {
        let local_tiles = Some(SelfTestResult::Passed(KernelBody::LocalTile));
        let needs_none = matches!(body, KernelBody::Chunk | KernelBody::LocalTile);
        needs_none || self.has_tiles_of(body, lanes) && self_test_cache::result(self) != local_tiles
    }

    /// Returns `body`, or local tiles where it does not run for buckets of `slots` slots, two per
    /// lane.
    pub(crate) fn body_for_slots(&self, body: KernelBody, slots: usize) -> KernelBody {
        if self.runs(body, slots / 2) {
            body
        } else {
            KernelBody::LocalTile
        }
    }

    /// Returns why `auto` does not use it: it lacks something, or its self-test failed.
    fn obstacle(&self) -> Option<String> {
        let failed = || match self_test_cache::result(self)? {
            SelfTestResult::Failed(reason) => Some(format!("its self-test failed: {reason}")),
            SelfTestResult::Passed(_) => None,
        };
        self.obstacle.clone().or_else(failed)
    }

    /// Returns its rank for `auto`, the best first. Two drivers of one device have the same compute
    /// units; the one with 64-bit atomics has all kinds of tables.
    fn rank(&self) -> impl Ord + use<> {
        (
            self.is_software_renderer(),
            self.kind,
            std::cmp::Reverse(self.compute_units),
            !self.has_int64_atomics(),
        )
    }

    fn matches(&self, asked: &str) -> bool {
        let asked = asked.to_lowercase();
        asked == format!("{}:{}", self.index.0, self.index.1)
            || self.name.to_lowercase().contains(&asked)
            || self.board.to_lowercase().contains(&asked)
            || self.platform.to_lowercase().contains(&asked)
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} [{:?}, {}, {}; {} compute units, {:.1} GiB, buffers to {:.1} GiB] {}",
            self.label(),
            self.kind,
            self.platform,
            self.version,
            self.compute_units,
            gib(self.global_memory),
            gib(self.max_allocation),
            match &self.obstacle {
                None => format!("accepted; {}", self.body()),
                Some(reason) => format!("not accepted: {reason}"),
            }
        )
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

/// Picks the device that `asked`, a name, an index or `auto`, means; the first one if it means
/// several.
///
/// # Errors
/// [`Error::NoPlatform`]; [`Error::UnknownDevice`] with the list of devices if nothing
/// matches; [`Error::UnsuitableDevice`] if what matches cannot run the kernels;
/// [`Error::NoUsableDevice`] with the reasons if `auto` finds none that can.
pub fn pick(asked: &str) -> Result<DeviceInfo> {
    let none = || Error::NoUsableDevice(vec![format!("'{asked}' names none")]);
    pick_all(asked)?.into_iter().next().ok_or_else(none)
}

/// Picks all devices that `asked` means, each once.
///
/// # Errors
/// Those of [`pick`], for any name of a list.
pub fn pick_all(asked: &str) -> Result<Vec<DeviceInfo>> {
    choose_all(list()?, asked)
}

fn choose_all(devices: Vec<DeviceInfo>, asked: &str) -> Result<Vec<DeviceInfo>> {
    let mut picked: Vec<DeviceInfo> = Vec::new();
    let whole = asked;
    for asked in whole.split(',') {
        if whole.contains(',') && asked.trim().is_empty() {
            return Err(unknown(whole, &devices));
        }
        let found = if is_all(asked) {
            alike(devices.clone())?
        } else {
            vec![choose(devices.clone(), asked.trim())?]
        };
        let is_new = |info: &DeviceInfo| picked.iter().all(|known| known.index != info.index);
        let found: Vec<_> = found.into_iter().filter(is_new).collect();
        picked.extend(found);
    }
    Ok(picked)
}

/// Returns the best device, then all that work side by side with it: of its kind, and with memory
/// of their own if it has that. A device that two platforms offer counts once.
fn alike(devices: Vec<DeviceInfo>) -> Result<Vec<DeviceInfo>> {
    let first = best(devices.clone())?;
    let is_alike = |other: &DeviceInfo| {
        other.kind == first.kind
            && other.unified_memory == first.unified_memory
            && other.is_software_renderer() == first.is_software_renderer()
    };
    let usable = |other: &DeviceInfo| other.index != first.index && other.obstacle().is_none();
    let mut others = devices;
    others.retain(|other| usable(other) && is_alike(other));
    // Of two drivers of one device, the one that `auto` would take, or the first's.
    others.sort_by_key(|other| (other.platform_id != first.platform_id, other.rank()));
    let mut all = vec![first];
    for other in others {
        if !all.iter().any(|known| known.is_same_device(&other)) {
            all.push(other);
        }
    }
    all[1..].sort_by_key(|other| other.index);
    Ok(all)
}

/// Returns whether `asked` names a device, which may not be there.
pub fn names_device(asked: &str) -> bool {
    asked
        .split(',')
        .any(|asked| !is_auto(asked) && !is_all(asked))
}

/// Returns whether what `asked` means depends on what self-tests found.
pub(super) fn is_open(asked: &str) -> bool {
    asked
        .split(',')
        .any(|asked| is_auto(asked) || is_all(asked))
}

fn is_auto(asked: &str) -> bool {
    let asked = asked.trim();
    asked.is_empty() || asked.eq_ignore_ascii_case("auto")
}

fn is_all(asked: &str) -> bool {
    asked.trim().eq_ignore_ascii_case("all")
}

fn choose(devices: Vec<DeviceInfo>, asked: &str) -> Result<DeviceInfo> {
    if is_auto(asked) {
        return best(devices);
    }
    let matching: Vec<&DeviceInfo> = devices.iter().filter(|d| d.matches(asked)).collect();
    match matching.iter().find(|d| d.obstacle.is_none()) {
        Some(device) => Ok((*device).clone()),
        None => Err(match matching.first() {
            Some(device) => Error::UnsuitableDevice {
                device: device.label(),
                reason: device.obstacle.clone().unwrap_or_default(),
            },
            None => unknown(asked, &devices),
        }),
    }
}

fn unknown(asked: &str, devices: &[DeviceInfo]) -> Error {
    Error::UnknownDevice {
        asked: asked.to_owned(),
        available: devices.iter().map(DeviceInfo::label).collect(),
    }
}

fn best(devices: Vec<DeviceInfo>) -> Result<DeviceInfo> {
    if devices.is_empty() {
        let reason = "no platform has a device".to_owned();
        return Err(Error::NoUsableDevice(vec![reason]));
    }
    let reasons = devices
        .iter()
        .filter_map(|d| Some(format!("{}: {}", d.label(), d.obstacle()?)))
        .collect();
    devices
        .into_iter()
        .filter(|d| d.obstacle().is_none())
        .min_by_key(DeviceInfo::rank)
        .ok_or(Error::NoUsableDevice(reasons))
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance_mut;

    use ocl::core::{DeviceId, PlatformId};

    use super::super::identity::Identity;
    use super::super::kind::DeviceKind;
    use super::*;

    /// A GPU of platform `p` in the PCI slot of bus `bus`, or one whose driver does not say where.
    fn gpu((p, d): (usize, usize), name: &str, bus: Option<u32>) -> DeviceInfo {
        let place = [0, bus.unwrap_or(0), 0, 0].map(u32::to_ne_bytes);
        let identity = Identity::new(
            |extension| bus.is_some() && extension == "cl_khr_pci_bus_info",
            |_| place.concat(),
        );
        DeviceInfo {
            index: (p, d),
            platform: format!("platform {p}"),
            platform_version: String::new(),
            name: name.to_owned(),
            board: String::new(),
            vendor: String::new(),
            version: "OpenCL 3.0".to_owned(),
            kind: DeviceKind::Gpu,
            compute_units: 96,
            max_work_group: 1024,
            global_memory: 16 << 30,
            max_allocation: 8 << 30,
            local_memory: 64 << 10,
            extensions: String::new(),
            sub_group_width: 0,
            unified_memory: false,
            obstacle: None,
            identity,
            // SAFETY: no driver gets these.
            platform_id: unsafe { PlatformId::from_raw(without_provenance_mut(1 + p)) },
            // SAFETY: as above.
            device_id: unsafe { DeviceId::from_raw(without_provenance_mut(1 + d)) },
        }
    }

    fn places(devices: &[DeviceInfo], asked: &str) -> Vec<(usize, usize)> {
        let all = choose_all(devices.to_vec(), asked).unwrap();
        all.iter().map(|info| info.index).collect()
    }

    #[test]
    fn a_gpu_that_two_platforms_offer_counts_once() {
        // Mesa's names are others than AMD's.
        let devices = [
            gpu((7, 0), "gfx1100", Some(3)),
            gpu((7, 1), "gfx1100", Some(4)),
            gpu((8, 0), "AMD Radeon RX 7900 XTX (radeonsi)", Some(3)),
            gpu((8, 1), "AMD Radeon RX 7900 XTX (radeonsi)", Some(4)),
            gpu((8, 2), "AMD Radeon RX 6400 (radeonsi)", Some(5)),
        ];
        assert_eq!(places(&devices, "all"), [(7, 0), (7, 1), (8, 2)]);
        // A list has what it names.
        assert_eq!(places(&devices, "7:0, 8:0"), [(7, 0), (8, 0)]);
    }

    #[test]
    fn names_decide_where_a_driver_says_nothing_else() {
        let devices = [
            gpu((7, 0), "one", None),
            gpu((7, 1), "one", None),
            gpu((8, 0), "one", None),
            gpu((8, 1), "another", None),
        ];
        assert_eq!(places(&devices, "all"), [(7, 0), (7, 1), (8, 1)]);
    }

    #[test]
    fn a_device_is_found_by_the_name_of_its_board() {
        let mut devices = [gpu((7, 0), "gfx90a", None), gpu((7, 1), "gfx1100", None)];
        "AMD Radeon RX 7900 XTX".clone_into(&mut devices[1].board);
        assert_eq!(places(&devices, "radeon"), [(7, 1)]);
        assert_eq!(devices[1].label(), "7:1 gfx1100 (AMD Radeon RX 7900 XTX)");
        let error = choose_all(devices.to_vec(), "geforce")
            .unwrap_err()
            .to_string();
        assert!(error.contains("AMD Radeon RX 7900 XTX"), "{error}");
    }
}
