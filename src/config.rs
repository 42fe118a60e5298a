//! `SET horton.… = …`: the options of a session.
//!
//! A [`ConfigExtension`], so that options live where DataFusion's own do, travel with the
//! session and show in `information_schema.df_settings`. Values are checked when they are
//! set. `entries` is written by hand because the `extensions_options!` macro lists keys
//! without their prefix, and `SHOW horton.enabled` would not find them.

use std::any::Any;
use std::fmt;
use std::str::FromStr;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::error::{DataFusionError, Result as DataFusionResult};

use crate::device::program::INT64_ATOMICS;
use crate::device::verdict::Suite;
use crate::device::{DeviceInfo, DeviceKind};
use crate::error::{Error, Result};
use crate::health::Health;
use crate::table::hash::random_seed;
use crate::table::horton::{BucketSize, DEFAULT_LOAD_FACTOR, MAX_VALUE, TableConfig};
use crate::table::key_table::KeyTableConfig;
use crate::table::linear::LinearConfig;

/// Which joins run on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enabled {
    /// Joins whose build side has at least `horton.min_build_rows` rows.
    Auto,
    /// Every join that a device can run, whatever its size.
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

/// The table that a join builds and looks up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableKind {
    /// A Horton table, but for many keys on a CPU a direct one or one of codes.
    Auto,
    /// A table with a slot for every possible key where keys are dense, else a Horton table.
    Direct,
    /// A Horton table.
    Horton,
    /// Linear probing in a table that is at most half full.
    Linear,
    /// Linear probing over keys of one or two words, a cache line at a time.
    Codes,
}

impl FromStr for TableKind {
    type Err = Error;

    fn from_str(value: &str) -> Result<Self> {
        match value.to_lowercase().as_str() {
            "auto" => Ok(TableKind::Auto),
            "direct" => Ok(TableKind::Direct),
            "horton" => Ok(TableKind::Horton),
            "linear" => Ok(TableKind::Linear),
            "codes" => Ok(TableKind::Codes),
            _ => Err(Error::Invalid(format!(
                "invalid value '{value}' for horton.table: expected 'auto', 'horton', 'linear', 'direct' or 'codes'"
            ))),
        }
    }
}

impl TableKind {
    /// What keeps a device from having such tables, if anything.
    pub fn obstacle(self, device: &DeviceInfo) -> Option<String> {
        let needs_int64 = matches!(self, TableKind::Linear | TableKind::Codes);
        (needs_int64 && !device.has_int64_atomics()).then(|| {
            format!(
                "'{self}' needs {INT64_ATOMICS}, which {} lacks",
                device.label()
            )
        })
    }
}

impl fmt::Display for TableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TableKind::Auto => "auto",
            TableKind::Direct => "direct",
            TableKind::Horton => "horton",
            TableKind::Linear => "linear",
            TableKind::Codes => "codes",
        })
    }
}

/// What scans do with the keys of build sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filters {
    /// They leave out rows that meet no build row, as far as that pays.
    Auto,
    /// They prune files by bounds and short lists, as DataFusion's own scans do.
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

/// What a join does when its device fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDeviceError {
    /// Goes on without the device.
    Fallback,
    /// Ends with the device's error.
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

/// The options under `horton.`; each field's document is its description in SQL too.
#[derive(Debug, Clone, PartialEq)]
pub struct HortonConfig {
    /// Which joins run on a device: auto, always or never.
    pub enabled: Enabled,
    /// The OpenCL device: 'auto', 'PLATFORM:INDEX' or part of a device's name.
    pub device: String,
    /// The table that joins build: auto, horton, linear, direct or codes.
    pub table: TableKind,
    /// Items per slot of a Horton table, in (0, 1].
    pub load_factor: f64,
    /// Slots per bucket of a Horton table: 4, 8 or 16.
    pub bucket_size: BucketSize,
    /// Probe rows that are looked up at once; 0 for the device's default.
    pub chunk_rows: usize,
    /// Bytes of device memory that joins may use together; 0 for the device's default.
    pub device_memory_limit: u64,
    /// Rows of a build side from which `auto` asks the device; 0 for the device's default.
    pub min_build_rows: usize,
    /// Keep both sides hash-partitioned where DataFusion planned so, instead of building one
    /// table for all probe partitions.
    pub keep_partitions: bool,
    /// Whether scans leave out rows that meet no build row: auto or off.
    pub filters: Filters,
    /// What a join does when its device fails: fallback or error.
    pub on_device_error: OnDeviceError,
    /// Whether joins go to disk that the memory pool has no room for.
    pub spill: bool,
    /// Bits of a hashed surrogate, 0 to 32: fewer make unequal keys collide. For tests, and so
    /// no option of a session.
    pub surrogate_bits: u32,
    /// Build rows that one table may have; more go to buckets. For tests, and so no option
    /// of a session.
    pub max_table_rows: usize,
    /// Rows after which the other side of a join is read, too. For tests, and so no option of a
    /// session.
    pub turn_rows: usize,
    /// Devices that failed in this session; not an option either.
    pub health: Health,
}

impl Default for HortonConfig {
    fn default() -> Self {
        Self {
            enabled: Enabled::Auto,
            device: Self::AUTO.to_owned(),
            table: TableKind::Auto,
            load_factor: DEFAULT_LOAD_FACTOR,
            bucket_size: BucketSize::Eight,
            chunk_rows: 0,
            device_memory_limit: 0,
            min_build_rows: 0,
            keep_partitions: false,
            filters: Filters::Auto,
            on_device_error: OnDeviceError::Fallback,
            spill: true,
            surrogate_bits: u32::BITS,
            max_table_rows: MAX_VALUE as usize,
            turn_rows: 1 << 20,
            health: Health::default(),
        }
    }
}

/// Rows that a device joins faster than the host, whatever its calls cost.
const MANY_ROWS: usize = 1 << 20;

/// Rows of a chunk at most, whatever the build side: the pairs of a window are then fewer than
/// 2^32.
pub(crate) const MOST_CHUNK_ROWS: usize = 1 << 28;

/// Name and description of every option of a session, in the order of [`HortonConfig`]'s fields.
const OPTIONS: [(&str, &str); 12] = [
    (
        "enabled",
        "Which joins run on an OpenCL device: auto, always or never",
    ),
    (
        "device",
        "The OpenCL device: 'auto', '<platform>:<index>' or part of a device's name",
    ),
    (
        "table",
        "The table that joins build: auto, horton, linear (linear probing), direct where keys are dense, or codes (linear probing by cache lines)",
    ),
    ("load_factor", "Items per slot of a Horton table, in (0, 1]"),
    (
        "bucket_size",
        "Slots per bucket of a Horton table: 4, 8 or 16",
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
        "min_build_rows",
        "Rows of a build side from which horton.enabled = 'auto' asks the device; 0 for the device's default",
    ),
    (
        "keep_partitions",
        "Keep hash-partitioned joins partitioned instead of building one table for all partitions",
    ),
    (
        "filters",
        "Whether scans leave out rows that meet no build row: auto or off",
    ),
    (
        "on_device_error",
        "When a device fails: 'fallback' finishes the query on the host, 'error' ends it",
    ),
    (
        "spill",
        "Whether joins go to temporary files that the memory limit has no room for",
    ),
];

impl HortonConfig {
    /// The device that fits best.
    pub const AUTO: &str = "auto";

    /// Rows of a build side from which `auto` asks a device of this kind. `always` asks it whatever
    /// they are. A GPU's default is small, as [`min_probe_rows`](Self::min_probe_rows) looks at the
    /// other side, too.
    pub fn min_build_rows(&self, kind: DeviceKind) -> usize {
        match (self.enabled, self.min_build_rows, kind) {
            (Enabled::Always, ..) => 0,
            (_, 0, DeviceKind::Cpu) => MANY_ROWS,
            (_, 0, _) => MANY_ROWS / 8,
            (_, rows, _) => rows,
        }
    }

    /// Rows of a probe side from which `auto` asks a device of this kind for a join of `build_rows`
    /// build rows; 0 if it need not be looked at: under an explicit number, and where the build
    /// side has many rows itself.
    pub fn min_probe_rows(&self, kind: DeviceKind, build_rows: usize) -> usize {
        match (self.enabled, self.min_build_rows, kind) {
            (Enabled::Always, ..) | (_, 0, DeviceKind::Cpu) => 0,
            (_, 0, _) if build_rows < MANY_ROWS => MANY_ROWS,
            _ => 0,
        }
    }

    /// How a table of this session is built: with a seed of its own, for the keys are the user's.
    pub fn table_config(&self) -> KeyTableConfig {
        let config = self.horton_config();
        match self.table {
            TableKind::Auto => KeyTableConfig::Auto(config),
            TableKind::Direct => KeyTableConfig::Direct(config),
            TableKind::Horton => KeyTableConfig::Horton(config),
            TableKind::Codes => KeyTableConfig::Codes(config),
            TableKind::Linear => KeyTableConfig::Linear(LinearConfig {
                seed: config.seed,
                ..LinearConfig::default()
            }),
        }
    }

    /// As [`table_config`](Self::table_config), for a Horton table.
    pub fn horton_config(&self) -> TableConfig {
        TableConfig {
            seed: random_seed() as u32,
            bucket_size: self.bucket_size,
            load_factor: self.load_factor,
            ..TableConfig::default()
        }
    }

    /// What the self-test of a device must have shown before joins with these options use it.
    pub fn suites(&self) -> impl Iterator<Item = Suite> + use<> {
        let buckets = Suite::Buckets(self.bucket_size.slots());
        let table = match self.table {
            TableKind::Linear => Some(Suite::Linear),
            TableKind::Codes => Some(Suite::Codes),
            TableKind::Auto | TableKind::Direct | TableKind::Horton => None,
        };
        let more = (buckets != Suite::DEFAULT).then_some(buckets);
        [Suite::DEFAULT].into_iter().chain(more).chain(table)
    }

    /// Probe rows that are looked up at once on a device of this kind. Where a chunk is copied to
    /// it, a larger one pays for the calls; where it is not, a smaller one stays in the caches.
    pub fn chunk_rows(&self, kind: DeviceKind) -> usize {
        match (self.chunk_rows, kind) {
            (0, DeviceKind::Cpu) => 1 << 18,
            (0, _) => 1 << 20,
            (rows, _) => rows,
        }
    }

    /// The limit on device memory in bytes.
    pub fn memory_limit(&self) -> u64 {
        match self.device_memory_limit {
            0 => u64::MAX,
            bytes => bytes,
        }
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
            "table" => self.table = value.parse()?,
            "load_factor" => {
                self.load_factor = parse(key, value, |f: &f64| *f > 0.0 && *f <= 1.0)?;
            }
            "bucket_size" => {
                self.bucket_size = BucketSize::try_from(parse::<usize>(key, value, |_| true)?)?
            }
            "chunk_rows" => {
                self.chunk_rows = parse(key, value, |n: &usize| *n <= MOST_CHUNK_ROWS)?;
            }
            "device_memory_limit" => self.device_memory_limit = parse(key, value, |_| true)?,
            "min_build_rows" => self.min_build_rows = parse(key, value, |_| true)?,
            "keep_partitions" => self.keep_partitions = parse(key, value, |_| true)?,
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

    fn value(&self, key: &str) -> String {
        match key {
            "enabled" => self.enabled.to_string(),
            "device" => self.device.clone(),
            "table" => self.table.to_string(),
            "load_factor" => self.load_factor.to_string(),
            "bucket_size" => self.bucket_size.to_string(),
            "chunk_rows" => self.chunk_rows.to_string(),
            "device_memory_limit" => self.device_memory_limit.to_string(),
            "min_build_rows" => self.min_build_rows.to_string(),
            "keep_partitions" => self.keep_partitions.to_string(),
            "filters" => self.filters.to_string(),
            "on_device_error" => self.on_device_error.to_string(),
            _ => self.spill.to_string(),
        }
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
                "f64" => "a number",
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
        self.set_option(key, value)
            .map_err(|e| DataFusionError::Configuration(e.to_string()))
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        OPTIONS
            .iter()
            .map(|(name, description)| ConfigEntry {
                key: format!("{}.{name}", Self::PREFIX),
                value: Some(self.value(name)),
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
    fn values_outside_their_range_are_named() {
        let mut config = HortonConfig::default();
        for (key, value) in [
            ("enabled", "maybe"),
            ("table", "cuckoo"),
            ("load_factor", "1.5"),
            ("load_factor", "NaN"),
            ("bucket_size", "5"),
            ("bucket_size", "eight"),
            ("chunk_rows", "-1"),
            ("chunk_rows", "268435457"),
            ("device_memory_limit", "-1"),
            ("keep_partitions", "2"),
            ("filters", "on"),
            ("on_device_error", "panic"),
            ("spill", "sometimes"),
        ] {
            let error = config.set_option(key, value).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
        let unknown = config.set_option("colour", "red").unwrap_err().to_string();
        assert!(unknown.contains("load_factor"), "{unknown}");
        assert_eq!(config, HortonConfig::default());
    }
}
