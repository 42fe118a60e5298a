//! One test at a time, and none that hangs without saying where.

use std::future::Future;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use datafusion::prelude::SessionContext;
use horton_test_support::internals::faults;
use horton_test_support::joins::text;
use tokio::runtime::Runtime;

use horton_test_support::patience::Patience;

/// Seconds after which a case says what it is at.
const LONG: u32 = 15;

/// The fault layer, for one test at a time.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LAYER: Mutex<()> = Mutex::new(());
    LAYER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a future; panics with `what` it is and what it last called, instead of hanging.
pub fn watched<T: Send + 'static>(
    what: &str,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
    let (done, wait) = channel();
    RUNTIME.spawn(async move { done.send(future.await) });
    let mut patience = Patience::default();
    while !patience.is_over() {
        if patience.seconds() == LONG {
            println!("{what} still runs, after {:?}", faults::report().last);
        }
        match wait.recv_timeout(Duration::from_secs(1)) {
            Ok(value) => return value,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("{what} panicked"),
        }
    }
    let report = faults::report();
    panic!("{what} hangs after {:?}; calls: {report:?}", report.last)
}

/// Returns the rows of a query, or its error.
pub fn rows(session: &SessionContext, query: &str) -> Result<Vec<String>, String> {
    let (session, query) = (session.clone(), query.to_owned());
    let what = query.clone();
    watched(&what, async move {
        let frame = session.sql(&query).await.map_err(|e| e.to_string())?;
        let batches = frame.collect().await.map_err(|e| e.to_string())?;
        Ok(text(&batches))
    })
}
