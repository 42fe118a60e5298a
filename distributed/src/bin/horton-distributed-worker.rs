//! A worker of datafusion-distributed whose hash joins run on an OpenCL device.
//!
//! ```text
//!  flags ─▶ device opened, its kernels compiled ─▶ port bound ─▶ serves until SIGINT or SIGTERM
//!             │ named, and not there: error          │ taken: error
//!             └ no OpenCL: warning, joins on the host
//! ```
//!
//! The device comes before the port: a worker that answers can join at full speed. Opening it at
//! the first query instead would make that query wait for a compiler.
//!
//! Signals come before the device. Drivers with LLVM inside handle them, too: they end the process,
//! but for handlers that were there before, which they call.
//!
//! Exit status: 0 after a signal; 1 for errors; 2 for flags that cannot be read. The address goes
//! to standard output, the log to standard error (`RUST_LOG=debug` says more).

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use datafusion_distributed::Worker;
use horton_distributed::worker_session;
use horton_join::config::{Enabled, HortonConfig};
use horton_join::device::Device;
use horton_join::error::{DeviceError, Error as HortonError};
use horton_join::warm_up_for;
use tokio::sync::oneshot;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// The time that queries in progress have after a signal.
const GRACE: Duration = Duration::from_secs(10);

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// A worker of datafusion-distributed whose hash joins run on an OpenCL device.
#[derive(Parser)]
#[command(version, args_override_self = true)]
struct Args {
    /// Address to listen on; 0.0.0.0 for all networks of this machine
    #[arg(long, default_value = "127.0.0.1")]
    bind_host: IpAddr,

    /// Port to listen on; 0 for one that is free
    #[arg(long, default_value_t = 8081)]
    port: u16,

    /// Option of this worker, such as device=0:1 or enabled=always; queries may set others
    #[arg(long = "horton", value_name = "NAME=VALUE", value_parser = pair)]
    horton: Vec<(String, String)>,
}

/// Splits `NAME=VALUE`, and checks that there is such an option.
fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let set = HortonConfig::default().set_pairs([(name, value)]);
    set.map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value.to_owned()))
}

#[tokio::main]
async fn main() -> ExitCode {
    let log = env_logger::Env::default().default_filter_or("info");
    env_logger::Builder::from_env(log).init();
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    let mut own = HortonConfig::default();
    own.set_pairs(args.horton)?;
    let stop = stop_signal()?;
    tokio::pin!(stop);
    tokio::select! {
        ready = make_ready(&own) => ready?,
        () = &mut stop => return Ok(()),
    }
    serve(SocketAddr::new(args.bind_host, args.port), own, stop).await
}

/// Opens the devices and compiles their kernels.
///
/// # Errors
/// If the flags name a device that is not there or cannot be used.
async fn make_ready(own: &HortonConfig) -> Result<()> {
    if own.enabled == Enabled::Never {
        log::info!("joins run on the host: horton.enabled = 'never'");
        return Ok(());
    }
    match warm_up_for(own).await {
        Ok(devices) => {
            let infos = devices.all().iter().map(Device::info);
            let names: Vec<String> = infos.map(|info| info.label()).collect();
            log::info!("joins run on {}", names.join(" and "));
        }
        Err(
            error @ HortonError::Device(
                DeviceError::UnknownDevice { .. } | DeviceError::UnsuitableDevice { .. },
            ),
        ) => {
            return Err(error.into());
        }
        Err(error) => log::warn!("joins run on the host: {error}"),
    }
    Ok(())
}

/// Serves queries until `stop` ends.
async fn serve(
    address: SocketAddr,
    own: HortonConfig,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let incoming = TcpIncoming::bind(address)
        .map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let address = incoming.local_addr()?;
    println!("listening on http://{address}");
    let worker = Worker::from_session_builder(worker_session(own))
        .with_version(env!("CARGO_PKG_VERSION"))
        .into_worker_server();
    let (stopped, stopping) = oneshot::channel();
    let stop = async move {
        stop.await;
        log::info!("stopping");
        // The receiver is gone only if serving has ended.
        let _ = stopped.send(());
    };
    let server = Server::builder()
        .add_service(worker)
        .serve_with_incoming_shutdown(incoming.with_nodelay(Some(true)), stop);
    let deadline = async move {
        match stopping.await {
            Ok(()) => tokio::time::sleep(GRACE).await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        served = server => served?,
        () = deadline => log::warn!("queries were in progress after {} s", GRACE.as_secs()),
    }
    Ok(())
}

/// Ends at SIGINT or SIGTERM.
#[cfg(unix)]
fn stop_signal() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Ends at Ctrl-C.
#[cfg(not(unix))]
fn stop_signal() -> Result<impl Future<Output = ()>> {
    Ok(async {
        // Without signals the worker runs until it is ended.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
