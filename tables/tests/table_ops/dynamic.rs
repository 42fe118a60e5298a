//! Linear probing and the slab hash, as tables like any other; what else they can do:
//! `tables/tests/dynamic`.

use std::collections::HashSet;

use horton_tables::device::Queue;
use horton_tables::error::Result;
use horton_tables::table::Table;
use horton_tables::table::baselines::linear::{Deletion, LinearConfig, LinearModel, LinearTable};
use horton_tables::table::baselines::slab::{PoolLayout, SlabConfig, SlabHash, SlabModel};
use horton_tables::table::baselines::{linear, slab};

use super::harness::{Checked, Shape};

impl Checked for LinearTable {
    const MAX_VALUE: u32 = linear::MAX_VALUE;

    fn config(shape: Shape) -> LinearConfig {
        LinearConfig {
            load_factor: shape.load_factor,
            min_capacity: shape.min_capacity,
            when_full: shape.when_full,
            deletion: Deletion::ALL[usize::from(shape.lazy)],
            seed: shape.seed,
        }
    }

    fn check(&self, queue: &mut Queue, keys: &[u32]) -> Result<Vec<Option<u32>>> {
        let model = self.to_model(queue)?;
        model.check().unwrap();
        assert_eq!(model.pairs().len(), self.len());
        assert_eq!(model.probe_lengths(), self.probe_lengths(queue)?);
        let mean = model.probe_lengths().mean();
        let reads = self.statistics(queue)?.reads_per_hit;
        assert!(self.is_empty() || reads == 1.0 + mean, "{reads}, {mean}");
        Ok(keys.iter().map(|key| model.lookup(*key)).collect())
    }

    fn on_host(&self, queue: &mut Queue, items: &[(u32, u32)]) -> Result<Self> {
        let mut model = LinearModel::empty(self.layout());
        for (key, value) in items {
            model.insert(*key, *value).unwrap();
        }
        LinearTable::from_model(queue, &model)
    }
}

impl Checked for SlabHash {
    const MAX_VALUE: u32 = slab::MAX_VALUE;
    /// Memory blocks have 1024 slabs.
    const ROOMY: bool = true;

    /// `lazy`: over a SlabAlloc, which grows by itself.
    fn config(shape: Shape) -> SlabConfig {
        SlabConfig {
            slabs_per_bucket: shape.load_factor,
            pool: PoolLayout {
                light: !shape.lazy,
                super_blocks: 1,
                blocks: 1,
            },
            min_capacity: shape.min_capacity,
            when_full: shape.when_full,
            seed: shape.seed,
            ..SlabConfig::default()
        }
    }

    fn check(&self, queue: &mut Queue, keys: &[u32]) -> Result<Vec<Option<u32>>> {
        let model = self.to_model(queue)?;
        model.check().unwrap();
        let pairs = model.pairs();
        let keys_of: HashSet<u32> = pairs.iter().map(|(key, _)| *key).collect();
        assert_eq!((keys_of.len(), pairs.len()), (self.len(), self.len()));
        assert_eq!(model.census(), self.census(queue)?);
        let reads = self.statistics(queue)?.reads_per_hit * self.len() as f64;
        assert_eq!(reads.round() as u64, model.reads_of_hits());
        Ok(keys.iter().map(|key| model.search(*key)).collect())
    }

    fn on_host(&self, queue: &mut Queue, items: &[(u32, u32)]) -> Result<Self> {
        let mut model = SlabModel::empty(self.layout(), self.pool().layout());
        for (key, value) in items {
            model.replace(*key, *value).unwrap();
        }
        SlabHash::from_model(queue, &model)
    }
}
