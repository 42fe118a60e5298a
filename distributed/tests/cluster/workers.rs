//! Worker processes.
//!
//! ```text
//!  start ─▶ process, port 0 ─▶ stdout: listening on http://127.0.0.1:PORT ─▶ url
//!  drop  ─▶ SIGKILL, wait; the log is shown if the test fails
//! ```
//!
//! The worker picks its port itself: a port that a test picks may be taken before it is used.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use url::Url;

/// Time that a loaded machine may need until a worker is ready.
const START: Duration = Duration::from_secs(120);

/// The way in which a worker is started.
#[derive(Default)]
pub struct Setup {
    /// Flags beside the port.
    pub flags: Vec<String>,
    /// Variables of its environment.
    pub variables: Vec<(String, String)>,
}

impl Setup {
    /// A worker with these values of `--horton`.
    pub fn options(options: &[&str]) -> Self {
        let flags = options.iter().flat_map(|option| ["--horton", option]);
        Self {
            flags: flags.map(str::to_owned).collect(),
            variables: vec![],
        }
    }

    /// A worker on a machine without OpenCL.
    pub fn without_opencl() -> Self {
        let missing = ("HORTON_OPENCL_LIBRARY", "/nonexistent");
        Self {
            flags: vec![],
            variables: vec![(missing.0.to_owned(), missing.1.to_owned())],
        }
    }
}

/// One process; killed when dropped.
pub struct Worker {
    child: Child,
    folder: TempDir,
}

impl Worker {
    /// Starts one, without waiting for it.
    pub fn start(setup: &Setup) -> Self {
        let folder = TempDir::new().unwrap();
        let file = |name| Stdio::from(File::create(folder.path().join(name)).unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_horton-distributed-worker"))
            .args(["--bind-host", "127.0.0.1", "--port", "0"])
            .args(&setup.flags)
            .env("RUST_LOG", "info,horton_distributed=debug")
            .envs(setup.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("log"))
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns what it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    /// Waits until it listens.
    pub fn url(&mut self) -> Url {
        let mut address = None;
        self.wait_until("a worker is ready", START, |worker| {
            let said = fs::read_to_string(worker.path("stdout")).unwrap();
            let line = said
                .lines()
                .find_map(|line| line.strip_prefix("listening on "));
            // A line may be there in part.
            address = line.filter(|_| said.ends_with('\n')).map(str::to_owned);
            let ended = worker.child.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "the worker ended: {ended:?}\n{}",
                worker.log()
            );
            address.is_some()
        });
        Url::parse(&address.unwrap()).unwrap()
    }

    /// Waits until `holds`.
    pub fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        mut holds: impl FnMut(&mut Self) -> bool,
    ) {
        let start = Instant::now();
        while !holds(self) {
            assert!(
                start.elapsed() < limit,
                "not {what} after {limit:?}\n{}",
                self.log()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it without a chance to clean up.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, as service managers do.
    pub fn terminate(&mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(sent.success());
        self.ended()
    }

    /// Waits until it has ended by itself.
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        self.wait_until("a worker has ended", START, |worker| {
            status = worker.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended, which is what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let log = fs::read_to_string(self.path("log")).unwrap_or_default();
            eprintln!("--- log of worker {}\n{log}", self.child.id());
        }
    }
}

/// Several workers.
pub struct Cluster {
    /// The processes.
    pub workers: Vec<Worker>,
    /// Their addresses.
    pub urls: Vec<Url>,
}

impl Cluster {
    /// Starts a worker for each of `setups`, and waits for all.
    pub fn start(setups: &[Setup]) -> Self {
        let mut workers: Vec<Worker> = setups.iter().map(Worker::start).collect();
        let urls = workers.iter_mut().map(Worker::url).collect();
        Self { workers, urls }
    }

    /// Returns two workers with defaults.
    pub fn pair() -> Self {
        Self::start(&[Setup::default(), Setup::default()])
    }
}
