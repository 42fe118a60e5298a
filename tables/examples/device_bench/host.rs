//! The lookup loop of `cl/horton/lookup.cl` for CPUs in plain Rust, on all cores: what a CPU
//! runtime's kernel is compared with.

use std::time::{Duration, Instant};

use horton_tables::device::host::{ask_for_large_pages, prefetch};
use horton_tables::table::horton::{HortonModel, Layout, MISS};
use horton_tables::table::primitives::bucket::{EMPTY_WORD, entry_at, is_type_b, key_of, value_of};

/// Keys between a prefetch and its lookup, as in the kernel.
const LOOK_AHEAD: usize = 32;

/// Words of a cache line.
const LINE: usize = 8;

/// A table in host memory, its buckets on cache lines and in large pages as on a device.
pub struct Host<'a> {
    model: &'a HortonModel,
    words: Vec<u64>,
    start: usize,
}

impl<'a> Host<'a> {
    pub fn new(model: &'a HortonModel) -> Self {
        let mut words = vec![0; model.words.len() + LINE];
        ask_for_large_pages(&words);
        let start = words.as_ptr().align_offset(8 * LINE).min(LINE);
        words[start..start + model.words.len()].copy_from_slice(&model.words);
        Self {
            model,
            words,
            start,
        }
    }

    /// Looks `keys` up on every core; the time, and the answers.
    pub fn look_up(&self, keys: &[u32]) -> (Duration, Vec<u32>) {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let share = keys.len().div_ceil(threads).max(1);
        let layout = self.model.layout;
        let words = &self.words[self.start..self.start + layout.words()];
        let mut values = vec![0; keys.len()];
        // The pages of the answers exist before the clock starts, as a device's do.
        values.fill(MISS);
        let started = Instant::now();
        std::thread::scope(|scope| {
            for (keys, values) in keys.chunks(share).zip(values.chunks_mut(share)) {
                scope.spawn(move || match layout.slots() {
                    4 => look_up_chunk::<4>(layout, words, keys, values),
                    8 => look_up_chunk::<8>(layout, words, keys, values),
                    _ => look_up_chunk::<16>(layout, words, keys, values),
                });
            }
        });
        (started.elapsed(), values)
    }
}

fn look_up_chunk<const SLOTS: usize>(
    layout: Layout,
    words: &[u64],
    keys: &[u32],
    values: &mut [u32],
) {
    let (buckets, _) = words.as_chunks::<SLOTS>();
    for (i, (key, value)) in keys.iter().zip(values).enumerate() {
        if let Some(ahead) = keys.get(i + LOOK_AHEAD) {
            prefetch(buckets, layout.primary_bucket(*ahead) as usize);
        }
        let b = layout.primary_bucket(*key);
        let bucket = &buckets[b as usize];
        *value = find(bucket, *key);
        if *value == MISS && is_type_b(bucket[SLOTS - 1]) {
            let tag = layout.tag_of(*key);
            let entry = entry_at(bucket[SLOTS - 1], tag);
            if entry != 0 {
                let second = layout.secondary_bucket(b, tag, entry);
                *value = find(&buckets[second as usize], *key);
            }
        }
    }
}

/// All slots are compared, none is branched on: that is what the compiler turns into vectors.
fn find<const SLOTS: usize>(bucket: &[u64; SLOTS], key: u32) -> u32 {
    let mut value = MISS;
    for (slot, word) in bucket.iter().enumerate() {
        let is_item = *word != EMPTY_WORD && !(slot == SLOTS - 1 && is_type_b(*word));
        let hit = key_of(*word) == key && is_item;
        value = if hit { value_of(*word) } else { value };
    }
    value
}
