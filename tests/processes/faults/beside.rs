//! Jobs of several queue threads: what is lost to one is lost to all.

use std::sync::mpsc::channel;

use horton_join::device::Device;
use horton_test_support::internals::faults::{self, Fault};
use horton_test_support::{child, test_name};

use crate::drivers::child::driver;

/// What failed on one thread may have written into the memory of another. So a job beside it fails,
/// although all of its own commands end well.
#[test]
fn a_job_beside_one_that_loses_the_context_fails() {
    if child::role().is_none() {
        // A GPU has several threads.
        let test = test_name!("a_job_beside_one_that_loses_the_context_fails");
        let mut command = child::command(&test, "gpu");
        child::passed(&command.envs(driver("gpu")).output().unwrap());
        return;
    }
    let device = Device::open("auto").unwrap();
    let ((begun, wait), (go_on, lost)) = (channel(), channel());
    let beside = device.run(move |queue| {
        queue.buffer_from("test", &[7u32])?;
        begun.send(()).unwrap();
        lost.recv().unwrap();
        Ok(())
    });
    wait.recv().unwrap();
    faults::begin(Some(Fault {
        site: "clFinish".to_owned(),
        nth: 1,
        status: "CL_OUT_OF_RESOURCES",
        lasts: false,
    }));
    device.run_blocking(|_| Ok(())).unwrap_err();
    faults::end();
    go_on.send(()).unwrap();
    let error = futures::executor::block_on(beside).unwrap_err().to_string();
    assert!(error.contains("its context is gone"), "{error}");
}
