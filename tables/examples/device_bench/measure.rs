//! Times of jobs on one device, and whether their answers are right.

use std::sync::Arc;
use std::time::Duration;

use horton_tables::device::{Answer, Buffer, Device, Queue};
use horton_tables::error::{Error, Result};
use horton_tables::table::horton::{HortonTable, TableConfig};
use horton_tables::table::multimap::pairs::Pairs;
use horton_tables::table::multimap::{KeyFormat, MultiMap, MultiMapInput};

use horton_tables_test_support::lookups::keys::Probe;

/// A device, and how often each measurement is repeated; the best run counts.
pub struct Bench {
    pub device: Device,
    pub repeat: usize,
}

/// A time on the device's event clock and the number of wrong answers.
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    pub time: Duration,
    pub wrong: usize,
}

/// A build side on the device.
pub type Built = Arc<MultiMap>;

/// Returns the Horton table that was built.
pub fn horton(built: &MultiMap) -> Result<&HortonTable> {
    let table = built.index.as_horton();
    table.ok_or_else(|| Error::Invalid("a table of another kind was built".to_owned()))
}

/// Keys on the device.
pub type Resident = Arc<Buffer<u32>>;

impl Bench {
    /// Runs a job once to warm up and `repeat` times; the best kernel time and the last value.
    fn best<T: Send + 'static>(
        &self,
        job: impl Fn(&mut Queue) -> Result<T> + Clone + Send + 'static,
    ) -> Result<(Duration, T)> {
        let mut best: Option<(Duration, T)> = None;
        for _ in 0..=self.repeat {
            let time = best.take().map_or(Duration::MAX, |(time, _)| time);
            let Answer { value, cost } = self.device.run_blocking(job.clone())?;
            best = Some((time.min(cost.kernel), value));
        }
        best.ok_or_else(|| Error::Invalid("nothing was measured".to_owned()))
    }

    pub fn upload(&self, keys: Vec<u32>) -> Result<Resident> {
        let job = move |queue: &mut Queue| queue.buffer_from("keys", &keys);
        Ok(Arc::new(self.device.run_blocking(job)?.value))
    }

    /// Builds over keys that are on the device, grouping them if they repeat.
    pub fn build(
        &self,
        keys: Vec<u32>,
        load_factor: f64,
        slots: usize,
    ) -> Result<(Duration, Built)> {
        let keys = self.upload(keys)?;
        let config = TableConfig {
            bucket_size: slots.try_into()?,
            load_factor,
            ..TableConfig::default()
        };
        let (time, table) = self.best(move |queue| {
            let keys = MultiMapInput {
                keys: &keys,
                rows: None,
                format: KeyFormat::ANY_WORD,
            };
            MultiMap::build(queue, &config, keys)
        })?;
        Ok((time, Arc::new(table)))
    }

    /// Looks keys up that are on the device.
    pub fn look_up(&self, table: &HortonTable, keys: &Resident, probe: &Probe) -> Result<Timed> {
        let (table, keys, n) = (table.clone(), Arc::clone(keys), keys.len());
        let (time, values) = self.best(move |queue| {
            let values = queue.allocate("values", n)?;
            let reads = queue.buffer_from("reads", &[0])?;
            table.lookup(queue, &keys, &values, &reads, n)?;
            Ok(values)
        })?;
        let values = self
            .device
            .run_blocking(move |queue| queue.read(&values, n))?;
        Ok(Timed {
            time,
            wrong: wrong_answers(&values.value, probe),
        })
    }

    /// One random bucket read per key, and nothing else: the limit of `look_up`.
    pub fn gather(&self, table: &HortonTable, keys: &Resident) -> Result<Duration> {
        let (table, keys, n) = (table.clone(), Arc::clone(keys), keys.len());
        let (time, _) = self.best(move |queue| {
            let out = queue.allocate("gathered", n)?;
            table.gather(queue, &keys, &out, n)
        })?;
        Ok(time)
    }

    /// Joins keys that are on the device; `pair(i)` is the right i-th pair of `total`.
    pub fn join(
        &self,
        table: &Built,
        keys: &Resident,
        total: usize,
        pair: impl Fn(usize) -> (u32, u32),
    ) -> Result<Timed> {
        let (table, keys, n) = (Arc::clone(table), Arc::clone(keys), keys.len());
        let (time, pairs) = self.best(move |queue| table.join(queue, &keys, n))?;
        let found = self.device.run_blocking(move |queue| {
            let Pairs { probe, build } = pairs;
            Ok((
                queue.read(&probe, probe.len())?,
                queue.read(&build, build.len())?,
            ))
        })?;
        let (probe, build) = found.value;
        let right = probe.iter().zip(&build).enumerate();
        let wrong = right.filter(|(i, (p, b))| (**p, **b) != pair(*i)).count();
        Ok(Timed {
            time,
            wrong: wrong + probe.len().abs_diff(total),
        })
    }
}

/// Answers that differ from the probe's right ones.
pub fn wrong_answers(values: &[u32], probe: &Probe) -> usize {
    let answers = values.iter().enumerate();
    answers
        .filter(|(i, value)| **value != probe.answer(*i))
        .count()
}
