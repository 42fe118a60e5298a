// Free slots of buckets that many work-items put items into.
//
//   fill: items of four buckets per word, a byte each     [3 8 8 5][8 7 8 8] …
//
// Whoever counts an item in has a slot; a bucket is chosen by its count without reading it, and the
// counts take a sixty-fourth of the memory of buckets of 8 slots. What finds no slot at all is a
// straggler.
//
// hash.cl and bucket.cl come first.
#ifndef PEEK_VOLATILE
#error "PEEK_VOLATILE: 1 where a volatile load sees what atomics wrote, else 0"
#endif

// Counts of four buckets, which others are changing.
uint peek(__global uint *four) {
#if PEEK_VOLATILE
  return *(volatile __global uint *)four;
#else
  return atomic_add(four, 0u);
#endif
}

// Items of bucket w.
uint items_in(__global uint *fill, uint w) { return peek(&fill[w / 4]) >> (w % 4 * 8) & 0xffu; }

// Takes a free slot of bucket w; NO_SLOT if there is none. (Adding first and taking back
// what does not fit would let others see the sum in between.)
uint take_slot(__global uint *fill, uint w) {
  const uint shift = w % 4 * 8;
  uint four = peek(&fill[w / 4]);
  for (;;) {
    const uint slot = four >> shift & 0xffu;
    if (slot >= SLOTS) return NO_SLOT;
    const uint seen = atomic_cmpxchg(&fill[w / 4], four, four + (1u << shift));
    if (seen == four) return slot;
    four = seen;  // others got on, so this ends
  }
}

#if !WIDE_VALUES
// Puts an item into a free slot of bucket w, if there is one. Nothing has been removed: items of a
// bucket stand side by side. (Of wide values: put_wide.cl.)
bool put_in_bucket(__global ulong *table, __global uint *fill, uint w, ulong word) {
  const uint slot = take_slot(fill, w);
  if (slot == NO_SLOT) return false;
  table[(size_t)w * SLOTS + slot] = word;
  return true;
}
#endif

void add_straggler(__global ulong *stragglers, __global uint *counter, uint capacity,
                   ulong word) {
  const uint at = atomic_inc(counter);
  if (at < capacity) stragglers[at] = word;
}
