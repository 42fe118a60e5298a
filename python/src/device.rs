//! The devices that `horton_join.devices()` lists.
//!
//! ```text
//!  OpenCL's platforms ─▶ Device(index='0:1', name=…, kind='gpu', obstacle=None or why not)
//! ```

use horton_join::device::self_test_cache::{self, SelfTestResult};
use horton_join::device::{DeviceInfo, DeviceKind, list};
use horton_join::error::{DeviceError, Error};
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::runtime::wait;

/// An OpenCL device of this machine.
#[pyclass(module = "horton_join", frozen, skip_from_py_object)]
#[derive(Debug, Clone)]
pub struct Device {
    /// The name that the option `device` takes: '0:1' is the second device of the first platform.
    #[pyo3(get)]
    index: String,
    /// Its name.
    #[pyo3(get)]
    name: String,
    /// The platform, which is its driver.
    #[pyo3(get)]
    platform: String,
    /// Its vendor.
    #[pyo3(get)]
    vendor: String,
    /// 'gpu', 'accelerator' or 'cpu'.
    #[pyo3(get)]
    kind: String,
    /// Cores or multiprocessors.
    #[pyo3(get)]
    compute_units: u32,
    /// Bytes of its memory.
    #[pyo3(get)]
    memory: u64,
    /// The reason why joins cannot run there; None if they can.
    #[pyo3(get)]
    obstacle: Option<String>,
}

impl From<DeviceInfo> for Device {
    fn from(info: DeviceInfo) -> Self {
        let failed = match self_test_cache::result(&info) {
            Some(SelfTestResult::Failed(reason)) => Some(format!("its self-test failed: {reason}")),
            _ => None,
        };
        Self {
            index: format!("{}:{}", info.index.0, info.index.1),
            kind: match info.kind {
                DeviceKind::Gpu => "gpu".to_owned(),
                DeviceKind::Accelerator => "accelerator".to_owned(),
                DeviceKind::Cpu => "cpu".to_owned(),
            },
            name: info.name,
            platform: info.platform,
            vendor: info.vendor,
            compute_units: info.compute_units,
            memory: info.global_memory,
            obstacle: info.obstacle.or(failed),
        }
    }
}

#[pymethods]
impl Device {
    fn __repr__(&self) -> String {
        let Self {
            index, name, kind, ..
        } = self;
        match &self.obstacle {
            None => format!("Device({index} {name}, {kind})"),
            Some(obstacle) => format!("Device({index} {name}, {kind}, unusable: {obstacle})"),
        }
    }
}

/// Lists all OpenCL devices, also those that cannot run the kernels, with the reason. The list is
/// empty where there is no OpenCL; `SessionContext.warm_up` says what to install then.
#[pyfunction]
pub fn devices(py: Python<'_>) -> PyResult<Vec<Device>> {
    wait(py, async {
        let listed = tokio::task::spawn_blocking(list).await;
        match listed.map_err(|error| Failure::Query(error.to_string()))? {
            Ok(devices) => Ok(devices.into_iter().map(Device::from).collect()),
            Err(DeviceError::NoPlatform(_)) => Ok(Vec::new()),
            Err(error) => Err(Error::from(error).into()),
        }
    })
}
