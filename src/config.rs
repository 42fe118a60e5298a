//! `SET horton.… = …`: the options of a session.
//!
//! A [`ConfigExtension`], so that options live where DataFusion's own do, travel with the
//! session and show in `information_schema.df_settings`. Values are checked when they are
//! set. `entries` is written by hand because the `extensions_options!` macro lists keys
//! without their prefix, and `SHOW horton.enabled` would not find them. How to add an option:
//! `CONTRIBUTING.md`.

use std::any::Any;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::error::{DataFusionError, Result as DataFusionResult};

use crate::device::{DEVICE_TIMEOUT, DeviceKind};
use crate::device_health::Health;
use crate::error::{Error, Result};
use crate::table::horton::{MAX_VALUE, TableConfig};
use crate::table::multimap::{IndexConfig, IndexKind};
use crate::table::primitives::hash::random_seed;

/// The joins that run on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enabled {
    /// Joins whose build side has at least `horton.min_build_rows` rows.
    Auto,
    /// Every join that a device can run, of any size.
    Always,
    /// None: plans stay as DataFusion made them.
    Never,
}

impl FromStr for Enabled {
    type Err = Error;

    fn from_str(value: &str) -> Result<Self> {
        match value.to_lowercase().as_str() {
            "auto" => Ok(Enabled::Auto),
            "always" => Ok(Enabled::Always),
            "never" => Ok(Enabled::Never),
            _ => Err(Error::Invalid(format!(
                "invalid value '{value}' for horton.enabled: expected 'auto', 'always' or 'never'"
            ))),
        }
    }
}

impl fmt::Display for Enabled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Enabled::Auto => "auto",
            Enabled::Always => "always",
            Enabled::Never => "never",
        })
    }
}

/// The use that scans make of the keys of build sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filters {
    /// Scans leave out rows that match no build row, as far as that pays.
    Auto,
    /// Scans prune files by bounds and short lists, as DataFusion's own scans do.
    Off,
}

impl FromStr for Filters {
    type Err = Error;

    fn from_str(value: &str) -> Result<Self> {
        match value.to_lowercase().as_str() {
            "auto" => Ok(Filters::Auto),
            "off" => Ok(Filters::Off),
            _ => Err(Error::Invalid(format!(
                "invalid value '{value}' for horton.filters: expected 'auto' or 'off'"
            ))),
        }
    }
}

impl fmt::Display for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Filters::Auto => "auto",
            Filters::Off => "off",
        })
    }
}

/// Behaviour of a join whose device fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDeviceError {
    /// The join goes on without the device.
    Fallback,
    /// The join ends with the device's error.
    Error,
}

impl FromStr for OnDeviceError {
    type Err = Error;

    fn from_str(value: &str) -> Result<Self> {
        match value.to_lowercase().as_str() {
            "fallback" => Ok(OnDeviceError::Fallback),
            "error" => Ok(OnDeviceError::Error),
            _ => Err(Error::Invalid(format!(
                "invalid value '{value}' for horton.on_device_error: expected 'fallback' or 'error'"
            ))),
        }
    }
}

impl fmt::Display for OnDeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnDeviceError::Fallback => "fallback",
            OnDeviceError::Error => "error",
        })
    }
}

/// The options under `horton.`, of SQL's `SET horton.… = …`.
///
/// The *build side* of a join is the input that goes into the hash table. The *probe side* is the
/// input whose rows are looked up in it.
///
/// ```
/// use datafusion::prelude::SessionConfig;
/// use horton_join::config::{Enabled, HortonConfig};
///
/// let horton = HortonConfig { enabled: Enabled::Always, ..HortonConfig::default() };
/// let session = horton_join::context(SessionConfig::new().with_option_extension(horton));
/// # drop(session);
/// ```
///
/// See also: [`install`](crate::install), which adds the defaults to a session that has none.
#[derive(Debug, Clone, PartialEq)]
pub struct HortonConfig {
    /// Joins that run on a device: auto, always or never.
    pub enabled: Enabled,
    /// The OpenCL device: 'auto', 'PLATFORM:INDEX' or part of a device's name; 'all' or a list with
    /// commas for several, which share the joins.
    pub device: String,
    /// Probe rows that are looked up at once; 0 for the device's default.
    pub chunk_rows: usize,
    /// Bytes of device memory that joins may use together; 0 for the device's default.
    pub device_memory_limit: u64,
    /// Seconds in which a device's driver must answer, and once more for each gigabyte that it
    /// works on; 0 for no limit. One that does not counts as failed.
    pub device_timeout: u64,
    /// Rows of a build side from which `auto` uses the device; 0 for the device's default.
    pub min_build_rows: usize,
    /// Switch for scans that leave out rows which match no build row: auto or off.
    pub filters: Filters,
    /// Behaviour of a join whose device fails: fallback or error.
    pub on_device_error: OnDeviceError,
    /// True if joins too large for the memory pool go to disk.
    pub spill: bool,
    /// Forbids SQL to change the options: see [`locked`](Self::locked).
    pub is_locked: bool,
    /// Limits and choices that only tests change; no option of a session.
    pub knobs: Knobs,
    /// Devices that failed in this session; not an option either.
    pub health: Health,
}

impl Default for HortonConfig {
    fn default() -> Self {
        Self {
            enabled: Enabled::Auto,
            device: Self::AUTO.to_owned(),
            chunk_rows: 0,
            device_memory_limit: 0,
            device_timeout: DEVICE_TIMEOUT.as_secs(),
            min_build_rows: 0,
            filters: Filters::Auto,
            on_device_error: OnDeviceError::Fallback,
            spill: true,
            is_locked: false,
            knobs: Knobs::default(),
            health: Health::default(),
        }
    }
}

/// Limits and choices that tests set to reach the rare paths of a join with few rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Knobs {
    /// The index that a join builds over its keys.
    pub index: IndexKind,
    /// Bits of a hashed normalized key, 0 to 32. Fewer bits make unequal keys collide.
    pub normalized_key_bits: u32,
    /// Build rows that one table may have.
    pub max_table_rows: usize,
    /// Rows of one side after which the other side is read, too.
    pub sample_rows: usize,
    /// Inner joins of three tables and more begin with their last one, whether that pays or not.
    pub joins_from_last: bool,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            index: IndexKind::Auto,
            normalized_key_bits: u32::BITS,
            max_table_rows: MAX_VALUE as usize,
            sample_rows: 1 << 20,
            joins_from_last: false,
        }
    }
}

/// Rows from which a device pays for its calls, as a rule.
pub(crate) const MANY_ROWS: usize = 1 << 20;

/// Rows of a chunk at most, for any build side: the pairs of a window are then fewer than 2^32.
pub(crate) const MOST_CHUNK_ROWS: usize = 1 << 28;

/// Seconds of the longest `horton.device_timeout`: a day.
const DEVICE_TIMEOUT_MAX: u64 = 24 * 60 * 60;

/// Name and description of every option of a session, in the order of [`HortonConfig`]'s fields.
const OPTIONS: [(&str, &str); 9] = [
    (
        "enabled",
        "Which joins run on an OpenCL device: auto, always or never",
    ),
    (
        "device",
        "The OpenCL device: 'auto', '<platform>:<index>', part of a name; 'all' or a list: they share joins",
    ),
    (
        "chunk_rows",
        "Probe rows that are looked up at once, at most 2^28; 0 for the device's default",
    ),
    (
        "device_memory_limit",
        "Bytes of device memory that joins may use together; 0 for the device's default",
    ),
    (
        "device_timeout",
        "Seconds in which a device's driver must answer, and once more per gigabyte, at most a day; 0 for no limit",
    ),
    (
        "min_build_rows",
        "Rows of a build side from which horton.enabled = 'auto' uses the device; 0 for the device's default",
    ),
    (
        "filters",
        "Whether scans leave out rows that match no build row: auto or off",
    ),
    (
        "on_device_error",
        "When a device fails: 'fallback' finishes the query on another device or the host, 'error' ends it",
    ),
    (
        "spill",
        "Whether joins larger than the memory limit use temporary files",
    ),
];

impl HortonConfig {
    /// The device that fits best.
    pub const AUTO: &str = "auto";

    /// Returns the rows of a build side from which `auto` uses a device of this `kind`. `always`
    /// uses it for any number. Each build is compared by itself: one of a partition, or of a
    /// worker's task, has the rows of that slice, and these must pay for the device's calls. A
    /// GPU's default is small, as [`min_probe_rows`](Self::min_probe_rows) looks at the other side,
    /// too.
    pub fn min_build_rows(&self, kind: DeviceKind) -> usize {
        match (self.enabled, self.min_build_rows, kind) {
            (Enabled::Always, ..) => 0,
            (_, 0, DeviceKind::Cpu) => MANY_ROWS,
            (_, 0, _) => MANY_ROWS / 16,
            (_, rows, _) => rows,
        }
    }

    /// Returns the rows of a probe side from which `auto` uses a device of this `kind` for a join
    /// of `build_rows` build rows. Returns 0 if the probe side does not matter: under an explicit
    /// `horton.min_build_rows`, and where the build side itself has many rows. With fewer build
    /// rows the host is faster, most of all if it `is_fast`: it has an array of their keys, or may
    /// repartition rows that streams of a device do not share.
    pub fn min_probe_rows(
        &self,
        kind: DeviceKind,
        build_rows: usize,
        is_fast: impl FnOnce() -> bool,
    ) -> usize {
        match (self.enabled, self.min_build_rows, kind) {
            (Enabled::Always, ..) | (_, 0, DeviceKind::Cpu) => 0,
            (_, 0, _) if build_rows < MANY_ROWS / 8 => {
                let factor = if is_fast() { 64 } else { 8 };
                factor * MANY_ROWS
            }
            (_, 0, _) if build_rows < MANY_ROWS => MANY_ROWS,
            _ => 0,
        }
    }

    /// Returns whether the session leaves it to joins whether they run on a device.
    pub fn is_left_to_joins(&self) -> bool {
        self.enabled == Enabled::Auto && self.min_build_rows == 0
    }

    /// Returns how a join of this session indexes its keys. Each join has a seed of its own, as the
    /// keys are the user's.
    pub fn index_config(&self) -> IndexConfig {
        IndexConfig {
            kind: self.knobs.index,
            horton: TableConfig {
                seed: random_seed() as u32,
                ..TableConfig::default()
            },
        }
    }

    /// Returns the number of probe rows that are looked up at once on a device of this `kind`.
    /// Where a chunk is copied to it, a larger one pays for the calls; where it is not, a smaller
    /// one stays in the caches.
    pub fn chunk_rows(&self, kind: DeviceKind) -> usize {
        match (self.chunk_rows, kind) {
            (0, DeviceKind::Cpu) => 1 << 18,
            (0, _) => 1 << 20,
            (rows, _) => rows,
        }
    }

    /// Returns the limit on device memory in bytes.
    pub fn memory_limit(&self) -> u64 {
        match self.device_memory_limit {
            0 => u64::MAX,
            bytes => bytes,
        }
    }

    /// Returns the time in which a device's driver must answer; `None` without limit.
    pub fn device_timeout(&self) -> Option<Duration> {
        (self.device_timeout > 0).then(|| Duration::from_secs(self.device_timeout))
    }

    /// Sets the option `key` (without its prefix).
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown option, listing those there are, or a value outside
    /// its range.
    pub fn set_option(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "enabled" => self.enabled = value.parse()?,
            "device" => {
                self.device = value.to_owned();
                // Naming a device is trusting it.
                self.health = Health::default();
            }
            "chunk_rows" => {
                self.chunk_rows = parse(key, value, |n: &usize| *n <= MOST_CHUNK_ROWS)?;
            }
            "device_memory_limit" => self.device_memory_limit = parse(key, value, |_| true)?,
            "device_timeout" => {
                self.device_timeout = parse(key, value, |n: &u64| *n <= DEVICE_TIMEOUT_MAX)?;
            }
            "min_build_rows" => self.min_build_rows = parse(key, value, |_| true)?,
            "filters" => self.filters = value.parse()?,
            "on_device_error" => self.on_device_error = value.parse()?,
            "spill" => self.spill = parse(key, value, |_| true)?,
            _ => {
                let known: Vec<&str> = OPTIONS.iter().map(|(name, _)| *name).collect();
                return Err(Error::Invalid(format!(
                    "there is no option horton.{key}; options: {}",
                    known.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// Returns the options as ones that `SET horton.…` cannot change, for services whose users may
    /// run any SQL. Programs still change them by their fields. [`to_pairs`](Self::to_pairs) does
    /// not carry the lock.
    ///
    /// ```
    /// use datafusion::prelude::SessionConfig;
    /// use horton_join::config::HortonConfig;
    ///
    /// # #[tokio::main]
    /// # async fn main() {
    /// let options = HortonConfig { device: "all".to_owned(), ..HortonConfig::default() };
    /// let config = SessionConfig::new().with_option_extension(options.locked());
    /// let session = horton_join::context(config);
    /// assert!(session.sql("SET horton.device = '0:0'").await.is_err());
    /// # }
    /// ```
    pub fn locked(self) -> Self {
        Self {
            is_locked: true,
            ..self
        }
    }

    /// Returns every option as its name, without `horton.`, and its value: what another process
    /// makes the same options of by [`set_pairs`](Self::set_pairs).
    pub fn to_pairs(&self) -> Vec<(String, String)> {
        let pairs = OPTIONS.iter();
        let pairs = pairs.filter_map(|(key, _)| Some(((*key).to_owned(), self.value(key)?)));
        pairs.collect()
    }

    /// Sets options by name and value. Names may begin with `horton.`, as those of
    /// `information_schema.df_settings` do.
    ///
    /// ```
    /// use horton_join::config::{Enabled, HortonConfig};
    ///
    /// # fn main() -> Result<(), horton_join::error::Error> {
    /// let mut sent = HortonConfig { enabled: Enabled::Always, ..HortonConfig::default() };
    /// let mut received = HortonConfig::default();
    /// received.set_pairs(sent.to_pairs())?;
    /// assert_eq!(received, sent);
    /// sent.set_pairs([("horton.enabled", "never")])?;
    /// assert_eq!(sent.enabled, Enabled::Never);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`set_option`](Self::set_option), for the first pair that has one.
    pub fn set_pairs<K: AsRef<str>, V: AsRef<str>>(
        &mut self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<()> {
        for (key, value) in pairs {
            let key = key.as_ref();
            let key = key.strip_prefix("horton.").unwrap_or(key);
            self.set_option(key, value.as_ref())?;
        }
        Ok(())
    }

    /// Returns the value of option `key`; `None` if there is no such option.
    fn value(&self, key: &str) -> Option<String> {
        Some(match key {
            "enabled" => self.enabled.to_string(),
            "device" => self.device.clone(),
            "chunk_rows" => self.chunk_rows.to_string(),
            "device_memory_limit" => self.device_memory_limit.to_string(),
            "device_timeout" => self.device_timeout.to_string(),
            "min_build_rows" => self.min_build_rows.to_string(),
            "filters" => self.filters.to_string(),
            "on_device_error" => self.on_device_error.to_string(),
            "spill" => self.spill.to_string(),
            _ => return None,
        })
    }
}

fn parse<T: FromStr>(key: &str, value: &str, in_range: impl Fn(&T) -> bool) -> Result<T> {
    value
        .trim()
        .parse()
        .ok()
        .filter(|parsed| in_range(parsed))
        .ok_or_else(|| {
            let description = OPTIONS
                .iter()
                .find(|(name, _)| *name == key)
                .map_or("", |(_, description)| description);
            let expected = match std::any::type_name::<T>() {
                "bool" => "true or false",
                _ => "a whole number",
            };
            Error::Invalid(format!(
                "invalid value '{value}' for horton.{key}: expected {expected} ({description})"
            ))
        })
}

impl ExtensionOptions for HortonConfig {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> DataFusionResult<()> {
        if self.is_locked && self.value(key).as_deref() != Some(value) {
            let reason = format!(
                "horton.{key} cannot be set: the program that made this session locked the horton \
                 options"
            );
            return Err(DataFusionError::Configuration(reason));
        }
        if self.is_locked {
            return Ok(());
        }
        self.set_option(key, value)
            .map_err(|e| DataFusionError::Configuration(e.to_string()))
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        OPTIONS
            .iter()
            .map(|(name, description)| ConfigEntry {
                key: format!("{}.{name}", Self::PREFIX),
                value: self.value(name),
                description,
            })
            .collect()
    }
}

impl ConfigExtension for HortonConfig {
    const PREFIX: &'static str = "horton";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_can_be_set_to_what_it_shows() {
        let mut config = HortonConfig::default();
        for entry in HortonConfig::default().entries() {
            let key = entry.key.strip_prefix("horton.").unwrap().to_owned();
            config.set_option(&key, &entry.value.unwrap()).unwrap();
        }
        assert_eq!(config, HortonConfig::default());
    }

    #[test]
    fn locked_options_cannot_be_set_by_sql() {
        let mut config = HortonConfig::default().locked();
        let unchanged = config.clone();
        let error = ExtensionOptions::set(&mut config, "device", "0:0").unwrap_err();
        assert!(
            error.to_string().contains("horton.device cannot be set"),
            "{error}"
        );
        ExtensionOptions::set(&mut config, "spill", "true").unwrap();
        assert_eq!(config, unchanged);
        config.set_option("device", "0:0").unwrap();
        assert_eq!(config.device, "0:0");
    }

    #[test]
    fn values_outside_their_range_are_named() {
        let mut config = HortonConfig::default();
        for (key, value) in [
            ("enabled", "maybe"),
            ("chunk_rows", "-1"),
            ("chunk_rows", "268435457"),
            ("device_memory_limit", "-1"),
            ("filters", "on"),
            ("on_device_error", "panic"),
            ("spill", "sometimes"),
        ] {
            let error = config.set_option(key, value).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
        let unknown = config.set_option("colour", "red").unwrap_err().to_string();
        assert!(unknown.contains("chunk_rows"), "{unknown}");
        assert_eq!(config, HortonConfig::default());
    }
}
