//! Ctrl-C, heard on a thread of its own.
//!
//! ```text
//!  SIGINT ─▶ thread "horton-sql Ctrl-C", whose runtime does nothing else ─▶ one more ─▶ Interrupts
//! ```
//!
//! Tokio hears signals by its runtime's input and output, which an idle worker polls. Some of
//! DataFusion's operators, its own hash join among them, keep all workers busy for many seconds. So
//! a runtime that also runs queries may hear of Ctrl-C only when the query has ended.

use std::sync::mpsc;

use tokio::sync::watch;

use crate::failure::Failure;

/// The times that Ctrl-C was pressed. Clones share them.
#[derive(Clone)]
pub struct Interrupts(watch::Receiver<u64>);

impl Interrupts {
    /// Makes Ctrl-C wake who waits for [`next`](Self::next), and no longer end the process.
    ///
    /// # Errors
    /// If the system does not take the handler, or gives no thread.
    pub fn listen() -> Result<Self, Failure> {
        let (pressed, presses) = watch::channel(0);
        let (ready, is_ready) = mpsc::channel();
        std::thread::Builder::new()
            .name("horton-sql Ctrl-C".to_owned())
            .spawn(move || hear(&pressed, &ready))
            .map_err(Failure::error)?;
        let listens = is_ready.recv().map_err(Failure::error)?;
        listens.map_err(Failure::error)?;
        Ok(Self(presses))
    }

    /// Waits for the next Ctrl-C from now on.
    pub async fn next(&self) {
        let mut presses = self.0.clone();
        presses.mark_unchanged();
        if presses.changed().await.is_err() {
            // The thread is gone, and so is Ctrl-C.
            std::future::pending::<()>().await;
        }
    }
}

/// Counts each Ctrl-C in `pressed` for as long as somebody waits. Says in `ready` whether it can.
fn hear(pressed: &watch::Sender<u64>, ready: &mpsc::Sender<std::io::Result<()>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return drop(ready.send(Err(error))),
    };
    runtime.block_on(async {
        let mut presses = match Presses::new() {
            Ok(presses) => presses,
            Err(error) => return drop(ready.send(Err(error))),
        };
        drop(ready.send(Ok(())));
        while presses.next().await {
            pressed.send_modify(|times| *times += 1);
        }
    });
}

/// The system's signals.
#[cfg(unix)]
struct Presses(tokio::signal::unix::Signal);

#[cfg(unix)]
impl Presses {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::interrupt()).map(Self)
    }

    async fn next(&mut self) -> bool {
        self.0.recv().await.is_some()
    }
}

/// The system's signals.
#[cfg(windows)]
struct Presses(tokio::signal::windows::CtrlC);

#[cfg(windows)]
impl Presses {
    fn new() -> std::io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    async fn next(&mut self) -> bool {
        self.0.recv().await.is_some()
    }
}
