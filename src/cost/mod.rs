//! What `horton.enabled = 'auto'` expects of a join, on the device and as the stock join.
//!
//! ```text
//!  rows of both sides, kind of keys ─┬▶ device  F + b·build + p·probe ┐
//!                                    └▶ stock   F + b·build + p·probe ┴▶ the cheaper one
//!                                      + m·moved values, t·texts of the build side, r·rows of it with keys that repeat,
//!                                        c·rows of it that the stock join collects
//!                   F, b, p, m, t, r, c: measured once on this machine, remembered in a file
//! ```
//!
//! A rule of thumb cannot know whether the device is an H200 or two cores of the host itself, and
//! whether the host has two cores or sixty-four. So both ways are tried, on joins like the
//! user's (`calibrate`), and the lines through what was measured are what
//! decides. A probe row costs more the larger the build side is, because tables leave the caches:
//! `p` is measured at two sizes and interpolated by the logarithm of the build side. Beyond the
//! measured sizes lines go on, which favours neither side by much. A stock join that repartitions its sides
//! copies all their columns, which the device's does not; and any copies those of the build side into one batch, which the device's does with those that are
//! wanted. The device's makes one array of each column of texts, which the stock join does a partition at a time. A stock join that collects its build side builds on one core, of however many.

mod calibrate;
pub mod rows;
pub mod scans;
mod store;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::error::{Error, Result};

/// Milliseconds that a join of `build` and `probe` rows takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Milliseconds that every join takes.
    fixed: f64,
    /// Milliseconds a build row.
    build: f64,
    /// Milliseconds a probe row, with a small and with a large build side.
    probe: [f64; 2],
    /// Those sizes of the build side, in rows.
    sizes: [f64; 2],
}

/// Four measured times, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// A few build rows, a few probe rows.
    few_few: f64,
    /// Many build rows, a few probe rows.
    many_few: f64,
    /// A few build rows, many probe rows.
    few_many: f64,
    /// Many and many.
    many_many: f64,
}

impl Line {
    /// The line through four measurements with few and many rows in the `builds` and the `probes`. A difference
    /// that noise made negative counts as nothing.
    fn through(measured: Measured, builds: [f64; 2], probes: [f64; 2]) -> Self {
        let slope = |[few, many]: [f64; 2], from: f64, to: f64| {
            let rows = many - few;
            ((to - from) / rows).max(0.0)
        };
        let few = slope(probes, measured.few_few, measured.few_many);
        let many = slope(probes, measured.many_few, measured.many_many);
        let build = match many < few {
            // No larger table is faster: it is the time with a few probe rows that was too long.
            true => slope(builds, measured.few_many, measured.many_many),
            false => {
                // What the few probe rows take longer in the large table is not the build's.
                let slower = probes[0] * (many - few);
                slope(builds, measured.few_few, measured.many_few - slower)
            }
        };
        let probe = [few, many.max(few)];
        let rows = builds[0] * build + probes[0] * probe[0];
        Self {
            fixed: (measured.few_few - rows).max(0.0),
            build,
            probe,
            sizes: builds,
        }
    }

    /// The time for so many rows.
    fn milliseconds(&self, build: f64, probe: f64) -> f64 {
        let [few, many] = self.sizes.map(f64::ln);
        let share = ((build.max(1.0).ln() - few) / (many - few)).clamp(0.0, 1.0);
        let a_row = self.probe[0] + share * (self.probe[1] - self.probe[0]);
        self.fixed + build * self.build + probe * a_row
    }
}

/// What a join's keys are to both joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keys {
    /// One number, perhaps of a dense range: a direct-address table for the stock join.
    Number,
    /// Several columns, strings, …: hashes, and the real keys to be compared.
    Hashed,
}

impl Keys {
    const ALL: [Keys; 2] = [Keys::Number, Keys::Hashed];
}

/// Both joins' times on one machine, by [`Keys`].
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    device: [Line; 2],
    stock: [Line; 2],
    /// Milliseconds that the stock join takes for each value of eight bytes that it repartitions beside a
    /// key and one more.
    moved: f64,
    /// Milliseconds that each text of the build side takes on the device, and as the stock join where it is
    /// repartitioned, beside what is [`moved`](Self::moved).
    texts: [f64; 2],
    /// Milliseconds more that each build row takes where keys repeat.
    repeated: [f64; 2],
    /// Milliseconds more that the stock join takes for each build row where it collects them: one core builds.
    collected: f64,
}

/// A join's size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// Rows of the build side.
    pub build: usize,
    /// Rows of the probe side.
    pub probe: usize,
    /// Values of eight bytes that the stock join would copy and the device's would not, beside a key and one more of each
    /// row: it repartitions, and makes one batch of the build side.
    pub moved: f64,
    /// Texts of the build side that the join returns, strings and bytes of any length: those that the device's join puts
    /// together, and those that the stock join repartitions.
    pub texts: [f64; 2],
    /// Rows of the build side with a key that others have too.
    pub repeated: f64,
    /// Rows of the build side that the stock join collects instead of repartitioning them.
    pub collected: f64,
}

/// What is expected of one join.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Milliseconds on the device.
    pub device: f64,
    /// Milliseconds as the stock join.
    pub stock: f64,
}

/// What this process knows of a device.
enum Known {
    Measured(Arc<Costs>),
    /// When measuring it failed, and why.
    Failed(Instant, String),
}

/// How long a device that failed is not measured again.
const RETRY: Duration = Duration::from_secs(60);

/// How much faster than the stock join the device must be expected to be, and by how many milliseconds more: estimates
/// err by a share and by what little joins cost besides, and a join that was fine as it was should not get slower.
/// (TPC-H at scale 1, PoCL on two cores, seven calibrations: the join of query 5 is expected to be 16 to 27 ms faster, and makes the
/// query 20 ms faster; those of 8, 9 and 17 -22 to 4, and make them slower; that of 10, 12 to 21, -9 to 10 %.
/// At scale 10 on an H200 queries 2 and 11 have joins of 8 million rows that are expected to take 21 of 33 to 43 ms; with two of them taken they gain
/// 1.3 to 1.9 times, with one 1.1 to 1.3.)
const MARGIN: f64 = 1.25;
const LEAST_GAIN: f64 = 10.0;

impl Estimate {
    /// Milliseconds that the stock join must be expected to take at least, for the device to be worth it.
    pub fn with_margin(&self) -> f64 {
        MARGIN * self.device + LEAST_GAIN
    }

    /// Whether the device is worth it, if nothing else depends on it.
    pub fn is_worth_it(&self) -> bool {
        self.with_margin() < self.stock
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "about {:.1} ms on the device, {:.1} ms as the stock join",
            self.device, self.stock
        )
    }
}

impl Costs {
    /// The costs on `device`, measured now unless they are remembered. A device that failed
    /// meanwhile is not asked again for a minute, so that not every plan waits for it.
    ///
    /// # Errors
    /// [`Error::Unmeasured`] with the device's.
    pub fn of(device: &Device) -> Result<Arc<Self>> {
        static KNOWN: Mutex<BTreeMap<(usize, usize), Known>> = Mutex::new(BTreeMap::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let unmeasured = |reason: &str| Error::Unmeasured {
            device: device.info().label(),
            reason: reason.to_owned(),
        };
        match known.get(&device.info().index) {
            Some(Known::Measured(costs)) => return Ok(Arc::clone(costs)),
            Some(Known::Failed(when, reason)) if when.elapsed() < RETRY => {
                return Err(unmeasured(reason));
            }
            Some(Known::Failed(..)) | None => {}
        }
        let (entry, costs) = match Self::loaded_or_measured(device) {
            Ok(costs) => {
                let costs = Arc::new(costs);
                (Known::Measured(Arc::clone(&costs)), Ok(costs))
            }
            Err(error) => {
                let reason = error.brief();
                let error = unmeasured(&reason);
                (Known::Failed(Instant::now(), reason), Err(error))
            }
        };
        known.insert(device.info().index, entry);
        costs
    }

    fn loaded_or_measured(device: &Device) -> Result<Self> {
        if let Some(costs) = store::load(device.info()) {
            return Ok(costs);
        }
        let costs = calibrate::calibrate(device)?;
        store::store(device.info(), &costs);
        Ok(costs)
    }

    /// What to expect of a join of such a size.
    pub fn estimate(&self, keys: Keys, size: Size) -> Estimate {
        let at = keys as usize;
        let (build, probe) = (size.build as f64, size.probe as f64);
        let [device, stock] = [0, 1]
            .map(|side| self.texts[side] * size.texts[side] + self.repeated[side] * size.repeated);
        let gathered = self.repartition(size.moved) + self.collected * size.collected;
        Estimate {
            device: self.device[at].milliseconds(build, probe) + device,
            stock: self.stock[at].milliseconds(build, probe) + stock + gathered,
        }
    }

    /// Milliseconds to repartition rows of so many values of eight bytes.
    pub fn repartition(&self, values: f64) -> f64 {
        self.moved * values
    }

    /// Milliseconds more if so many of them are texts of a stock join's build side.
    pub fn repartition_texts(&self, texts: f64) -> f64 {
        self.texts[1] * texts
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_what_was_measured() {
        let measured = Measured {
            few_few: 2.0,
            many_few: 22.0,
            few_many: 12.0,
            many_many: 52.0,
        };
        let (few, many) = (1e3, 1e6);
        let some = many / 8.0;
        let line = Line::through(measured, [few, many], [some, many]);
        for (build, probe, wanted) in [
            (few, some, measured.few_few),
            (few, many, measured.few_many),
            (many, many, measured.many_many),
        ] {
            let found = line.milliseconds(build, probe);
            assert!((found - wanted).abs() < 0.1, "{found} {wanted}");
        }
        // Between and beyond, more rows take longer.
        assert!(line.milliseconds(3e4, many) > measured.few_many);
        assert!(line.milliseconds(1e8, 1e8) > 100.0 * measured.many_many / 2.0);
    }

    #[test]
    fn what_is_moved_or_collected_is_the_stock_joins_cost_and_texts_and_repeated_keys_are_of_both()
    {
        let line = |fixed| Line {
            fixed,
            build: 0.0,
            probe: [0.0; 2],
            sizes: [10.0, 1e6],
        };
        let costs = Costs {
            device: [line(2.0); 2],
            stock: [line(1.0); 2],
            moved: 1e-6,
            texts: [5e-6, 2e-6],
            repeated: [7e-6, 3e-6],
            collected: 4e-6,
        };
        let (build, probe) = (1_000_000, 2_000_000);
        let estimate = |moved, texts, repeated, collected| {
            let size = Size {
                build,
                probe,
                moved,
                texts,
                repeated,
                collected,
            };
            let Estimate { device, stock } = costs.estimate(Keys::Number, size);
            [device, stock].map(f64::round)
        };
        let none = [0.0; 2];
        assert_eq!(estimate(0.0, none, 0.0, 0.0), [2.0, 1.0]);
        assert_eq!(estimate(6e6, none, 0.0, 0.0), [2.0, 7.0]);
        assert_eq!(estimate(6e6, [1e6; 2], 0.0, 0.0), [7.0, 9.0]);
        assert_eq!(estimate(6e6, [1e6, 0.0], 0.0, 0.0), [7.0, 7.0]);
        assert_eq!(estimate(6e6, [1e6; 2], 2e6, 0.0), [21.0, 15.0]);
        assert_eq!(estimate(0.0, none, 0.0, 1e6), [2.0, 5.0]);
    }

    #[test]
    fn no_larger_table_is_faster_to_probe() {
        let measured = Measured {
            few_few: 2.0,
            many_few: 52.0,
            few_many: 12.0,
            many_many: 42.0,
        };
        let line = Line::through(measured, [1e3, 1e6], [1e5, 1e6]);
        let found = line.milliseconds(1e6, 1e6);
        assert!((found - measured.many_many).abs() < 0.1, "{found}");
        let slower = line.milliseconds(1e6, 2e6) - found;
        assert!((slower - 10.0 / 0.9).abs() < 0.1, "{slower}");
    }

    #[test]
    fn noise_makes_no_time_negative() {
        let measured = Measured {
            few_few: 5.0,
            many_few: 4.0,
            few_many: 3.0,
            many_many: 2.0,
        };
        let line = Line::through(measured, [1e3, 1e6], [1e3, 1e6]);
        assert_eq!(line.milliseconds(1e7, 1e7), 5.0);
    }
}
