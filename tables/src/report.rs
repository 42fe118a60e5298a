//! A report on the OpenCL devices of a machine, for people: what `horton-sql devices` prints.
//!
//! ```text
//!  platforms, devices ─▶ self-test of each ─▶ Report ─▶ Platform 0: <name>
//!                                                       * 0:0 <device>     * what 'auto' picks
//!                                                             accepted   yes | no: <reason>
//!                                                             self-test  passed | failed: <reason>
//! ```

use std::fmt;

use crate::device::{self, Device, DeviceInfo, DeviceKind};
use crate::error::{Error, Result};
use crate::self_test;

/// The platforms and devices of this machine, tested. It is shown as text of several lines.
///
/// ```
/// # #[tokio::main]
/// # async fn main() {
/// match horton_tables::report_devices().await {
///     Ok(report) => println!("{report}"),
///     Err(reason) => println!("joins run on the host: {reason}"),
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct DeviceReport {
    platforms: Vec<String>,
    /// Each device with the result of its self-test.
    devices: Vec<(DeviceInfo, String)>,
    auto: Result<DeviceInfo>,
}

impl DeviceReport {
    /// Returns the device that `auto` means.
    ///
    /// # Errors
    /// [`Error::NoUsableDevice`] with the reasons if there is none that joins can use.
    pub fn auto(&self) -> Result<&DeviceInfo, &Error> {
        self.auto.as_ref()
    }
}

/// Lists the OpenCL platforms and devices of this machine: what each supports, whether joins can
/// run there and give right answers, and with which kernels. Each device is tested once.
///
/// # Errors
/// [`Error::NoPlatform`] if there is no OpenCL, with what to install.
///
/// See also: [`device::list`], for programs.
pub async fn report_devices() -> Result<DeviceReport> {
    let platforms = device::platforms()?;
    let mut devices = Vec::new();
    for device in device::list()? {
        let tested = test(&device).await;
        devices.push((device, tested));
    }
    Ok(DeviceReport {
        platforms,
        devices,
        // After the tests: it passes over devices that failed.
        auto: device::pick("auto"),
    })
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let auto = self.auto.as_ref().ok();
        for (p, name) in self.platforms.iter().enumerate() {
            writeln!(f, "Platform {p}: {name}")?;
            let of_platform = |(device, _): &&(DeviceInfo, String)| device.index.0 == p;
            let mut own = self.devices.iter().filter(of_platform).peekable();
            if own.peek().is_none() {
                writeln!(f, "  no devices")?;
            }
            for (device, tested) in own {
                let is_auto = auto.is_some_and(|auto| auto.index == device.index);
                describe(f, device, tested, is_auto)?;
            }
        }
        match auto {
            Some(device) => writeln!(f, "* 'auto' picks {}", device.label()),
            None => Ok(()),
        }
    }
}

/// Returns the result of the device's self-test, which runs once per process.
async fn test(device: &DeviceInfo) -> String {
    if device.obstacle.is_some() {
        return "not run".to_owned();
    }
    let (platform, index) = device.index;
    let passed = match Device::open(&format!("{platform}:{index}")) {
        Ok(device) => self_test::self_test(&device).await,
        Err(error) => Err(error),
    };
    match passed {
        Ok(()) => "passed".to_owned(),
        Err(Error::SelfTest { reason, .. }) => format!("failed: {reason}"),
        Err(error) => format!("failed: {}", error.problem()),
    }
}

fn describe(
    f: &mut fmt::Formatter<'_>,
    device: &DeviceInfo,
    tested: &str,
    is_auto: bool,
) -> fmt::Result {
    let mark = if is_auto { '*' } else { ' ' };
    writeln!(f, "{mark} {}", device.label())?;
    let accepted = match &device.obstacle {
        None => "yes".to_owned(),
        Some(reason) => format!("no: {reason}"),
    };
    let lines = [
        ("kind", kind(device.kind).to_owned()),
        ("vendor", device.vendor.clone()),
        ("version", device.version.clone()),
        ("compute units", device.compute_units.to_string()),
        ("memory", gib(device.global_memory)),
        ("largest buffer", gib(device.max_allocation)),
        (
            "work-group",
            format!("{} work-items", device.max_work_group),
        ),
        ("extensions", extensions(device)),
        ("sub-groups", sub_groups(device)),
        ("kernel body", device.body().to_string()),
        ("accepted", accepted),
        ("self-test", tested.to_owned()),
    ];
    for (name, value) in lines {
        writeln!(f, "      {name:<16}{value}")?;
    }
    Ok(())
}

fn kind(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Gpu => "GPU",
        DeviceKind::Accelerator => "accelerator",
        DeviceKind::Cpu => "CPU",
    }
}

/// Names the sub-groups by which lanes can talk.
fn sub_groups(device: &DeviceInfo) -> String {
    match device.sub_group_width {
        0 => "none that shuffle".to_owned(),
        width => format!("{width} work-items at least"),
    }
}

/// Lists the extensions that decide on tables and kernel bodies.
fn extensions(device: &DeviceInfo) -> String {
    let relevant = |name: &&str| {
        name.starts_with("cl_nv_")
            || [
                "cl_khr_int64_base_atomics",
                "cl_khr_subgroups",
                "cl_intel_subgroups",
            ]
            .contains(name)
    };
    let names: Vec<&str> = device.extensions.split(' ').filter(relevant).collect();
    if names.is_empty() {
        "no 64-bit atomics, sub-groups or NVIDIA's".to_owned()
    } else {
        names.join(" ")
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}
