// Displacement: slots for the items that `place` found none for (Horton paper, section 4.4).
//
//   stragglers ─▶ { explore ─▶ propose ─▶ commit ─▶ release }* ─▶ none left
//
// In rounds. explore looks at every way out of every straggler side by side and keeps the
// easiest; propose claims the groups that it moves, and the lowest number wins; commit moves
// the winners. A group is all items with one primary bucket and one tag. Who holds its claim, and
// nobody else, may move its items out of their slots and change its remap entry; free slots are
// taken with compare-and-swap. So there is no lock and no waiting. Kernel launches separate the
// phases: explore and propose only read the table, commit touches it with atomics only. At load
// 0.95 about one item in 250 gets here; six to eleven rounds place them all.
//
// It is the one phase of a build that needs 64-bit atomics, and a program of its own: a join's load
// leaves no straggler, so that most machines never compile it.
//
// hash.cl, bucket.cl, fill.cl, put_wide.cl (of wide values) and changing.cl come first.
#ifndef STRAGGLERS
#error "STRAGGLERS: the counter of stragglers"
#endif
#ifndef LATE_ROUND
#error "LATE_ROUND: the round from which stragglers spare each other every other time"
#endif

// How easily an item gets a slot, hardest first. The paper never lets a secondary item displace a
// primary one, and nor does this while there is another way. But among a million buckets of 4 slots
// some have six items of one tag. And some tags lead only to buckets full of primary items.
#define IMPOSSIBLE 0u   // its item is of the same group, or primary in a bucket that cannot turn
#define CONVERT 1u      // its item is primary, and the bucket must turn Type B to let it go
#define PRIMARY 2u      // its item is primary in a Type B bucket
#define GROUP 3u        // others of its item's group must go with it
#define ALONE 4u        // its item is the only one of its group
#define CAN_MOVE_ON 5u  // and another of that item's candidates has a free slot
#define FREE 6u         // there is no item in it

// A way out of a straggler of bucket b, packed so that an easier one is larger:
//
//   mover 0     it goes to `slot` of the bucket that `entry` leads to
//   mover m     it takes primary slot m - 1 of b, whose item goes there instead: other tags
//               lead to other buckets
//   entry 0     it returns to slot m - 1 of b: free, or of a secondary item, or of a primary
//               one that becomes a straggler instead
//
// `leave` says that its group leaves the bucket it is bound to first. The random bits keep
// stragglers with equal ways from choosing the same.
typedef struct {
  uint ease, leave, mover, entry, slot;
} Way;

uint pack(Way way, uint random) {
  return way.ease << 29 | (random & 0x7fffu) << 14 | way.leave << 13 | way.mover << 8 |
         way.entry << 5 | way.slot;
}

Way unpack(uint word) {
  const Way way = {word >> 29, word >> 13 & 1u, word >> 8 & 31u, word >> 5 & 7u, word & 31u};
  return way;
}

// ---------------------------------------------------------------- explore

uint bound_entry(__global const ulong *table, Group group) {
  return entry_at(table[(size_t)group.home * SLOTS + LAST], group.tag);
}

// Items of `group` in a bucket.
uint count_group(__global const ulong *slots, Group group, uint seed, uint buckets) {
  const uint n = item_slots(slots[LAST]);
  uint count = 0;
  for (uint s = 0; s < n; ++s)
    count += slots[s] != EMPTY_WORD &&
             same_group(group_of(key_of(slots[s]), seed, buckets), group);
  return count;
}

// Whether a group that is now in w could go to a bucket with a free slot.
bool has_alternative(__global uint *fill, Group group, uint w, uint seed, uint buckets) {
  bool found = false;  // and no way out of the loop: seven loads at once, not one by one
  for (uint entry = 1; entry <= 7; ++entry) {
    const uint other = secondary_bucket(group.home, group.tag, entry, seed, buckets);
    found |= items_in(fill, other) < SLOTS && other != w && other != group.home;
  }
  return found;
}

// What a straggler asks for besides a slot: FOR_WIDE, a slot for a value of 32 bits; and that a
// bucket whose last item is a guest may be turned Type B. The guest's group then loses its place.
// Only the stubborn few of late rounds may: at load 0.95 it would make more stragglers than it
// places.
#define FOR_WIDE 1u
#define ANY_LAST 2u

uint ease_of_primary(__global const ulong *slots, uint w, uint s, uint asks, uint seed,
                     uint buckets) {
  const ulong last = slots[LAST];
  if (is_type_b(last)) return PRIMARY;
  if (s == LAST || last == EMPTY_WORD) return IMPOSSIBLE;
  return asks & ANY_LAST || primary_bucket(key_of(last), seed, buckets) == w ? CONVERT
                                                                            : IMPOSSIBLE;
}

// How easily an item of `group` gets slot s of w.
uint ease_of(__global const ulong *table, __global uint *fill, uint w, uint s, Group group,
             uint asks, uint seed, uint buckets) {
  __global const ulong *slots = table + (size_t)w * SLOTS;
  if (slots[s] == EMPTY_WORD) return FREE;
  const Group its = group_of(key_of(slots[s]), seed, buckets);
  if (its.home == w) return ease_of_primary(slots, w, s, asks, seed, buckets);
  if (same_group(its, group)) return IMPOSSIBLE;
  if (count_group(slots, its, seed, buckets) > 1) return GROUP;
  return has_alternative(fill, its, w, seed, buckets) ? CAN_MOVE_ON : ALONE;
}

// Whether w has `need` slots that `group` could ever get.
bool can_hold(__global const ulong *table, uint w, uint need, Group group, uint asks, uint seed,
              uint buckets) {
  __global const ulong *slots = table + (size_t)w * SLOTS;
  const uint n = item_slots(slots[LAST]);
  uint room = 0;
  for (uint s = 0; s < n; ++s) {
    const Group its = group_of(key_of(slots[s]), seed, buckets);
    room += slots[s] == EMPTY_WORD ||
            (its.home == w ? ease_of_primary(slots, w, s, asks, seed, buckets) != IMPOSSIBLE
                           : !same_group(its, group));
  }
  return room >= need;
}

// Whether w, which has a free slot, has one for an item: the last is for values of 31 bits.
bool has_slot_for(__global const ulong *table, uint w, bool wide) {
  bool found = !wide;
  for (uint s = 0; s < LAST && !found; ++s) found = table[(size_t)w * SLOTS + s] == EMPTY_WORD;
  return found;
}

// The way to slot s of w for an item of `group`; a free slot, whichever it is, is left to s == 0.
Way search_slot(__global const ulong *table, __global uint *fill, uint w, uint s, Group group,
                uint asks, uint seed, uint buckets) {
  Way way = {IMPOSSIBLE, 0, 0, 0, NO_SLOT};
  if (items_in(fill, w) < SLOTS && has_slot_for(table, w, asks & FOR_WIDE)) {
    way.ease = s == 0 ? FREE : IMPOSSIBLE;
  } else if (s < item_slots(table[(size_t)w * SLOTS + LAST]) && !(asks & FOR_WIDE && s == LAST)) {
    way.ease = ease_of(table, fill, w, s, group, asks, seed, buckets);
    way.slot = s;
  }
  return way;
}

// The way out by one mover, one entry and one slot. A set remap entry binds a mover to the
// bucket of its group; every other time the straggler's own group looks for another bucket,
// which must be able to hold it whole.
Way search_entry(__global const ulong *table, __global uint *fill, Group group, uint asks,
                 uint entry, uint s, bool may_leave, uint seed, uint buckets) {
  Way way = {IMPOSSIBLE, 0, 0, 0, NO_SLOT};
  const uint w = secondary_bucket(group.home, group.tag, entry, seed, buckets);
  const uint bound = bound_entry(table, group);
  const bool leave = bound && may_leave;
  if (w == group.home || (bound && (entry == bound) == leave)) return way;
  if (leave) {
    const uint old = secondary_bucket(group.home, group.tag, bound, seed, buckets);
    const uint need = 1 + count_group(table + (size_t)old * SLOTS, group, seed, buckets);
    if (old == w || !can_hold(table, w, need, group, asks, seed, buckets)) return way;
  }
  way = search_slot(table, fill, w, s, group, asks, seed, buckets);
  if (leave) way.ease = min(way.ease, ALONE);
  way.leave = leave;
  way.entry = entry;
  return way;
}

// Back to slot s of the primary bucket. Putting out a primary item is, every other time, better
// than any slot that takes luck: two items that want the one slot within their reach would
// displace each other for ever.
Way search_home(__global const ulong *table, __global uint *fill, uint s, Group group,
                uint random, uint seed, uint buckets) {
  const ulong word = table[(size_t)group.home * SLOTS + s];
  const bool primary =
      word != EMPTY_WORD && primary_bucket(key_of(word), seed, buckets) == group.home;
  const uint put_out = random >> 14 & 1u ? ALONE : CONVERT;
  const Way way = {primary ? put_out
                           : ease_of(table, fill, group.home, s, group, 0, seed, buckets),
                   0, 0, 0, s};
  return way;
}

// One work-item per (straggler, mover, entry, slot): `movers` is 1 for the stragglers themselves, 2
// for one primary item each beside them, SLOTS for all. best[j] receives the best way out, 0 if
// there is none.
__kernel void explore(__global const ulong *table, __global uint *fill,
                      __global const ulong *stragglers, __global uint *best, uint n, uint movers,
                      uint round, uint buckets, uint seed) {
  const uint id = get_global_id(0), s = id % SLOTS, entry = id / SLOTS % 8;
  const uint j = id / SLOTS / 8 / movers;
  uint mover = id / SLOTS / 8 % movers;
  if (j >= n || (entry == 0 && (mover == 0 || s > 0))) return;
  const Group straggler = group_of(key_of(stragglers[j]), seed, buckets);
  const uint random = jenkins(key_of(stragglers[j]) + round * FOLD);
  if (mover && movers == 2) mover = 1 + (random >> 20) % LAST;
  const uint late = round >= LATE_ROUND ? ANY_LAST : 0;
  Way way;
  if (entry == 0) {
    way = search_home(table, fill, mover - 1, straggler, random, seed, buckets);
  } else if (mover == 0) {
    const bool may_leave = random >> 13 & 1u;
    const uint asks = late | (is_wide(stragglers[j]) ? FOR_WIDE : 0);
    way = search_entry(table, fill, straggler, asks, entry, s, may_leave, seed, buckets);
  } else {
    const ulong word = table[(size_t)straggler.home * SLOTS + mover - 1];
    const Group group = group_of(key_of(word), seed, buckets);
    if (word == EMPTY_WORD || group.home != straggler.home) return;
    const uint asks = late | (is_wide(word) ? FOR_WIDE : 0);
    way = search_entry(table, fill, group, asks, entry, s, false, seed, buckets);
  }
  way.mover = mover;
  // Two stragglers that each take the other's slot, as the easiest to get, would do so for ever.
  const bool gives_way = late && random >> 12 & 1u;
  if (gives_way && entry && (way.ease == ALONE || way.ease == GROUP)) return;
  if (way.ease != IMPOSSIBLE) atomic_max(&best[j], pack(way, jenkins(random + id)));
}

// ---------------------------------------------------------------- propose

// Where the claim of a group stands. Groups may share a place; then one of them waits.
uint claim_of(Group group, uint buckets) {
  const ulong k = (ulong)group.home * TAGS + group.tag;
  return mul_hi(jenkins((uint)k ^ (uint)(k >> 32) * FOLD), buckets);
}

// moves[j] = the way, and up to three claims: of the group that moves, of the one that gives way,
// and of the last item of a bucket that turns Type B.
__kernel void propose(__global const ulong *table, __global const ulong *stragglers,
                      __global const uint *best, __global uint4 *moves, __global uint *claims,
                      uint n, uint buckets, uint seed) {
  const uint j = get_global_id(0);
  if (j >= n) return;
  const uint key = key_of(stragglers[j]);
  const uint b = primary_bucket(key, seed, buckets);
  __global const ulong *home = table + (size_t)b * SLOTS;
  const Way way = unpack(best[j]);
  uint4 move = (uint4)(best[j], NONE, NONE, NONE);
  uint w = b;
  if (way.entry) {
    const Group moving =
        group_of(way.mover ? key_of(home[way.mover - 1]) : key, seed, buckets);
    w = secondary_bucket(b, moving.tag, way.entry, seed, buckets);
    move.y = claim_of(moving, buckets);
  }
  __global const ulong *slots = table + (size_t)w * SLOTS;
  if (way.ease != IMPOSSIBLE && way.ease != FREE && way.slot != NO_SLOT)
    move.z = claim_of(group_of(key_of(slots[way.slot]), seed, buckets), buckets);
  if (way.ease == CONVERT && way.entry)
    move.w = claim_of(group_of(key_of(slots[LAST]), seed, buckets), buckets);
  moves[j] = move;
  if (move.y != NONE) atomic_min(&claims[move.y], j);
  if (move.z != NONE) atomic_min(&claims[move.z], j);
  if (move.w != NONE) atomic_min(&claims[move.w], j);
}

// ---------------------------------------------------------------- commit

void lose(const Changing *c, ulong word) {
  add_straggler(c->left, c->left_count, c->capacity, word);
}

void set_entry(const Changing *c, Group group, uint from, uint to) {
  atom_add(slot_at(c, group.home, LAST),
           entry_bits(to, group.tag) - entry_bits(from, group.tag));
}

uint get_entry(const Changing *c, Group group) {
  return entry_at(read_slot(c, group.home, LAST), group.tag);
}

void free_slot_of(const Changing *c, uint w, uint s) {
  atom_xchg(slot_at(c, w, s), EMPTY_WORD);
  atomic_sub(&c->fill[w / 4], 1u << (w % 4 * 8));
}

// Puts an item into a free slot of w, if there is one.
bool put_in(const Changing *c, uint w, ulong word) {
#if WIDE_VALUES
  return put_in_bucket(c->table, c->fill, w, word);
#else
  const uint first = take_slot(c->fill, w);
  if (first == NO_SLOT) return false;
  // As a rule slots are taken in order, but a group that left may have left gaps. The count gives
  // this work-item a slot; the last word of a Type B bucket is never EMPTY_WORD.
  for (uint i = first; i < first + 64; ++i)
    if (atom_cmpxchg(slot_at(c, w, i % SLOTS), EMPTY_WORD, word) == EMPTY_WORD) return true;
  atomic_sub(&c->fill[w / 4], 1u << (w % 4 * 8));
  return false;
#endif
}

// Makes stragglers of the group's items in w and forgets where they were.
void send_away(const Changing *c, uint w, Group group) {
  const uint n = item_slots(read_slot(c, w, LAST));
  for (uint s = 0; s < n; ++s) {
    const ulong word = read_slot(c, w, s);
    // The bucket may turn Type B meanwhile: its last word is no item then.
    if (word == EMPTY_WORD || (s == LAST && is_type_b(word)) ||
        !same_group(group_of(key_of(word), c->seed, c->buckets), group))
      continue;
    free_slot_of(c, w, s);
    lose(c, word);
  }
  set_entry(c, group, get_entry(c, group), 0);
}

// Gives a lone item that lost its slot another bucket with a free one.
bool move_on(const Changing *c, ulong word, Group group) {
  for (uint entry = 1; entry <= 7; ++entry) {
    const uint w = secondary_bucket(group.home, group.tag, entry, c->seed, c->buckets);
    if (w == group.home || !put_in(c, w, word)) continue;
    set_entry(c, group, 0, entry);
    return true;
  }
  return false;
}

// Turns w Type B for an item of group `moving`; the item of its last slot leaves, and if it is a
// guest, its group with it.
void turn_type_b(const Changing *c, uint w, Group moving) {
  const ulong last = atom_xchg(slot_at(c, w, LAST), TYPE_B);
  const Group group = group_of(key_of(last), c->seed, c->buckets);
  lose(c, last);
  if (group.home != w && !same_group(group, moving)) send_away(c, w, group);
}

// Puts `word` into a slot of w whose item, and if need be whose group, gives way.
void displace(const Changing *c, uint w, Way way, ulong word) {
  const ulong out = atom_xchg(slot_at(c, w, way.slot), word);
  const Group group = group_of(key_of(out), c->seed, c->buckets);
  if (group.home == w) {
    if (way.entry && way.ease == CONVERT)
      turn_type_b(c, w, group_of(key_of(word), c->seed, c->buckets));
    lose(c, out);
    return;
  }
  if (way.ease == GROUP)
    send_away(c, w, group);
  else
    set_entry(c, group, get_entry(c, group), 0);
  if (way.ease != CAN_MOVE_ON || !move_on(c, out, group)) lose(c, out);
}

// An item of b goes to where the way's entry leads. Returns whether it did.
bool go(const Changing *c, uint b, ulong word, Way way) {
  const Group group = {b, tag_of(key_of(word), c->seed)};
  const uint w = secondary_bucket(b, group.tag, way.entry, c->seed, c->buckets);
  uint bound = get_entry(c, group);
  if (way.leave) {
    send_away(c, secondary_bucket(b, group.tag, bound, c->seed, c->buckets), group);
    bound = 0;
  }
  if (way.ease == FREE || way.slot == NO_SLOT) {
    if (!put_in(c, w, word)) return false;
  } else {
    displace(c, w, way, word);
  }
  set_entry(c, group, bound, way.entry);
  return true;
}

// The winners of all their claims move; the others, and who lost a slot, are left.
__kernel void commit(__global ulong *table, __global uint *fill,
                     __global const ulong *stragglers, __global const uint4 *moves,
                     __global const uint *claims, __global ulong *left, __global uint *counters,
                     uint n, uint capacity, uint buckets, uint seed) {
  const uint j = get_global_id(0);
  if (j >= n) return;
  const Changing c = {table, fill, left, &counters[STRAGGLERS], capacity, buckets, seed};
  const ulong word = stragglers[j];
  const uint4 move = moves[j];
  const Way way = unpack(move.x);
  const uint b = primary_bucket(key_of(word), seed, buckets);
  const bool mine = (move.y == NONE || claims[move.y] == j) &&
                    (move.z == NONE || claims[move.z] == j) &&
                    (move.w == NONE || claims[move.w] == j);
  if (way.ease == IMPOSSIBLE || !mine) {
    lose(&c, word);
  } else if (way.entry == 0 && way.ease == FREE) {
    if (!put_in(&c, b, word)) lose(&c, word);
  } else if (way.entry == 0) {
    displace(&c, b, way, word);
  } else if (way.mover == 0) {
    if (!go(&c, b, word, way)) lose(&c, word);
  } else {
    // The mover is copied out first: its claim keeps everybody else from its slot.
    const ulong moving = read_slot(&c, b, way.mover - 1);
    if (go(&c, b, moving, way))
      atom_xchg(slot_at(&c, b, way.mover - 1), word);
    else
      lose(&c, word);
  }
}

// Gives the claims back, so that the next round starts without any.
__kernel void release(__global const uint4 *moves, __global uint *claims, uint n) {
  const uint j = get_global_id(0);
  if (j >= n) return;
  const uint4 move = moves[j];
  if (move.y != NONE) atomic_xchg(&claims[move.y], NONE);
  if (move.z != NONE) atomic_xchg(&claims[move.z], NONE);
  if (move.w != NONE) atomic_xchg(&claims[move.w], NONE);
}
