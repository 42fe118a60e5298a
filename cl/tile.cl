// GPU lookup body: a tile of LANES = SLOTS / 2 lanes reads a bucket at once, 16 bytes a lane.
//
//   lane      0        1        2        3          each lane owns one key, and the tile
//   key r: [s0 s1] [s2 s3] [s4 s5] [s6 s7|B]        looks the LANES keys up one by one
//
// (Horton paper, section 5.1: SIMD groups of S lanes; two slots a lane make the loads 16 bytes
// wide.) One work-item reading its own bucket needs four times the transactions: 31 against
// 41 G keys/s on an H200. Keys and answers travel through local memory, two
// barriers in all, or on NVIDIA through warp shuffles. The rare second bucket is read by
// the key's own lane. hash.cl, bucket.cl and horton.cl come first.
#ifndef TILE_GROUP
#error "TILE_GROUP: work-group size of lookup_tile"
#endif
#ifndef WARP_SHUFFLE
#error "WARP_SHUFFLE: 1 for inline PTX (NVIDIA), 0 for local memory"
#endif

#define LANES (SLOTS / 2)

// What a lane sees of a bucket: the value if the key is in its two slots.
uint find_in_lane(ulong2 words, uint key, bool last_lane) {
  if (key_of(words.x) == key && words.x != EMPTY_WORD) return value_of(words.x);
  if (key_of(words.y) == key && words.y != EMPTY_WORD && !(last_lane && is_type_b(words.y)))
    return value_of(words.y);
  return MISS;
}

ulong2 lane_words(__global const ulong *table, uint bucket, uint lane) {
  return vload2(0, table + (size_t)bucket * SLOTS + 2 * lane);
}

#if WARP_SHUFFLE

uint shuffle_from(uint value, uint lane) {
  uint answer;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=r"(answer)
               : "r"(value), "r"(lane));
  return answer;
}

uint ballot(uint predicate) {
  uint answer;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
               : "=r"(answer)
               : "r"(predicate));
  return answer;
}

// Looks the key of every lane up in its bucket; all lanes of the warp take part.
uint find_in_tile(__global const ulong *table, uint bucket, uint key, ulong *last) {
  const uint self = get_local_id(0) & 31u;
  const uint lane = self % LANES, first = self - lane;
  uint value = MISS;
  *last = 0;
#pragma unroll
  for (uint r = 0; r < LANES; ++r) {
    const uint k = shuffle_from(key, first + r);
    const ulong2 words = lane_words(table, shuffle_from(bucket, first + r), lane);
    const uint seen = find_in_lane(words, k, lane == LANES - 1);
    const uint hits = ballot(seen != MISS) >> first & ((1u << LANES) - 1);
    const uint answer = shuffle_from(seen, first + (hits ? 31 - clz(hits) : 0));
    const uint low = shuffle_from((uint)words.y, first + LANES - 1);
    const uint high = shuffle_from((uint)(words.y >> 32), first + LANES - 1);
    if (lane == r) {
      value = hits ? answer : MISS;
      *last = (ulong)high << 32 | low;
    }
  }
  return value;
}

#define TILE_LOCALS
#define TILE_PASS

#else

#define TILE_LOCALS                                                                                \
  __local uint tile_keys[TILE_GROUP], tile_buckets[TILE_GROUP], tile_values[TILE_GROUP];           \
  __local ulong tile_lasts[TILE_GROUP];
#define TILE_PASS , tile_keys, tile_buckets, tile_values, tile_lasts

// Looks the key of every work-item up in its bucket; the whole work-group takes part.
uint find_in_tile(__global const ulong *table, uint bucket, uint key, ulong *last,
                  __local uint *keys, __local uint *buckets, __local uint *values,
                  __local ulong *lasts) {
  const uint self = get_local_id(0);
  const uint lane = self % LANES, first = self - lane;
  keys[self] = key;
  buckets[self] = bucket;
  values[self] = MISS;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint r = 0; r < LANES; ++r) {
    const uint owner = first + r;
    const ulong2 words = lane_words(table, buckets[owner], lane);
    const uint seen = find_in_lane(words, keys[owner], lane == LANES - 1);
    if (seen != MISS) values[owner] = seen;  // one lane at most: keys are distinct
    if (lane == LANES - 1) lasts[owner] = words.y;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  *last = lasts[self];
  return values[self];
}

#endif

// One work-item a key, work-groups of TILE_GROUP. reads[0] receives the secondary reads.
__kernel __attribute__((reqd_work_group_size(TILE_GROUP, 1, 1))) void lookup_tile(
    __global const ulong *table, __global const uint *keys, __global uint *values,
    __global uint *reads, uint n, uint buckets, uint seed) {
  TILE_LOCALS
  __local uint second_reads;
  const uint i = get_global_id(0);
  const bool active = i < n;
  if (get_local_id(0) == 0) second_reads = 0;
  const uint key = active ? keys[i] : 0;
  const uint bucket = primary_bucket(key, seed, buckets);
  ulong last;
  uint value = find_in_tile(table, bucket, key, &last TILE_PASS);
#if WARP_SHUFFLE
  barrier(CLK_LOCAL_MEM_FENCE);  // for second_reads; the local-memory tile has its own
#endif
  if (active && value == MISS) {
    const uint w = second_bucket(key, bucket, last, seed, buckets);
    if (w != NONE) {
      value = find_in_bucket(table, w, key, &last);
      atomic_inc(&second_reads);
    }
  }
  if (active) values[i] = value;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) == 0 && second_reads) atomic_add(reads, second_reads);
}
