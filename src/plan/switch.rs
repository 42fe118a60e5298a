//! Which of a session's rules are on.

use datafusion::common::config::ConfigOptions;

use crate::config::{Enabled, Filters, HortonConfig};

/// Returns whether filters of joins are to reach scans.
pub fn filters_reach_scans(config: &ConfigOptions) -> bool {
    let horton = config.extensions.get::<HortonConfig>();
    let is_on =
        |horton: &HortonConfig| horton.enabled != Enabled::Never && horton.filters == Filters::Auto;
    config.optimizer.enable_join_dynamic_filter_pushdown && horton.is_some_and(is_on)
}
