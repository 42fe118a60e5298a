// The slab hash: a slab list per bucket (slab hash paper, sections III and IV).
//
//   bucket ─▶ base slab ─▶ slab ─▶ slab          a slab: 128 bytes, one memory access of a tile
//   slab   [k v][k v] … [k v][aux next]          pairs: 15 of them; keys only: 30
//
// Work is shared as in the paper's section IV-A: every lane has an operation of its own, and its
// tile does them one after the other, all lanes together: each looks at WORDS / LANES entries, 16
// bytes on GPUs, and ballots say where the key, a free entry and the next slab are. The paper's
// tile is the whole warp, 4 bytes per lane; tiles of 8 lanes do four operations at a time with the
// same memory accesses.
//
// Entries are filled from the front and are never empty again until the next flush: deletions leave
// tombstones. So all that replace one key agree on the first empty entry, and one compare-and-swap
// decides. A key is never there twice unless INSERT put it there, which takes tombstones, too.
// FLUSH runs alone, drops tombstones and gives slabs back.
//
// hash.cl, word.cl, lanes.cl and alloc.cl come first, and local.cl.
#ifndef LOOK_AHEAD
#error "LOOK_AHEAD: operations between a prefetch and its use"
#endif
#ifndef PREFETCH
#error "PREFETCH: 1 where __builtin_prefetch compiles and works, else 0"
#endif
#ifndef MAX_KEY
#error "MAX_KEY: the largest key of a slab of keys"
#endif
#define ANY 6u
#define NOTHING 7u
#define BASE 0xfffffffdu
#define REJECTED DELETED
#define PER_LANE (WORDS / LANES)

// Counters shared with the host side (tables/src/table/baselines/slab/launch.rs, `Counter`).
#define ADDED 0
#define REMOVED 1
#define REJECTS 2
#define INVALID 3
#define COUNTERS 4

// ---------------------------------------------------------------- entries

#if KEY_ONLY
#define ENTRIES 30
#define EMPTY_ENTRY 0xffffffffu
#define DELETED_ENTRY 0xfffffffeu
entry_t entry_of(uint key, uint value) { return key; }
bool is_item(entry_t entry) { return entry <= MAX_KEY; }
uint key_in(entry_t entry) { return entry; }
uint value_in(entry_t entry) { return is_item(entry) ? entry : MISS; }
bool can_store(uint key, uint value) { return key <= MAX_KEY; }
entry_t link_to(uint address) { return address; }
uint address_in(entry_t link) { return link; }
entry_t swap_entry(__global entry_t *at, entry_t seen, entry_t entry) {
  return atomic_cmpxchg(at, seen, entry);
}
entry_t peek_entry(__global entry_t *at) { return peek_bits(at); }
#else
#define ENTRIES 15
#define EMPTY_ENTRY EMPTY_WORD
#define DELETED_ENTRY TOMBSTONE
entry_t entry_of(uint key, uint value) { return word_of(key, value); }
bool is_item(entry_t entry) { return is_live(entry); }
uint key_in(entry_t entry) { return key_of(entry); }
uint value_in(entry_t entry) { return live_value(entry); }
bool can_store(uint key, uint value) { return value <= MAX_VALUE; }
entry_t link_to(uint address) { return word_of(0xffffffffu, address); }
uint address_in(entry_t link) { return value_of(link); }
entry_t swap_entry(__global entry_t *at, entry_t seen, entry_t entry) {
  return atom_cmpxchg(at, seen, entry);
}
entry_t peek_entry(__global entry_t *at) { return peek(at); }
#endif
#define NO_LINK link_to(NO_SLAB)
#define LINK (WORDS - 1)

// What a kernel works on.
typedef struct {
  Pool pool;
  __global entry_t *base;
  uint super_blocks, buckets, seed;
} Lists;

__global entry_t *slab_at(const Lists *lists, uint address, uint key) {
  if (address != BASE) return slab_of(&lists->pool, address);
  return lists->base + (size_t)primary_bucket(key, lists->seed, lists->buckets) * WORDS;
}

// This lane's entries of a slab. Set `changing` if other work-items may change the slab.
void read_lane(__global entry_t *slab, const Lanes *lanes, bool changing, entry_t *seen) {
  __global entry_t *own = slab + lanes->lane * PER_LANE;
  for (uint i = 0; i < PER_LANE; ++i) seen[i] = changing ? peek_entry(own + i) : own[i];
}

bool is_entry(const Lanes *lanes, uint i) { return lanes->lane * PER_LANE + i < ENTRIES; }

// ---------------------------------------------------------------- one step of a tile

// A lane's operation. `at`: the slab that is looked at next.
typedef struct {
  uint kind, key, value, answer, at, steps;
} Operation;

typedef struct {
  uint counts[COUNTERS];
} Tally;

// What a lane has for an operation among its entries.
typedef struct {
  bool has_match, has_free;
  uint match_at, free_at, instances;
  entry_t match, free;
} Offer;

Offer offer_of(const entry_t *seen, const Lanes *lanes, uint kind, uint key) {
  Offer offer = {false, false, 0, 0, 0, 0, 0};
  for (uint i = 0; i < PER_LANE; ++i) {
    if (!is_entry(lanes, i)) continue;
    const bool is_match = is_item(seen[i]) && key_in(seen[i]) == key;
    const bool is_free =
        seen[i] == EMPTY_ENTRY || (kind == INSERT && seen[i] == DELETED_ENTRY);
    offer.instances += is_match;
    if (is_match && !offer.has_match) {
      offer.has_match = true;
      offer.match_at = i;
      offer.match = seen[i];
    }
    if (is_free && !offer.has_free) {
      offer.has_free = true;
      offer.free_at = i;
      offer.free = seen[i];
    }
  }
  return offer;
}

// Instances that a tile's lanes have; the company takes part.
uint add_up(const Lanes *lanes, uint instances) {
  uint sum = 0;
  for (uint bit = 0; 1u << bit <= PER_LANE; ++bit)
    sum += popcount(ballot(lanes, instances >> bit & 1u)) << bit;
  return sum;
}

bool stores(uint kind) { return kind == INSERT || kind == REPLACE; }
bool deletes(uint kind) { return kind == DELETE || kind == DELETE_ALL; }

void finish(Operation *own, uint answer) {
  own->answer = answer;
  own->kind = NOTHING;
}

// Links a new slab behind `slab`, whose tile needs one; the company takes part. Where the operation
// goes on: a slab's address, NO_SLAB to try again, EXHAUSTED.
uint grow(const Lists *lists, const Lanes *lanes, bool needs, __global entry_t *slab,
          Resident *resident) {
  const uint fresh = allocate(&lists->pool, lanes, needs, lists->super_blocks, resident);
  uint next = fresh;
  if (needs && fresh < EXHAUSTED && lanes->lane == LANES - 1) {
    const entry_t before = swap_entry(&slab[LINK], NO_LINK, link_to(fresh));
    if (before != NO_LINK) {
      deallocate(&lists->pool, fresh);
      next = address_in(before);
    }
  }
  return from_lane(lanes, next, LANES - 1);
}

// One slab for the first operation of each tile; the company takes part. only: the kind of all
// operations if they have one, ANY if not: a constant, so that the rest falls away. One exit, as in
// `serve`.
void advance(const Lists *lists, const Lanes *lanes, uint only, uint limit, Operation *own,
             Resident *resident, Tally *tally) {
  const bool changing = only != SEARCH && only != SEARCH_ALL;
  const uint queue = ballot(lanes, own->kind != NOTHING);
  const bool busy = queue != 0;
  const uint source = busy ? lowest(queue) : 0;
  const bool is_source = busy && lanes->lane == source;
  const uint kind = only == ANY ? from_lane(lanes, own->kind, source) : only;
  const uint key = from_lane(lanes, own->key, source);
  const uint value = changing ? from_lane(lanes, own->value, source) : 0;
  const uint at = from_lane(lanes, own->at, source);

  __global entry_t *slab = slab_at(lists, at, key);
  entry_t seen[PER_LANE];
  for (uint i = 0; i < PER_LANE; ++i) seen[i] = EMPTY_ENTRY;
  if (busy) read_lane(slab, lanes, changing, seen);
  const Offer offer = offer_of(seen, lanes, kind, key);
  const uint matches = ballot(lanes, offer.has_match && kind != INSERT && kind != SEARCH_ALL);
  const uint frees = changing ? ballot(lanes, offer.has_free && stores(kind)) : 0;
  const uint next = from_lane(lanes, address_in(seen[PER_LANE - 1]), LANES - 1);

  // The lane that has the entry does what is to be done with it.
  const uint target = matches ? lowest(matches) : frees ? lowest(frees) : 0;
  const bool has_target = (matches | frees) != 0;
  const uint found = from_lane(lanes, matches ? value_in(offer.match) : MISS, target);
  bool won = true;
  if (changing) {
    bool swapped = false;
    if (busy && has_target && lanes->lane == target && (stores(kind) || deletes(kind))) {
      const entry_t expected = matches ? offer.match : offer.free;
      const entry_t entry = deletes(kind) ? DELETED_ENTRY : entry_of(key, value);
      const uint index = target * PER_LANE + (matches ? offer.match_at : offer.free_at);
      swapped = swap_entry(&slab[index], expected, entry) == expected;
    }
    won = ballot(lanes, swapped) != 0 || kind == SEARCH;
  }
  uint instances = 0;
  if (only == SEARCH_ALL || (only == ANY && anyone(lanes, busy && kind == SEARCH_ALL)))
    instances = add_up(lanes, busy ? offer.instances : 0);

  uint go_on = next;
  const bool needs_slab = busy && stores(kind) && !has_target && next == NO_SLAB;
  if (changing && anyone(lanes, needs_slab)) {
    const uint grown = grow(lists, lanes, needs_slab, slab, resident);
    if (needs_slab) go_on = grown;
  }
  if (is_source) {
    const bool ends = next == NO_SLAB && go_on == NO_SLAB && !has_target && !stores(kind);
    if (own->steps > limit || go_on == EXHAUSTED) {
      finish(own, REJECTED);
    } else if (has_target && won) {
      tally->counts[ADDED] += stores(kind) && !matches;
      tally->counts[REMOVED] += deletes(kind);
      if (kind == DELETE_ALL)
        ++own->answer;
      else
        finish(own, found);
    } else if (!has_target) {
      own->answer += kind == SEARCH_ALL ? instances : 0;
      if (go_on != NO_SLAB) own->at = go_on;
      if (ends) finish(own, kind == SEARCH || kind == DELETE ? MISS : own->answer);
    }
  }
  own->steps += is_source;
}

// ---------------------------------------------------------------- many operations

// kinds, values, picked may be 0: then all operations are of the kind `only`, values are positions,
// and operations are numbered from 0 on. rejects[..counters[REJECTS]] receives the numbers of those
// without room. `per_item` operations per work-item.
#define BATCH_PARAMS                                                                               \
  POOL_PARAMS, __global entry_t *base, __global const uint *kinds, __global const uint *keys,      \
      __global const uint *values, __global uint *answers, __global const uint *picked,            \
      __global uint *counters, __global uint *rejects, uint per_item, uint n, uint super_blocks,   \
      uint buckets, uint seed, uint limit

typedef struct {
  __global const uint *kinds, *keys, *values, *picked;
  __global uint *answers, *counters, *rejects;
  uint per_item, n, limit;
} Work;

Operation load_operation(const Work *work, uint only, uint i, Tally *tally) {
  Operation own = {NOTHING, 0, 0, 0, BASE, 0};
  if (i >= work->n) return own;
  const uint number = work->picked ? work->picked[i] : i;
  const uint kind = only == ANY ? work->kinds[number] : only;
  own.key = work->keys[number];
  own.value = work->values ? work->values[number] : number;
  if (kind > SEARCH_ALL) return own;
  if (stores(kind) && !can_store(own.key, own.value)) {
    ++tally->counts[INVALID];
    own.answer = REJECTED;
  } else {
    own.kind = kind;
  }
  return own;
}

void do_batch(const Lists *lists, const Lanes *lanes, const Work *work, uint only, Tally *tally) {
  Resident resident = no_resident(get_global_id(0) / LANES);
  const uint first = get_group_id(0) * LANES_GROUP * work->per_item + get_local_id(0);
  for (uint round = 0; round < work->per_item; ++round) {
    const uint i = first + round * LANES_GROUP;
#if PREFETCH
    if (i + LOOK_AHEAD < work->n && !work->picked) {
      __global entry_t *ahead = slab_at(lists, BASE, work->keys[i + LOOK_AHEAD]);
      __builtin_prefetch((const __private void *)(size_t)ahead);
      __builtin_prefetch((const __private void *)(size_t)(ahead + WORDS / 2));
    }
#endif
    Operation own = load_operation(work, only, i, tally);
    const bool answers = own.kind != NOTHING || own.answer == REJECTED;
    while (anyone(lanes, own.kind != NOTHING))
      advance(lists, lanes, only, work->limit, &own, &resident, tally);
    if (i >= work->n || !answers) continue;
    const uint number = work->picked ? work->picked[i] : i;
    if (work->answers) work->answers[number] = own.answer;
    if (own.answer == REJECTED && can_store(own.key, own.value))
      work->rejects[atomic_inc(&work->counters[REJECTS])] = number;
  }
}

// Adds the tallies of a work-group up, and them to the counters: the whole group takes part.
// (Rejects are counted where they are listed.)
void report(__global uint *counters, const Tally *tally, __local uint *sums) {
  for (uint i = get_local_id(0); i < COUNTERS; i += LANES_GROUP) sums[i] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = 0; i < COUNTERS; ++i)
    if (tally->counts[i]) atomic_add(&sums[i], tally->counts[i]);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = get_local_id(0); i < COUNTERS; i += LANES_GROUP)
    if (sums[i]) atomic_add(&counters[i], sums[i]);
}

#define BATCH_KERNEL(name, only)                                                                   \
  LANES_KERNEL name(BATCH_PARAMS) {                                                                \
    LANES_LOCALS                                                                                   \
    POOL_LOCALS                                                                                    \
    __local uint sums[COUNTERS];                                                                   \
    OWN_POOL                                                                                       \
    const Lanes lanes = OWN_LANES;                                                                 \
    const Lists lists = {pool, base, super_blocks, buckets, seed};                                 \
    const Work work = {kinds,    keys,    values,   picked, answers,                               \
                       counters, rejects, per_item, n,      limit};                                \
    Tally tally = {{0}};                                                                           \
    do_batch(&lists, &lanes, &work, only, &tally);                                                 \
    if (only != SEARCH && only != SEARCH_ALL) report(counters, &tally, sums);                      \
  }

BATCH_KERNEL(apply_batch, ANY)
BATCH_KERNEL(search_keys, SEARCH)
BATCH_KERNEL(insert_keys, INSERT)
BATCH_KERNEL(replace_keys, REPLACE)
BATCH_KERNEL(delete_keys, DELETE)
BATCH_KERNEL(delete_all_keys, DELETE_ALL)
BATCH_KERNEL(count_keys, SEARCH_ALL)

// A lane that lists the instances of its key.
typedef struct {
  bool waits;
  uint key, at, place;
} Listing;

// One slab for the first lane of each tile that waits; the company takes part.
void list_slab(const Lists *lists, const Lanes *lanes, __global uint *out, Listing *own) {
  const uint queue = ballot(lanes, own->waits), source = queue ? lowest(queue) : 0;
  const uint key = from_lane(lanes, own->key, source);
  const uint at = from_lane(lanes, own->at, source);
  uint place = from_lane(lanes, own->place, source);
  entry_t seen[PER_LANE];
  for (uint i = 0; i < PER_LANE; ++i) seen[i] = EMPTY_ENTRY;
  if (queue) read_lane(slab_at(lists, at, key), lanes, false, seen);
  for (uint i = 0; i < PER_LANE; ++i) {
    const bool is_match = queue && is_entry(lanes, i) && is_item(seen[i]) && key_in(seen[i]) == key;
    const uint bits = ballot(lanes, is_match);
    if (is_match) out[place + popcount(bits & ((1u << lanes->lane) - 1))] = value_in(seen[i]);
    place += popcount(bits);
  }
  const uint next = from_lane(lanes, address_in(seen[PER_LANE - 1]), LANES - 1);
  const bool is_source = queue && lanes->lane == source;
  own->at = is_source ? next : own->at;
  own->place = is_source ? place : own->place;
  own->waits = own->waits && !(is_source && next == NO_SLAB);
}

// All instances of every key: out[offsets[i]..offsets[i + 1]) = values of key i, in no order.
LANES_KERNEL list_instances(POOL_PARAMS, __global entry_t *base, __global const uint *keys,
                            __global const uint *offsets, __global uint *out, uint per_item, uint n,
                            uint super_blocks, uint buckets, uint seed) {
  LANES_LOCALS
  POOL_LOCALS
  OWN_POOL
  const Lanes lanes = OWN_LANES;
  const Lists lists = {pool, base, super_blocks, buckets, seed};
  const uint first = get_group_id(0) * LANES_GROUP * per_item + get_local_id(0);
  for (uint round = 0; round < per_item; ++round) {
    const uint i = first + round * LANES_GROUP;
    Listing own = {i < n, i < n ? keys[i] : 0, BASE, i < n ? offsets[i] : 0};
    while (anyone(&lanes, own.waits)) list_slab(&lists, &lanes, out, &own);
  }
}

// ---------------------------------------------------------------- flush

// One work-item per bucket: items move to the front of its list in their order, the entries behind
// them become empty, and slabs without items return to the pool. (The paper has a warp do it. Here
// lanes share nothing and wait for nobody; a slab is one cache line, which is read once.)
LANES_KERNEL flush(POOL_PARAMS, __global entry_t *base, uint buckets) {
  POOL_LOCALS
  OWN_POOL
  const uint bucket = get_global_id(0);
  if (bucket >= buckets) return;
  __global entry_t *from = base + (size_t)bucket * WORDS, *to = from;
  // No more items than entries were seen: `to` is never beyond `from`, and has a link if it is
  // full.
  uint used = 0, next = BASE;
  while (next != NO_SLAB) {
    next = address_in(from[LINK]);
    for (uint i = 0; i < ENTRIES; ++i) {
      const entry_t entry = from[i];
      if (!is_item(entry)) continue;
      if (used == ENTRIES) {
        to = slab_of(&pool, address_in(to[LINK]));
        used = 0;
      }
      to[used++] = entry;
    }
    if (next != NO_SLAB) from = slab_of(&pool, next);
  }
  next = address_in(to[LINK]);
  for (; used < ENTRIES; ++used) to[used] = EMPTY_ENTRY;
  to[LINK] = NO_LINK;
  while (next != NO_SLAB) {
    const uint address = next;
    __global entry_t *slab = slab_of(&pool, address);
    next = address_in(slab[LINK]);
    for (uint i = 0; i < ENTRIES; ++i) slab[i] = EMPTY_ENTRY;
    slab[LINK] = NO_LINK;
    deallocate(&pool, address);
  }
}

// ---------------------------------------------------------------- the whole table

// Slab number s: a base slab, or, from `buckets` on, a unit of the pool; 0 if it is not in use.
__global entry_t *numbered_slab(const Pool *pool, __global entry_t *base, uint buckets, ulong s) {
  if (s < buckets) return base + (size_t)s * WORDS;
  const ulong unit = s - buckets, per_super = (ulong)BLOCKS * UNITS;
  const uint address = (uint)(unit / per_super) << 24 | (uint)(unit % per_super);
  return is_allocated(pool, address) ? slab_of(pool, address) : 0;
}

// sums: items, deleted entries, slabs in use without base slabs.
LANES_KERNEL census(POOL_PARAMS, __global entry_t *base, __global ulong *sums, uint per_item,
                    uint slabs, uint buckets) {
  POOL_LOCALS
  __local ulong scratch[LANES_GROUP];
  OWN_POOL
  ulong items = 0, deleted = 0, in_use = 0;
  const ulong first = (ulong)get_global_id(0) * per_item;
  const ulong end = min(first + per_item, (ulong)slabs);
  for (ulong s = first; s < end; ++s) {
    __global entry_t *slab = numbered_slab(&pool, base, buckets, s);
    if (!slab) continue;
    in_use += s >= buckets;
    for (uint i = 0; i < ENTRIES; ++i) {
      items += is_item(slab[i]);
      deleted += slab[i] == DELETED_ENTRY;
    }
  }
  const ulong all_items = sums_before(&items, scratch);
  barrier(CLK_LOCAL_MEM_FENCE);
  const ulong all_deleted = sums_before(&deleted, scratch);
  barrier(CLK_LOCAL_MEM_FENCE);
  const ulong all_in_use = sums_before(&in_use, scratch);
  if (get_local_id(0)) return;
  atom_add(&sums[0], all_items);
  atom_add(&sums[1], all_deleted);
  atom_add(&sums[2], all_in_use);
}

// One work-item per bucket: an item in slab i of a list is found by i + 1 reads. sum: 0 before.
LANES_KERNEL reads_of_hits(POOL_PARAMS, __global entry_t *base, __global ulong *sum,
                           uint buckets) {
  POOL_LOCALS
  __local ulong scratch[LANES_GROUP];
  OWN_POOL
  const uint bucket = get_global_id(0);
  __global entry_t *slab = base + (size_t)min(bucket, buckets - 1) * WORDS;
  ulong reads = 0;
  uint next = bucket < buckets ? BASE : NO_SLAB;
  for (uint place = 1; next != NO_SLAB; ++place) {
    for (uint i = 0; i < ENTRIES; ++i) reads += is_item(slab[i]) ? place : 0;
    next = address_in(slab[LINK]);
    if (next != NO_SLAB) slab = slab_of(&pool, next);
  }
  const ulong all = sums_before(&reads, scratch);
  if (get_local_id(0) == 0) atom_add(sum, all);
}

// All items, in no order. count: 0 before.
LANES_KERNEL collect(POOL_PARAMS, __global entry_t *base, __global uint *keys,
                     __global uint *values, __global uint *count, uint per_item, uint slabs,
                     uint buckets, uint room) {
  POOL_LOCALS
  __local ulong scratch[LANES_GROUP];
  __local uint group_base;
  OWN_POOL
  ulong own = 0;
  const ulong first = (ulong)get_global_id(0) * per_item;
  const ulong end = min(first + per_item, (ulong)slabs);
  for (ulong s = first; s < end; ++s) {
    __global entry_t *slab = numbered_slab(&pool, base, buckets, s);
    for (uint i = 0; i < ENTRIES && slab; ++i) own += is_item(slab[i]);
  }
  const ulong all = sums_before(&own, scratch);
  if (get_local_id(0) == 0) group_base = atomic_add(count, (uint)all);
  barrier(CLK_LOCAL_MEM_FENCE);
  uint at = group_base + (uint)own;
  for (ulong s = first; s < end; ++s) {
    __global entry_t *slab = numbered_slab(&pool, base, buckets, s);
    for (uint i = 0; i < ENTRIES && slab; ++i) {
      if (!is_item(slab[i]) || at >= room) continue;
      keys[at] = key_in(slab[i]);
      values[at++] = value_in(slab[i]);
    }
  }
}
