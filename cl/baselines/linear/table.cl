// Lock-free linear probing (papers: A Simple GPU Hash Table; Reusing Deleted Slots).
//
//   home(k)
//     ▼
//   [ a ][ x ][ k ][ · ]      a probe for k passes a and x; an empty slot ends it
//     a slot's key never moves while others look on, so no lock is needed
//
// REUSE 0: a deletion keeps the key and takes the value, so that operations of all kinds may run
// side by side. REUSE 1: a deletion leaves a tombstone that any insertion may take, so that
// insertions and deletions must not run side by side (lookups may, beside either). Two things go
// wrong if one simply inserts into the first tombstone:
//
// * The key may stand further on, and then is there twice. `put` therefore looks for it up to the
//   first empty slot, and only then takes the first free slot it has passed. Insertions of one key
//   at the same time agree on that slot: in their phase slots only fill up. A slot that one of them
//   finds taken it has also read. If the same key took it, the insertion has found its key.
// * Empty slots never come back, and they are what ends a probe: misses get slower for ever. But
//   keys that are inserted into the first free slot stand close to their homes. A tombstone that no
//   key's probe passes is of no use: `sweep` makes empty slots of those, now and then.
//
// The source's two 32-bit stores of key and value are one 64-bit word here: no one sees
// a key without its value. hash.cl, word.cl and local.cl come first.
#ifndef REUSE
#error "REUSE: 1 if insertions take deleted slots, else 0"
#endif
#ifndef LINEAR_GROUP
#error "LINEAR_GROUP: work-group size"
#endif
#ifndef PREFETCH
#error "PREFETCH: 1 where __builtin_prefetch compiles and works, else 0"
#endif
#ifndef LOOK_AHEAD
#error "LOOK_AHEAD: keys between a prefetch and its use"
#endif
#define REJECTED DELETED

// Counters shared with the host side (tables/src/table/baselines/linear/table.rs, `Counter`).
#define ADDED 0
#define REMOVED 1
#define REJECTS 2
#define INVALID 3
#define COUNTERS 4

#if PREFETCH
#define prefetch_slot(table, slot)                                                                 \
  __builtin_prefetch((const __private void *)(size_t)((table) + (slot)))
#else
#define prefetch_slot(table, slot)
#endif

// Slots: a power of two, `mask` + 1.
uint home_of(uint key, uint mask, uint seed) { return primary_bucket(key, seed, mask + 1); }

// ---------------------------------------------------------------- one key

// Is it this key's slot, live or (REUSE 0) deleted?
bool is_slot_of(ulong word, uint key) {
#if REUSE
  return key_of(word) == key && is_live(word);
#else
  return key_of(word) == key && word != EMPTY_WORD;
#endif
}

// Value of a key, or MISS; `changing` if others are at work on the table.
uint find(__global ulong *table, uint key, bool changing, uint mask, uint seed) {
  uint slot = home_of(key, mask, seed);
  for (uint probe = 0; probe <= mask; ++probe) {
    const ulong word = changing ? peek(&table[slot]) : table[slot];
    if (is_slot_of(word, key)) return live_value(word);
    if (word == EMPTY_WORD) return MISS;
    slot = (slot + 1) & mask;
  }
  return MISS;
}

#if REUSE

// Stores a pair; answers the value it replaces, MISS if there was none, REJECTED without room.
uint put(__global ulong *table, uint key, uint value, uint mask, uint seed) {
  const ulong word = word_of(key, value);
  const uint home = home_of(key, mask, seed);
  ulong free_word = 0;
  uint free_slot = 0;
  bool has_free = false;
  uint passed = 0;
  // Each time another key takes the free slot, the probe goes on behind it: bounded.
  while (passed <= mask) {
    const uint slot = (home + passed) & mask;
    const ulong seen = peek(&table[slot]);
    if (is_slot_of(seen, key)) return live_value(atom_xchg(&table[slot], word));
    if (!is_live(seen) && !has_free) {
      has_free = true;
      free_slot = slot;
      free_word = seen;
    }
    ++passed;
    if (has_free && (seen == EMPTY_WORD || passed > mask)) {
      const ulong before = atom_cmpxchg(&table[free_slot], free_word, word);
      if (before == free_word) return MISS;
      if (key_of(before) == key) return live_value(atom_xchg(&table[free_slot], word));
      has_free = false;
      passed = ((free_slot - home) & mask) + 1;
    }
  }
  return REJECTED;
}

#else

// Stores a pair; answers the value it replaces, MISS if there was none, REJECTED without room.
// The first slot is taken to be empty: at the loads this table is for, most are.
uint put(__global ulong *table, uint key, uint value, uint mask, uint seed) {
  const ulong word = word_of(key, value);
  uint slot = home_of(key, mask, seed);
  ulong seen = EMPTY_WORD;
  for (uint probe = 0; probe <= mask; ++probe) {
    if (seen == EMPTY_WORD) {
      seen = atom_cmpxchg(&table[slot], EMPTY_WORD, word);
      if (seen == EMPTY_WORD) return MISS;
    }
    if (key_of(seen) == key) return live_value(atom_xchg(&table[slot], word));
    slot = (slot + 1) & mask;
    seen = peek(&table[slot]);
  }
  return REJECTED;
}

#endif

// Removes a key; answers its value, or MISS.
uint take(__global ulong *table, uint key, uint mask, uint seed) {
  uint slot = home_of(key, mask, seed);
  for (uint probe = 0; probe <= mask; ++probe) {
    const ulong seen = peek(&table[slot]);
    if (seen == EMPTY_WORD) return MISS;
    if (is_slot_of(seen, key)) {
#if REUSE
      // Of those who remove the key at the same time, one succeeds.
      return atom_cmpxchg(&table[slot], seen, TOMBSTONE) == seen ? value_of(seen) : MISS;
#else
      return is_live(seen) ? live_value(atom_xchg(&table[slot], word_of(key, DELETED))) : MISS;
#endif
    }
    slot = (slot + 1) & mask;
  }
  return MISS;
}

// ---------------------------------------------------------------- many keys

// What a work-item's operations came to.
typedef struct {
  uint counts[COUNTERS];
} Tally;

uint insert_one(__global ulong *table, uint key, uint value, Tally *tally, uint mask, uint seed) {
  if (value > MAX_VALUE) {
    ++tally->counts[INVALID];
    return REJECTED;
  }
  const uint before = put(table, key, value, mask, seed);
  tally->counts[ADDED] += before == MISS;
  tally->counts[REJECTS] += before == REJECTED;
  return before;
}

uint remove_one(__global ulong *table, uint key, Tally *tally, uint mask, uint seed) {
  const uint before = take(table, key, mask, seed);
  tally->counts[REMOVED] += before != MISS;
  return before;
}

// Adds the tallies of a work-group up, and them to the counters: the whole group takes part.
void report(__global uint *counters, const Tally *tally, __local uint *sums) {
  for (uint i = get_local_id(0); i < COUNTERS; i += LINEAR_GROUP) sums[i] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = 0; i < COUNTERS; ++i)
    if (tally->counts[i]) atomic_add(&sums[i], tally->counts[i]);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = get_local_id(0); i < COUNTERS; i += LINEAR_GROUP)
    if (sums[i]) atomic_add(&counters[i], sums[i]);
}

// The elements of this work-item: `per_item` from its number on, below n.
#define OWN_ELEMENTS(n)                                                                            \
  const ulong own_first = (ulong)get_global_id(0) * per_item;                                      \
  const uint from = (uint)min(own_first, (ulong)(n));                                              \
  const uint to = (uint)min(own_first + per_item, (ulong)(n));

#define LINEAR_KERNEL __kernel __attribute__((reqd_work_group_size(LINEAR_GROUP, 1, 1))) void

// values: 0 if a key's value is its position.
LINEAR_KERNEL insert_keys(__global ulong *table, __global const uint *keys,
                          __global const uint *values, __global uint *counters, uint per_item,
                          uint n, uint mask, uint seed) {
  __local uint sums[COUNTERS];
  Tally tally = {{0}};
  OWN_ELEMENTS(n)
  for (uint i = from; i < to; ++i) {
#if PREFETCH
    if (to - i > LOOK_AHEAD)
      prefetch_slot(table, home_of(keys[i + LOOK_AHEAD], mask, seed));
#endif
    insert_one(table, keys[i], values ? values[i] : i, &tally, mask, seed);
  }
  report(counters, &tally, sums);
}

// Items by range of slots (tables/src/table/primitives/radix_partition.rs), counts[r] from
// r * capacity on, `groups` groups per range. Those at work at one time have few ranges, whose
// slots stay in the cache: on an H200 random compare-and-swaps run at 79 G/s there and at 17 G/s
// beyond.
LINEAR_KERNEL insert_ranges(__global ulong *table, __global const ulong *items,
                            __global const uint *counts, __global uint *counters, uint capacity,
                            uint groups, uint per_item, uint mask, uint seed) {
  __local uint sums[COUNTERS];
  Tally tally = {{0}};
  const uint range = get_group_id(0) / groups;
  const uint first = get_group_id(0) % groups * LINEAR_GROUP * per_item + get_local_id(0);
  const uint n = min(counts[range], capacity);
  __global const ulong *own = items + (size_t)range * capacity;
  // Neighbours read neighbours, round by round.
  for (uint round = 0; round < per_item; ++round) {
    const uint i = first + round * LINEAR_GROUP;
    if (i < n) insert_one(table, key_of(own[i]), value_of(own[i]), &tally, mask, seed);
  }
  report(counters, &tally, sums);
}

LINEAR_KERNEL lookup_keys(__global ulong *table, __global const uint *keys, __global uint *values,
                          uint per_item, uint n, uint mask, uint seed) {
  OWN_ELEMENTS(n)
  for (uint i = from; i < to; ++i) {
#if PREFETCH
    if (to - i > LOOK_AHEAD)
      prefetch_slot(table, home_of(keys[i + LOOK_AHEAD], mask, seed));
#endif
    values[i] = find(table, keys[i], false, mask, seed);
  }
}

LINEAR_KERNEL remove_keys(__global ulong *table, __global const uint *keys,
                          __global uint *counters, uint per_item, uint n, uint mask, uint seed) {
  __local uint sums[COUNTERS];
  Tally tally = {{0}};
  OWN_ELEMENTS(n)
  for (uint i = from; i < to; ++i) {
#if PREFETCH
    if (to - i > LOOK_AHEAD)
      prefetch_slot(table, home_of(keys[i + LOOK_AHEAD], mask, seed));
#endif
    remove_one(table, keys[i], &tally, mask, seed);
  }
  report(counters, &tally, sums);
}

// Runs the operations whose kind is in the set `allowed`, in parallel. The others do nothing.
LINEAR_KERNEL apply_batch(__global ulong *table, __global const uint *kinds,
                          __global const uint *keys, __global const uint *values,
                          __global uint *answers, __global uint *counters, uint allowed,
                          uint per_item, uint n, uint mask, uint seed) {
  __local uint sums[COUNTERS];
  Tally tally = {{0}};
  OWN_ELEMENTS(n)
  for (uint i = from; i < to; ++i) {
    const uint kind = kinds[i];
    if (kind > SEARCH_ALL || !(allowed >> kind & 1u)) continue;
    if (kind == SEARCH)
      answers[i] = find(table, keys[i], true, mask, seed);
    else if (kind == DELETE)
      answers[i] = remove_one(table, keys[i], &tally, mask, seed);
    else
      answers[i] = insert_one(table, keys[i], values[i], &tally, mask, seed);
  }
  report(counters, &tally, sums);
}

// ---------------------------------------------------------------- the whole table

// Every item of `old` into a new table. Slots are in the order of their hashes' top bits, in both:
// the new table is written in order, too.
LINEAR_KERNEL rehash(__global const ulong *old, __global ulong *table, __global uint *counters,
                     uint per_item, uint n, uint mask, uint seed) {
  __local uint sums[COUNTERS];
  Tally tally = {{0}};
  OWN_ELEMENTS(n)
  for (uint i = from; i < to; ++i)
    if (is_live(old[i])) insert_one(table, key_of(old[i]), value_of(old[i]), &tally, mask, seed);
  report(counters, &tally, sums);
}

#if REUSE

// Marks the deleted slots, a bit each, that some item's probe passes.
LINEAR_KERNEL mark_passed(__global const ulong *table, __global uint *passed, uint per_item, uint n,
                          uint mask, uint seed) {
  OWN_ELEMENTS(n)
  for (uint slot = from; slot < to; ++slot) {
    const ulong word = table[slot];
    if (!is_live(word)) continue;
    for (uint s = home_of(key_of(word), mask, seed); s != slot; s = (s + 1) & mask)
      if (!is_live(table[s])) atomic_or(&passed[s / 32], 1u << (s % 32));
  }
}

// Empties the deleted slots that are not marked. No key moves.
LINEAR_KERNEL sweep(__global ulong *table, __global const uint *passed, uint per_item, uint n,
                    uint mask, uint seed) {
  OWN_ELEMENTS(n)
  for (uint slot = from; slot < to; ++slot)
    if (table[slot] == TOMBSTONE && !(passed[slot / 32] >> (slot % 32) & 1u))
      table[slot] = EMPTY_WORD;
}

#endif

// sums: items, deleted slots, probe lengths added up, the longest one.
LINEAR_KERNEL probe_lengths(__global const ulong *table, __global ulong *sums, uint per_item,
                            uint n, uint mask, uint seed) {
  __local ulong scratch[LINEAR_GROUP];
  __local uint longest;
  ulong items = 0, deleted = 0, length = 0;
  uint own_longest = 0;
  if (get_local_id(0) == 0) longest = 0;
  OWN_ELEMENTS(n)
  for (uint slot = from; slot < to; ++slot) {
    const ulong word = table[slot];
    deleted += !is_live(word) && word != EMPTY_WORD;
    if (!is_live(word)) continue;
    const uint probes = (slot - home_of(key_of(word), mask, seed)) & mask;
    ++items;
    length += probes;
    own_longest = max(own_longest, probes);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  atomic_max(&longest, own_longest);
  const ulong all_items = sums_before(&items, scratch);
  barrier(CLK_LOCAL_MEM_FENCE);
  const ulong all_deleted = sums_before(&deleted, scratch);
  barrier(CLK_LOCAL_MEM_FENCE);
  const ulong all_length = sums_before(&length, scratch);
  if (get_local_id(0)) return;
  atom_add(&sums[0], all_items);
  atom_add(&sums[1], all_deleted);
  atom_add(&sums[2], all_length);
  atomic_max((__global uint *)&sums[3], longest);
}

// All items, those of a work-group in the order of their slots. count: 0 before.
LINEAR_KERNEL collect(__global const ulong *table, __global uint *keys, __global uint *values,
                      __global uint *count, uint per_item, uint n, uint room) {
  __local ulong scratch[LINEAR_GROUP];
  __local uint base;
  ulong own = 0;
  OWN_ELEMENTS(n)
  for (uint slot = from; slot < to; ++slot) own += is_live(table[slot]);
  const ulong all = sums_before(&own, scratch);
  if (get_local_id(0) == 0) base = atomic_add(count, (uint)all);
  barrier(CLK_LOCAL_MEM_FENCE);
  uint at = base + (uint)own;
  for (uint slot = from; slot < to; ++slot) {
    const ulong word = table[slot];
    if (!is_live(word) || at >= room) continue;
    keys[at] = key_of(word);
    values[at++] = value_of(word);
  }
}
