//! The course of a session after its device failed: it says so once, and joins on the host until
//! the device is named again, or has passed its self-test. Other sessions are not concerned.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use datafusion::prelude::{SessionConfig, SessionContext};
use horton_join::config::{Enabled, HortonConfig};
use horton_test_support::internals::MEMORY_PAUSE;
use horton_test_support::internals::faults::{self, Fault};

use super::watch::{one_at_a_time, rows};
use horton_test_support::joins::device;

/// Warnings that a device is trusted no more.
static SAID: AtomicUsize = AtomicUsize::new(0);

struct Listener;

impl log::Log for Listener {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        if record.level() == log::Level::Warn && text.contains("joins no longer use the device") {
            SAID.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

const QUERY: &str = "SELECT a.k, b.v FROM (VALUES (1, 10), (2, 20), (3, 30)) AS a(k, v) \
                     JOIN (VALUES (2, 21), (3, 31), (3, 32)) AS b(k, v) ON a.k = b.k \
                     ORDER BY a.k, b.v";
const ROWS: [&str; 3] = ["2 | 21", "3 | 31", "3 | 32"];

fn options() -> HortonConfig {
    HortonConfig {
        enabled: Enabled::Always,
        ..HortonConfig::default()
    }
}

fn session() -> SessionContext {
    session_of(options())
}

fn session_of(options: HortonConfig) -> SessionContext {
    horton_join::context(SessionConfig::new().with_option_extension(options))
}

/// The plan of the query, which is run.
fn plan(session: &SessionContext) -> String {
    rows(session, &format!("EXPLAIN ANALYZE {QUERY}"))
        .unwrap()
        .join("\n")
}

/// Returns what the plan of a join shows that ran on the device.
fn on_device() -> String {
    format!("rows, on {}", device().info().name)
}

fn a_lost_device() {
    faults::begin(Some(Fault {
        site: "clEnqueueNDRangeKernel lookup_chunk".to_owned(),
        nth: 1,
        status: "CL_OUT_OF_RESOURCES",
        lasts: true,
    }));
}

#[test]
fn a_fault_in_a_chunk_leaves_the_session_on_the_host() {
    let _guard = one_at_a_time();
    let _ = log::set_boxed_logger(Box::new(Listener));
    log::set_max_level(log::LevelFilter::Warn);
    let said = SAID.load(Ordering::Relaxed);
    let session = session();
    assert!(plan(&session).contains(&on_device()));
    a_lost_device();
    assert_eq!(rows(&session, QUERY).unwrap(), ROWS);
    assert!(faults::end().failed > 0);
    let shown = plan(&session);
    assert!(
        shown.contains("rows, on the host: device failed: OpenCL kernel lookup_chunk failed on")
            && shown.contains("CL_OUT_OF_RESOURCES]"),
        "{shown}"
    );
    for _ in 0..3 {
        assert_eq!(rows(&session, QUERY).unwrap(), ROWS);
    }
    assert_eq!(SAID.load(Ordering::Relaxed) - said, 1, "said once");
    // Other sessions have a device, opened again; so has this one, if it asks for it.
    assert!(plan(&self::session()).contains(&on_device()));
    rows(&session, "SET horton.device = 'auto'").unwrap();
    faults::begin(None);
    assert!(plan(&session).contains(&on_device()));
    assert_eq!(rows(&session, QUERY).unwrap(), ROWS);
    let uses = faults::end().uses;
    assert!(
        uses.contains_key("clEnqueueNDRangeKernel lookup_chunk"),
        "{uses:?}"
    );
}

#[test]
fn a_session_that_wants_to_see_errors_sees_them() {
    let _guard = one_at_a_time();
    let session = session();
    rows(&session, "SET horton.on_device_error = 'error'").unwrap();
    assert!(plan(&session).contains(&on_device()));
    a_lost_device();
    let error = rows(&session, QUERY).unwrap_err();
    assert!(faults::end().failed > 0);
    assert!(
        error.contains("OpenCL kernel lookup_chunk failed")
            && error.contains("CL_OUT_OF_RESOURCES"),
        "{error}"
    );
    assert!(plan(&session).contains("rows, on the host: device failed: "));
    assert_eq!(rows(&session, QUERY).unwrap(), ROWS);
}

/// Other processes take a device's memory, and give it back.
#[test]
fn a_device_that_was_short_of_memory_is_asked_again() {
    let _guard = one_at_a_time();
    let session = session();
    assert!(plan(&session).contains(&on_device()));
    faults::begin(Some(Fault {
        site: "clEnqueueNDRangeKernel lookup_chunk".to_owned(),
        nth: 1,
        status: "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        lasts: true,
    }));
    assert_eq!(rows(&session, QUERY).unwrap(), ROWS);
    assert!(faults::end().failed > 0);
    let short = Instant::now();
    let shown = plan(&session);
    assert!(
        shown.contains("rows, on the host: device failed: ")
            && shown.contains("CL_MEM_OBJECT_ALLOCATION_FAILURE"),
        "{shown}"
    );
    std::thread::sleep(MEMORY_PAUSE.saturating_sub(short.elapsed()));
    assert!(plan(&session).contains(&on_device()));
    assert_eq!(rows(&session, QUERY).unwrap(), ROWS);
}

#[test]
fn a_device_that_failed_is_used_again_once_it_has_passed_its_self_test() {
    let _guard = one_at_a_time();
    // Where options are locked nobody can name the device again.
    let session = session_of(options().locked());
    assert!(plan(&session).contains(&on_device()));
    a_lost_device();
    assert_eq!(rows(&session, QUERY).unwrap(), ROWS);
    let failed = Instant::now();
    assert!(rows(&session, "SET horton.device = '0:0'").is_err());
    // The first test fails, as the device still does.
    std::thread::sleep(MEMORY_PAUSE.saturating_sub(failed.elapsed()));
    assert!(plan(&session).contains("rows, on the host: device failed: "));
    std::thread::sleep(Duration::from_secs(1));
    let during = faults::end();
    assert!(during.failed > 1, "{during:?}");
    assert!(plan(&session).contains("rows, on the host: device failed: "));
    // So the next one comes after twice the time.
    std::thread::sleep(2 * MEMORY_PAUSE);
    let until = Instant::now() + Duration::from_secs(60);
    while !plan(&session).contains(&on_device()) {
        assert!(Instant::now() < until, "not used again");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(rows(&session, QUERY).unwrap(), ROWS);
}
