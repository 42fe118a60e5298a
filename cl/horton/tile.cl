// GPU bodies: a tile of LANES lanes reads a bucket at once, PAIRS times 16 bytes per lane.
//
//   4 lanes   0        1        2        3          each lane owns one key; the tile reads the
//   key r: [s0 s1] [s2 s3] [s4 s5] [s6 s7|B]        buckets of its LANES keys one after another
//   2 lanes   0        1        0        1
//
// (Horton paper, section 5.1: SIMD groups of S lanes; two slots per lane make the loads 16 bytes
// wide. tables/src/table/horton/tuning.rs says how many lanes are best.) One work-item
// reading its own bucket needs four times the transactions: 31 against 41 G keys/s on an H200. What
// lanes send each other goes through shuffles (NVIDIA's in inline PTX, or those of sub-groups), or
// else through local memory, with two barriers. All loads of UNROLL keys are under way before the
// first answer is waited for. Answers reach the lanes of their keys by a transposing reduction,
// log2(LANES) steps for LANES keys. A second bucket is read in the same way, by the tiles that need
// one.
//
// hash.cl and bucket.cl come first.
#ifndef TILE_GROUP
#error "TILE_GROUP: work-group size of kernels over tiles"
#endif
#ifndef SHUFFLE_PTX
#error "SHUFFLE_PTX: 1 for NVIDIA's shuffles in inline PTX"
#endif
#ifndef SHUFFLE_SUB_GROUP
#error "SHUFFLE_SUB_GROUP: 1 for those of SUB_GROUP_SHUFFLE, 0 with SHUFFLE_PTX 0 for local memory"
#endif

#ifndef LANES
#error "LANES: lanes of a tile, a power of two up to SLOTS / 2"
#endif
#ifndef UNROLL
#error "UNROLL: keys of a tile whose buckets are read before the first is compared; divides LANES"
#endif

// Pairs of slots that a lane reads of a bucket, LANES apart; the last one holds the last slot.
#define PAIRS (SLOTS / 2 / LANES)
#define EMPTY_VALUE ((uint)(EMPTY_WORD >> 32))

#if WIDE_VALUES
// What is seen of a key in a pair of slots: its slot, or MISS. Values may be all ones here, so
// the owner of the key loads the value itself, from a line that has just been read.
uint find_in_pair(ulong2 words, uint key, uint pair) {
  const bool entries = pair == SLOTS / 2 - 1 && is_type_b(words.y);
  const uint x = key_of(words.x) == key && words.x != EMPTY_WORD ? 2 * pair : MISS;
  const uint y =
      key_of(words.y) == key && words.y != EMPTY_WORD && !entries ? 2 * pair + 1 : MISS;
  return x & y;
}

uint answer_of(uint slot) { return slot; }
#else
// What is seen of a key in a pair of slots: the value, or MISS. An empty slot is taken for key
// EMPTY_KEY, with EMPTY_VALUE, which vanishes when answers are and-ed: MISS is all ones,
// and so are EMPTY_VALUE's 31 bits. Only a word of remap entries has the top bit.
uint find_in_pair(ulong2 words, uint key, uint pair) {
  const uint x = key_of(words.x) == key ? value_of(words.x) : MISS;
  const uint y = key_of(words.y) == key && !is_type_b(words.y) ? value_of(words.y) : MISS;
  return x & y;
}

uint answer_of(uint value) { return value == EMPTY_VALUE ? MISS : value; }
#endif

// What a lane sees of a key in its pairs of a bucket.
uint find_in_lane(const ulong2 *words, uint key, uint lane) {
  uint seen = MISS;
#pragma unroll
  for (uint p = 0; p < PAIRS; ++p) seen &= find_in_pair(words[p], key, p * LANES + lane);
  return seen;
}

// The remap entry of a tag among a lane's words of a bucket, 0 in Type A; meant for the last lane.
uint entry_in_lane(const ulong2 *words, uint tag) {
  const ulong last = words[PAIRS - 1].y;
  return is_type_b(last) ? entry_at(last, tag) : 0;
}

ulong2 lane_words(__global const ulong *table, uint bucket, uint pair) {
  return pair_of_words(table, (size_t)bucket * (SLOTS / 2) + pair);
}

ulong2 no_words(void) { return (ulong2)(EMPTY_WORD, EMPTY_WORD); }

// A key on its way: where it is looked for (NONE: nowhere), and what was found.
typedef struct {
  uint key, tag, bucket;
  uint value, entry;
} Probe;

#if SHUFFLE_PTX || SHUFFLE_SUB_GROUP

#if SHUFFLE_PTX
uint warp_lane(void) { return get_local_id(0) & 31u; }
uint warp_number(void) { return get_local_id(0) / 32; }
uint warp_size(void) { return 32; }

bool any_lane(bool predicate) {
  uint answer;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.any.pred q, p, 0xffffffff; "
      "selp.u32 %0, 1, 0, q; }"
      : "=r"(answer)
      : "r"((uint)predicate));
  return answer != 0;
}

void warp_fence(void) { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

// Lanes before this one, and in all, for which the predicate holds.
uint2 count_lanes(bool predicate) {
  uint lanes;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
               : "=r"(lanes)
               : "r"((uint)predicate));
  return (uint2)(popcount(lanes & ((1u << warp_lane()) - 1)), popcount(lanes));
}

uint shuffle_from(uint value, uint lane) {
  uint answer;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=r"(answer)
               : "r"(value), "r"(lane));
  return answer;
}
#else
#ifdef cl_intel_subgroups
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#endif
#ifdef cl_khr_subgroup_shuffle
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#endif
uint warp_lane(void) { return get_sub_group_local_id(); }
bool any_lane(bool predicate) { return sub_group_any(predicate) != 0; }
uint shuffle_from(uint value, uint lane) { return SUB_GROUP_SHUFFLE(value, lane); }
#endif

#define TILE_LOCALS
#define TILE_PASS
#define TILE_PASS_ON
#define TILE_TAKE

uint tile_lane(void) { return warp_lane(); }
void send_bucket(uint bucket TILE_TAKE) {}
uint bucket_of_lane(uint bucket, uint lane TILE_TAKE) { return shuffle_from(bucket, lane); }

#else

#define TILE_LOCALS                                                                                \
  __local uint tile_keys[TILE_GROUP], tile_tags[TILE_GROUP], tile_buckets[TILE_GROUP];             \
  __local uint tile_values[TILE_GROUP], tile_entries[TILE_GROUP];
#define TILE_PASS , tile_keys, tile_tags, tile_buckets, tile_values, tile_entries
// Asking would cost as much as looking up.
bool any_lane(bool predicate) { return true; }

#define TILE_PASS_ON , keys, tags, buckets, values, entries
#define TILE_TAKE                                                                                  \
  , __local uint *keys, __local uint *tags, __local uint *buckets, __local uint *values,           \
      __local uint *entries

uint tile_lane(void) { return get_local_id(0); }

void send_bucket(uint bucket TILE_TAKE) {
  buckets[get_local_id(0)] = bucket;
  barrier(CLK_LOCAL_MEM_FENCE);
}

uint bucket_of_lane(uint bucket, uint lane TILE_TAKE) { return buckets[lane]; }

#endif

// Reads the words of UNROLL of the tile's buckets, this lane's part of each. The bucket of every
// lane's key has been sent.
void read_tile(__global const ulong *table, uint bucket, uint from, bool maybe_none,
               ulong2 *words TILE_TAKE) {
  const uint self = tile_lane(), lane = self % LANES, first = self - lane + from;
  uint lane_buckets[UNROLL];
#pragma unroll
  for (uint r = 0; r < UNROLL; ++r)
    lane_buckets[r] = bucket_of_lane(bucket, first + r TILE_PASS_ON);
#pragma unroll
  for (uint r = 0; r < UNROLL; ++r) {
#pragma unroll
    for (uint p = 0; p < PAIRS; ++p)
      words[r * PAIRS + p] = maybe_none && lane_buckets[r] == NONE
                                 ? no_words()
                                 : lane_words(table, lane_buckets[r], p * LANES + lane);
  }
}

#if SHUFFLE_PTX || SHUFFLE_SUB_GROUP

// One step of the transposition: lanes `step` apart swap halves of their rows, and-ing.
#define TRANSPOSE(row, lane, self, step)                                                           \
  _Pragma("unroll") for (uint t = 0; t < step; ++t) {                                              \
    const bool upper = (lane & step) != 0;                                                         \
    const uint kept = upper ? row[t + step] : row[t];                                              \
    const uint sent = upper ? row[t] : row[t + step];                                              \
    row[t] = kept & shuffle_from(sent, self ^ step);                                               \
  }

// Looks the key of every lane up in its bucket; all lanes take part.
void find_in_tile(__global const ulong *table, Probe *probe, bool second TILE_TAKE) {
  const uint self = warp_lane(), lane = self % LANES, first = self - lane;
  uint row[LANES], entries = 0;
#pragma unroll
  for (uint from = 0; from < LANES; from += UNROLL) {
    ulong2 words[UNROLL * PAIRS];
    read_tile(table, probe->bucket, from, second, words);
#pragma unroll
    for (uint r = 0; r < UNROLL; ++r) {
      const uint owner = first + from + r;
      row[from + r] = find_in_lane(words + r * PAIRS, shuffle_from(probe->key, owner), lane);
#if !CUCKOO
      // Of all lanes' entries only the last one's are meant.
      if (!second)
        entries |= entry_in_lane(words + r * PAIRS, shuffle_from(probe->tag, owner))
                   << (3 * (from + r));
#endif
    }
  }
#if LANES >= 8
  TRANSPOSE(row, lane, self, 4)
#endif
#if LANES >= 4
  TRANSPOSE(row, lane, self, 2)
#endif
#if LANES >= 2
  TRANSPOSE(row, lane, self, 1)
#endif
  probe->value = answer_of(row[0]);
#if !CUCKOO
  if (!second) probe->entry = shuffle_from(entries, first + LANES - 1) >> (3 * lane) & 7u;
#endif
}

#else

// Looks the key of every work-item up in its bucket; the whole work-group takes part.
void find_in_tile(__global const ulong *table, Probe *probe, bool second TILE_TAKE) {
  const uint self = get_local_id(0), lane = self % LANES, first = self - lane;
  keys[self] = probe->key;
  tags[self] = probe->tag;
  values[self] = MISS;
  send_bucket(probe->bucket TILE_PASS_ON);
#pragma unroll
  for (uint from = 0; from < LANES; from += UNROLL) {
    ulong2 words[UNROLL * PAIRS];
    read_tile(table, probe->bucket, from, second, words TILE_PASS_ON);
#pragma unroll
    for (uint r = 0; r < UNROLL; ++r) {
      const uint owner = first + from + r;
      const uint seen = find_in_lane(words + r * PAIRS, keys[owner], lane);
      // One lane at most has a value, but a plain store is miscompiled by Intel's CPU runtime.
      if (seen != MISS) atomic_and(&values[owner], seen);
      if (lane == LANES - 1) entries[owner] = entry_in_lane(words + r * PAIRS, tags[owner]);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  probe->value = answer_of(values[self]);
  probe->entry = entries[self];
}

#endif
