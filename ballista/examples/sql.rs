//! SQL on a cluster, with the options under `horton.`.
//!
//! ```text
//!  --table NAME=PATH ─▶ CREATE EXTERNAL TABLE ─┐
//!  --set NAME=VALUE  ─▶ SET                    ├─▶ session of the scheduler ─▶ rows as a table
//!  SQL                                        ─┘
//! ```
//!
//! A client that knows the options is a session with `HortonConfig`. No other client can set them.

use std::error::Error;

use ballista::prelude::{SessionConfigExt, SessionContextExt};
use clap::Parser;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use horton_join::config::HortonConfig;

/// SQL on a cluster, with the options under horton.
#[derive(Debug, Parser)]
struct Flags {
    /// The scheduler's address, as URL
    #[arg(long, default_value = "df://localhost:50050")]
    scheduler: String,
    /// A Parquet file, or a folder of them, that executors find under the same path. Repeatable
    #[arg(long, value_name = "NAME=PATH")]
    table: Vec<String>,
    /// An option, such as horton.enabled=always. Repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// The query, or EXPLAIN ANALYZE and the query
    sql: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let flags = Flags::parse();
    let config = SessionConfig::new_with_ballista().with_option_extension(HortonConfig::default());
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .build();
    let session = SessionContext::remote_with_state(&flags.scheduler, state).await?;
    for table in &flags.table {
        let (name, path) = table.split_once('=').ok_or("--table: expected NAME=PATH")?;
        let options = ParquetReadOptions::default();
        session.register_parquet(name, path, options).await?;
    }
    for option in &flags.set {
        let (name, value) = option.split_once('=').ok_or("--set: expected NAME=VALUE")?;
        session.sql(&format!("SET {name} = '{value}'")).await?;
    }
    session.sql(&flags.sql).await?.show().await?;
    Ok(())
}
