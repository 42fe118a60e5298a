//! The device layer from outside: picking devices, and programs that do not compile.

use horton_tables::device::ProgramText;
use horton_tables::device::{Arg, Device, list, pick};
use horton_tables::error::Error;
use horton_tables::table::horton::{HortonTable, TableConfig};

#[test]
fn auto_picks_the_first_kind_among_accepted_devices() {
    let devices = list().unwrap();
    let picked = pick("auto").unwrap();
    assert!(picked.obstacle.is_none());
    assert!(
        devices
            .iter()
            .filter(|d| d.obstacle.is_none())
            .all(|d| d.kind >= picked.kind)
    );
}

#[test]
fn a_device_is_picked_by_its_place_or_by_part_of_its_name() {
    let device = pick("AUTO").unwrap();
    let (platform, index) = device.index;
    assert_eq!(
        pick(&format!("{platform}:{index}")).unwrap().name,
        device.name
    );
    let part = device.name[device.name.len() / 2..].to_uppercase();
    assert_eq!(pick(&part).unwrap().name, device.name);
}

#[test]
fn an_unknown_device_is_an_error_that_lists_those_there_are() {
    match Device::open("no such device") {
        Err(Error::UnknownDevice { asked, available }) => {
            assert_eq!(asked, "no such device");
            assert_eq!(available.len(), list().unwrap().len());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_that_does_not_compile_is_an_error_with_the_compilers_log() {
    let device = Device::open("auto").unwrap();
    let broken = ProgramText::new(
        "broken",
        &[],
        &[("broken.cl", "__kernel void k() { nonsense; }")],
    );
    let result = device.run_blocking(move |queue| queue.launch(&broken, "k", (1, 1), &[]));
    match result {
        Err(Error::ProgramBuild { program, log, .. }) => {
            assert_eq!(program, "broken");
            assert!(log.contains("nonsense"), "{log}");
        }
        other => panic!("{other:?}"),
    }
    // And the device goes on.
    HortonTable::from_pairs(&device, &[1], &[1], &TableConfig::default()).unwrap();
}

#[test]
fn a_kernel_or_argument_that_does_not_fit_is_an_error() {
    let device = Device::open("auto").unwrap();
    let text = ProgramText::new("one", &[], &[("one.cl", "__kernel void one(uint a) { }")]);
    let missing = text.clone();
    let result = device.run_blocking(move |queue| queue.launch(&missing, "two", (1, 1), &[]));
    assert!(matches!(result, Err(Error::OpenCl { .. })), "{result:?}");
    let args = [Arg::U32(1), Arg::U32(2)];
    let result = device.run_blocking(move |queue| queue.launch(&text, "one", (1, 1), &args));
    assert!(matches!(result, Err(Error::OpenCl { .. })), "{result:?}");
}

/// A process that is forked has the memory of the first one, and none of its threads.
#[cfg(unix)]
#[test]
fn a_forked_process_hears_that_it_has_no_device() {
    let device = Device::open("auto").unwrap();
    device.run_blocking(|_| Ok(())).unwrap();
    // SAFETY: the child asks for one job, which needs no lock that another thread may hold now, and
    // ends without any clean-up.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let answer = device.run_blocking(|_| Ok(()));
        let hears = answer.is_err_and(|error| error.to_string().contains("was forked"));
        // SAFETY: it has no arguments that matter to memory.
        unsafe { libc::_exit(i32::from(!hears)) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: `status` may be written.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "{status}"
    );
    device.run_blocking(|_| Ok(())).unwrap();
}

/// What a job holds may panic when it is dropped, also where the job is skipped.
#[test]
fn a_panic_beside_a_job_leaves_the_device_its_threads() {
    struct PanicsAtItsEnd;

    impl Drop for PanicsAtItsEnd {
        fn drop(&mut self) {
            panic!("at its end");
        }
    }

    let device = Device::open("auto").unwrap().with_timeout(None);
    for _ in 0..8 {
        let held = PanicsAtItsEnd;
        let never_waited_for = device.run(move |_| {
            let _held = &held;
            Ok(())
        });
        drop(never_waited_for);
    }
    device.run_blocking(|_| Ok(())).unwrap();
}
