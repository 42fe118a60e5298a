//! Ballista's own scheduler, for comparison.
//!
//! ```text
//!  flags ─▶ log ─▶ stock scheduler, which drops the options under horton.
//! ```
//!
//! What `ballista-scheduler` does, after its `bin/main.rs` (Apache License 2.0, The Apache Software
//! Foundation). Cargo builds no programs of dependencies, and one that is installed may be of
//! another version. The cluster's tests and `tpch_cluster` run beside this one.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use ballista_core::object_store::{session_config_with_s3_support, session_state_with_s3_support};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::{Config, SchedulerConfig};
use ballista_scheduler::scheduler_process::start_server;
use clap::Parser;
use horton_ballista::logging::Log;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(32 << 20)
        .build()?;
    runtime.block_on(serve(Config::parse()))
}

async fn serve(flags: Config) -> Result<(), Box<dyn Error + Send + Sync>> {
    Log {
        levels: &flags.log_level_setting,
        thread_info: flags.print_thread_info,
        dir: flags.log_dir.as_deref(),
        prefix: format!("scheduler_{}_{}", flags.external_host, flags.bind_port),
        rotation: flags.log_rotation_policy,
    }
    .begin()?;
    let address: SocketAddr = format!("{}:{}", flags.bind_host, flags.bind_port).parse()?;
    let config: SchedulerConfig = flags.try_into()?;
    let config = config
        .with_override_config_producer(Arc::new(session_config_with_s3_support))
        .with_override_session_builder(Arc::new(session_state_with_s3_support));
    let cluster = BallistaCluster::new_from_config(&config).await?;
    start_server(cluster, address, Arc::new(config)).await?;
    Ok(())
}
