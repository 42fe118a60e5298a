//! SlabAlloc and SlabAlloc-light alone: no slab twice, none leaked, none missed.

use std::collections::HashSet;

use horton_tables::device::{Device, KernelBody, Queue};
use horton_tables::error::Result;
use horton_tables::table::baselines::slab::{NO_SLAB, PoolLayout, SlabPool};
use rand_mt::Mt;

use super::harness::{bodies, device, run, small};

/// Both allocators, on every body of the device.
fn each(test: impl Fn(&Device, bool, KernelBody)) {
    let device = device();
    for light in [true, false] {
        for body in bodies(&device) {
            test(&device, light, body);
        }
    }
}

fn pool(queue: &mut Queue, light: bool, super_blocks: usize) -> Result<SlabPool> {
    let blocks = if small() { 1 } else { 4 };
    let layout = PoolLayout {
        light,
        super_blocks,
        blocks,
    };
    SlabPool::new(queue, layout)
}

/// Slabs whose bit says that they are not free.
fn in_use(queue: &mut Queue, pool: &SlabPool) -> Result<HashSet<u32>> {
    let (layout, words) = (pool.layout(), pool.download(queue)?);
    let addresses = (0..layout.slabs()).map(|number| layout.address(number));
    let is_used = |address: &u32| {
        let (of, word, bit) = layout.bit(*address);
        words[of][word] >> bit & 1 == 0
    };
    Ok(addresses.filter(is_used).collect())
}

#[test]
fn every_slab_is_given_once_and_only_then_none() {
    each(|device, light, body| {
        run(device, move |queue| {
            queue.use_body(body)?;
            let pool = pool(queue, light, 2)?;
            let slabs = pool.layout().slabs();
            for extra in [0, 77] {
                let (addresses, failed) = pool.allocate_many(queue, slabs + extra)?;
                assert_eq!(failed, extra, "{light} {body}");
                let given = queue.read(&addresses, slabs + extra)?;
                let distinct: HashSet<u32> = given.into_iter().filter(|a| *a != NO_SLAB).collect();
                assert_eq!(distinct.len(), slabs);
                assert!(in_use(queue, &pool)? == distinct);
                assert_eq!(pool.allocate_many(queue, 3)?.1, 3);
                pool.free_many(queue, &addresses)?;
                assert!(in_use(queue, &pool)?.is_empty());
            }
            Ok(())
        });
    });
}

#[test]
fn slabs_come_and_go_at_random() {
    each(|device, light, body| {
        run(device, move |queue| {
            queue.use_body(body)?;
            let pool = pool(queue, light, 1)?;
            let mut random = Mt::new(9);
            let mut held: Vec<u32> = Vec::new();
            for _ in 0..if small() { 3 } else { 20 } {
                let room = pool.layout().slabs() - held.len();
                let n = random.next_u32() as usize % (room + 1);
                let (addresses, failed) = pool.allocate_many(queue, n)?;
                assert_eq!(failed, 0);
                held.extend(queue.read(&addresses, n)?);
                assert_eq!(held.iter().collect::<HashSet<_>>().len(), held.len());
                let keep = random.next_u32() as usize % (held.len() + 1);
                held.sort_unstable_by_key(|address| address.wrapping_mul(0x9e37_79b9));
                let leaving = queue.buffer_from("leaving", &held.split_off(keep))?;
                pool.free_many(queue, &leaving)?;
                assert!(in_use(queue, &pool)? == held.iter().copied().collect());
            }
            Ok(())
        });
    });
}

#[test]
fn a_slab_alloc_grows_and_a_light_one_does_not() {
    let device = device();
    run(&device, |queue| {
        let mut full = pool(queue, false, 1)?;
        let slabs = full.layout().slabs();
        assert_eq!(full.allocate_many(queue, slabs)?.1, 0);
        assert_eq!(full.allocate_many(queue, 5)?.1, 5);
        assert!(full.grow(queue)?);
        assert_eq!(full.allocate_many(queue, slabs)?.1, 0);
        assert_eq!(in_use(queue, &full)?.len(), 2 * slabs);
        while full.grow(queue)? {}
        assert_eq!(full.layout().super_blocks, 32);
        let mut light = pool(queue, true, 1)?;
        assert!(!light.grow(queue)?);
        for (super_blocks, blocks) in [(0, 1), (1, 0), (1, 3), (33, 1), (1, 1 << 15)] {
            let layout = PoolLayout {
                light: false,
                super_blocks,
                blocks,
            };
            assert!(SlabPool::new(queue, layout).is_err());
        }
        Ok(())
    });
}
