//! A Ballista scheduler that passes the options under `horton.` from clients to executors.
//!
//! ```text
//!  client: SET horton.enabled = 'always' ─▶ scheduler ─▶ tasks on horton-ballista-executors
//! ```
//!
//! All flags of `ballista-scheduler`. The stock scheduler does as well, but drops those options
//! without a word. It then is for executors to say how they join.

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use ballista_core::object_store::session_state_with_s3_support;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::{Config, SchedulerConfig};
use ballista_scheduler::scheduler_process::start_server;
use clap::Parser;
use horton_ballista::logging::Log;
use horton_ballista::session_config;

/// Bytes of a thread's stack, as in the stock scheduler: plans may be deep.
const STACK_BYTES: usize = 32 << 20;

/// A Ballista scheduler that passes the options under `horton.` from clients to executors.
#[derive(Debug, Parser)]
#[command(name = "horton-ballista-scheduler", version)]
struct Flags {
    #[command(flatten)]
    stock: Config,
}

fn main() -> ExitCode {
    match run(Flags::parse().stock) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error}");
            eprintln!("horton-ballista-scheduler: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: Config) -> Result<(), Box<dyn Error + Send + Sync>> {
    log_of(&flags).begin()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK_BYTES)
        .build()?;
    runtime.block_on(serve(flags))
}

fn log_of(flags: &Config) -> Log<'_> {
    let (host, port) = (&flags.external_host, flags.bind_port);
    Log {
        levels: &flags.log_level_setting,
        thread_info: flags.print_thread_info,
        dir: flags.log_dir.as_deref(),
        prefix: format!("scheduler_{}_{host}_{port}", flags.namespace),
        rotation: flags.log_rotation_policy,
    }
}

async fn serve(flags: Config) -> Result<(), Box<dyn Error + Send + Sync>> {
    let address = format!("{}:{}", flags.bind_host, flags.bind_port);
    let address: SocketAddr = address
        .parse()
        .map_err(|error| format!("invalid address {address}: {error}"))?;
    let config: SchedulerConfig = flags.try_into()?;
    let config = config
        .with_override_config_producer(Arc::new(session_config))
        .with_override_session_builder(Arc::new(session_state_with_s3_support));
    let cluster = BallistaCluster::new_from_config(&config).await?;
    start_server(cluster, address, Arc::new(config)).await?;
    Ok(())
}
