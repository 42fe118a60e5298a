// Bulk lookup in a Horton table (paper, section 5.1 and figure 4).
//
//   key ─▶ primary bucket ─hit─▶ value
//              │ miss, Type B, entry of its tag set
//              └─▶ secondary bucket ─▶ value | MISS
//
// hash.cl and bucket.cl come first; tile.cl, with the bodies for GPUs, after.
#ifndef NONE
#error "NONE: no bucket"
#endif
#ifndef LOOK_AHEAD
#error "LOOK_AHEAD: keys between prefetch and lookup"
#endif

// Secondary bucket of a key that its primary bucket does not hold, NONE if it has none.
uint second_bucket(uint key, uint bucket, ulong last, uint seed, uint buckets) {
  if (!is_type_b(last)) return NONE;
  const uint tag = tag_of(key, seed);
  const uint entry = entry_at(last, tag);
  return entry ? secondary_bucket(bucket, tag, entry, seed, buckets) : NONE;
}

// CPU body: a contiguous chunk of `share` keys per work-item, prefetching LOOK_AHEAD keys ahead.
// reads[0] receives the number of secondary buckets read.
__kernel void lookup_chunk(__global const ulong *table, __global const uint *keys,
                           __global uint *values, __global uint *reads, uint share, uint n,
                           uint buckets, uint seed) {
  const ulong from = (ulong)get_global_id(0) * share;
  if (from >= n) return;
  const uint to = (uint)min(from + share, (ulong)n);
  uint second_reads = 0;
  for (uint i = (uint)from; i < to; ++i) {
#if PREFETCH
    if (to - i > LOOK_AHEAD)
      prefetch_bucket(table, primary_bucket(keys[i + LOOK_AHEAD], seed, buckets));
#endif
    const uint key = keys[i];
    const uint b = primary_bucket(key, seed, buckets);
    ulong last;
    uint value = find_in_bucket(table, b, key, &last);
    if (value == MISS) {
      const uint w = second_bucket(key, b, last, seed, buckets);
      if (w != NONE) {
        value = find_in_bucket(table, w, key, &last);
        ++second_reads;
      }
    }
    values[i] = value;
  }
  atomic_add(reads, second_reads);
}
