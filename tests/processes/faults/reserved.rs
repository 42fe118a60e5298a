//! What a join has reserved of the memory pool once its device has failed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use horton_join::Health;
use horton_test_support::internals::faults::{self, Fault};
use horton_test_support::joins::{Case, device, run};

use super::cases::{Size, all};
use super::outcome::{context, execute, plan, pool};
use super::watch::one_at_a_time;

/// Runs `case`. Returns the bytes that are reserved when its probe side is first asked for rows,
/// and the failures of the device.
fn reserved(case: &Case) -> (usize, usize) {
    let (pool, seen) = (pool(), Arc::new(AtomicUsize::new(0)));
    let note = {
        let (pool, seen) = (Arc::clone(&pool), Arc::clone(&seen));
        move || seen.store(pool.reserved(), Ordering::Relaxed)
    };
    let on_probe = Arc::new(Mutex::new(Some(Box::new(note) as Box<dyn FnOnce() + Send>)));
    let plan = plan(case, &on_probe);
    let outcome = execute("reserved", plan, context(case, &pool)).unwrap();
    (seen.load(Ordering::Relaxed), outcome.device_errors)
}

#[test]
fn a_table_that_failed_is_reserved_no_longer() {
    let _guard = one_at_a_time();
    for name in ["left, unique", "strings, many pairs"] {
        let mut cases = all(Size::Full).into_iter();
        let (_, mut case) = cases.find(|(of, _)| *of == name).unwrap();
        case.config.health = Health::default();
        // Its self-test is over before anything fails, and no memory of it is left in a pool.
        run(case.on_device(), case.context()).unwrap();
        lose();
        faults::begin(Some(fault("clCreateBuffer build keys", true)));
        let after_failure = reserved(&case);
        assert!(faults::end().failed > 0);
        assert_eq!(after_failure.1, 1, "{name}");
        // The device is not trusted, so the host joins the rows from the beginning.
        assert_eq!(reserved(&case), (after_failure.0, 0), "{name}");
    }
}

/// Has the device opened again by the next job.
fn lose() {
    faults::begin(Some(fault("clFinish", false)));
    device().run_blocking(|_| Ok(())).unwrap_err();
    faults::end();
}

fn fault(site: &str, lasts: bool) -> Fault {
    Fault {
        site: site.to_owned(),
        nth: 1,
        status: "CL_OUT_OF_RESOURCES",
        lasts,
    }
}
