//! What `HORTON_DRIVER` says; the words are listed in `lib.rs`.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::target::{Driver, Target};

/// What the process was started with.
pub struct Settings {
    pub target: Target,
    pub driver: Driver,
    /// Whether PoCL compiles and runs the kernels, in the place of the chip's instructions.
    pub is_native: bool,
    /// Whether waves take turns at random.
    pub is_mixed: bool,
    /// Whether races are looked for.
    pub finds_races: bool,
    /// By which commands are late; `None` if each is done when its call returns.
    pub seed: Option<u64>,
    /// Bytes of the device.
    pub memory: u64,
    pub units: u32,
    pub log: Option<PathBuf>,
    pub cache: PathBuf,
}

/// The settings of this process.
pub fn settings() -> &'static Settings {
    static SETTINGS: LazyLock<Settings> =
        LazyLock::new(|| Settings::of(&std::env::var("HORTON_DRIVER").unwrap_or_default()));
    &SETTINGS
}

impl Settings {
    /// Returns what `words` say. A word that nobody knows is told on standard error.
    pub fn of(words: &str) -> Self {
        let mut settings = Self {
            target: Target::Gfx1100,
            driver: Driver::Rocm,
            is_native: false,
            is_mixed: false,
            finds_races: false,
            seed: None,
            memory: 4 << 30,
            units: 2,
            log: None,
            cache: std::env::temp_dir().join("horton-driver"),
        };
        for word in words.split_whitespace() {
            if settings.take(word).is_none() {
                eprintln!("HORTON_DRIVER: nobody knows '{word}'");
            }
        }
        settings
    }

    fn take(&mut self, word: &str) -> Option<()> {
        match word.split_once('=') {
            None => match word {
                "rusticl" => self.driver = Driver::Rusticl,
                "rocm" => self.driver = Driver::Rocm,
                "pocl" => self.is_native = true,
                "mixed" => self.is_mixed = true,
                "races" => self.finds_races = true,
                target => self.target = Target::named(target)?,
            },
            Some(("seed", seed)) => self.seed = Some(seed.parse().ok()?),
            Some(("memory", megabytes)) => self.memory = megabytes.parse::<u64>().ok()? << 20,
            Some(("units", units)) => self.units = units.parse().ok()?,
            Some(("log", file)) => self.log = Some(PathBuf::from(file)),
            Some(("cache", folder)) => self.cache = PathBuf::from(folder),
            Some(_) => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_the_device_is() {
        let settings = Settings::of("gfx90a rusticl mixed seed=7 memory=64 cache=/tmp/x");
        assert_eq!(settings.target, Target::Gfx90a);
        assert_eq!(settings.driver, Driver::Rusticl);
        assert_eq!((settings.seed, settings.memory), (Some(7), 64 << 20));
        assert!(settings.is_mixed && !settings.is_native && settings.log.is_none());
        assert!(Settings::of("gfx1100 pocl").is_native);
        assert_eq!(Settings::of("seed=x").seed, None);
    }
}
