// The limit of a table's lookups: one random bucket read per key, and nothing else.
//
// gather_tile reads buckets by tiles of lanes, as lookup_tile does; gather_chunk with one
// work-item and prefetching, as lookup_chunk does. Both hash the key as a lookup would, read
// all of its bucket and write 4 bytes per key. Comes after hash.cl and bucket.cl, and after
// tile.cl where there are tiles.
#if !TILES && !defined(LOOK_AHEAD)
#error "LOOK_AHEAD: keys between prefetch and read"
#endif

#if TILES

// The tile's lanes together use every word that was read.
__kernel __attribute__((reqd_work_group_size(TILE_GROUP, 1, 1))) void gather_tile(
    __global const ulong *table, __global const uint *keys, __global uint *out, uint n,
    uint buckets, uint seed) {
  TILE_LOCALS
  const uint i = get_global_id(0);
  const uint bucket = primary_bucket(keys[min(i, n - 1)], seed, buckets);
  send_bucket(bucket TILE_PASS);
  uint sum = 0;
#pragma unroll
  for (uint from = 0; from < LANES; from += UNROLL) {
    ulong2 words[UNROLL * PAIRS];
    read_tile(table, bucket, from, false, words TILE_PASS);
#pragma unroll
    for (uint w = 0; w < UNROLL * PAIRS; ++w) sum ^= (uint)words[w].x ^ (uint)(words[w].y >> 32);
  }
  if (i < n) out[i] = sum;
}

#else

__kernel void gather_chunk(__global const ulong *table, __global const uint *keys,
                           __global uint *out, uint per_item, uint n, uint buckets, uint seed) {
  const ulong from = (ulong)get_global_id(0) * per_item;
  if (from >= n) return;
  const uint to = (uint)min(from + per_item, (ulong)n);
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

#endif
