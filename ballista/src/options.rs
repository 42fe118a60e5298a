//! Options of an executor and of a task, made one.
//!
//! ```text
//!  executor:  --horton enabled=always --horton device=nvidia
//!  task:      enabled=auto device=auto min_build_rows=5 …      every option, set or not
//!                 │ those that are not the default
//!                 ▼
//!  joins:     enabled=always device=nvidia min_build_rows=5
//! ```
//!
//! A task carries every option of its client, also those that nobody set. Were they all obeyed, an
//! executor's own would never count. So an option counts as set if it differs from the default.
//! What names a machine's device or its memory is for that machine to say, and no client's.

use clap::Args;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use horton_join::config::HortonConfig;

/// Options that belong to a machine.
const OF_MACHINE: [&str; 3] = ["device", "device_memory_limit", "device_timeout"];

/// The flag `--horton NAME=VALUE` of an executor.
#[derive(Debug, Clone, Default, Args)]
pub struct OptionArgs {
    /// An option under `horton.` for the joins of this executor, such as enabled=always or
    /// device=nvidia. Repeatable. Clients override all but device, device_memory_limit and
    /// device_timeout
    #[arg(long = "horton", value_name = "NAME=VALUE", value_parser = parse)]
    horton: Vec<(String, String)>,
}

impl OptionArgs {
    /// Returns the options, with the defaults for those that were not given.
    ///
    /// # Errors
    /// If there is no option of such a name, or it does not take the value.
    pub fn config(&self) -> horton_join::error::Result<HortonConfig> {
        let mut config = HortonConfig::default();
        config.set_pairs(self.horton.iter().map(|(name, value)| (name, value)))?;
        Ok(config)
    }
}

/// Splits `text` into name and value, and checks both.
fn parse(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=');
    let (name, value) = pair.ok_or("expected NAME=VALUE, such as enabled=always")?;
    let mut config = HortonConfig::default();
    config
        .set_pairs([(name, value)])
        .map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// An option that a client set and that this executor does not take from clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfMachine {
    /// Its name, without `horton.`.
    pub name: String,
    /// Value that the client wants.
    pub value: String,
}

/// Returns the options for the joins of a task: those of the executor, and in place of them what
/// the client set. Also those of the client that are not obeyed, as they belong to the machine.
///
/// Set is what differs from the default. A client cannot undo an executor's option by setting the
/// default: `SET horton.enabled = 'auto'` leaves an executor's `enabled=always` as it is.
///
/// ```
/// use horton_ballista::for_task;
/// use horton_join::config::{Enabled, HortonConfig};
///
/// # fn main() -> datafusion::error::Result<()> {
/// let executor = HortonConfig { device: "nvidia".to_owned(), ..HortonConfig::default() };
/// let task = HortonConfig {
///     enabled: Enabled::Always,
///     device: "amd".to_owned(),
///     ..HortonConfig::default()
/// };
/// let (joins, ignored) = for_task(&executor, &task)?;
/// assert_eq!(joins.enabled, Enabled::Always);
/// assert_eq!(joins.device, "nvidia");
/// assert_eq!(ignored[0].value, "amd");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If an option does not take the value that it shows, which would be a bug.
pub fn for_task(
    executor: &HortonConfig,
    task: &HortonConfig,
) -> Result<(HortonConfig, Vec<OfMachine>)> {
    let defaults = HortonConfig::default().to_pairs();
    let pairs = task.to_pairs().into_iter().zip(defaults);
    let set = pairs.filter_map(|(pair, default)| (pair != default).then_some(pair));
    let (ignored, set): (Vec<_>, Vec<_>) =
        set.partition(|(name, _)| OF_MACHINE.contains(&name.as_str()));
    let mut joins = executor.clone();
    joins
        .set_pairs(set)
        .map_err(|error| DataFusionError::Configuration(error.to_string()))?;
    let ignored = ignored.into_iter();
    let ignored = ignored.map(|(name, value)| OfMachine { name, value });
    Ok((joins, ignored.collect()))
}

#[cfg(test)]
mod tests {
    use horton_join::config::{Enabled, Filters};

    use super::*;

    #[test]
    fn what_nobody_set_stays_the_executors() {
        let executor = HortonConfig {
            enabled: Enabled::Always,
            device: "nvidia".to_owned(),
            device_memory_limit: 1 << 30,
            chunk_rows: 7,
            ..HortonConfig::default()
        };
        let (joins, ignored) = for_task(&executor, &HortonConfig::default()).unwrap();
        assert_eq!(joins, executor);
        assert_eq!(ignored, []);
    }

    #[test]
    fn a_client_overrides_all_but_the_machine() {
        let executor = HortonConfig {
            enabled: Enabled::Always,
            device: "nvidia".to_owned(),
            ..HortonConfig::default()
        };
        let task = HortonConfig {
            enabled: Enabled::Never,
            device: "amd".to_owned(),
            device_memory_limit: 5,
            device_timeout: 7,
            min_build_rows: 6,
            filters: Filters::Off,
            spill: false,
            ..HortonConfig::default()
        };
        let (joins, ignored) = for_task(&executor, &task).unwrap();
        let expected = HortonConfig {
            device: "nvidia".to_owned(),
            device_memory_limit: 0,
            device_timeout: executor.device_timeout,
            ..task
        };
        assert_eq!(joins, expected);
        let names: Vec<_> = ignored.iter().map(|option| option.name.as_str()).collect();
        assert_eq!(names, OF_MACHINE);
    }

    #[test]
    fn the_options_of_a_machine_exist() {
        let names = HortonConfig::default().to_pairs();
        for name in OF_MACHINE {
            assert!(names.iter().any(|(known, _)| known == name), "{name}");
        }
    }

    #[test]
    fn flags_are_checked_when_they_are_read() {
        let expected = ("horton.enabled".to_owned(), "always".to_owned());
        assert_eq!(parse("horton.enabled=always"), Ok(expected));
        assert!(parse("enabled").unwrap_err().contains("NAME=VALUE"));
        assert!(parse("enabled=maybe").unwrap_err().contains("'always'"));
        assert!(parse("colour=red").unwrap_err().contains("chunk_rows"));
    }
}
