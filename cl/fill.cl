// Free slots of buckets that many work-items put items into.
//
//   fill: items of four buckets a word, a byte each     [3 8 8 5][8 7 8 8] …
//
// Whoever counts an item in has a slot; a bucket is chosen by its count without reading it, and the
// counts take a sixty-fourth of the memory of buckets of 8 slots. What finds no slot at all is a
// straggler.
//
// hash.cl and bucket.cl come first.
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
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

// A word of the table, which others are changing.
ulong peek_word(__global ulong *word) {
#if PEEK_VOLATILE
  return *(volatile __global ulong *)word;
#else
  return atom_add(word, 0ul);
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

// Puts an item into a free slot of bucket w, if there is one.
#if WIDE_VALUES
// Buckets that items were removed from have gaps. The count gives this work-item a slot, but not
// which; a wide value may not take the last one, which narrow ones therefore try first.
bool put_in_bucket(__global ulong *table, __global uint *fill, uint w, ulong word) {
  if (take_slot(fill, w) == NO_SLOT) return false;
  const uint n = is_wide(word) ? LAST : SLOTS;
  for (uint i = 0; i < 4 * SLOTS; ++i) {
    const uint s = n - 1 - i % n;
    if (atom_cmpxchg(&table[(size_t)w * SLOTS + s], EMPTY_WORD, word) == EMPTY_WORD) return true;
  }
  atomic_sub(&fill[w / 4], 1u << (w % 4 * 8));
  return false;
}
#else
// Nothing has been removed: items of a bucket stand side by side.
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
