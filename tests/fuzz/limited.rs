//! The memory and the files of runs, and that they are given back.
//!
//! ```text
//!  runs ─▶ pool    ─ 0 bytes reserved ─┐
//!       ─▶ folder  ─ no file           ├─ a moment after the last stream and plan are dropped
//!       ─▶ runtime ─ no task           ┘
//! ```
//!
//! Tasks that a stream spawned are told to end when it is dropped, and may end a moment later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::error::Result;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::difference::{Checked, differ};

/// Time after which what a run has not given back stays.
const LATE: Duration = Duration::from_secs(20);

/// The memory and files of runs.
pub struct Limited {
    pub runtime: Arc<RuntimeEnv>,
    /// The folder of files, if it is of these runs alone.
    folder: Option<TempDir>,
}

impl Limited {
    /// Returns `pool`, and a folder of its own.
    pub fn new(pool: Arc<dyn MemoryPool>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mode = DiskManagerMode::Directories(vec![folder.path().to_owned()]);
        let disk = DiskManagerBuilder::default().with_mode(mode);
        let builder = RuntimeEnvBuilder::new().with_memory_pool(pool);
        Ok(Self {
            runtime: builder.with_disk_manager_builder(disk).build_arc()?,
            folder: Some(folder),
        })
    }

    /// Returns the memory and files of a `runtime` that others use as well.
    pub fn shared(runtime: Arc<RuntimeEnv>) -> Self {
        let folder = None;
        Self { runtime, folder }
    }

    /// Checks that nothing is reserved, and no file is there.
    pub fn check_left(&self) -> Checked<()> {
        check_released(&self.runtime.memory_pool)?;
        let is_left = || Ok(self.files()? > 0 || self.runtime.disk_manager.used_disk_space() > 0);
        match stays(is_left)? {
            true => differ("files left", self.files()?),
            false => Ok(()),
        }
    }

    /// Files in the folders that the session made.
    fn files(&self) -> Result<usize> {
        let mut files = 0;
        if let Some(folder) = &self.folder {
            for folder in std::fs::read_dir(folder.path())? {
                files += std::fs::read_dir(folder?.path())?.count();
            }
        }
        Ok(files)
    }
}

/// Checks that nothing of `pool` is reserved.
pub fn check_released(pool: &Arc<dyn MemoryPool>) -> Checked<()> {
    match stays(|| Ok(pool.reserved() > 0))? {
        true => differ("memory left", pool.reserved()),
        false => Ok(()),
    }
}

/// Checks that a runtime, which others do not use, has no task.
pub fn check_tasks(handle: &Handle) -> Checked<()> {
    let tasks = || handle.metrics().num_alive_tasks();
    match stays(|| Ok(tasks() > 0))? {
        true => differ("tasks left", tasks()),
        false => Ok(()),
    }
}

/// Returns whether something is still there after a while.
fn stays(is_there: impl Fn() -> Result<bool>) -> Result<bool> {
    let start = Instant::now();
    while is_there()? {
        if start.elapsed() > LATE {
            return Ok(true);
        }
        std::thread::yield_now();
    }
    Ok(false)
}
