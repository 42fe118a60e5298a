//! The settings of tests in the environment: the device, and how large they are.

use horton_tables::device::Device;

/// Returns the device that tests ask for: what `HORTON_TEST_DEVICE` names, or `auto`.
pub fn asked() -> String {
    std::env::var("HORTON_TEST_DEVICE").unwrap_or_else(|_| "auto".to_owned())
}

/// Returns the device under test.
pub fn device() -> Device {
    Device::open(&asked()).unwrap()
}

/// Returns whether sizes are to fit oclgrind, valgrind and `make check`.
pub fn small() -> bool {
    std::env::var_os("HORTON_TEST_SMALL").is_some()
}

/// Returns `large`, or at most `few` where sizes are to be small.
pub fn scaled(large: usize, few: usize) -> usize {
    if small() { large.min(few) } else { large }
}

/// Returns a number from the environment.
pub fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}
