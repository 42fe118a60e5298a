//! The engines that are compared: one long-lived session each, with the same options.
//!
//! ```text
//!   stock   DataFusion as published
//!   again   the same once more: what differs is noise
//!   ours    horton_join::context, horton.enabled as --enabled says
//!   host    ours, with a least number of build rows that no join has
//!   bloom   DataFusion with datafusion-bloom's planner
//! ```
//!
//! All have the same partitions, batch size and strings, which are DataFusion's defaults. Bloom's
//! planner accepts all bounded sources: tables in memory by itself, Parquet because we say so. Its
//! other settings are its defaults.
//!
//! Bloom's README measures both of its sides with `pushdown_filters` and `reorder_filters`, as its
//! filters then run inside the reader. DataFusion has them off. So `--pushdown all`, the default,
//! turns them on for every engine: no other setting gives Bloom what its authors measured and all
//! engines the same. `--pushdown bloom` and `none` show what that does. Its benchmark also reads
//! strings as `Utf8`; here all engines read views, which is what DataFusion's users have.

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_bloom::{BloomConfig, install_bloom};
use horton_join::config::{Enabled, HortonConfig};
use horton_test_support::Result;
use horton_test_support::folder;

/// An engine that answers SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Engine {
    /// DataFusion as published
    Stock,
    /// DataFusion as published, once more: how far it is from the first is noise
    Again,
    /// Horton joins
    Ours,
    /// datafusion-bloom
    Bloom,
    /// Horton joins, all on the host
    Host,
    /// DuckDB, which has no session: `--duckdb` runs it beside.
    #[value(skip)]
    DuckDb,
}

impl Engine {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Again => "again",
            Self::Ours => "ours",
            Self::Bloom => "bloom",
            Self::Host => "host",
            Self::DuckDb => "duckdb",
        }
    }
}

/// An engine and its session.
pub type Session = (Engine, SessionContext);

/// The engines whose Parquet readers apply filters to rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pushdown {
    /// All engines, as Bloom's README measures
    All,
    /// Bloom alone
    Bloom,
    /// None, as DataFusion's default is
    None,
}

/// The options that both subcommands have.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Engines to run, by turns in this order
    #[arg(long, value_delimiter = ',', default_value = "stock,ours,bloom")]
    pub engines: Vec<Engine>,

    /// Which of our joins run on the device
    #[arg(long, default_value = "auto", value_parser = ["auto", "always", "never"])]
    pub enabled: String,

    /// The OpenCL device: auto, PLATFORM:INDEX, or part of a device's name
    #[arg(long, default_value = HortonConfig::AUTO)]
    pub device: String,

    /// Engines whose Parquet readers apply filters to rows
    #[arg(long, default_value = "all")]
    pub pushdown: Pushdown,

    /// Partitions of all plans [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub partitions: Option<u16>,

    /// Memory that a query of any engine may reserve, as 8G [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub memory_limit: Option<String>,

    /// Seconds after which a query is stopped
    #[arg(long, value_name = "S", default_value = "60", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,

    /// Seed of all that is drawn at random
    #[arg(long, default_value = "7")]
    pub seed: u64,
}

impl Options {
    /// Returns the sessions of the engines.
    ///
    /// # Errors
    /// A value that an option does not take.
    pub fn sessions(&self) -> Result<Vec<Session>> {
        let engines = self.engines.iter().copied();
        engines
            .map(|engine| Ok((engine, self.session(engine)?)))
            .collect()
    }

    /// Partitions of all plans.
    pub fn partitions(&self) -> usize {
        let cores = || SessionConfig::new().target_partitions();
        self.partitions.map_or_else(cores, usize::from)
    }

    /// The time after which a query is stopped.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.limit)
    }

    fn session(&self, engine: Engine) -> Result<SessionContext> {
        let mut config = SessionConfig::new().with_target_partitions(self.partitions());
        let parquet = &mut config.options_mut().execution.parquet;
        if self.pushdown == Pushdown::All
            || (self.pushdown == Pushdown::Bloom && engine == Engine::Bloom)
        {
            parquet.pushdown_filters = true;
            parquet.reorder_filters = true;
        }
        if matches!(engine, Engine::Ours | Engine::Host) {
            config = config.with_option_extension(self.horton(engine)?);
        }
        let mut builder = SessionStateBuilder::new()
            .with_config(config)
            .with_default_features();
        if let Some(size) = &self.memory_limit {
            let bytes = SessionContext::parse_capacity_limit("--memory-limit", size)?;
            let runtime = RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0);
            builder = builder.with_runtime_env(runtime.build_arc()?);
        }
        let state = match engine {
            Engine::Stock | Engine::Again | Engine::DuckDb => builder.build(),
            Engine::Ours | Engine::Host => horton_join::install(builder).build(),
            Engine::Bloom => install_bloom(
                builder.build(),
                BloomConfig::default().with_all_bounded_sources(),
            )?,
        };
        Ok(SessionContext::new_with_state(state))
    }

    fn horton(&self, engine: Engine) -> Result<HortonConfig> {
        let mut horton = HortonConfig {
            enabled: self.enabled.parse()?,
            device: self.device.clone(),
            ..HortonConfig::default()
        };
        if engine == Engine::Host {
            horton.enabled = Enabled::Auto;
            horton.min_build_rows = usize::MAX;
        }
        Ok(horton)
    }
}

/// Gives every session the tables of a folder: its own of files, the same in memory.
///
/// # Errors
/// Names the folder or the table that cannot be read.
pub async fn open(sessions: &[Session], folder: &Path, in_memory: bool) -> Result<String> {
    let mut opened = None;
    for (_, session) in sessions {
        if opened.is_none() || !in_memory {
            let mut data = folder::open(folder, &[]).await?;
            if in_memory {
                let partitions = session.state().config().target_partitions();
                data = folder::in_memory(data, partitions).await?;
            }
            opened = Some(data);
        }
        if let Some(data) = &opened {
            data.register(session)?;
        }
    }
    Ok(opened.map_or_else(String::new, |data| data.about))
}
