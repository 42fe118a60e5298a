// Bulk lookup in a Horton table (paper, section 5.1 and figure 4).
//
//   key ─▶ primary bucket ─hit─▶ value
//              │ miss, Type B, entry of its tag set     (CUCKOO: miss)
//              └─▶ secondary bucket ─▶ value | MISS
//
// A cuckoo table differs in who needs a second bucket and which it is, and in nothing else. So a
// comparison of the two compares the tables, not two kernels. With WIDE_VALUES presence is told
// apart from the value, in `found`; one item, whose word would be that of an empty slot, is in no
// bucket then but in `sentinel`.
//
// hash.cl and bucket.cl come first, and tile.cl where there are tiles.
#ifndef TILES
#error "TILES: 1 for lookup_tile, 0 for lookup_chunk"
#endif
#if !TILES && !defined(LOOK_AHEAD)
#error "LOOK_AHEAD: keys between prefetch and lookup"
#endif
#if !TILES && !defined(BUFFERED)
#error "BUFFERED: 1 if lookup_chunk queues looks at second buckets, else 0"
#endif
#if BUFFERED && !defined(WAITING)
#error "WAITING: keys that queue"
#endif

#if WIDE_VALUES
#define FOUND_TAKE , __global uint *found, uint sentinel
#define FOUND_PASS , found, sentinel

// The answer to key i: what was seen is a slot of `bucket`, or MISS.
void answer(__global const ulong *table, __global uint *values, uint i, uint key, uint bucket,
            uint slot FOUND_TAKE) {
  const bool is_sentinel = sentinel && key == EMPTY_KEY && slot == MISS;
  found[i] = slot != MISS || is_sentinel;
  values[i] = slot == MISS ? (uint)(EMPTY_WORD >> 32)
                           : value_of(table[(size_t)bucket * SLOTS + slot]);
}
#define look_in_bucket slot_in_bucket
#else
#define FOUND_TAKE
#define FOUND_PASS
void answer(__global const ulong *table, __global uint *values, uint i, uint key, uint bucket,
            uint value) {
  values[i] = value;
}
#define look_in_bucket find_in_bucket
#endif

#if TILES

// The secondary bucket of a key that was looked for in its primary one, NONE if there is none.
uint next_bucket(const Probe *probe, uint seed, uint buckets) {
#if CUCKOO
  return probe->value != MISS ? NONE : second_bucket_of(probe->key, seed, buckets);
#else
  if (probe->value != MISS || !probe->entry) return NONE;
  return secondary_bucket(probe->bucket, probe->tag, probe->entry, seed, buckets);
#endif
}

// Adds a work-group's second reads up, and them to reads[0]; the whole work-group takes part.
void count_reads(__global uint *reads, uint second_reads, __local uint *group_reads) {
  if (get_local_id(0) == 0) *group_reads = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (second_reads) atomic_add(group_reads, second_reads);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) == 0 && *group_reads) atomic_add(reads, *group_reads);
}

// Looks a work-item's key i up, which is one of n; 1 if it read a second bucket.
uint look_up(__global const ulong *table, __global uint *out, uint key, uint i, uint n,
             uint n_buckets, uint seed FOUND_TAKE TILE_TAKE) {
  Probe probe = {key, tag_of(key, seed), primary_bucket(key, seed, n_buckets), MISS, 0};
  find_in_tile(table, &probe, false TILE_PASS_ON);
  const uint seen = probe.value, b = probe.bucket;
  probe.bucket = i < n ? next_bucket(&probe, seed, n_buckets) : NONE;
  const bool again = probe.bucket != NONE;
  if (any_lane(again)) find_in_tile(table, &probe, true TILE_PASS_ON);
  if (i < n)
    answer(table, out, i, key, again ? probe.bucket : b, again ? probe.value : seen FOUND_PASS);
  return again;
}

// One key per work-item. reads[0] receives the secondary reads.
__kernel __attribute__((reqd_work_group_size(TILE_GROUP, 1, 1))) void lookup_tile(
    __global const ulong *table, __global const uint *keys, __global uint *values,
    __global uint *reads, uint n, uint buckets, uint seed FOUND_TAKE) {
  TILE_LOCALS
  __local uint group_reads;
  const uint i = get_global_id(0), key = keys[min(i, n - 1)];
  const uint again = look_up(table, values, key, i, n, buckets, seed FOUND_PASS TILE_PASS);
  count_reads(reads, again, &group_reads);
}

// `rounds` keys per work-item, TILE_GROUP apart, the next one loaded a round ahead.
__kernel __attribute__((reqd_work_group_size(TILE_GROUP, 1, 1))) void lookup_rounds(
    __global const ulong *table, __global const uint *keys, __global uint *values,
    __global uint *reads, uint n, uint rounds, uint buckets, uint seed FOUND_TAKE) {
  TILE_LOCALS
  __local uint group_reads;
  uint second_reads = 0;
  uint i = get_group_id(0) * rounds * TILE_GROUP + get_local_id(0);
  uint next_key = keys[min(i, n - 1)];
  for (uint round = 0; round < rounds; ++round) {
    const uint key = next_key;
    next_key = keys[min(i + TILE_GROUP, n - 1)];
    second_reads += look_up(table, values, key, i, n, buckets, seed FOUND_PASS TILE_PASS);
    i += TILE_GROUP;
  }
  count_reads(reads, second_reads, &group_reads);
}

#if SHUFFLE_PTX && !WIDE_VALUES

// Keys that must be looked for in a second bucket wait until they fill a warp (paper, section 5.1,
// "buffering"): one in six at load 0.95, and a look at one costs what a look at 32 costs. Only with
// NVIDIA's warps: PoCL 5 gives wrong answers for the same with sub-groups.
typedef struct {
  __local uint *keys, *buckets, *places;
  uint count;
} Waiting;

void wait_for_more(Waiting *waiting, const Probe *probe, uint w, uint place) {
  const uint2 lanes = count_lanes(w != NONE);
  if (w != NONE) {
    const uint at = waiting->count + lanes.x;
    waiting->keys[at] = probe->key;
    waiting->buckets[at] = w;
    waiting->places[at] = place;
  }
  waiting->count += lanes.y;
  warp_fence();
}

// Looks for the last keys that wait, at most one per lane.
void look_up_waiting(__global const ulong *table, __global uint *values, Waiting *waiting) {
  const uint n = min(waiting->count, warp_size());
  waiting->count -= n;
  const bool active = warp_lane() < n;
  const uint at = waiting->count + (active ? warp_lane() : 0);
  Probe probe = {waiting->keys[at], 0, active ? waiting->buckets[at] : NONE, MISS, 0};
  const uint place = waiting->places[at];
  warp_fence();
  find_in_tile(table, &probe, true);
  if (active) values[place] = probe.value;
}

// `rounds` keys per work-item, TILE_GROUP apart: for tables in the cache, where it is instructions
// that lookups wait for. Where memory is, this is slower: answers that come late are written
// alone.
__kernel __attribute__((reqd_work_group_size(TILE_GROUP, 1, 1))) void lookup_buffered(
    __global const ulong *table, __global const uint *keys, __global uint *values,
    __global uint *reads, uint n, uint rounds, uint buckets, uint seed) {
  __local uint waiting_keys[2 * TILE_GROUP], waiting_buckets[2 * TILE_GROUP];
  __local uint waiting_places[2 * TILE_GROUP], group_reads;
  const uint base = 2 * warp_number() * warp_size();
  Waiting waiting = {waiting_keys + base, waiting_buckets + base, waiting_places + base, 0};
  uint second_reads = 0;
  uint i = get_group_id(0) * rounds * TILE_GROUP + get_local_id(0);
  uint next_key = keys[min(i, n - 1)];
  for (uint round = 0; round < rounds; ++round) {
    const uint key = next_key;
    next_key = keys[min(i + TILE_GROUP, n - 1)];
    Probe probe = {key, tag_of(key, seed), primary_bucket(key, seed, buckets), MISS, 0};
    find_in_tile(table, &probe, false);
    const uint w = i < n ? next_bucket(&probe, seed, buckets) : NONE;
    if (i < n && w == NONE) values[i] = probe.value;
    wait_for_more(&waiting, &probe, w, i);
    second_reads += w != NONE;
    if (waiting.count >= warp_size()) look_up_waiting(table, values, &waiting);
    i += TILE_GROUP;
  }
  if (waiting.count) look_up_waiting(table, values, &waiting);
  count_reads(reads, second_reads, &group_reads);
}

#endif

#else

#if BUFFERED

// Keys whose second bucket is on its way to the cache. They wait until a few have come together, so
// that none is waited for alone (paper, section 5.1, "buffering").
typedef struct {
  uint keys[WAITING], buckets[WAITING], places[WAITING];
  uint count;
} Waiting;

void look_up_waiting(__global const ulong *table, __global uint *values,
                     Waiting *waiting FOUND_TAKE) {
  for (uint k = 0; k < waiting->count; ++k) {
    const uint key = waiting->keys[k], w = waiting->buckets[k];
    ulong last;
    const uint seen = look_in_bucket(table, w, key, &last);
    answer(table, values, waiting->places[k], key, w, seen FOUND_PASS);
  }
  waiting->count = 0;
}

#endif

// CPU body: a contiguous chunk of `per_item` keys per work-item, prefetching LOOK_AHEAD keys ahead.
// reads[0] receives the number of secondary buckets read.
__kernel void lookup_chunk(__global const ulong *table, __global const uint *keys,
                           __global uint *values, __global uint *reads, uint per_item, uint n,
                           uint buckets, uint seed FOUND_TAKE) {
  const ulong from = (ulong)get_global_id(0) * per_item;
  if (from >= n) return;
  const uint to = (uint)min(from + per_item, (ulong)n);
  uint second_reads = 0;
#if BUFFERED
  Waiting waiting;
  waiting.count = 0;
#endif
  for (uint i = (uint)from; i < to; ++i) {
#if PREFETCH
    if (to - i > LOOK_AHEAD)
      prefetch_bucket(table, primary_bucket(keys[i + LOOK_AHEAD], seed, buckets));
#endif
    const uint key = keys[i];
    uint b = primary_bucket(key, seed, buckets);
    ulong last;
    uint seen = look_in_bucket(table, b, key, &last);
    const uint w = seen == MISS ? second_bucket(key, b, last, seed, buckets) : NONE;
    second_reads += w != NONE;
#if BUFFERED
    if (w != NONE) {
      prefetch_bucket(table, w);
      waiting.keys[waiting.count] = key;
      waiting.buckets[waiting.count] = w;
      waiting.places[waiting.count] = i;
      if (++waiting.count == WAITING) look_up_waiting(table, values, &waiting FOUND_PASS);
      continue;
    }
#else
    if (w != NONE) {
      seen = look_in_bucket(table, w, key, &last);
      b = w;
    }
#endif
    answer(table, values, i, key, b, seen FOUND_PASS);
  }
#if BUFFERED
  look_up_waiting(table, values, &waiting FOUND_PASS);
#endif
  atomic_add(reads, second_reads);
}

#endif
