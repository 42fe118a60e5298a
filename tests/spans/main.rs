//! Spans of `HortonJoinExec`, as users of datafusion-tracing see them.
//!
//! ```text
//!  install ─▶ HortonJoinExec ─▶ tracing's rule ─▶ InstrumentedExec(HortonJoinExec) ─▶ a span
//! ```
//!
//! A binary of its own: datafusion-tracing is a dependency of nothing else here.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::util::pretty::pretty_format_batches;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_tracing::{InstrumentationOptions, instrument_with_info_spans};
use horton_join::config::{Enabled, HortonConfig};
use horton_test_support::env::asked;
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;

/// Collects the text of closed spans.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<u8>>>);

impl Spans {
    /// Returns the lines of spans of operators named `name`.
    fn of(&self, name: &str) -> Vec<String> {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&text);
        let closed = text.lines().filter(|line| line.contains(name));
        closed.map(str::to_owned).collect()
    }
}

impl Write for Spans {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns datafusion-tracing's rule, which records the metrics of operators.
fn instruments() -> Arc<dyn PhysicalOptimizerRule + Send + Sync> {
    let options = InstrumentationOptions::builder()
        .record_metrics(true)
        .build();
    // A span has fields of DataFusion's own metrics; others are named here.
    instrument_with_info_spans!(
        options: options,
        datafusion.metrics.kernel_launches = tracing::field::Empty,
    )
}

fn builder() -> SessionStateBuilder {
    let horton = HortonConfig {
        enabled: Enabled::Always,
        device: asked(),
        ..HortonConfig::default()
    };
    let config = SessionConfig::new().with_option_extension(horton);
    SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
}

const QUERY: &str = "SELECT a.value % 7 AS k, count(*) FROM range(0, 50000) a
    JOIN range(100, 3000) b ON a.value = b.value GROUP BY k ORDER BY k";

/// Runs [`QUERY`]. Returns its rows and its spans.
fn rows_and_spans(session: &SessionContext) -> (String, Spans) {
    let spans = Spans::default();
    let writer = spans.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::INFO)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // All tasks of this runtime run here, on the thread whose spans are recorded.
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let query = async { session.sql(QUERY).await.unwrap().collect().await.unwrap() };
    let rows = tracing::subscriber::with_default(subscriber, || runtime.block_on(query));
    (pretty_format_batches(&rows).unwrap().to_string(), spans)
}

/// Returns a session with the rules of both crates, `traced_first` or last.
fn traced(traced_first: bool) -> SessionContext {
    let state = if traced_first {
        let traced = builder().with_physical_optimizer_rule(instruments());
        horton_join::install(SessionStateBuilder::new_from_existing(traced.build())).build()
    } else {
        let installed = horton_join::install(builder());
        installed
            .with_physical_optimizer_rule(instruments())
            .build()
    };
    SessionContext::new_with_state(state)
}

/// Returns the kernel launches that a span of a join recorded.
fn launches(span: &str) -> Option<u64> {
    let (_, count) = span.split_once("datafusion.metrics.kernel_launches=")?;
    let count = count.trim_start_matches('"');
    count
        .split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

#[test]
fn a_join_on_the_device_has_a_span_with_its_metrics() {
    let (stock, _) = rows_and_spans(&SessionContext::new());
    for traced_first in [false, true] {
        let (rows, spans) = rows_and_spans(&traced(traced_first));
        assert_eq!(rows, stock);
        let joins = spans.of("HortonJoinExec");
        let launched: u64 = joins.iter().filter_map(|span| launches(span)).sum();
        assert!(launched > 0, "traced first: {traced_first}, {joins:#?}");
    }
}
