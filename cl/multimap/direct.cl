// A table with a slot for every possible key; the counterpart of
// tables/src/table/multimap/direct.rs.
//
//   key 2 ─▶ row 0, key 5 ─▶ row 1        slots  MISS MISS 0 MISS MISS 1
//
// A work-item does a share of the keys, one after the other, so that prefetching has something to
// run ahead of; on GPUs shares are of one key.
#ifndef MISS
#error "MISS: an empty slot, and the answer to a key that is not there"
#endif
#ifndef DIRECT_GROUP
#error "DIRECT_GROUP: work-group size"
#endif
#ifndef LOOK_AHEAD
#error "LOOK_AHEAD: keys between a prefetch and its use"
#endif
#ifndef PREFETCH
#error "PREFETCH: 1 where __builtin_prefetch compiles and works, else 0"
#endif

// Asks for the slot of a key that comes later.
void ask_ahead(volatile __global const uint *slots, __global const uint *keys, uint i, uint end) {
#if PREFETCH
  if (i + LOOK_AHEAD < end)
    __builtin_prefetch((const __private void *)(size_t)&slots[keys[i + LOOK_AHEAD]]);
#endif
}

// `values` may be missing: then a key's is its position. wrong[0] receives bit 0 if a key has a
// slot already, bit 1 if there is no slot for one.
__kernel __attribute__((reqd_work_group_size(DIRECT_GROUP, 1, 1))) void enter(
    volatile __global uint *slots, __global const uint *keys, __global const uint *values,
    __global uint *wrong, uint entries, uint per_item, uint n) {
  const uint from = min((uint)get_global_id(0) * per_item, n), end = from + min(per_item, n - from);
  uint seen = 0;
  for (uint i = from; i < end; ++i) {
    ask_ahead(slots, keys, i, end);
    if (keys[i] >= entries)
      seen |= 2;
    else if (atomic_cmpxchg(&slots[keys[i]], MISS, values ? values[i] : i) != MISS)
      seen |= 1;
  }
  if (seen) atomic_or(wrong, seen);
}

__kernel __attribute__((reqd_work_group_size(DIRECT_GROUP, 1, 1))) void lookup_direct(
    __global const uint *slots, __global const uint *keys, __global uint *values, uint entries,
    uint per_item, uint n) {
  const uint from = min((uint)get_global_id(0) * per_item, n), end = from + min(per_item, n - from);
  for (uint i = from; i < end; ++i) {
    ask_ahead(slots, keys, i, end);
    values[i] = keys[i] < entries ? slots[keys[i]] : MISS;
  }
}
