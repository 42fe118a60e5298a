// Displacement: slots for the items that `place` found none for (Horton paper, section 4.4).
//
//   stragglers ─▶ { propose ─▶ commit ─▶ release }* ─▶ none left
//
// In rounds: all propose a move, the lowest number wins the buckets it touches, winners move.
// So no lock, no fence, and no two work-items write one bucket. Kernel launches separate the
// phases; within one, only claims are shared, and those are atomic. At load 0.95 about one
// item in a thousand gets here.
//
// hash.cl, bucket.cl and build.cl come first.
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
