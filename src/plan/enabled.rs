//! The switch of a session's rules: which of them are on.
//!
//! All are off in sessions of coordinators, which cut plans into tasks for other processes. Their
//! workers have [`on_device`](super::worker::on_device). A join whose build side is chosen when it
//! runs must see all rows of both sides, and a task has a slice of them.

use datafusion::common::config::ConfigOptions;

use crate::config::{Enabled, Filters, HortonConfig};

/// The options that mark a session of a coordinator: of Ballista, of datafusion-distributed.
const COORDINATORS: [&str; 2] = ["ballista", "distributed"];

/// Returns the options of this crate, if joins are to be replaced.
pub fn replaces_joins(config: &ConfigOptions) -> Option<&HortonConfig> {
    let horton = config.extensions.get::<HortonConfig>()?;
    (horton.enabled != Enabled::Never && !is_coordinator(config)).then_some(horton)
}

/// Returns the options of this crate, if inner joins may come in another order than they were
/// written in. DataFusion's option for the order of a join's two sides is the one for this, too.
pub fn reorders_joins(config: &ConfigOptions) -> Option<&HortonConfig> {
    replaces_joins(config).filter(|_| config.optimizer.join_reordering)
}

/// Returns whether joins of this crate have filters: at least to prune files by.
pub fn makes_filters(config: &ConfigOptions) -> bool {
    config.optimizer.enable_join_dynamic_filter_pushdown && replaces_joins(config).is_some()
}

/// Returns whether scans are to test rows by the filters of joins.
pub fn filters_reach_scans(config: &ConfigOptions) -> bool {
    let is_auto = |horton: &HortonConfig| horton.filters == Filters::Auto;
    makes_filters(config) && replaces_joins(config).is_some_and(is_auto)
}

fn is_coordinator(config: &ConfigOptions) -> bool {
    let mut extensions = config.extensions.iter();
    let marks = extensions.any(|(prefix, _)| COORDINATORS.contains(&prefix));
    if marks {
        log::debug!("this session plans for others, so joins stay as DataFusion planned them");
    }
    marks
}
