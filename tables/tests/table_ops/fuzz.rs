//! Random mixtures of operations; each says its seed, and a failure names it.

use horton_tables::device::Queue;
use horton_tables::error::{Error, Result};
use horton_tables::table::WhenFull;
use horton_tables::table::baselines::cuckoo::CuckooTable;
use horton_tables::table::baselines::linear::LinearTable;
use horton_tables::table::baselines::slab::SlabHash;
use horton_tables::table::horton::{BucketSize, HortonTable};
use horton_tables::table::primitives::hash::Reduction;
use rand_mt::Mt;

use super::harness::{Beside, Checked, Shape, bodies, device, number, on_device, small};

/// Operations of one mixture.
const STEPS: usize = 12;

struct Random(Mt);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.0.next_u32()) * u64::from(n)) >> 32) as u32
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// A key of a small universe, so that keys meet again; now and then any key.
    fn key(&mut self, universe: u32) -> u32 {
        match self.below(40) {
            0 => u32::MAX,
            1 => self.0.next_u32(),
            _ => self.below(universe).wrapping_mul(0x9e37_79b1),
        }
    }

    fn value(&mut self) -> u32 {
        match self.below(12) {
            0 => u32::MAX,
            1 => 0x7fff_ffff,
            2 => 0,
            _ => self.0.next_u32(),
        }
    }

    fn batch(&mut self, most: u32) -> usize {
        match self.below(6) {
            0 => self.below(3) as usize,
            _ => self.below(most) as usize,
        }
    }
}

fn shape(random: &mut Random, universe: u32) -> Shape {
    let bucket_size = BucketSize::ALL[random.below(3) as usize];
    let mut shape = Shape::new(bucket_size, random.below(universe) as usize);
    shape.load_factor = 0.4 + f64::from(random.below(60)) / 100.0;
    shape.seed = random.0.next_u32();
    if random.one_in(3) {
        shape.reduction = Reduction::Modulo;
    }
    if random.one_in(3) {
        shape.when_full = WhenFull::Reject;
    }
    if small() {
        // Never full: displacement to the last slot takes minutes under oclgrind.
        shape.min_capacity = 2 * universe as usize;
    }
    shape
}

/// A batch that was rejected must have changed nothing, which is compared afterwards.
fn allow_rejection(result: Result<()>, shape: Shape) -> Result<()> {
    match result {
        Err(Error::Rejected { .. }) if shape.when_full == WhenFull::Reject => Ok(()),
        other => other,
    }
}

fn mixture<T: Checked>(queue: &mut Queue, seed: u32, lazy: bool) -> Result<usize> {
    let mut random = Random(Mt::new(seed));
    let sizes: &[u32] = if small() {
        &[60, 300]
    } else {
        &[200, 3_000, 20_000]
    };
    let universe = sizes[random.below(sizes.len() as u32) as usize];
    let shape = Shape {
        lazy,
        ..shape(&mut random, universe)
    };
    let mut beside = Beside::<T>::build(queue, shape, &[])?;
    let mut operations = 0;
    for _ in 0..STEPS {
        let n = random.batch(universe);
        operations += n;
        if random.one_in(3) {
            let keys: Vec<u32> = (0..n).map(|_| random.key(universe)).collect();
            beside.remove(queue, &keys)?;
        } else {
            let mut item = || (random.key(universe), T::value(random.value()));
            let items: Vec<(u32, u32)> = (0..n).map(|_| item()).collect();
            allow_rejection(beside.insert(queue, &items), shape)?;
        }
        let others: Vec<u32> = (0..100).map(|_| random.key(universe)).collect();
        beside.compare(queue, &others)?;
    }
    Ok(operations)
}

fn fuzz<T: Checked + 'static>(kind: &'static str, lazy: bool) {
    let (first, count) = (
        number("HORTON_TABLE_SEED", 1),
        number("HORTON_TABLE_OPS", if small() { 2 } else { 6 }),
    );
    let bodies = bodies(&device());
    let mut operations = 0;
    for seed in first..first + count {
        let body = bodies[seed % bodies.len()];
        println!("{kind}: seed {seed}, {body}");
        operations += on_device(move |queue| {
            queue.use_body(body)?;
            mixture::<T>(queue, seed as u32, lazy)
        });
    }
    println!(
        "{kind}: {operations} operations, seeds {first} to {}",
        first + count - 1
    );
}

#[test]
fn random_operations_on_horton_tables() {
    fuzz::<HortonTable>("Horton, eager upkeep", false);
}

#[test]
fn random_operations_on_lazy_horton_tables() {
    fuzz::<HortonTable>("Horton, lazy upkeep", true);
}

#[test]
fn random_operations_on_load_balanced_cuckoo_tables() {
    fuzz::<CuckooTable>("cuckoo, load-balanced", false);
}

#[test]
fn random_operations_on_first_fit_cuckoo_tables() {
    fuzz::<CuckooTable>("cuckoo, first fit", true);
}

#[test]
fn random_operations_on_linear_tables() {
    fuzz::<LinearTable>("linear probing, deleted keys stay", false);
}

#[test]
fn random_operations_on_linear_tables_with_reuse() {
    fuzz::<LinearTable>("linear probing, slots reused", true);
}

#[test]
fn random_operations_on_slab_hashes() {
    fuzz::<SlabHash>("slab hash, SlabAlloc-light", false);
}

#[test]
fn random_operations_on_growing_slab_hashes() {
    fuzz::<SlabHash>("slab hash, SlabAlloc", true);
}
