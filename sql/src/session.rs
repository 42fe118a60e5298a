//! A session as the flags want it.
//!
//! ```text
//!  flags ─┬─ memory, disk ──────▶ runtime ─┐
//!         ├─ options ───────────▶ config ──┼─▶ install ─▶ session + files and object stores
//!         ├─ --set ─────────────▶ SET …    ┘              as tables, table functions
//!         └─ --device ──────────▶ opened and tested
//! ```

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{
    FairSpillPool, GreedyMemoryPool, MemoryPool, TrackConsumersPool,
};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::logical_expr::ExplainFormat;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_cli::catalog::DynamicObjectStoreCatalog;
use datafusion_cli::functions::{
    ListFilesCacheFunc, MetadataCacheFunc, ParquetMetadataFunc, StatisticsCacheFunc,
};
use datafusion_cli::object_storage::{StdinCarriesCommands, is_stdin_location};
use datafusion_cli::pool_type::PoolType;
use horton_join::config::{Enabled, HortonConfig};
use horton_join::error::{DeviceError, Error};
use horton_join::warm_up_for;

use crate::args::Args;
use crate::failure::{Failure, message};
use crate::watch::Watch;

/// A session, and its plans that run.
pub struct Session {
    /// The session.
    pub context: SessionContext,
    /// The plans of the statement that runs.
    pub watch: Watch,
}

/// Returns whether `file` is standard input.
pub fn is_stdin(file: &Path) -> bool {
    file.to_str().is_some_and(is_stdin_location)
}

/// Opens the session. Statements come from standard input if the shell `reads_stdin`.
///
/// # Errors
/// If an option or a device is not there, with those that are.
pub async fn open(args: &Args, reads_stdin: bool) -> Result<Session, Failure> {
    let watch = Watch::default();
    let context = context(args, reads_stdin, watch.clone())
        .await
        .map_err(Failure::statement)?;
    for (name, value) in &args.set {
        set(&context, name, value).await?;
    }
    if let Some(device) = &args.device {
        set(&context, "horton.device", device).await?;
    }
    check_device(&context, args.device.is_some()).await?;
    Ok(Session { context, watch })
}

async fn context(args: &Args, reads_stdin: bool, watch: Watch) -> Result<SessionContext> {
    let state = SessionStateBuilder::new()
        .with_config(config(args, reads_stdin)?)
        .with_runtime_env(runtime(args)?)
        .with_default_features()
        .with_query_planner(Arc::new(watch));
    let state = horton_trace::instrument(horton_join::install(state));
    let context = SessionContext::new_with_state(state.build()).enable_url_table();
    context.refresh_catalogs().await?;
    // Object stores are opened when a statement names their files.
    context.register_catalog_list(Arc::new(DynamicObjectStoreCatalog::new(
        Arc::clone(context.state().catalog_list()),
        context.state_weak_ref(),
    )));
    let cache = || Arc::clone(&context.runtime_env().cache_manager);
    context.register_udtf("parquet_metadata", Arc::new(ParquetMetadataFunc {}));
    context.register_udtf("metadata_cache", Arc::new(MetadataCacheFunc::new(cache())));
    context.register_udtf(
        "statistics_cache",
        Arc::new(StatisticsCacheFunc::new(cache())),
    );
    context.register_udtf(
        "list_files_cache",
        Arc::new(ListFilesCacheFunc::new(cache())),
    );
    Ok(context)
}

/// Returns the configuration, with `datafusion-cli`'s defaults.
fn config(args: &Args, reads_stdin: bool) -> Result<SessionConfig> {
    let mut config = SessionConfig::from_env()?.with_information_schema(true);
    let options = config.options_mut();
    if std::env::var_os("DATAFUSION_EXPLAIN_FORMAT").is_none() {
        options.explain.format = ExplainFormat::Tree;
    }
    if std::env::var_os("DATAFUSION_FORMAT_NULL").is_none() {
        options.format.null = "NULL".to_owned();
    }
    if let Some(rows) = args.batch_size {
        options.set("datafusion.execution.batch_size", &rows.to_string())?;
    }
    if reads_stdin {
        // It is no table, then.
        config = config.with_extension(Arc::new(StdinCarriesCommands));
    }
    Ok(config)
}

fn runtime(args: &Args) -> Result<Arc<RuntimeEnv>> {
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(bytes) = args.memory_limit {
        let named = NonZeroUsize::new(args.top_memory_consumers);
        let pool: Arc<dyn MemoryPool> = match (&args.mem_pool_type, named) {
            (PoolType::Fair, None) => Arc::new(FairSpillPool::new(bytes)),
            (PoolType::Greedy, None) => Arc::new(GreedyMemoryPool::new(bytes)),
            (PoolType::Fair, Some(named)) => {
                Arc::new(TrackConsumersPool::new(FairSpillPool::new(bytes), named))
            }
            (PoolType::Greedy, Some(named)) => {
                Arc::new(TrackConsumersPool::new(GreedyMemoryPool::new(bytes), named))
            }
        };
        runtime = runtime.with_memory_pool(pool);
    }
    if let Some(bytes) = args.disk_limit {
        let disk = DiskManagerBuilder::default()
            .with_mode(DiskManagerMode::OsTmpDirectory)
            .with_max_temp_directory_size(bytes as u64);
        runtime = runtime.with_disk_manager_builder(disk);
    }
    runtime.build_arc()
}

/// Sets an option as the statement `SET` does, which knows those of the runtime, too.
async fn set(context: &SessionContext, name: &str, value: &str) -> Result<(), Failure> {
    let quoted = value.replace('\'', "''");
    let set = context.sql(&format!("SET {name} = '{quoted}'")).await;
    set.map(drop).map_err(|error| {
        Failure::Error(format!(
            "--set {name}={value}: {}; horton-sql -c 'SHOW ALL' lists the options",
            message(&error)
        ))
    })
}

/// Opens and tests the device of `context`, if there is something to find out: it is `named` by a
/// flag, or its name may be wrong.
async fn check_device(context: &SessionContext, named: bool) -> Result<(), Failure> {
    let state = context.state();
    let options = state.config_options().extensions.get::<HortonConfig>();
    let Some(config) = options else {
        return Ok(());
    };
    if config.enabled == Enabled::Never || (!named && config.device == HortonConfig::AUTO) {
        return Ok(());
    }
    match warm_up_for(config).await {
        Ok(_) => Ok(()),
        Err(
            error @ Error::Device(
                DeviceError::UnknownDevice { .. } | DeviceError::UnsuitableDevice { .. },
            ),
        ) => Err(Failure::error(error)),
        Err(error) => {
            log::warn!("joins run on the host: {error}");
            Ok(())
        }
    }
}
