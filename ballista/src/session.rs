//! The options that a scheduler passes on and an executor understands.
//!
//! ```text
//!  client SET horton.… ─▶ scheduler: session_config ─▶ task ─▶ executor: session_config
//! ```
//!
//! Ballista sends options as strings, and each hop drops those whose namespace it does not know.
//! So both programs know this one. An executor's own options are not its defaults here: what
//! arrives holds every option, and would replace them all.

use ballista_core::object_store::session_config_with_s3_support;
use datafusion::prelude::SessionConfig;
use horton_join::config::HortonConfig;

/// Returns the configuration of Ballista's stock programs, with the options under `horton.`.
///
/// A scheduler with this as its config producer passes `horton.…` to executors. An executor with
/// it understands them.
///
/// ```
/// use horton_join::config::HortonConfig;
///
/// let config = horton_ballista::session_config();
/// assert!(config.options().extensions.get::<HortonConfig>().is_some());
/// ```
pub fn session_config() -> SessionConfig {
    session_config_with_s3_support().with_option_extension(HortonConfig::default())
}
