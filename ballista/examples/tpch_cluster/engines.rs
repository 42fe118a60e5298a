//! The engines that run the queries: clusters, and this process.

use std::path::Path;

use ballista::prelude::{SessionConfigExt, SessionContextExt};
use clap::ValueEnum;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use horton_join::config::HortonConfig;

use crate::queries::Query;
use crate::{Flags, Result};

const TABLES: [&str; 8] = [
    "region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem",
];

/// Whose joins run in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Local {
    /// DataFusion's.
    Stock,
    /// Ours.
    Horton,
}

/// A session that knows the tables.
pub struct Engine {
    /// Its name in the table.
    pub name: String,
    /// True if its queries run on executors.
    pub is_cluster: bool,
    session: SessionContext,
}

impl Engine {
    /// Runs `query`, and returns the number of its rows.
    ///
    /// # Errors
    /// Those of the query.
    pub async fn rows(&self, query: &Query) -> Result<usize> {
        let frame = self.session.sql(&query.sql).await;
        let frame = frame.map_err(|error| self.error(query, &error.to_string()))?;
        let batches = frame.collect().await;
        let batches = batches.map_err(|error| self.error(query, &error.to_string()))?;
        Ok(batches.iter().map(|batch| batch.num_rows()).sum())
    }

    fn error(&self, query: &Query, text: &str) -> String {
        format!("Q{} on {}: {text}", query.number, self.name)
    }

    /// Runs the queries once more, and returns how many kernels their joins launched.
    ///
    /// # Errors
    /// Those of the queries.
    pub async fn launches(&self, queries: &[Query]) -> Result<usize> {
        let mut launches = 0;
        for query in queries {
            let frame = self.session.sql(&query.sql).await?;
            let plan = frame.explain(false, true)?.to_string().await?;
            let counts = plan.split("kernel_launches=").skip(1);
            let digits =
                |text: &str| -> String { text.chars().take_while(char::is_ascii_digit).collect() };
            launches += counts
                .filter_map(|text| digits(text).parse::<usize>().ok())
                .sum::<usize>();
        }
        Ok(launches)
    }
}

/// Opens all engines that the flags name.
///
/// # Errors
/// Names the engine that cannot be opened, or the table that is missing.
pub async fn all(flags: &Flags) -> Result<Vec<Engine>> {
    let mut engines = vec![];
    for which in &flags.local {
        engines.push(local(*which, flags).await?);
    }
    for url in &flags.scheduler {
        engines.push(cluster(url, flags).await?);
    }
    for engine in &engines {
        register(&engine.session, &flags.data).await?;
    }
    Ok(engines)
}

async fn local(which: Local, flags: &Flags) -> Result<Engine> {
    let mut config = SessionConfig::new();
    if let Some(partitions) = flags.partitions {
        config = config.with_target_partitions(partitions);
    }
    let (name, session) = match which {
        Local::Stock => ("local stock", SessionContext::new_with_config(config)),
        Local::Horton => ("local horton", horton_join::context(config)),
    };
    set(&session, flags, |namespace| match namespace {
        "ballista" => false,
        "horton" => which == Local::Horton,
        _ => true,
    })
    .await?;
    if which == Local::Horton
        && let Err(reason) = horton_join::warm_up(&session).await
    {
        eprintln!("joins of 'local horton' run on the host: {reason}");
    }
    Ok(Engine {
        name: name.to_owned(),
        is_cluster: false,
        session,
    })
}

async fn cluster(url: &str, flags: &Flags) -> Result<Engine> {
    let config = SessionConfig::new_with_ballista().with_option_extension(HortonConfig::default());
    let config = match flags.partitions {
        Some(partitions) => config.with_target_partitions(partitions),
        None => config,
    };
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features();
    let session = SessionContext::remote_with_state(url, state.build()).await?;
    set(&session, flags, |_| true).await?;
    Ok(Engine {
        name: url.to_owned(),
        is_cluster: true,
        session,
    })
}

/// Sets the options of `--set` whose namespace `is_known`.
async fn set(
    session: &SessionContext,
    flags: &Flags,
    is_known: impl Fn(&str) -> bool,
) -> Result<()> {
    for option in &flags.set {
        let pair = option.split_once('=');
        let (name, value) = pair.ok_or(format!("--set {option}: expected NAME=VALUE"))?;
        let namespace = name.split('.').next().unwrap_or_default();
        if is_known(namespace) {
            session.sql(&format!("SET {name} = '{value}'")).await?;
        }
    }
    Ok(())
}

async fn register(session: &SessionContext, data: &Path) -> Result<()> {
    // Executors do not share this process's working directory.
    let data = data.canonicalize();
    let data = data.map_err(|error| format!("cannot read the folder of --data: {error}"))?;
    for name in TABLES {
        let file = data.join(format!("{name}.parquet"));
        let path = if file.exists() { file } else { data.join(name) };
        if !path.exists() {
            return Err(
                format!("table '{name}' is missing: there is no {}", path.display()).into(),
            );
        }
        let text = path
            .to_str()
            .ok_or("the path of --data is not valid UTF-8")?;
        let options = ParquetReadOptions::default();
        session.register_parquet(name, text, options).await?;
    }
    Ok(())
}
