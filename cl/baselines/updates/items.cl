// Items of a table with gaps: where they are, giving them new values, taking them out.
//
//   keys ─locate─▶ places ─store─▶ present: new values in place; fresh: compacted, to be inserted
//                         └erase─▶ empty slots
//   table ─extract─▶ keys, values
//
// Horton and cuckoo tables share this: only where a second bucket is differs. Finding and changing
// are two launches, so that nothing reads a bucket while another changes it. Keys of a batch are
// distinct where values are stored; where they are erased they need not be. A key costs one
// bucket read by one work-item, three quarters of the rate of a tile of lanes on an H200.
//
// hash.cl and bucket.cl come first.
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#ifndef ITEMS_GROUP
#error "ITEMS_GROUP: work-group size of store, erase and extract"
#endif

// What store and erase found; counterpart of `Found` in
// tables/src/table/baselines/updates/items.rs.
#define FRESH 0         // items that are not there yet
#define CLEARED 1       // of those, items that were there but may not stay in their slot
#define WIDE 2          // values beyond those of a join's table
#define SENTINEL 3      // the item whose word is that of an empty slot
#define SENTINEL_KEY 4  // other items with its key
#define ERASED 5

// Word index of a key, plus one; 0 if it is not there.
ulong place_of(__global const ulong *table, uint key, uint buckets, uint seed) {
  uint b = primary_bucket(key, seed, buckets);
  ulong last;
  uint slot = slot_in_bucket(table, b, key, &last);
  if (slot == MISS) {
    b = second_bucket(key, b, last, seed, buckets);
    if (b == NONE) return 0;
    slot = slot_in_bucket(table, b, key, &last);
  }
  return slot == MISS ? 0 : (ulong)b * SLOTS + slot + 1;
}

__kernel void locate(__global const ulong *table, __global const uint *keys,
                     __global ulong *places, uint n, uint buckets, uint seed) {
  const uint i = get_global_id(0);
  if (i < n) places[i] = place_of(table, keys[i], buckets, seed);
}

// Reserves a place after *end for each work-item that wants one: one atomic per work-group. The
// whole work-group takes part; shared[2] is its own.
uint reserve(__global uint *end, bool wanted, __local uint *shared) {
  const uint self = get_local_id(0);
  if (self == 0) shared[0] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint rank = wanted ? atomic_inc(&shared[0]) : 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (self == 0) shared[1] = shared[0] ? atomic_add(end, shared[0]) : 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  return shared[1] + rank;
}

// Gives an item that is there its new value. Returns whether it must be inserted instead.
bool store_item(__global ulong *table, ulong word, ulong place, __local uint *found) {
  if (value_of(word) >= (uint)(EMPTY_WORD >> 32)) atomic_or(&found[WIDE], 1u);
  if (key_of(word) == EMPTY_KEY) atomic_or(&found[word == EMPTY_WORD ? SENTINEL : SENTINEL_KEY], 1u);
  if (!place) return word != EMPTY_WORD;
  const bool stays = !(is_wide(word) && (place - 1) % SLOTS == LAST);
  if (!stays || word == EMPTY_WORD) atomic_inc(&found[CLEARED]);
  table[place - 1] = stays ? word : EMPTY_WORD;
  return !stays;
}

__kernel __attribute__((reqd_work_group_size(ITEMS_GROUP, 1, 1))) void store(
    __global ulong *table, __global const uint *keys, __global const uint *values,
    __global const ulong *places, __global uint *fresh_keys, __global uint *fresh_values,
    __global uint *counters, uint n) {
  __local uint shared[2], found[6];
  const uint self = get_local_id(0);
  for (uint c = self; c < 6; c += ITEMS_GROUP) found[c] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  const ulong stride = get_global_size(0);
  for (ulong from = (ulong)get_group_id(0) * ITEMS_GROUP; from < n; from += stride) {
    const ulong i = from + self;
    const ulong word = i < n ? word_of(keys[i], values ? values[i] : (uint)i) : 0;
    const bool fresh = i < n && store_item(table, word, places[i], found);
    const uint at = reserve(&counters[FRESH], fresh, shared);
    if (fresh) {
      fresh_keys[at] = key_of(word);
      fresh_values[at] = value_of(word);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint c = self; c < 6; c += ITEMS_GROUP)
    if (c != FRESH && found[c]) atomic_add(&counters[c], found[c]);
}

__kernel __attribute__((reqd_work_group_size(ITEMS_GROUP, 1, 1))) void erase(
    __global ulong *table, __global const uint *keys, __global const ulong *places,
    __global uint *counters, uint n) {
  __local uint found[6];
  const uint self = get_local_id(0);
  for (uint c = self; c < 6; c += ITEMS_GROUP) found[c] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  const ulong stride = get_global_size(0);
  for (ulong i = get_global_id(0); i < n; i += stride) {
    if (keys[i] == EMPTY_KEY) atomic_or(&found[SENTINEL], 1u);
    // A key that stands in the batch twice is taken out once.
    if (places[i] && atom_xchg(&table[places[i] - 1], EMPTY_WORD) != EMPTY_WORD)
      atomic_inc(&found[ERASED]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint c = self; c < 6; c += ITEMS_GROUP)
    if (found[c]) atomic_add(&counters[c], found[c]);
}

__kernel __attribute__((reqd_work_group_size(ITEMS_GROUP, 1, 1))) void extract(
    __global const ulong *table, __global uint *keys, __global uint *values,
    __global uint *counters, uint buckets) {
  __local uint shared[2];
  const ulong words = (ulong)buckets * SLOTS, stride = get_global_size(0);
  for (ulong from = (ulong)get_group_id(0) * ITEMS_GROUP; from < words; from += stride) {
    const ulong i = from + get_local_id(0);
    const ulong word = i < words ? table[i] : EMPTY_WORD;
    const bool is_item = word != EMPTY_WORD && !(i % SLOTS == LAST && is_type_b(word));
    const uint at = reserve(&counters[FRESH], is_item, shared);
    if (is_item) {
      keys[at] = key_of(word);
      values[at] = value_of(word);
    }
  }
}
