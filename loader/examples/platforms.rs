//! Lists the OpenCL platforms and their number of devices; fails when there is no device at all.
//! `scripts/ensure-opencl.sh` asks it whether anything has to be installed.

use std::process::ExitCode;

use horton_opencl_loader::status;
use ocl::core;

fn main() -> ExitCode {
    println!("{}", status());
    let mut devices = 0;
    for platform in core::get_platform_ids().unwrap_or_default() {
        // A platform whose driver finds no hardware answers with an error: no devices.
        let found = core::get_device_ids(platform, None, None).map_or(0, |ids| ids.len());
        devices += found;
        match core::get_platform_info(platform, core::PlatformInfo::Name) {
            Ok(name) => println!("{name}: {found} device(s)"),
            Err(error) => println!("a platform without a name ({error}): {found} device(s)"),
        }
    }
    ExitCode::from(u8::from(devices == 0))
}
