// Horton tables: bulk build and bulk lookup (Horton paper, sections 4 and 5).
//
//   claim ─▶ find_repeats ─▶ place ─▶ { propose ─▶ commit ─▶ release }* ─▶ census
//   lookup_chunk | lookup_tile
//
// Every key is known before the build, so no secondary item ever needs to be displaced by a
// primary one: primaries claim slots first, what overflows a bucket hangs in its chain,
// then each overflowing bucket turns Type B and gives its (bucket, tag) groups room in the
// emptiest of their seven candidates. The few that find none ("stragglers") are placed by
// displacement, in rounds: all propose a move, the lowest number wins the buckets
// it touches, winners move. So no lock, no fence, and no two work-items write one bucket.
//
// hash.cl and bucket.cl come first. Kernel launches separate the phases; within one, only
// counters, chains and claims are shared, and those are atomic.
#ifndef NONE
#error "NONE: no item, no bucket"
#endif
#ifndef CHAIN_LIMIT
#error "CHAIN_LIMIT: overflowing items of one bucket that are looked at"
#endif
#ifndef LOOK_AHEAD
#error "LOOK_AHEAD: keys between prefetch and lookup"
#endif

#define EVICTED (NONE - 1)

// Counters shared with the driver (src/table/horton/build.rs, `Counter`).
#define REPEATS 0
#define CROWDED 1
#define STRAGGLERS 2

uint value_at(__global const uint *values, uint i) { return values ? values[i] : i; }

// ---------------------------------------------------------------- primary items

// One work-item a key: the next free slot of its primary bucket, else the bucket's chain.
// fill[b] ends as the number of keys of b, chain and next as linked lists of the overflow.
__kernel void claim(__global ulong *table, __global uint *fill, __global uint *chain,
                    __global uint *next, __global const uint *keys, __global const uint *values,
                    uint n, uint buckets, uint seed) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  const uint key = keys[i];
  const uint b = primary_bucket(key, seed, buckets);
  const uint slot = atomic_inc(&fill[b]);
  if (slot < SLOTS)
    table[(size_t)b * SLOTS + slot] = word_of(key, value_at(values, i));
  else
    next[i] = atomic_xchg(&chain[b], i);
}

// Whether `key` is in the bucket's first `n` slots.
bool in_slots(__global const ulong *slots, uint n, uint key) {
  for (uint s = 0; s < n; ++s)
    if (key_of(slots[s]) == key) return true;
  return false;
}

// Whether `key` is in the chain between `from` and `until`.
bool in_chain(__global const uint *next, __global const uint *keys, uint from, uint until,
              uint key) {
  for (uint i = from; i != until; i = next[i])
    if (keys[i] == key) return true;
  return false;
}

// One work-item a bucket: is any key there twice? Chains longer than CHAIN_LIMIT without a
// repeat are more than a bucket's remap entries can serve with random keys: CROWDED.
__kernel void find_repeats(__global const ulong *table, __global const uint *fill,
                           __global const uint *chain, __global const uint *next,
                           __global const uint *keys, __global uint *counters, uint buckets) {
  const uint b = get_global_id(0);
  if (b >= buckets) return;
  __global const ulong *slots = table + (size_t)b * SLOTS;
  const uint n = min(fill[b], (uint)SLOTS);
  for (uint s = 1; s < n; ++s)
    if (in_slots(slots, s, key_of(slots[s]))) {
      atomic_inc(&counters[REPEATS]);
      return;
    }
  uint looked_at = 0;
  for (uint i = chain[b]; i != NONE; i = next[i]) {
    if (in_slots(slots, n, keys[i]) || in_chain(next, keys, chain[b], i, keys[i])) {
      atomic_inc(&counters[REPEATS]);
      return;
    }
    if (++looked_at > CHAIN_LIMIT) {
      atomic_inc(&counters[CROWDED]);
      return;
    }
  }
}

// ---------------------------------------------------------------- secondary items

// Overflowing items of bucket b: the one evicted from its last slot, then its chain.
typedef struct {
  ulong evicted;
  __global const uint *next;
  __global const uint *keys;
  __global const uint *values;
  uint chain;
} Overflow;

uint step(const Overflow *o, uint at) { return at == EVICTED ? o->chain : o->next[at]; }

ulong item(const Overflow *o, uint at) {
  return at == EVICTED ? o->evicted : word_of(o->keys[at], value_at(o->values, at));
}

uint count_tag(const Overflow *o, uint at, uint tag, uint seed) {
  uint count = 0;
  for (; at != NONE; at = step(o, at)) count += tag_of(key_of(item(o, at)), seed) == tag;
  return count;
}

// Takes `count` slots of a bucket that holds `filled` items or, by now, more. Returns the first
// of them, NO_SLOT if they do not fit. (Adding first and taking back what does not fit would
// let another work-item see the sum in between and leave a gap that is later given twice.)
uint take_slots(__global uint *fill, uint filled, uint count) {
  while (filled + count <= SLOTS) {
    const uint seen = atomic_cmpxchg(fill, filled, filled + count);
    if (seen == filled) return filled;
    filled = seen;  // it only grows, so this ends
  }
  return NO_SLOT;
}

// Reserves `count` slots in the emptiest candidate bucket of (b, tag) with room for them.
// Returns the remap entry, 0 if there is none; `home` is the first reserved slot of the table.
uint reserve(__global uint *fill, uint b, uint tag, uint count, uint seed, uint buckets,
             size_t *home) {
  if (count > SLOTS) return 0;
  for (uint attempt = 0; attempt < 7; ++attempt) {
    uint best = 0, best_bucket = 0, best_fill = SLOTS - count + 1;
    for (uint entry = 1; entry <= 7; ++entry) {
      const uint w = secondary_bucket(b, tag, entry, seed, buckets);
      const uint filled = w == b ? SLOTS : atomic_add(&fill[w], 0u);
      if (filled < best_fill) {
        best = entry;
        best_bucket = w;
        best_fill = filled;
      }
    }
    if (!best) return 0;
    const uint slot = take_slots(&fill[best_bucket], best_fill, count);
    if (slot != NO_SLOT) {
      *home = (size_t)best_bucket * SLOTS + slot;
      return best;
    }
  }
  return 0;
}

void add_straggler(__global ulong *stragglers, __global uint *counter, uint capacity,
                   ulong word) {
  const uint at = atomic_inc(counter);
  if (at < capacity) stragglers[at] = word;
}

// One work-item a bucket: an overflowing one turns Type B, and each group of items with one tag
// is placed together, because they share the remap entry and so the secondary bucket.
__kernel void place(__global ulong *table, __global uint *fill, __global const uint *chain,
                    __global const uint *next, __global const uint *keys,
                    __global const uint *values, __global ulong *stragglers,
                    __global uint *counters, uint capacity, uint buckets, uint seed) {
  const uint b = get_global_id(0);
  if (b >= buckets || chain[b] == NONE) return;
  const size_t last = (size_t)b * SLOTS + LAST;
  const Overflow o = {table[last], next, keys, values, chain[b]};
  ulong entries = TYPE_B;
  uint seen = 0;
  for (uint at = EVICTED; at != NONE; at = step(&o, at)) {
    const uint tag = tag_of(key_of(item(&o, at)), seed);
    if (seen >> tag & 1u) continue;
    seen |= 1u << tag;
    size_t home = 0;
    const uint entry =
        reserve(fill, b, tag, count_tag(&o, at, tag, seed), seed, buckets, &home);
    entries |= entry_bits(entry, tag);
    for (uint i = at; i != NONE; i = step(&o, i)) {
      const ulong word = item(&o, i);
      if (tag_of(key_of(word), seed) != tag) continue;
      if (entry)
        table[home++] = word;
      else
        add_straggler(stragglers, &counters[STRAGGLERS], capacity, word);
    }
  }
  table[last] = entries;
}

// ---------------------------------------------------------------- displacement

// A straggler's proposed move. Its item of (b, tag) takes `slot` of bucket `target`:
//
//   INSERT    the slot is free
//   DISPLACE  the slot's item is secondary: its group (primary bucket `home`) goes with it
//   SWAP      the target is b itself: a primary item of b, whose tag leads elsewhere, gives way
//
// and, if `old` is a bucket, its own group leaves it first, because it found no room there.
typedef struct {
  uint b, target, home, old;  // buckets claimed for the move, NONE if not needed
  uint action, entry, slot;
} Move;

#define INSERT 1u
#define DISPLACE 2u
#define SWAP 3u

uint8 pack(Move m) {
  return (uint8)(m.b, m.target, m.home, m.old, m.action, m.entry, m.slot, 0);
}

Move unpack(uint8 words) {
  const Move m = {words.s0, words.s1, words.s2, words.s3, words.s4, words.s5, words.s6};
  return m;
}

uint free_slot(__global const ulong *slots) {
  const uint n = item_slots(slots[LAST]);
  for (uint s = 0; s < n; ++s)
    if (slots[s] == EMPTY_WORD) return s;
  return NO_SLOT;
}

uint free_slots(__global const ulong *slots) {
  const uint n = item_slots(slots[LAST]);
  uint count = 0;
  for (uint s = 0; s < n; ++s) count += slots[s] == EMPTY_WORD;
  return count;
}

bool in_group(uint key, uint home, uint tag, uint seed, uint buckets) {
  return primary_bucket(key, seed, buckets) == home && tag_of(key, seed) == tag;
}

// Items of group (home, tag) among the first n slots.
uint group_size(__global const ulong *slots, uint n, uint home, uint tag, uint seed,
                uint buckets) {
  uint count = 0;
  for (uint s = 0; s < n; ++s)
    count += slots[s] != EMPTY_WORD && in_group(key_of(slots[s]), home, tag, seed, buckets);
  return count;
}

// Whether group (home, tag), now in bucket w, could go to a bucket with a free slot.
bool has_alternative(__global const ulong *table, uint home, uint tag, uint w, uint seed,
                     uint buckets) {
  for (uint entry = 1; entry <= 7; ++entry) {
    const uint other = secondary_bucket(home, tag, entry, seed, buckets);
    if (other != w && other != home && free_slot(table + (size_t)other * SLOTS) != NO_SLOT)
      return true;
  }
  return false;
}

// How easily an item of (b, tag) gets a slot, hardest first.
#define IMPOSSIBLE 0u  // its item is primary or of the same group
#define GROUP 1u       // others of its item's group must go with it
#define ALONE 2u       // its item is the only one of its group
#define CAN_MOVE_ON 3u // and another of that item's candidates has a free slot
#define FREE 4u        // there is no item in it

uint ease(__global const ulong *table, uint w, uint s, uint b, uint tag, uint seed,
          uint buckets) {
  __global const ulong *slots = table + (size_t)w * SLOTS;
  if (slots[s] == EMPTY_WORD) return FREE;
  const uint key = key_of(slots[s]);
  const uint home = primary_bucket(key, seed, buckets);
  const uint its_tag = tag_of(key, seed);
  if (home == w || (home == b && its_tag == tag)) return IMPOSSIBLE;
  if (group_size(slots, item_slots(slots[LAST]), home, its_tag, seed, buckets) > 1) return GROUP;
  return has_alternative(table, home, its_tag, w, seed, buckets) ? CAN_MOVE_ON : ALONE;
}

// A free slot in the emptiest bucket that one of the `allowed` entries (a bit each) names.
// Ties go to the first from `random` on, so that a group that left a bucket tries others.
bool find_free(__global const ulong *table, uint tag, uint allowed, uint random, uint seed,
               uint buckets, Move *move) {
  uint most = 0;
  for (uint i = 0; i < 7; ++i) {
    const uint entry = (random + i) % 7 + 1;
    const uint w = secondary_bucket(move->b, tag, entry, seed, buckets);
    if (!(allowed >> entry & 1u) || w == move->b) continue;
    const uint room = free_slots(table + (size_t)w * SLOTS);
    if (room <= most) continue;
    most = room;
    move->target = w;
    move->entry = entry;
  }
  return most != 0;
}

// The slot that is easiest to get in the buckets of the `allowed` entries. Displacing whole
// groups is the last resort: it made as many new stragglers as it placed, and at load 0.95
// the walk did not end.
uint find_slot(__global const ulong *table, uint tag, uint allowed, uint random, uint seed,
               uint buckets, Move *move) {
  if (find_free(table, tag, allowed, random, seed, buckets, move)) {
    move->action = INSERT;
    move->slot = free_slot(table + (size_t)move->target * SLOTS);
    return FREE;
  }
  uint best = IMPOSSIBLE;
  move->action = DISPLACE;
  for (uint i = 0; i < 7 && best < CAN_MOVE_ON; ++i) {
    const uint entry = (random + i) % 7 + 1;
    const uint w = secondary_bucket(move->b, tag, entry, seed, buckets);
    if (!(allowed >> entry & 1u) || w == move->b) continue;
    __global const ulong *slots = table + (size_t)w * SLOTS;
    const uint n = item_slots(slots[LAST]);
    for (uint k = 0; k < n && best < CAN_MOVE_ON; ++k) {
      const uint s = ((random >> 8) + k) % n;
      const uint its_ease = ease(table, w, s, move->b, tag, seed, buckets);
      if (its_ease <= best) continue;
      best = its_ease;
      move->target = w;
      move->home = primary_bucket(key_of(slots[s]), seed, buckets);
      move->entry = entry;
      move->slot = s;
    }
  }
  return best;
}

// What an item of (b, tag) does. A set remap entry binds it to its group's bucket; if there is
// no easy slot there, the group may look for another. And unless the choice is easy, every
// other time the item swaps: two items that want the one slot within their reach
// would displace each other for ever.
Move choose(__global const ulong *table, uint b, uint tag, uint random, uint seed,
            uint buckets) {
  const uint bound_by = entry_at(table[(size_t)b * SLOTS + LAST], tag);
  Move move = {b, NONE, NONE, NONE, SWAP, 0, 0};
  uint found = find_slot(table, tag, bound_by ? 1u << bound_by : 0xfeu, random, seed, buckets,
                         &move);
  if (bound_by && found < CAN_MOVE_ON && (random >> 13 & 1u)) {
    move.home = NONE;
    move.old = secondary_bucket(b, tag, bound_by, seed, buckets);
    found = find_slot(table, tag, 0xfeu & ~(1u << bound_by), random, seed, buckets, &move);
  }
  if (found == IMPOSSIBLE || (found < CAN_MOVE_ON && (random >> 14 & 1u))) {
    const Move swap = {b, b, NONE, NONE, SWAP, 0, (random >> 16) % LAST};
    return swap;
  }
  return move;
}

__kernel void propose(__global const ulong *table, __global const ulong *stragglers,
                      __global uint8 *moves, __global uint *owner, uint n, uint buckets,
                      uint seed, uint round) {
  const uint j = get_global_id(0);
  if (j >= n) return;
  const uint key = key_of(stragglers[j]);
  const uint random = jenkins(key + round * FOLD);
  const Move move = choose(table, primary_bucket(key, seed, buckets), tag_of(key, seed), random,
                           seed, buckets);
  moves[j] = pack(move);
  atomic_min(&owner[move.b], j);
  atomic_min(&owner[move.target], j);
  if (move.home != NONE) atomic_min(&owner[move.home], j);
  if (move.old != NONE) atomic_min(&owner[move.old], j);
}

// Sends the items of group (home, tag) out of bucket w and clears their remap entry.
void send_away(__global ulong *table, uint w, uint home, uint tag, __global ulong *stragglers,
               __global uint *counter, uint capacity, uint seed, uint buckets) {
  __global ulong *slots = table + (size_t)w * SLOTS;
  const uint n = item_slots(slots[LAST]);
  for (uint s = 0; s < n; ++s) {
    const ulong word = slots[s];
    if (word == EMPTY_WORD) continue;
    const uint key = key_of(word);
    if (!in_group(key, home, tag, seed, buckets)) continue;
    add_straggler(stragglers, counter, capacity, word);
    slots[s] = EMPTY_WORD;
  }
  table[(size_t)home * SLOTS + LAST] &= ~entry_bits(7, tag);
}

// The winners of all their buckets move; the others, and who lost a slot, are left.
__kernel void commit(__global ulong *table, __global const ulong *stragglers,
                     __global const uint8 *moves, __global const uint *owner,
                     __global ulong *left, __global uint *counters, uint capacity, uint n,
                     uint buckets, uint seed) {
  const uint j = get_global_id(0);
  if (j >= n) return;
  __global uint *left_count = &counters[STRAGGLERS];
  const ulong word = stragglers[j];
  const Move move = unpack(moves[j]);
  const bool mine = owner[move.b] == j && owner[move.target] == j &&
                    (move.home == NONE || owner[move.home] == j) &&
                    (move.old == NONE || owner[move.old] == j);
  if (!mine) {
    add_straggler(left, left_count, capacity, word);
    return;
  }
  const uint tag = tag_of(key_of(word), seed);
  const size_t at = (size_t)move.target * SLOTS + move.slot;
  if (move.old != NONE)
    send_away(table, move.old, move.b, tag, left, left_count, capacity, seed, buckets);
  if (move.action == DISPLACE)
    send_away(table, move.target, move.home, tag_of(key_of(table[at]), seed), left, left_count,
              capacity, seed, buckets);
  if (move.action == SWAP) add_straggler(left, left_count, capacity, table[at]);
  table[at] = word;
  table[(size_t)move.b * SLOTS + LAST] |= entry_bits(move.entry, tag);
}

// Gives the claimed buckets back, so that the next round starts with no owner anywhere.
__kernel void release(__global const uint8 *moves, __global uint *owner, uint n) {
  const uint j = get_global_id(0);
  if (j >= n) return;
  const Move move = unpack(moves[j]);
  atomic_xchg(&owner[move.b], NONE);
  atomic_xchg(&owner[move.target], NONE);
  if (move.home != NONE) atomic_xchg(&owner[move.home], NONE);
  if (move.old != NONE) atomic_xchg(&owner[move.old], NONE);
}

// ---------------------------------------------------------------- census

// Adds up Type B buckets, items and secondary items; each work-item takes `share` buckets.
__kernel void census(__global const ulong *table, __global uint *sums, uint share, uint buckets,
                     uint seed) {
  const ulong from = (ulong)get_global_id(0) * share;
  const ulong to = min(from + share, (ulong)buckets);
  uint type_b = 0, items = 0, secondary = 0;
  for (ulong b = from; b < to; ++b) {
    __global const ulong *slots = table + b * SLOTS;
    type_b += is_type_b(slots[LAST]);
    const uint n = item_slots(slots[LAST]);
    for (uint s = 0; s < n; ++s) {
      if (slots[s] == EMPTY_WORD) continue;
      ++items;
      secondary += primary_bucket(key_of(slots[s]), seed, buckets) != b;
    }
  }
  if (from >= to) return;
  atomic_add(&sums[0], type_b);
  atomic_add(&sums[1], items);
  atomic_add(&sums[2], secondary);
}

// ---------------------------------------------------------------- lookup

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
