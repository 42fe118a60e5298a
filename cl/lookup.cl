// Bulk lookup in a Horton table (paper, section 5.1 and figure 4).
//
//   key ─▶ primary bucket ─hit─▶ value
//              │ miss, Type B, entry of its tag set
//              └─▶ secondary bucket ─▶ value | MISS
//
// hash.cl and bucket.cl come first, and tile.cl where there are tiles.
#ifndef TILES
#error "TILES: 1 for lookup_tile, 0 for lookup_chunk"
#endif
#ifndef LOOK_AHEAD
#error "LOOK_AHEAD: keys between prefetch and lookup"
#endif

#if TILES

// The secondary bucket of a key that was looked for in its primary one, NONE if there is none.
uint next_bucket(const Probe *probe, uint seed, uint buckets) {
  if (probe->value != MISS || !probe->entry) return NONE;
  return secondary_bucket(probe->bucket, probe->tag, probe->entry, seed, buckets);
}

// Adds a work-group's second reads up, and them to reads[0]; the whole work-group takes part.
void count_reads(__global uint *reads, uint second_reads, __local uint *group_reads) {
  if (get_local_id(0) == 0) *group_reads = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (second_reads) atomic_add(group_reads, second_reads);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) == 0 && *group_reads) atomic_add(reads, *group_reads);
}

// One key a work-item. reads[0] receives the secondary reads.
__kernel __attribute__((reqd_work_group_size(TILE_GROUP, 1, 1))) void lookup_tile(
    __global const ulong *table, __global const uint *keys, __global uint *values,
    __global uint *reads, uint n, uint buckets, uint seed) {
  TILE_LOCALS
  __local uint group_reads;
  const uint i = get_global_id(0), key = keys[min(i, n - 1)];
  Probe probe = {key, tag_of(key, seed), primary_bucket(key, seed, buckets), MISS, 0};
  find_in_tile(table, &probe, false TILE_PASS);
  const uint found = probe.value;
  probe.bucket = i < n ? next_bucket(&probe, seed, buckets) : NONE;
  const bool again = probe.bucket != NONE;
  if (any_lane(again)) find_in_tile(table, &probe, true TILE_PASS);
  if (i < n) values[i] = again ? probe.value : found;
  count_reads(reads, again, &group_reads);
}

#if SHUFFLE_PTX

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

// Looks for the last keys that wait, at most one a lane.
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

// `rounds` keys a work-item, TILE_GROUP apart: for tables in the cache, where it is instructions
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

#endif
