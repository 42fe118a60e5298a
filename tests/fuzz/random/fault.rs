//! OpenCL calls that fail in the middle of a case.
//!
//! ```text
//!  the case's own run  ─▶ uses of every site ─▶ Strike picks site and use
//!  struck, dropped midway (if the case is)    ─▶ memory given back
//!  struck, to its end  ─┬ falls back          ─▶ the stock join's rows
//!                       └ shows errors        ─▶ its status, or the rows if none needed the call
//! ```
//!
//! The fault layer is one for the process, and is in debug builds only. There such a case has the
//! device alone (`turn`). It begins with a device of which nothing is in use, so it also tells
//! whether cases before it left something. Each run has a plan of its own, which trusts the device
//! again.

use std::time::{Duration, Instant};

use super::super::difference::{Checked, differ};
use super::super::turn::{self, Turn};
use super::case::Case;
use super::run::Worker;

/// A difference that an earlier case is to blame for.
pub const LEFT_BEFORE: &str = "device memory left by an earlier case";

/// Time in which memory of the device is given back.
const LATE: Duration = Duration::from_secs(20);

/// Waits until `case` may run.
///
/// # Errors
/// It is to have the device alone, and some of its memory stays in use.
pub fn turn(worker: &Worker, case: &Case) -> Checked<Turn> {
    if !cfg!(debug_assertions) || case.strike.is_none() {
        return Ok(turn::beside());
    }
    let turn = turn::alone();
    check_idle(worker, LEFT_BEFORE)?;
    Ok(turn)
}

/// Checks that nothing stays on the device, and no job is on its way. So the next case does not
/// meet this one's.
fn check_idle(worker: &Worker, what: &'static str) -> Checked<()> {
    let start = Instant::now();
    while worker.device.budget().used() > 0 {
        if start.elapsed() > LATE {
            return differ(what, worker.device.budget().used());
        }
        std::thread::yield_now();
    }
    Ok(())
}

#[cfg(debug_assertions)]
pub use debug::Sites;
#[cfg(not(debug_assertions))]
pub use release::Sites;

#[cfg(not(debug_assertions))]
mod release {
    use super::super::super::difference::Checked;
    use super::super::checks::Found;
    use super::super::run::Worker;
    use super::Case;

    /// None: release builds have no fault layer.
    pub struct Sites;

    impl Sites {
        pub fn count<T>(_: &Case, run: impl FnOnce() -> T) -> (T, Self) {
            (run(), Self)
        }

        pub fn strike(self, _: &Worker, _: &Found<'_>) -> Checked<bool> {
            Ok(false)
        }
    }
}

#[cfg(debug_assertions)]
mod debug {
    use std::collections::BTreeMap;

    use horton_join::config::OnDeviceError;
    use horton_test_support::internals::faults::{self, Fault};

    use super::super::super::difference::{Checked, differ};
    use super::super::case::Strike;
    use super::super::checks::{Found, Places};
    use super::super::run::{Worker, is_exhausted};
    use super::{Case, check_idle};

    const LEFT: &str = "device memory left after a fault";

    const STATUSES: [&str; 5] = [
        "CL_OUT_OF_RESOURCES",
        "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        "CL_INVALID_COMMAND_QUEUE",
        "CL_OUT_OF_HOST_MEMORY",
        "CL_DEVICE_NOT_AVAILABLE",
    ];

    /// The OpenCL calls of a run, and how often each was made.
    pub struct Sites(BTreeMap<String, u64>);

    /// Ends the faults, however a run ends.
    struct Struck;

    impl Struck {
        fn begin(fault: Option<Fault>) -> Self {
            faults::begin(fault);
            Self
        }
    }

    impl Drop for Struck {
        fn drop(&mut self) {
            faults::end();
        }
    }

    impl Sites {
        /// Runs a case that is to be struck later, and counts its calls.
        pub fn count<T>(case: &Case, run: impl FnOnce() -> T) -> (T, Self) {
            if case.strike.is_none() {
                return (run(), Self(BTreeMap::new()));
            }
            let _struck = Struck::begin(None);
            let value = run();
            (value, Self(faults::report().uses))
        }

        /// Runs the case again with its fault. Returns whether a call was made to fail.
        pub fn strike(self, worker: &Worker, found: &Found<'_>) -> Checked<bool> {
            let Some((strike, fault)) = found
                .case
                .strike
                .as_ref()
                .and_then(|strike| Some((strike, self.fault(strike)?)))
            else {
                return Ok(false);
            };
            let on_error = match strike.falls_back {
                true => OnDeviceError::Fallback,
                false => OnDeviceError::Error,
            };
            if let Some(polls) = found.case.cancel_after {
                let _struck = Struck::begin(Some(fault.clone()));
                let limited = worker.limited(found.case)?;
                let plan = worker.on_device(found.inputs, found.case, on_error)?;
                worker.cancel((&limited, &plan), found.case, polls)?;
                drop(plan);
                limited.check_left()?;
                check_idle(worker, LEFT)?;
            }
            if strike.falls_back && found.case.consumer.is_some() {
                consume(worker, found, fault.clone())?;
            }
            run(worker, found, (on_error, fault))
        }

        fn fault(&self, strike: &Strike) -> Option<Fault> {
            let site = strike.site % self.0.len().max(1);
            let (site, uses) = self.0.iter().nth(site)?;
            Some(Fault {
                site: site.clone(),
                nth: 1 + strike.nth as u64 % uses,
                status: STATUSES[strike.status % STATUSES.len()],
                lasts: strike.lasts,
            })
        }
    }

    /// Has a consumer that misbehaves read the join while the device fails.
    fn consume(worker: &Worker, found: &Found<'_>, fault: Fault) -> Checked<()> {
        let what = format!("with a consumer after {fault:?}");
        let _struck = Struck::begin(Some(fault));
        let limited = worker.limited(found.case)?;
        let plan = worker.on_device(found.inputs, found.case, OnDeviceError::Fallback)?;
        let read = (found.inputs, &plan);
        let checked = worker.check_consumer(found.case, read, &limited, found.converter);
        checked.map_err(|difference| difference.with(&what))?;
        drop(plan);
        limited.check_left()?;
        check_idle(worker, LEFT)
    }

    fn run(
        worker: &Worker,
        found: &Found<'_>,
        (on_error, fault): (OnDeviceError, Fault),
    ) -> Checked<bool> {
        let status = fault.status;
        let what = format!("{on_error:?} after {fault:?}");
        let _struck = Struck::begin(Some(fault));
        let limited = worker.limited(found.case)?;
        let plan = worker.on_device(found.inputs, found.case, on_error)?;
        let output = worker.run_limited(&limited, &plan, found.case);
        let places = Places::of(&plan);
        drop(plan);
        let failed = faults::report().failed;
        match output {
            Ok(output) => {
                let checked = found.check(worker, &places, output);
                checked.map_err(|difference| difference.with(&what))?;
            }
            Err(error) if is_exhausted(found.case, &error) => {}
            Err(error) => {
                let text = error.to_string();
                let shown = on_error == OnDeviceError::Error && text.contains(status);
                if failed == 0 || !shown {
                    return differ("error after a fault", format!("{text}\n{what}"));
                }
            }
        }
        limited.check_left()?;
        check_idle(worker, LEFT)?;
        Ok(failed > 0)
    }
}
