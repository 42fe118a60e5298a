//! Spans and events of `tracing` become slices.
//!
//! ```text
//!  entered ═══ left      a slice of the thread: work, or one poll of a task or of an operator
//!  new ─────── closed    a slice of a row of its own, if the span has the field `row`: a wait
//!  event with begin_ns   a slice of the device lane of the thread, a queue thread
//! ```
//!
//! A span is named by its field `otel.name`, if it has one, as operators and queries do. Only spans
//! of this workspace's crates are looked at: those of an HTTP client cost nothing.
//!
//! Times of entering are kept by thread and not by span: threads poll the partitions of an operator
//! side by side, in one span.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::file::{Line, Row, Slice};

/// The row of queries. They come one after the other, so that one row has all of them.
pub const QUERIES: &str = "queries";

/// Begin of the targets of spans that are looked at.
const TARGETS: &str = "horton";

thread_local! {
    /// Spans that this thread is in, and when it entered them.
    static ENTERED: RefCell<Vec<(Id, u64)>> = const { RefCell::new(Vec::new()) };
    /// The number of this thread, once it has one.
    static THREAD: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Does `work` on the spans that this thread is in; nothing on a thread that has ended.
fn with_entered<R>(work: impl FnOnce(&mut Vec<(Id, u64)>) -> R) -> Option<R> {
    ENTERED.try_with(|all| work(&mut all.borrow_mut())).ok()
}

/// The layer that makes slices.
pub struct Slices {
    began: Instant,
    line: Line,
}

/// What is known of a span.
struct Known {
    name: Arc<str>,
    /// The kind of the row that it has of its own.
    row: Option<String>,
    made: u64,
}

impl Slices {
    /// Returns the layer, whose slices go to `line`.
    pub fn new(line: Line) -> Self {
        let began = Instant::now();
        Self { began, line }
    }

    /// Returns the nanoseconds since the trace began.
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Returns the number of this thread.
    fn thread(&self) -> u64 {
        THREAD.get().unwrap_or_else(|| {
            let number = self.line.add_thread();
            THREAD.set(Some(number));
            number
        })
    }

    /// Sends a command of a device. The thread is in the span of its job since `job`.
    fn send_command(&self, job: u64, command: Fields) {
        self.line.send(Slice {
            row: Row::Lane(self.thread()),
            kind: command.kind.unwrap_or_default().into(),
            name: command.name.unwrap_or_default().into(),
            begin: job + command.begin_ns.unwrap_or_default(),
            end: job + command.end_ns.unwrap_or_default(),
        });
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Slices {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with(TARGETS)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let name = fields.name.as_deref();
        let known = Known {
            name: name.unwrap_or(attributes.metadata().name()).into(),
            row: fields.row,
            made: self.now(),
        };
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(known);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        if let (Some(name), Some(span)) = (fields.name, context.span(id))
            && let Some(known) = span.extensions_mut().get_mut::<Known>()
        {
            known.name = name.into();
        }
    }

    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        with_entered(|entered| entered.push((id.clone(), self.now())));
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let end = self.now();
        let entered = with_entered(|all| all.pop_if(|(last, _)| last == id));
        let (Some(Some((_, begin))), Some(span)) = (entered, context.span(id)) else {
            return;
        };
        if let Some(known) = span.extensions().get::<Known>()
            && known.row.is_none()
        {
            self.line.send(Slice {
                row: Row::Thread(self.thread()),
                kind: span.metadata().target().into(),
                name: Arc::clone(&known.name),
                begin,
                end,
            });
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let end = self.now();
        if let Some(span) = context.span(&id)
            && let Some(known) = span.extensions().get::<Known>()
            && let Some(row) = &known.row
        {
            let is_shared = row == QUERIES;
            self.line.send(Slice {
                row: Row::Own(if is_shared { 0 } else { id.into_u64() }),
                kind: Cow::Owned(row.clone()),
                name: Arc::clone(&known.name),
                begin: known.made,
                end,
            });
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let job = with_entered(|entered| entered.last().map(|(_, begin)| *begin));
        if let (Some(Some(job)), Some(_)) = (job, fields.begin_ns) {
            self.send_command(job, fields);
        }
    }
}

/// The fields that are used of spans and events.
#[derive(Default)]
struct Fields {
    name: Option<String>,
    row: Option<String>,
    kind: Option<String>,
    begin_ns: Option<u64>,
    end_ns: Option<u64>,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "begin_ns" => self.begin_ns = Some(value),
            "end_ns" => self.end_ns = Some(value),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = match field.name() {
            "otel.name" | "command" => &mut self.name,
            "row" => &mut self.row,
            "kind" => &mut self.kind,
            _ => return,
        };
        *text = Some(format!("{value:?}"));
    }
}
