//! Slices become a file, on a thread of its own.
//!
//! ```text
//!  threads ─ Line::send ─▶ [slice][slice] … up to 65,536 ─▶ writer thread ─▶ FILE
//!              │ no room: the slice is counted as lost
//!              └─ nobody waits
//! ```
//!
//! The format is Chrome's array of trace events. A file that was cut off can still be opened. Rows
//! are threads of two processes there: the host, and the devices. A slice that is lost takes no
//! other with it, as each has its begin and its end. That is why not an event for each of them.
//!
//! Kept in memory until the end, the slices of a long session would have no bound.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

/// Slices that wait to be written, at most: about 6 MB.
const LINE_SLICES: usize = 1 << 16;

/// The processes that the rows are shown in.
const HOST: u64 = 1;
const DEVICES: u64 = 2;

/// A row of the timeline.
#[derive(Debug, Clone, Copy)]
pub enum Row {
    /// A thread of the host.
    Thread(u64),
    /// The device lane of a queue thread.
    Lane(u64),
    /// A row for a span that is of no thread.
    Own(u64),
}

/// Something that took time: from `begin` to `end`, in nanoseconds since the trace began.
#[derive(Debug)]
pub struct Slice {
    pub row: Row,
    pub kind: Cow<'static, str>,
    pub name: Arc<str>,
    pub begin: u64,
    pub end: u64,
}

/// The line to the writer thread. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Line {
    /// `None` ends the file.
    sender: SyncSender<Option<Slice>>,
    lost: Arc<AtomicU64>,
    /// The names of threads that sent slices, by their numbers.
    threads: Arc<Mutex<Vec<String>>>,
}

impl Line {
    /// Sends `slice`; it is lost if the line is full. Blocks nobody.
    pub fn send(&self, slice: Slice) {
        if self.sender.try_send(Some(slice)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds this thread. Returns its number.
    pub fn add_thread(&self) -> u64 {
        let name = thread::current().name().unwrap_or("a thread").to_owned();
        let mut threads = lock(&self.threads);
        threads.push(name);
        threads.len() as u64
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The writer thread.
#[derive(Debug)]
pub struct Writer {
    line: Line,
    thread: JoinHandle<io::Result<()>>,
}

impl Writer {
    /// Begins to write to `file`.
    ///
    /// # Errors
    /// If the process can have no further thread.
    pub fn begin(file: File) -> io::Result<Self> {
        let (sender, slices) = sync_channel(LINE_SLICES);
        let line = Line {
            sender,
            lost: Arc::default(),
            threads: Arc::default(),
        };
        let threads = Arc::clone(&line.threads);
        let thread = thread::Builder::new().name("trace".to_owned());
        let thread = thread.spawn(move || write(file, &slices, &threads))?;
        Ok(Self { line, thread })
    }

    /// Returns the line of slices.
    pub fn line(&self) -> Line {
        self.line.clone()
    }

    /// Ends the file, and waits for that. Returns how many slices were lost.
    ///
    /// # Errors
    /// The errors of writing the file.
    pub fn finish(self) -> io::Result<u64> {
        let lost = self.line.lost.load(Ordering::Relaxed);
        // If the thread is gone, joining it says why.
        let _ = self.line.sender.send(None);
        let panicked = |_| io::Error::other("its thread panicked");
        self.thread.join().map_err(panicked)??;
        Ok(lost)
    }
}

/// Writes `slices` until they end, then the names of rows.
fn write(
    file: File,
    slices: &Receiver<Option<Slice>>,
    threads: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    out.write_all(b"[\n")?;
    while let Ok(Some(slice)) = slices.recv() {
        for event in events(&slice) {
            writeln!(out, "{event},")?;
        }
    }
    let named = |what: &str, (process, thread): (u64, u64), name: &str| {
        let args = json!({ "name": name });
        json!({"ph": "M", "name": what, "pid": process, "tid": thread, "args": args})
    };
    let threads = lock(threads).clone();
    for process in [HOST, DEVICES] {
        for (thread, name) in (1..).zip(&threads) {
            let name = named("thread_name", (process, thread), name);
            writeln!(out, "{name},")?;
        }
    }
    let host = named("process_name", (HOST, 0), "host");
    let devices = named("process_name", (DEVICES, 0), "devices");
    write!(out, "{host},\n{devices}\n]\n")?;
    out.flush()
}

/// Returns the events of `slice`, with times in microseconds.
fn events(slice: &Slice) -> Vec<Value> {
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let (begin, end) = (micros(slice.begin), micros(slice.end));
    let event = |phase: &str, time: f64, process: u64| {
        let (name, kind) = (&*slice.name, &*slice.kind);
        json!({"ph": phase, "ts": time, "pid": process, "name": name, "cat": kind})
    };
    let of_thread = |process: u64, thread: u64| {
        let mut whole = event("X", begin, process);
        whole["tid"] = thread.into();
        whole["dur"] = micros(slice.end.saturating_sub(slice.begin)).into();
        vec![whole]
    };
    match slice.row {
        Row::Thread(thread) => of_thread(HOST, thread),
        Row::Lane(thread) => of_thread(DEVICES, thread),
        Row::Own(id) => {
            let mut both = vec![event("b", begin, HOST), event("e", end, HOST)];
            both.iter_mut().for_each(|event| event["id"] = id.into());
            both
        }
    }
}
