//! A Ballista executor whose hash joins run on the OpenCL device of this machine.
//!
//! ```text
//!  flags ─▶ log ─▶ device made ready ─▶ health server ─▶ stock executor with HortonEngine
//! ```
//!
//! All flags of `ballista-executor`, and `--horton NAME=VALUE`. It joins the cluster once its
//! device is ready. Health probes fail until then, so nobody sends work to it. It allocates
//! as the stock program does, with mimalloc, so that times can be compared.

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use ballista_core::object_store::runtime_env_with_s3_support;
use ballista_executor::config::Config;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_executor::health::spawn_health_server;
use clap::Parser;
use horton_ballista::logging::Log;
use horton_ballista::{HortonEngine, OptionArgs, Place, make_ready, session_config};
use horton_join::config::HortonConfig;

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A Ballista executor whose hash joins run on the OpenCL device of this machine.
#[derive(Debug, Parser)]
#[command(name = "horton-ballista-executor", version)]
struct Flags {
    #[command(flatten)]
    stock: Config,
    #[command(flatten)]
    options: OptionArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Flags::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error}");
            eprintln!("horton-ballista-executor: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(flags: Flags) -> Result<(), Box<dyn Error + Send + Sync>> {
    let options = flags.options.config()?;
    let health = format!("{}:{}", flags.stock.bind_host, flags.stock.bind_health_port);
    let health: SocketAddr = health
        .parse()
        .map_err(|error| format!("invalid address {health} for health probes: {error}"))?;
    let mut process: ExecutorProcessConfig = flags.stock.try_into()?;
    log_of(&process).begin()?;
    say_where_joins_run(&options).await?;
    let engine = HortonEngine::new(options, process.client_ttl);
    process.override_execution_engine = Some(Arc::new(engine));
    process.override_config_producer = Some(Arc::new(session_config));
    process.override_runtime_producer = Some(Arc::new(runtime_env_with_s3_support));
    serve(process, health).await
}

fn log_of(process: &ExecutorProcessConfig) -> Log<'_> {
    Log {
        levels: &process.special_mod_log_level,
        thread_info: process.print_thread_info,
        dir: process.log_dir.as_deref(),
        prefix: process.log_file_name_prefix(),
        rotation: process.log_rotation_policy,
    }
}

async fn say_where_joins_run(options: &HortonConfig) -> Result<(), horton_join::error::Error> {
    match make_ready(options).await? {
        Place::Device(name) => log::info!("hash joins run on OpenCL device {name}"),
        Place::Host(reason) => log::warn!("hash joins run on the host: {reason}"),
    }
    let pairs = options.to_pairs().into_iter();
    let pairs: Vec<String> = pairs
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    log::info!("options of this executor: {}", pairs.join(" "));
    Ok(())
}

/// Runs the executor until it is told to stop, with its health probes beside it.
async fn serve(
    process: ExecutorProcessConfig,
    address: SocketAddr,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let probes = spawn_health_server(address, process.health.clone(), stopped);
    let result = start_executor_process(Arc::new(process)).await;
    // Fails only if the probes have ended themselves.
    let _ = stop.send(());
    match probes.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => log::warn!("health probes: {error}"),
        Err(error) => log::warn!("health probes: {error}"),
    }
    Ok(result?)
}
