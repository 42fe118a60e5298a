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
#define FIRST_MOVER LAST  // the straggler itself; below it, slots of its primary bucket

// A straggler's proposed move. It, or a primary item of its bucket b that it puts out of
// slot `mover` (other tags lead elsewhere), goes to `slot` of bucket `target`:
//
//   INSERT    the slot is free
//   DISPLACE  the slot's item gives way: if secondary, all its group (primary bucket `home`)
//   PUT_OUT   nowhere yet: the primary item becomes a straggler
//
// The target may be b itself: the straggler returns home, with no entry. If `old` is a bucket, its
// own group leaves it first, because it found no room there.
typedef struct {
  uint b, target, home, old;  // buckets claimed for the move, NONE if not needed
  uint action, entry, slot, mover;
} Move;

#define INSERT 1u
#define DISPLACE 2u
#define PUT_OUT 3u

uint8 pack(Move m) {
  return (uint8)(m.b, m.target, m.home, m.old, m.action, m.entry, m.slot, m.mover);
}

Move unpack(uint8 words) {
  const Move m = {words.s0, words.s1, words.s2, words.s3, words.s4, words.s5, words.s6,
                  words.s7};
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
#define IMPOSSIBLE 0u   // its item is of the same group
#define CONVERT 1u      // its item is primary, and the bucket must turn Type B to let it go
#define PRIMARY 2u      // its item is primary in a Type B bucket
#define GROUP 3u        // others of its item's group must go with it
#define ALONE 4u        // its item is the only one of its group
#define CAN_MOVE_ON 5u  // and another of that item's candidates has a free slot
#define FREE 6u         // there is no item in it

// Whether a secondary item could displace the primary one in slot s of w. The paper never does
// (section 4.4), and nor does this while there is another way: but among a million buckets of 4
// slots some have six items of one tag.
uint ease_of_primary(__global const ulong *slots, uint w, uint s, uint seed, uint buckets) {
  const ulong last = slots[LAST];
  if (is_type_b(last)) return PRIMARY;
  return s != LAST && last != EMPTY_WORD && primary_bucket(key_of(last), seed, buckets) == w
             ? CONVERT
             : IMPOSSIBLE;
}

uint ease(__global const ulong *table, uint w, uint s, uint b, uint tag, uint seed,
          uint buckets) {
  __global const ulong *slots = table + (size_t)w * SLOTS;
  if (slots[s] == EMPTY_WORD) return FREE;
  const uint key = key_of(slots[s]);
  const uint home = primary_bucket(key, seed, buckets);
  const uint its_tag = tag_of(key, seed);
  if (home == w) return ease_of_primary(slots, w, s, seed, buckets);
  if (home == b && its_tag == tag) return IMPOSSIBLE;
  if (group_size(slots, item_slots(slots[LAST]), home, its_tag, seed, buckets) > 1) return GROUP;
  return has_alternative(table, home, its_tag, w, seed, buckets) ? CAN_MOVE_ON : ALONE;
}

// Where an item of (b, tag) looks for a slot: in the buckets of the `allowed` entries (a bit
// each) in which its group of `need` items could ever stand.
typedef struct {
  uint b, tag, allowed, need;
} Wish;

// Whether w has `need` slots that could be had.
bool can_hold(__global const ulong *table, uint w, Wish wish, uint seed, uint buckets) {
  __global const ulong *slots = table + (size_t)w * SLOTS;
  const uint n = item_slots(slots[LAST]);
  uint room = 0;
  for (uint s = 0; s < n; ++s) {
    if (slots[s] == EMPTY_WORD) {
      ++room;
      continue;
    }
    const uint key = key_of(slots[s]), home = primary_bucket(key, seed, buckets);
    room += home == w ? ease_of_primary(slots, w, s, seed, buckets) != IMPOSSIBLE
                      : !(home == wish.b && tag_of(key, seed) == wish.tag);
  }
  return room >= wish.need;
}

// The bucket of an entry if it is among those wished for, else NONE.
uint wished_bucket(__global const ulong *table, Wish wish, uint entry, uint seed, uint buckets) {
  if (!(wish.allowed >> entry & 1u)) return NONE;
  const uint w = secondary_bucket(wish.b, wish.tag, entry, seed, buckets);
  if (w == wish.b || (wish.need > 1 && !can_hold(table, w, wish, seed, buckets))) return NONE;
  return w;
}

// A free slot in the emptiest bucket. Ties go to the first from `random` on, so that a group
// that left a bucket tries others.
bool find_free(__global const ulong *table, Wish wish, uint random, uint seed, uint buckets,
               Move *move) {
  uint most = 0;
  for (uint i = 0; i < 7; ++i) {
    const uint entry = (random + i) % 7 + 1;
    const uint w = wished_bucket(table, wish, entry, seed, buckets);
    const uint room = w == NONE ? 0 : free_slots(table + (size_t)w * SLOTS);
    if (room <= most) continue;
    most = room;
    move->target = w;
    move->entry = entry;
  }
  return most != 0;
}

// The slot that is easiest to get. Displacing whole groups is the last resort: it made as many
// new stragglers as it placed, and at load 0.95 the walk did not end.
uint find_slot(__global const ulong *table, Wish wish, uint random, uint seed, uint buckets,
               Move *move) {
  if (find_free(table, wish, random, seed, buckets, move)) {
    move->action = INSERT;
    move->slot = free_slot(table + (size_t)move->target * SLOTS);
    return FREE;
  }
  uint best = IMPOSSIBLE;
  move->action = DISPLACE;
  for (uint i = 0; i < 7 && best < CAN_MOVE_ON; ++i) {
    const uint entry = (random + i) % 7 + 1;
    const uint w = wished_bucket(table, wish, entry, seed, buckets);
    if (w == NONE) continue;
    __global const ulong *slots = table + (size_t)w * SLOTS;
    const uint n = item_slots(slots[LAST]);
    for (uint k = 0; k < n && best < CAN_MOVE_ON; ++k) {
      const uint s = ((random >> 8) + k) % n;
      const uint its_ease = ease(table, w, s, wish.b, wish.tag, seed, buckets);
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

// The easiest move of one mover: the straggler itself or a primary item. A set remap entry binds
// it to the bucket of its group, unless `leave` says that the group is to leave it.
uint find_move(__global const ulong *table, uint key, bool leave, uint random, uint seed,
               uint buckets, Move *move) {
  const uint tag = tag_of(key, seed);
  const uint bound_by = entry_at(table[(size_t)move->b * SLOTS + LAST], tag);
  Wish wish = {move->b, tag, bound_by ? 1u << bound_by : 0xfeu, 1};
  if (leave && bound_by) {
    move->old = secondary_bucket(move->b, tag, bound_by, seed, buckets);
    wish.allowed = 0xfeu & ~wish.allowed;
    __global const ulong *slots = table + (size_t)move->old * SLOTS;
    wish.need += group_size(slots, item_slots(slots[LAST]), move->b, tag, seed, buckets);
  }
  return find_slot(table, wish, random, seed, buckets, move);
}

// An exchange with what is in slot s of b: a primary item becomes a straggler, a secondary one
// gives way to this item's return, and a free slot is simply taken.
Move exchange(__global const ulong *slots, uint b, uint s, uint seed, uint buckets) {
  Move move = {b, NONE, NONE, NONE, PUT_OUT, 0, 0, s};
  const uint home = primary_bucket(key_of(slots[s]), seed, buckets);
  const bool free = slots[s] == EMPTY_WORD;
  if (!free && home == b) return move;
  move.action = free ? INSERT : DISPLACE;
  move.home = free ? NONE : home;
  move.target = b;
  move.slot = s;
  move.mover = FIRST_MOVER;
  return move;
}

// What a straggler of bucket b does: first what needs no luck, by itself or by a primary item
// that makes room for it. Then its group leaves its bucket; or, every other time, it
// exchanges places at home, as two items that want the one slot within their reach would
// displace each other for ever.
Move choose(__global const ulong *table, uint b, uint key, uint random, uint seed, uint buckets) {
  __global const ulong *slots = table + (size_t)b * SLOTS;
  for (uint m = 0; m <= LAST; ++m) {
    Move easy = {b, NONE, NONE, NONE, PUT_OUT, 0, 0, m ? m - 1 : FIRST_MOVER};
    if (m && slots[m - 1] == EMPTY_WORD) return exchange(slots, b, m - 1, seed, buckets);
    const uint moving = m ? key_of(slots[m - 1]) : key;
    if (primary_bucket(moving, seed, buckets) == b &&
        find_move(table, moving, false, random + m, seed, buckets, &easy) >= CAN_MOVE_ON)
      return easy;
  }
  Move move = {b, NONE, NONE, NONE, PUT_OUT, 0, 0, FIRST_MOVER};
  const bool leave = random >> 13 & 1u;
  const uint found = find_move(table, key, leave, random, seed, buckets, &move);
  if (found >= CAN_MOVE_ON || (found > IMPOSSIBLE && random >> 14 & 1u)) return move;
  return exchange(slots, b, (random >> 16) % LAST, seed, buckets);
}

__kernel void propose(__global const ulong *table, __global const ulong *stragglers,
                      __global uint8 *moves, __global uint *owner, uint n, uint buckets,
                      uint seed, uint round) {
  const uint j = get_global_id(0);
  if (j >= n) return;
  const uint key = key_of(stragglers[j]);
  const uint random = jenkins(key + round * FOLD);
  const Move move =
      choose(table, primary_bucket(key, seed, buckets), key, random, seed, buckets);
  moves[j] = pack(move);
  atomic_min(&owner[move.b], j);
  if (move.target != NONE) atomic_min(&owner[move.target], j);
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

// Makes a straggler of the primary item in slot s of w, and of its last item if w turns Type B.
void put_out_primary(__global ulong *table, uint w, uint s, __global ulong *stragglers,
                     __global uint *counter, uint capacity) {
  __global ulong *slots = table + (size_t)w * SLOTS;
  add_straggler(stragglers, counter, capacity, slots[s]);
  if (is_type_b(slots[LAST])) return;
  add_straggler(stragglers, counter, capacity, slots[LAST]);
  slots[LAST] = TYPE_B;
}

// The winners of all their buckets move; the others, and who lost a slot, are left.
__kernel void commit(__global ulong *table, __global const ulong *stragglers,
                     __global const uint8 *moves, __global const uint *owner,
                     __global ulong *left, __global uint *counters, uint capacity, uint n,
                     uint buckets, uint seed) {
  const uint j = get_global_id(0);
  if (j >= n) return;
  __global uint *left_count = &counters[STRAGGLERS];
  ulong moving = stragglers[j];
  const Move move = unpack(moves[j]);
  const bool mine = owner[move.b] == j && (move.target == NONE || owner[move.target] == j) &&
                    (move.home == NONE || owner[move.home] == j) &&
                    (move.old == NONE || owner[move.old] == j);
  if (!mine) {
    add_straggler(left, left_count, capacity, moving);
    return;
  }
  if (move.mover != FIRST_MOVER) {
    __global ulong *slot = table + (size_t)move.b * SLOTS + move.mover;
    const ulong put_out = *slot;
    *slot = moving;
    moving = put_out;
  }
  if (move.action == PUT_OUT) {
    add_straggler(left, left_count, capacity, moving);
    return;
  }
  const uint tag = tag_of(key_of(moving), seed);
  const size_t at = (size_t)move.target * SLOTS + move.slot;
  if (move.old != NONE)
    send_away(table, move.old, move.b, tag, left, left_count, capacity, seed, buckets);
  if (move.action == DISPLACE && move.home == move.target)
    put_out_primary(table, move.target, move.slot, left, left_count, capacity);
  else if (move.action == DISPLACE)
    send_away(table, move.target, move.home, tag_of(key_of(table[at]), seed), left, left_count,
              capacity, seed, buckets);
  table[at] = moving;
  table[(size_t)move.b * SLOTS + LAST] |= entry_bits(move.entry, tag);
}

// Gives the claimed buckets back, so that the next round starts with no owner anywhere.
__kernel void release(__global const uint8 *moves, __global uint *owner, uint n) {
  const uint j = get_global_id(0);
  if (j >= n) return;
  const Move move = unpack(moves[j]);
  atomic_xchg(&owner[move.b], NONE);
  if (move.target != NONE) atomic_xchg(&owner[move.target], NONE);
  if (move.home != NONE) atomic_xchg(&owner[move.home], NONE);
  if (move.old != NONE) atomic_xchg(&owner[move.old], NONE);
}
