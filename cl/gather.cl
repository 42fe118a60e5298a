// The limit of a table's lookups: one random bucket read per key, and nothing else.
//
// gather_tile reads a bucket with LANES lanes of 16 bytes, as lookup_tile does;
// gather_chunk with one work-item and prefetching, as lookup_chunk does. Both hash the key as
// a lookup would, read all of its bucket and write 4 bytes a key. Comes after hash.cl and
// bucket.cl.
#ifndef LOOK_AHEAD
#error "LOOK_AHEAD: keys between prefetch and read"
#endif
#define LANES (SLOTS / 2)

__kernel void gather_tile(__global const ulong *table, __global const uint *keys,
                          __global uint *out, uint n, uint buckets, uint seed) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  // Lane l of a tile reads its part of the buckets of the tile's LANES keys.
  const uint lane = i % LANES, first = i - lane;
  uint sum = 0;
  for (uint r = 0; r < LANES; ++r) {
    const uint key = keys[min(first + r, n - 1)];
    const ulong2 words =
        vload2(0, table + (size_t)primary_bucket(key, seed, buckets) * SLOTS + 2 * lane);
    sum ^= (uint)words.x ^ (uint)(words.y >> 32);
  }
  out[i] = sum;
}

__kernel void gather_chunk(__global const ulong *table, __global const uint *keys,
                           __global uint *out, uint share, uint n, uint buckets, uint seed) {
  const ulong from = (ulong)get_global_id(0) * share;
  if (from >= n) return;
  const uint to = (uint)min(from + share, (ulong)n);
  for (uint i = (uint)from; i < to; ++i) {
#if PREFETCH
    if (to - i > LOOK_AHEAD)
      prefetch_bucket(table, primary_bucket(keys[i + LOOK_AHEAD], seed, buckets));
#endif
    __global const ulong *slots = table + (size_t)primary_bucket(keys[i], seed, buckets) * SLOTS;
    uint sum = 0;
    for (uint s = 0; s < SLOTS; ++s) sum ^= (uint)slots[s];
    out[i] = sum;
  }
}
