//! One call that makes a session join on OpenCL devices.
//!
//! ```text
//!  SessionStateBuilder ──install──▶ + options horton.…
//!                                   + statistics cached, at the front
//!                                   + order of inner joins before JoinSelection
//!                                   + rule 1 after it
//!                                   + rule 2, then scans' rules around FilterPushdown(Post)
//! ```

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::config::HortonConfig;
use crate::device::guard_this_thread;
use crate::device_health::Health;
use crate::device_startup::{UNUSED, warm_up_for};
use crate::error::{Error, Result};
use crate::plan::filters::{FILTER_PUSHDOWN, InsertFilterNodes, RemoveUnusedFilterNodes};
use crate::plan::join_order::ReorderJoins;
use crate::plan::joins::{ReplaceJoins, ReplaceSwappableJoins};
use crate::plan::statistics::CacheStatistics;

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Installs the options and rules into a session's builder, once however often it is called.
///
/// ```text
///  SessionStateBuilder ─▶ install ─▶ build ─▶ SessionContext ─▶ equi-joins are HortonJoinExec
/// ```
///
/// Works on a builder with default features and on one made from an existing state. Options
/// that the builder's configuration already has are kept. Nothing is opened yet: the first planned
/// join has a device made ready, and joins run on the host where there is none.
///
/// ```
/// use datafusion::execution::SessionStateBuilder;
/// use datafusion::prelude::SessionContext;
///
/// # #[tokio::main]
/// # async fn main() -> datafusion::error::Result<()> {
/// let builder = SessionStateBuilder::new().with_default_features();
/// let session = SessionContext::new_with_state(horton_join::install(builder).build());
/// session.sql("SET horton.min_build_rows = 100000").await?;
/// # Ok(())
/// # }
/// ```
///
/// A session that exists gets a new context with its tables, functions and options. Rules that are
/// there are kept, and rules of one's own come before this call, not after it:
///
/// ```
/// # use datafusion::execution::SessionStateBuilder;
/// # use datafusion::prelude::SessionContext;
/// let existing = SessionContext::new();
/// let builder = SessionStateBuilder::new_from_existing(existing.state());
/// let session = SessionContext::new_with_state(horton_join::install(builder).build());
/// ```
///
/// See also: [`context`] for a session with defaults, [`HortonConfig`] for the options.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    guard_this_thread();
    let config = builder.config().get_or_insert_with(SessionConfig::new);
    let extensions = &mut config.options_mut().extensions;
    if extensions.get::<HortonConfig>().is_none() {
        extensions.insert(HortonConfig::default());
    }
    // Failures of devices in another session are not this one's.
    if let Some(horton) = extensions.get_mut::<HortonConfig>() {
        horton.health = Health::default();
    }
    let mut rules = builder
        .physical_optimizers()
        .take()
        .unwrap_or_default()
        .rules;
    if !rules.iter().any(|rule| rule.name() == ReplaceJoins.name()) {
        add(&mut rules);
    }
    builder.with_physical_optimizer_rules(rules)
}

/// Adds this crate's rules where they belong among `rules`.
fn add(rules: &mut Vec<Rule>) {
    // Without JoinSelection the second rule finds the joins whose sides are open.
    if let Some(at) = rules
        .iter()
        .position(|rule| rule.name() == "join_selection")
    {
        rules.insert(at + 1, Arc::new(ReplaceSwappableJoins));
        rules.insert(at, Arc::new(ReorderJoins));
    }
    let hands_out = rules.iter().position(|rule| rule.name() == FILTER_PUSHDOWN);
    match hands_out {
        Some(at) => {
            rules.insert(at + 1, Arc::new(RemoveUnusedFilterNodes));
            rules.insert(at, Arc::new(InsertFilterNodes));
            rules.insert(at, Arc::new(ReplaceJoins));
            rules.insert(0, Arc::new(CacheStatistics));
        }
        None => rules.push(Arc::new(ReplaceJoins)),
    }
}

/// Returns a session with DataFusion's defaults, `config`, and what [`install`] installs.
///
/// ```
/// use datafusion::prelude::SessionConfig;
///
/// # #[tokio::main]
/// # async fn main() -> datafusion::error::Result<()> {
/// let session = horton_join::context(SessionConfig::new());
/// let frame = session
///     .sql("SELECT count(*) FROM range(0, 9) a JOIN range(4, 20) b ON a.value = b.value")
///     .await?;
/// assert_eq!(frame.collect().await?[0].num_rows(), 1);
/// # Ok(())
/// # }
/// ```
///
/// See also: [`warm_up`](crate::warm_up), for services whose first query should be fast.
pub fn context(config: SessionConfig) -> SessionContext {
    let builder = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features();
    SessionContext::new_with_state(install(builder).build())
}

/// Waits until joins of `context` can use their device, for services that answer their first query
/// as fast as all others. Opening a device and compiling its kernels takes seconds where no cache
/// of compiled kernels is.
///
/// ```
/// use datafusion::prelude::SessionConfig;
///
/// # #[tokio::main]
/// # async fn main() {
/// let session = horton_join::context(SessionConfig::new());
/// if let Err(reason) = horton_join::warm_up(&session).await {
///     println!("joins run on the host: {reason}");
/// }
/// # }
/// ```
///
/// # Errors
/// [`Error::Invalid`] if there is no device that joins can use: they run on the host. Also if the
/// session's rules were set after [`install`](crate::install), which loses those of this crate.
///
/// See also: [`warm_up_for`], for workers without a session.
pub async fn warm_up(context: &SessionContext) -> Result<()> {
    let (config, has_rule) = {
        let state = context.state_ref();
        let state = state.read();
        let options = &state.config_options().extensions;
        let mut rules = state.physical_optimizers().iter();
        let has_rule = rules.any(|rule| rule.name() == ReplaceJoins.name());
        (options.get::<HortonConfig>().cloned(), has_rule)
    };
    match config {
        Some(_) if !has_rule => Err(Error::Invalid(RULES_LOST.to_owned())),
        Some(config) => warm_up_for(&config).await.map(drop),
        None => Err(Error::Invalid(UNUSED.to_owned())),
    }
}

/// Says why no join of a session is taken over, though it has the options.
const RULES_LOST: &str = "the session has the horton options and not the rules: set rules of your \
                          own before horton_join::install, which keeps them";
