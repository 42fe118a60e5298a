//! Lists the OpenCL platforms and devices of this machine: what each supports, whether joins can
//! run there and give right answers (each is tested once), with which kernels, and which one
//! `horton.device = 'auto'` means.
//!
//! ```text
//!   cargo run --example devices
//!
//!   Platform 0: <name>
//!   * 0:0 <device>             the * marks what 'auto' picks
//!         accepted   yes | no: <reason>
//!         self-test  passed | failed: <reason>
//! ```
//!
//! Exit status: 0 if there is a device to pick, else 1, with what to install.

use std::io::{self, Write};
use std::process::ExitCode;

use horton_join::device::{self, Device, DeviceInfo, DeviceKind};
use horton_join::error::{Error, Result};
use horton_test_support::internals::self_test;
use horton_test_support::internals::verdict::Suite;

#[tokio::main]
async fn main() -> ExitCode {
    match show(&mut io::stdout()).await {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        // The reader of our output has seen enough.
        Err(_) => ExitCode::FAILURE,
    }
}

async fn show(out: &mut impl Write) -> io::Result<Result<()>> {
    let (platforms, devices) = match ask() {
        Ok(answers) => answers,
        Err(error) => return Ok(Err(error)),
    };
    let mut tests = Vec::new();
    for device in &devices {
        tests.push(test(device).await);
    }
    let auto = device::pick("auto");
    let picked = auto.as_ref().ok().map(|device| device.index);
    let devices: Vec<_> = devices.iter().zip(&tests).collect();
    for (p, name) in platforms.iter().enumerate() {
        writeln!(out, "Platform {p}: {name}")?;
        let mut own = devices
            .iter()
            .filter(|(device, _)| device.index.0 == p)
            .peekable();
        if own.peek().is_none() {
            writeln!(out, "  no devices")?;
        }
        for (device, tested) in own {
            describe(out, device, tested, picked == Some(device.index))?;
        }
    }
    if let Ok(device) = &auto {
        writeln!(out, "* horton.device = 'auto' picks {}", device.label())?;
    }
    Ok(auto.map(drop))
}

fn ask() -> Result<(Vec<String>, Vec<DeviceInfo>), Error> {
    Ok((device::platforms()?, device::list()?))
}

/// What came of the self-test, which is run unless that was done before.
async fn test(device: &DeviceInfo) -> String {
    if device.obstacle.is_some() {
        return "not run".to_owned();
    }
    let (platform, index) = device.index;
    let passed = match Device::open(&format!("{platform}:{index}")) {
        Ok(device) => self_test::passed(&device, [Suite::DEFAULT]).await,
        Err(error) => Err(error),
    };
    match passed {
        Ok(()) => "passed".to_owned(),
        Err(Error::SelfTest { reason, .. }) => format!("failed: {reason}"),
        Err(error) => format!("failed: {error}"),
    }
}

fn describe(
    out: &mut impl Write,
    device: &DeviceInfo,
    tested: &str,
    picked: bool,
) -> io::Result<()> {
    let mark = if picked { '*' } else { ' ' };
    writeln!(out, "{mark} {}", device.label())?;
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
        writeln!(out, "      {name:<16}{value}")?;
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

/// What lanes can talk through.
fn sub_groups(device: &DeviceInfo) -> String {
    match device.sub_group_width {
        0 => "none that shuffle".to_owned(),
        width => format!("{width} work-items at least"),
    }
}

/// Those that tables and kernel bodies differ by.
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
    match names.is_empty() {
        true => "no 64-bit atomics, sub-groups or NVIDIA's".to_owned(),
        false => names.join(" "),
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}
