// Hot keys: found in a sample, their rows set apart by one stable pass.
//
//   keys  7 3 7 9 7 7 4      sample_keys    hot: 7
//   rows  0 1 2 3 4 5 6 ───▶ radix_pass     3 9 4 | 7 7 7 7
//                                           1 3 6 | 0 2 4 5
//
// A key with thousands of rows fits no range in local memory, and a sort moves its rows four
// times. But such keys are few, and a small sample shows them: each gets a digit of its own, and
// one pass leaves its rows together, in their order. The sample is counted in a hash table by
// atomics; a key stops being counted when it is hot, or a key that all rows have would be waited
// for tens of thousands of times.
//
// hash.cl, local.cl, digit_of_hot.cl and radix_pass.cl come first.
#ifndef SEEN_SLOTS
#error "SEEN_SLOTS: slots of the sample's hash table, a power of two"
#endif
#ifndef SEEN_HOT
#error "SEEN_HOT: how often a hot key is in the sample"
#endif
#ifndef MAX_HOT
#error "MAX_HOT: hot keys that there is room for"
#endif
#ifndef PEEK_VOLATILE
#error "PEEK_VOLATILE: 1 where a volatile load sees what atomics wrote, else 0"
#endif

// Slots that a key is looked for in; in a table half full at most, hardly a key needs ten.
#define SEEN_PROBES 64

// A word that others are changing.
uint peek_seen(__global uint *word) {
#if PEEK_VOLATILE
  return *(volatile __global uint *)word;
#else
  return atomic_add(word, 0u);
#endif
}

// Counts a key; returns whether that makes it hot, which is once. A slot is two words: the key with
// its bits inverted, 0 while the slot is free, and how often it was seen. A key of all ones is
// never hot.
bool count_key(__global uint *seen, uint key) {
  const uint inverted = ~key, home = jenkins(key);
  if (inverted == 0) return false;
  for (uint probe = 0; probe < SEEN_PROBES; ++probe) {
    __global uint *slot = seen + 2 * ((home + probe) & (SEEN_SLOTS - 1));
    uint old = peek_seen(slot);
    if (old == 0) old = atomic_cmpxchg(slot, 0u, inverted);
    if (old != 0 && old != inverted) continue;
    return peek_seen(slot + 1) < SEEN_HOT && atomic_inc(slot + 1) + 1 == SEEN_HOT;
  }
  return false;
}

// Samples one key of every `stride`, at a place that hashing picks: what repeats with a period
// does not fool it. hot[0] receives the number of hot keys, the words after it the keys, in any
// order.
__kernel void sample_keys(__global const uint *keys, __global uint *seen, __global uint *hot,
                          uint samples, uint stride) {
  for (uint i = get_global_id(0); i < samples; i += (uint)get_global_size(0)) {
    const uint key = keys[i * stride + mul_hi(jenkins(i), stride)];
    if (!count_key(seen, key)) continue;
    const uint at = atomic_inc(&hot[0]);
    if (at < MAX_HOT) hot[1 + at] = key;
  }
}

// The groups of hot keys. places[(i + 1) * tiles]: where the rows of hot key i begin, of which
// the first stands behind `rest` others. rows == 0: they stay where they are.
__kernel void emit_hot(__global const uint *hot_keys, __global const uint *places,
                       __global const uint *parted_rows, __global uint *unique_keys,
                       __global uint *offsets, __global uint *rows, uint first_group,
                       uint first_row, uint rest, uint n, uint tiles, uint hot) {
  const uint i = get_global_id(0);
  if (i < hot) {
    unique_keys[first_group + i] = hot_keys[i];
    offsets[first_group + i] = first_row + (places[(i + 1) * tiles] - rest);
  }
  if (i < n && rows) rows[first_row + i] = parted_rows[rest + i];
}

// The groups of the others, as if each had one row.
__kernel void emit_single_rows(__global const uint *keys, __global uint *unique_keys,
                               __global uint *offsets, uint n) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  unique_keys[i] = keys[i];
  offsets[i] = i;
}
