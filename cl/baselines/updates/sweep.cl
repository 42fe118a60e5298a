// Upkeep of a Horton table after items have gone (Horton paper, section 5.4).
//
//   sweep         Type B bucket with entries ─▶ remapped items return into free slots,
//                 entries that nothing needs are cleared, and a bucket that needs no entry
//                 turns Type A again
//   drop_entries  only the entries of keys that were removed
//
// The paper deletes an entry when no item of its bucket is left in the secondary one. It leaves
// open when items return to their primary buckets. A sweep looks at every Type B bucket, one
// work-item each. Only that work-item may move the items of the bucket's groups, fill its free
// slots and change its entries. So there are no claims and no waiting. An item that returns leaves
// a slot free where it was, so sweeps are repeated until none moves. Words are read with atomics,
// as others move their own items.
//
// hash.cl, bucket.cl and changing.cl come first.

// An item outside its primary bucket; `count` of them stay.
typedef struct {
  ulong word;
  uint bucket, slot, count;
} Stray;

// A word of the table, which others are changing.
ulong peek_slot(const Changing *c, uint w, uint s) {
#if PEEK_VOLATILE
  return *(volatile __global ulong *)slot_at(c, w, s);
#else
  return read_slot(c, w, s);
#endif
}

uint gap_in(const Changing *c, uint b) {
  uint s = 0;
  while (s < LAST && peek_slot(c, b, s) != EMPTY_WORD) ++s;
  return s < LAST ? s : NO_SLOT;
}

void move_item(const Changing *c, ulong word, uint from, uint from_slot, uint to, uint to_slot) {
  atom_xchg(slot_at(c, to, to_slot), word);
  atom_xchg(slot_at(c, from, from_slot), EMPTY_WORD);
}

// Moves items of a group in bucket w home while there are free slots; returns how many stay there.
uint bring_home(const Changing *c, Group group, uint w, bool repatriate, uint *moved,
                Stray *stray) {
  uint left = 0;
  for (uint s = 0; s < SLOTS; ++s) {
    const ulong word = peek_slot(c, w, s);
    if (word == EMPTY_WORD || (s == LAST && is_type_b(word))) continue;
    if (!same_group(group_of(key_of(word), c->seed, c->buckets), group)) continue;
    const uint gap = repatriate ? gap_in(c, group.home) : NO_SLOT;
    if (gap != NO_SLOT) {
      move_item(c, word, w, s, group.home, gap);
      ++*moved;
      continue;
    }
    const Stray found = {word, w, s, stray->count + 1};
    *stray = found;
    ++left;
  }
  return left;
}

// Turns bucket b Type A with its only stray in the last slot, or an item in exchange for it that
// may stand there. Returns whether it did.
bool take_last_slot(const Changing *c, uint b, Stray stray) {
  uint s = LAST;
  ulong last = stray.word;
  if (is_wide(last)) {
    for (s = 0; s < LAST; ++s) {
      last = peek_slot(c, b, s);
      if (last != EMPTY_WORD && !is_wide(last) &&
          primary_bucket(key_of(last), c->seed, c->buckets) == b)
        break;
    }
    if (s == LAST) return false;
  }
  atom_xchg(slot_at(c, b, LAST), last);
  move_item(c, stray.word, stray.bucket, stray.slot, b, s);
  return true;
}

// One work-item per bucket. moved[0] grows by the items that came home.
__kernel void sweep(__global ulong *table, __global uint *moved, uint repatriate, uint buckets,
                    uint seed) {
  const uint b = get_global_id(0);
  if (b >= buckets) return;
  const Changing c = {table, 0, 0, 0, 0, buckets, seed};
  const ulong last = peek_slot(&c, b, LAST);
  if (!is_type_b(last)) return;
  ulong entries = last;
  uint came = 0;
  Stray stray = {EMPTY_WORD, 0, 0, 0};
  for (uint tag = 0; tag < TAGS; ++tag) {
    const uint entry = entry_at(last, tag);
    if (!entry) continue;
    const Group group = {b, tag};
    const uint w = secondary_bucket(b, tag, entry, seed, buckets);
    if (!bring_home(&c, group, w, repatriate, &came, &stray)) entries -= entry_bits(entry, tag);
  }
  if (repatriate && stray.count == 1 && take_last_slot(&c, b, stray))
    ++came;
  else if (entries == TYPE_B)
    atom_xchg(slot_at(&c, b, LAST), EMPTY_WORD);
  else if (entries != last)
    atom_xchg(slot_at(&c, b, LAST), entries);
  if (came) atomic_add(moved, came);
}

// One work-item per key: clears its remap entry if nothing needs it.
__kernel void drop_entries(__global ulong *table, __global const uint *keys, uint n, uint buckets,
                           uint seed) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  const Changing c = {table, 0, 0, 0, 0, buckets, seed};
  const Group group = group_of(keys[i], seed, buckets);
  ulong last = peek_slot(&c, group.home, LAST);
  const uint entry = is_type_b(last) ? entry_at(last, group.tag) : 0;
  if (!entry) return;
  uint came = 0;
  Stray stray = {EMPTY_WORD, 0, 0, 0};
  const uint w = secondary_bucket(group.home, group.tag, entry, seed, buckets);
  if (bring_home(&c, group, w, false, &came, &stray)) return;
  // Others clear other entries of the bucket, or the same one: each try fails for one of 21.
  for (uint attempt = 0; attempt <= TAGS && entry_at(last, group.tag); ++attempt) {
    const ulong cleared = last - entry_bits(entry, group.tag);
    last = atom_cmpxchg(slot_at(&c, group.home, LAST), last, cleared);
  }
}
