//! Clusters on 127.0.0.1.
//!
//! ```text
//!  Cluster ─┬─ scheduler   ours or stock      ◀─ session() ─ the test
//!           ├─ executor 0  flags, environment
//!           └─ executor 1  …
//! ```

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ballista::prelude::{SessionConfigExt, SessionContextExt};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use horton_join::config::HortonConfig;
use horton_test_support::env::asked;
use tempfile::TempDir;

use crate::process::{PATIENCE, Process};

/// Partitions of a shuffle: more than vcores, so that executors have several tasks.
pub const PARTITIONS: usize = 4;

/// The kind of scheduler.
#[derive(Clone, Copy)]
pub enum Scheduler {
    Ours,
    Stock,
}

/// An executor to be started.
#[derive(Clone, Default)]
pub struct Executor {
    /// True if it is Ballista's own.
    pub is_stock: bool,
    /// Tasks at once; two if this does not say.
    pub vcores: Option<usize>,
    pub flags: Vec<String>,
    pub environment: Vec<(&'static str, &'static str)>,
}

impl Executor {
    /// Returns one of ours that joins any number of rows on the device under test.
    pub fn always() -> Self {
        let flags = ["--horton", "enabled=always", "--horton"].map(str::to_owned);
        let mut flags = Vec::from(flags);
        flags.push(format!("device={}", asked()));
        Self {
            flags,
            ..Self::default()
        }
    }

    /// Returns the same in a process that finds no OpenCL.
    pub fn without_opencl() -> Self {
        Self {
            flags: ["--horton", "enabled=always"].map(str::to_owned).into(),
            environment: vec![("HORTON_OPENCL_LIBRARY", "/nonexistent")],
            ..Self::default()
        }
    }
}

/// A scheduler and its executors, which end with this.
pub struct Cluster {
    pub executors: Vec<Process>,
    pub scheduler: Process,
    pub port: u16,
    /// Logs and shuffle files. Dropped last.
    dir: TempDir,
}

impl Cluster {
    /// Starts a cluster, and returns once all executors have registered.
    pub fn start(scheduler: Scheduler, executors: &[Executor]) -> Self {
        // A port that was free a moment ago may be taken, by a test of another program.
        let tried = (0..3).find_map(|_| Self::try_start(scheduler, executors));
        tried.expect("a program of the cluster ended at once, three times: see its log above")
    }

    fn try_start(scheduler: Scheduler, executors: &[Executor]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut cluster = Self {
            scheduler: start_scheduler(scheduler, port, executors.len(), dir.path()),
            executors: vec![],
            port,
            dir,
        };
        for executor in executors {
            cluster.add(executor);
        }
        let start = Instant::now();
        while !is_ready(port) {
            let scheduler = std::iter::once(&mut cluster.scheduler);
            let mut all = scheduler.chain(&mut cluster.executors);
            if let Some(ended) = all.find_map(|process| process.ended().map(|_| process)) {
                eprintln!("{}", ended.log());
                return None;
            }
            assert!(start.elapsed() < PATIENCE, "executors do not register");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(cluster)
    }

    /// Starts one more executor, and does not wait for it.
    pub fn add(&mut self, executor: &Executor) {
        let name = format!("executor-{}", self.executors.len());
        let work = self.dir.path().join(format!("{name}-work"));
        std::fs::create_dir(&work).unwrap();
        let [flight, grpc, health] = [(); 3].map(|()| free_port().to_string());
        let program = match executor.is_stock {
            true => example("stock_executor"),
            false => PathBuf::from(env!("CARGO_BIN_EXE_horton-ballista-executor")),
        };
        let mut command = Command::new(program);
        command
            .args(["--scheduler-host", "127.0.0.1", "--scheduler-port"])
            .arg(self.port.to_string())
            .args(["--bind-host", "127.0.0.1", "--external-host", "127.0.0.1"])
            .args(["--bind-port", &flight, "--bind-grpc-port", &grpc])
            .args(["--bind-health-port", &health])
            .args(["--scheduler-connect-timeout-seconds", "60"])
            .args(["--executor-heartbeat-interval-seconds", "1"])
            .arg("--vcores")
            .arg(executor.vcores.unwrap_or(2).to_string())
            .arg("--work-dir")
            .arg(&work)
            .args(executor.flags.iter().filter(|_| !executor.is_stock))
            .envs(executor.environment.iter().copied());
        let process = Process::start(&name, &mut command, self.dir.path());
        self.executors.push(process);
    }

    /// Returns a client's session, after each `SET name = 'value'` of `settings`.
    pub async fn session(&self, settings: &[(&str, &str)]) -> SessionContext {
        let config = config().with_option_extension(HortonConfig::default());
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_default_features();
        self.connect(state.build(), settings).await
    }

    /// Returns the session of a client with `state`, after each `SET name = 'value'` of `settings`.
    pub async fn connect(&self, state: SessionState, settings: &[(&str, &str)]) -> SessionContext {
        let url = format!("df://127.0.0.1:{}", self.port);
        let session = SessionContext::remote_with_state(&url, state)
            .await
            .unwrap();
        for (name, value) in settings {
            let set = format!("SET {name} = '{value}'");
            session.sql(&set).await.unwrap();
        }
        session
    }
}

/// Returns the options of clients.
pub fn config() -> SessionConfig {
    SessionConfig::new_with_ballista().with_target_partitions(PARTITIONS)
}

fn start_scheduler(which: Scheduler, port: u16, executors: usize, dir: &Path) -> Process {
    let program = match which {
        Scheduler::Ours => PathBuf::from(env!("CARGO_BIN_EXE_horton-ballista-scheduler")),
        Scheduler::Stock => example("stock_scheduler"),
    };
    let mut command = Command::new(program);
    command
        .args(["--bind-host", "127.0.0.1", "--external-host", "127.0.0.1"])
        .args(["--bind-port", &port.to_string()])
        .args(["--min-ready-executors", &executors.to_string()])
        .args(["--task-distribution", "round-robin"])
        .args(["--executor-timeout-seconds", "5"])
        .args(["--executor-termination-grace-period", "1"])
        .args(["--expire-dead-executor-interval-seconds", "1"]);
    Process::start("scheduler", &mut command, dir)
}

/// Returns the program of an example, which cargo builds beside the tests unless one is named.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).unwrap();
    let program = target.join("examples").join(name);
    let hint = "build it: cargo build -p horton-ballista --examples";
    assert!(program.exists(), "{} is missing; {hint}", program.display());
    program
}

/// Returns whether all executors have registered: the scheduler's `/readyz`.
fn is_ready(port: u16) -> bool {
    let request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// Returns a port that nobody uses, and that this process was not given before.
fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        if GIVEN.lock().unwrap().insert(port) {
            return port;
        }
    }
}
