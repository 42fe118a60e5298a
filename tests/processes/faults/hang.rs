//! Drivers that hang in a call: the join goes on on the host, later ones are told why, and other
//! sessions have the device again, by other threads.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use datafusion::prelude::{SessionConfig, SessionContext};
use futures::executor::block_on;
use futures::poll;
use horton_join::config::{Enabled, HortonConfig};
use horton_test_support::internals::faults::{self, Fault, HANGS};
use horton_test_support::joins::device;
use horton_test_support::patience::Patience;

use super::watch::{one_at_a_time, rows};

const TIMEOUT: Duration = Duration::from_secs(2);

/// The time that the host, and whatever else runs on the machine, may take.
const HOST: Duration = Duration::from_secs(8);

const QUERY: &str = "SELECT count(*), sum(a.v * b.v) FROM \
                     (SELECT value k, value % 7 v FROM generate_series(1, 3000)) a JOIN \
                     (SELECT value % 5000 k, value % 11 v FROM generate_series(1, 9000)) b \
                     ON a.k = b.k";

fn session(on_device_error: &str) -> SessionContext {
    let options = HortonConfig {
        enabled: Enabled::Always,
        device_timeout: TIMEOUT.as_secs(),
        on_device_error: on_device_error.parse().unwrap(),
        ..HortonConfig::default()
    };
    let config = SessionConfig::new().with_target_partitions(2);
    horton_join::context(config.with_option_extension(options))
}

fn hang(site: &str, nth: u64) {
    faults::begin(Some(Fault {
        site: site.to_owned(),
        nth,
        status: HANGS,
        lasts: false,
    }));
}

/// Lets the call return. Waits until its thread has ended, whose further calls are not those of the
/// next query. Returns how many calls were made to hang.
fn let_go() -> u64 {
    let failed = faults::end().failed;
    loop {
        faults::begin(None);
        std::thread::sleep(Duration::from_millis(100));
        if faults::end().uses.is_empty() {
            return failed;
        }
    }
}

fn plan(session: &SessionContext) -> String {
    rows(session, &format!("EXPLAIN ANALYZE {QUERY}"))
        .unwrap()
        .join("\n")
}

/// Returns whether a join of `plan` ran on the device.
fn is_on_device(plan: &str) -> bool {
    plan.contains(&format!("rows, on {}", device().info().name))
}

/// Calls for memory that is released. They hang on threads of their own, and no query waits for
/// them.
const OF_RELEASES: [&str; 2] = ["clReleaseMemObject", "clFlush"];

/// A site for each other function that the query calls, on a device that was opened or is now.
fn sites() -> BTreeMap<String, String> {
    faults::begin(None);
    rows(&session("fallback"), QUERY).unwrap();
    let uses = faults::end().uses;
    assert!(!uses.is_empty());
    let of_function = |site: String| {
        let function = site.split(' ').next().unwrap().to_owned();
        (function, site)
    };
    let is_of_releases = |(function, site): &(String, String)| {
        OF_RELEASES.contains(&function.as_str()) || site.ends_with(" to release")
    };
    let sites = uses.into_keys().map(of_function);
    sites.filter(|site| !is_of_releases(site)).collect()
}

/// Runs the query while a call at `site` hangs. Returns whether it came to that call.
fn hangs_at(site: &str, session: &SessionContext, expected: &[String]) -> bool {
    hang(site, 1);
    let began = Instant::now();
    assert_eq!(rows(session, QUERY).unwrap(), expected, "{site}");
    let took = began.elapsed();
    assert!(took < TIMEOUT + HOST, "{site}: {took:?}");
    faults::report().failed == 1
}

#[test]
fn a_call_that_hangs_costs_its_time_and_no_rows() {
    let _guard = one_at_a_time();
    let expected = rows(&session("fallback"), QUERY).unwrap();
    // Another test may have left a device that is opened again in the first of these.
    sites();
    let sites = sites();
    assert!(sites.len() >= 8, "{sites:?}");
    for (function, site) in sites {
        let session = session("fallback");
        // A query may find all its memory in pools. A device that is opened again has none there.
        let comes_to_it = |_| {
            let comes = hangs_at(&site, &session, &expected);
            if !comes {
                lose();
            }
            comes
        };
        assert!((0..9).any(comes_to_it), "{site}");
        let shown = plan(&session);
        let reason = format!("device failed: OpenCL {function} failed on");
        assert!(
            shown.contains(&reason) && shown.contains("has not returned for 2.0 s"),
            "{shown}"
        );
        // While it hangs, others have the device, by other threads and a context of its own.
        let shown = plan(&self::session("fallback"));
        assert!(is_on_device(&shown), "{site}: {shown}");
        let_go();
    }
}

/// Each hang has the device opened again, so that the next one can come while it is.
#[test]
fn a_device_that_hangs_while_it_is_opened_is_left() {
    let _guard = one_at_a_time();
    let expected = rows(&session("fallback"), QUERY).unwrap();
    let opened = sites();
    lose();
    let mut opening = sites();
    // A compiler has ten times as long.
    let is_tested = |function: &str| opened.contains_key(function) || function == "clBuildProgram";
    opening.retain(|function, _| !is_tested(function));
    assert!(opening.contains_key("clCreateContext"), "{opening:?}");
    for (function, site) in opening {
        lose();
        let session = session("fallback");
        hang(&site, 1);
        let began = Instant::now();
        assert_eq!(rows(&session, QUERY).unwrap(), expected, "{site}");
        assert!(began.elapsed() < TIMEOUT + HOST, "{site}");
        assert_eq!(let_go(), 1, "{site}");
        assert!(plan(&session).contains(&format!("OpenCL {function} failed on")));
    }
}

/// Has the device lost its context.
fn lose() {
    hang("clFinish", 1);
    rows(&session("fallback"), QUERY).unwrap();
    assert_eq!(let_go(), 1);
}

#[test]
fn a_session_that_wants_to_see_errors_sees_that_a_call_hangs() {
    let _guard = one_at_a_time();
    let session = session("error");
    rows(&session, QUERY).unwrap();
    hang("clFinish", 1);
    let error = rows(&session, QUERY).unwrap_err();
    let_go();
    assert!(
        error.contains("OpenCL clFinish failed on") && error.contains("has not returned for 2.0 s"),
        "{error}"
    );
}

/// Another session's job is on the same device, and not late itself.
#[test]
fn a_hang_is_no_longer_than_its_deadline_for_other_sessions() {
    let _guard = one_at_a_time();
    let [hangs, other] = [(); 2].map(|()| session("fallback"));
    let expected = rows(&other, QUERY).unwrap();
    hang("clFinish", 1);
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| rows(&hangs, QUERY));
        let began = Instant::now();
        let second = rows(&other, QUERY);
        assert!(began.elapsed() < TIMEOUT + HOST);
        (first.join().unwrap(), second)
    });
    assert_eq!(let_go(), 1);
    assert_eq!(
        (first.unwrap(), second.unwrap()),
        (expected.clone(), expected)
    );
}

/// The thread that hung comes back after its place was taken. Nothing of the first context is used
/// again, and what was built on it answers nobody.
#[test]
fn a_call_that_returns_too_late_does_no_harm() {
    let _guard = one_at_a_time();
    let session = session("fallback");
    let expected = rows(&session, QUERY).unwrap();
    for site in ["clFinish", "clEnqueueReadBuffer", "clSetKernelArg enter"] {
        hang(site, 1);
        assert_eq!(rows(&self::session("fallback"), QUERY).unwrap(), expected);
        assert_eq!(faults::end().failed, 1, "{site}");
        // It returns now, beside other joins.
        for _ in 0..5 {
            let session = self::session("fallback");
            assert_eq!(rows(&session, QUERY).unwrap(), expected, "{site}");
        }
    }
    assert!(is_on_device(&plan(&self::session("fallback"))));
    let_go();
}

/// The threads that hang are not replaced at once, but when the system has some again.
#[test]
fn a_device_whose_threads_cannot_be_replaced_comes_back() {
    let _guard = one_at_a_time();
    let expected = rows(&session("fallback"), QUERY).unwrap();
    faults::allow_threads(Some(0));
    hang("clFinish", 1);
    assert_eq!(rows(&session("fallback"), QUERY).unwrap(), expected);
    assert_eq!(let_go(), 1);
    let shown = plan(&session("fallback"));
    assert!(shown.contains("none of its threads is left"), "{shown}");
    faults::allow_threads(None);
    let mut patience = Patience::default();
    while !is_on_device(&plan(&session("fallback"))) {
        assert!(!patience.is_over());
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(rows(&session("error"), QUERY).unwrap(), expected);
}

/// A driver that hangs before it lists its devices leaves joins to the host. They are told so, and
/// have the device once it has listed them.
#[test]
fn a_driver_that_lists_no_devices_is_waited_for_no_longer_than_that() {
    let _guard = one_at_a_time();
    let expected = rows(&session("fallback"), QUERY).unwrap();
    let session = session("fallback");
    hang("clGetPlatformIDs", 1);
    let began = Instant::now();
    // A part of the platform's name that nobody has asked for.
    rows(&session, "SET horton.device = 'Computing Lang'").unwrap();
    assert_eq!(rows(&session, QUERY).unwrap(), expected);
    assert!(began.elapsed() < TIMEOUT + HOST);
    let reason = "no OpenCL driver has listed its devices for 2 s";
    let shown = plan(&session);
    assert!(shown.contains(reason), "{shown}");
    assert_eq!(faults::end().failed, 1);
    let mut patience = Patience::default();
    while plan(&session).contains(reason) {
        assert!(!patience.is_over());
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(is_on_device(&plan(&session)));
}

/// Its bytes count as used, and not as idle, which others would wait for.
#[test]
fn memory_of_a_driver_that_hangs_is_used_for_good() {
    const MEGABYTE: usize = 1 << 18;
    let _guard = one_at_a_time();
    let device = device().with_timeout(Some(TIMEOUT));
    let allocate = |limit: u64, words: usize| {
        device.run_blocking(move |queue| {
            queue.limit_memory(limit);
            queue.allocate::<u32>("test", words).map(drop)
        })
    };
    allocate(u64::MAX, 4 * MEGABYTE).unwrap();
    let used = device.budget().used();
    assert!(device.budget().idle() >= 4 << 20);
    hang("clFinish", 1);
    let error = allocate(u64::MAX, 1).unwrap_err().to_string();
    assert!(error.contains("clFinish"), "{error}");
    let_go();
    assert!(device.budget().used() >= used + (4 << 20));
    let limit = device.budget().used() + (2 << 20);
    allocate(limit, MEGABYTE).unwrap();
    let refused = allocate(limit, 4 * MEGABYTE).unwrap_err();
    assert!(refused.to_string().contains("no room"), "{refused}");
}

/// The last owner of memory lets it go and goes on, whatever the driver does then. The next query
/// that comes after the deadline has the device again.
#[test]
fn memory_whose_release_hangs_holds_nobody_up() {
    /// Too much for a pool to keep.
    const WORDS: usize = 65 << 20;
    let _guard = one_at_a_time();
    let expected = rows(&session("fallback"), QUERY).unwrap();
    let device = device().with_timeout(Some(TIMEOUT));
    let (permit, staging) = block_on(device.upload::<u32>("test", WORDS)).unwrap();
    hang("clReleaseMemObject", 1);
    let began = Instant::now();
    drop((permit, staging));
    assert!(began.elapsed() < TIMEOUT);
    assert_eq!(rows(&session("fallback"), QUERY).unwrap(), expected);
    let mut patience = Patience::default();
    while faults::report().failed == 0 {
        assert!(!patience.is_over());
        std::thread::sleep(Duration::from_secs(1));
    }
    std::thread::sleep(TIMEOUT + Duration::from_secs(1));
    assert!(is_on_device(&plan(&session("fallback"))));
    let (permit, staging) = block_on(device.upload::<u32>("test", WORDS)).unwrap();
    drop((permit, staging));
    assert_eq!(let_go(), 1);
}

/// Its bytes count as used, too, and not as idle.
#[test]
fn memory_in_a_release_that_hangs_is_used_for_good() {
    /// Too much for a pool to keep.
    const WORDS: usize = 65 << 20;
    let _guard = one_at_a_time();
    let device = device().with_timeout(Some(TIMEOUT));
    let buffer = device.run_blocking(|queue| queue.allocate::<u32>("test", WORDS));
    let buffer = buffer.unwrap().value;
    let before = device.budget().used();
    hang("clReleaseMemObject", 1);
    drop(buffer);
    assert!(device.budget().used() < before);
    let mut patience = Patience::default();
    while device.budget().used() < before {
        assert!(!patience.is_over());
        std::thread::sleep(Duration::from_secs(1));
    }
    assert_eq!(let_go(), 1);
    assert!(device.budget().used() >= before);
}

/// A stream waits for staging memory as it does for an answer: other streams of its thread go on.
#[test]
fn a_stream_that_waits_for_memory_blocks_no_thread() {
    let _guard = one_at_a_time();
    let device = device().with_timeout(Some(TIMEOUT));
    // Of a size that nothing else has, so that no pool has it.
    let words = (7 << 20) + 4096;
    device.run_blocking(|_| Ok(())).unwrap();
    hang("clCreateBuffer test", 1);
    let uploads = async {
        let mut upload = pin!(device.upload::<u32>("test", words));
        assert!(poll!(&mut upload).is_pending());
        upload.await.map(drop)
    };
    let error = block_on(uploads).unwrap_err().to_string();
    assert!(
        error.contains("clCreateBuffer") && error.contains("has not returned for 2.0 s"),
        "{error}"
    );
    assert_eq!(let_go(), 1);
    drop(block_on(device.upload::<u32>("test", words)).unwrap());
}
