//! Ballista's own executor, for comparison.
//!
//! ```text
//!  flags ─▶ log ─▶ health server ─▶ stock executor
//! ```
//!
//! What `ballista-executor` does, after its `bin/main.rs` (Apache License 2.0, The Apache Software
//! Foundation). Cargo builds no programs of dependencies, and one that is installed may be of
//! another version. The cluster's tests and `tpch_cluster` run beside this one.

use std::error::Error;
use std::sync::Arc;

use ballista_core::object_store::{runtime_env_with_s3_support, session_config_with_s3_support};
use ballista_executor::config::Config;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_executor::health::spawn_health_server;
use clap::Parser;
use horton_ballista::logging::Log;

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let flags = Config::parse();
    let address = format!("{}:{}", flags.bind_host, flags.bind_health_port).parse()?;
    let mut process: ExecutorProcessConfig = flags.try_into()?;
    process.override_config_producer = Some(Arc::new(session_config_with_s3_support));
    process.override_runtime_producer = Some(Arc::new(runtime_env_with_s3_support));
    Log {
        levels: &process.special_mod_log_level,
        thread_info: process.print_thread_info,
        dir: process.log_dir.as_deref(),
        prefix: process.log_file_name_prefix(),
        rotation: process.log_rotation_policy,
    }
    .begin()?;
    let (_stop, stopped) = tokio::sync::oneshot::channel();
    drop(spawn_health_server(
        address,
        process.health.clone(),
        stopped,
    ));
    start_executor_process(Arc::new(process)).await?;
    Ok(())
}
