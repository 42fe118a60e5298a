// Bulk build of a Horton table (Horton paper, section 4), after split.cl.
//
//   items by range ─fill_range─▶ primary slots, overflow by bucket
//                  ─place──────▶ Type B buckets, remapped items, stragglers ─▶ displace.cl
//
// Every key is known before the build, so no secondary item ever needs to be displaced by a primary
// one. All primaries are placed first, a range of buckets at a time in local memory, and only then
// what overflows them. The paper inserts serially on the CPU. A kernel that claims slots in the
// table itself makes one random access per key. On an H200 it stays under 17 G keys/s before it has
// converted a single bucket.
//
// hash.cl, bucket.cl, local.cl, split.cl and fill.cl come first.
#if !defined(REPEATS) || !defined(OVERFLOW) || !defined(OVERFLOWING) || !defined(STRAGGLERS)
#error "REPEATS, OVERFLOW, OVERFLOWING, STRAGGLERS: counters"
#endif
#ifndef RANGE_GROUP
#error "RANGE_GROUP: work-group size of fill_range"
#endif
#ifndef RANGE
#error "RANGE: buckets of a range, a multiple of 4"
#endif
#ifndef RANGE_LINKS
#error "RANGE_LINKS: overflowing items that a range may have"
#endif
#ifndef CHAIN_LIMIT
#error "CHAIN_LIMIT: overflowing items that a bucket may have"
#endif

// ---------------------------------------------------------------- primary items

// Where slot s of a range's bucket b stands in local memory: slot after slot, so that neighbouring
// work-items, at work on neighbouring buckets, use different banks, and the padding does it for
// reading buckets in order. One work-item alone has them in the table's order.
#if ONE_ITEM
#define RANGE_WORDS (SLOTS * RANGE)
#define AT(s, b) ((b) * SLOTS + (s))
#else
#define RANGE_WORDS (SLOTS * (RANGE + 4))
#define AT(s, b) ((s) * (RANGE + 4) + (b))
#endif
#define NO_LINK 0xffffu

// Overflow of a bucket: a chain of links, each the number of an item of the range's source and
// of the next link.
uint link_to(uint next, uint item) { return next << 16 | item; }
uint next_link(uint link) { return link >> 16; }
uint item_of_link(uint link) { return link & 0xffffu; }

// Is any key of bucket b there twice?
bool has_repeats(__local const ulong *words, uint b, uint n, __local const uint *links, uint head,
                 __global const ulong *items) {
  uint keys[SLOTS];
  for (uint s = 0; s < SLOTS; ++s) keys[s] = key_of(words[AT(s, b)]);
  bool found = false;
  for (uint s = 1; s < SLOTS; ++s)
    for (uint t = 0; t < s; ++t) found |= s < n && keys[s] == keys[t];
  uint looked_at = 0;
  for (uint l = head; l != NO_LINK && !found && looked_at < CHAIN_LIMIT; l = next_link(links[l])) {
    const uint key = key_of(items[item_of_link(links[l])]);
    for (uint s = 0; s < SLOTS; ++s) found |= keys[s] == key;
    for (uint k = next_link(links[l]); k != NO_LINK && !found; k = next_link(links[k]))
      found |= key_of(items[item_of_link(links[k])]) == key;
    ++looked_at;
  }
  return found;
}

// One work-group per range from first_range on. Its items, `capacity` words of `all_items` apart,
// go to the slots of their primary buckets; what a bucket has no slot for goes to `overflow`, with
// the item of its last slot, which will hold remap entries:
// overflowing[h] = (bucket, first item, items, 0).
// fill: items of four buckets per word, a byte each.
__kernel __attribute__((reqd_work_group_size(RANGE_GROUP, 1, 1))) void fill_range(
    __global ulong *table, __global uint *fill, __global const ulong *all_items,
    __global const uint *item_counts, __global ulong *overflow, __global uint4 *overflowing,
    __global uint *counters, uint first_range, uint capacity, uint overflow_capacity,
    uint overflowing_capacity, uint buckets, uint seed) {
  __local ulong words[RANGE_WORDS];
  __local uint count[RANGE], chain[RANGE], starts[RANGE], links[RANGE_LINKS];
  __local uint sums[RANGE_GROUP], linked, base[2];
  const uint self = get_local_id(0), range = first_range + get_group_id(0), first = range * RANGE;
  const uint n = min(item_counts[range], capacity);
  __global const ulong *items = all_items + (size_t)range * capacity;

  for (uint i = self; i < RANGE_WORDS; i += RANGE_GROUP) words[i] = EMPTY_WORD;
  for (uint b = self; b < RANGE; b += RANGE_GROUP) {
    count[b] = 0;
    chain[b] = NO_LINK;
  }
  if (self == 0) linked = 0;
  barrier(CLK_LOCAL_MEM_FENCE);

  for (uint i = self; i < n; i += RANGE_GROUP) {
    const uint b = primary_bucket(key_of(items[i]), seed, buckets) - first;
    const uint slot = count_in_group(&count[b]);
    if (slot < SLOTS) {
      words[AT(slot, b)] = items[i];
      continue;
    }
    const uint link = count_in_group(&linked);
    if (link < RANGE_LINKS)
      links[link] = link_to(atomic_xchg(&chain[b], link), i);
    else
      atomic_inc(&counters[CROWDED]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  // In one sum: items that overflow in the low half, buckets that do in the high one.
  for (uint b = self; b < RANGE; b += RANGE_GROUP) {
    const uint held = count[b];
    if (has_repeats(words, b, held, links, chain[b], items)) atomic_inc(&counters[REPEATS]);
    if (held > SLOTS + CHAIN_LIMIT) atomic_inc(&counters[CROWDED]);
    starts[b] = held > SLOTS ? 1u << 16 | (held - SLOTS + 1) : 0;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint total = scan_in_group(starts, RANGE, 0, sums);
  if (self == 0) {
    base[0] = atomic_add(&counters[OVERFLOW], total & 0xffffu);
    base[1] = atomic_add(&counters[OVERFLOWING], total >> 16);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const bool fits = linked <= RANGE_LINKS && base[0] + (total & 0xffffu) <= overflow_capacity &&
                    base[1] + (total >> 16) <= overflowing_capacity;
  if (!fits && self == 0) atomic_inc(&counters[CROWDED]);
  for (uint b = self; b < RANGE && fits; b += RANGE_GROUP) {
    if (count[b] <= SLOTS) continue;
    uint at = base[0] + (starts[b] & 0xffffu);
    overflowing[base[1] + (starts[b] >> 16)] = (uint4)(first + b, at, count[b] - SLOTS + 1, 0);
    overflow[at++] = words[AT(LAST, b)];
    for (uint l = chain[b]; l != NO_LINK; l = next_link(links[l]))
      overflow[at++] = items[item_of_link(links[l])];
  }

  const uint present = min(buckets - first, (uint)RANGE);
  for (uint i = self; i < present * SLOTS; i += RANGE_GROUP)
    table[(size_t)first * SLOTS + i] = words[AT(i % SLOTS, i / SLOTS)];
  for (uint q = self; q < RANGE / 4 && q * 4 < present; q += RANGE_GROUP) {
    uint four = 0;
    for (uint b = 0; b < 4; ++b) four |= min(count[4 * q + b], (uint)SLOTS) << (8 * b);
    fill[first / 4 + q] = four;
  }
}

// ---------------------------------------------------------------- secondary items

// The entry, 1 to 7, that leads group (b, tag) to its emptiest candidate, 0 if all are full.
uint emptiest(__global uint *fill, uint b, uint tag, uint seed, uint buckets) {
  uint best = 0, least = SLOTS;
  for (uint entry = 1; entry <= 7; ++entry) {
    const uint held = items_in(fill, secondary_bucket(b, tag, entry, seed, buckets));
    if (held >= least) continue;
    best = entry;
    least = held;
  }
  return best;
}

// Gives an item that overflows b a slot: in the bucket its group's entry names, else in its
// emptiest candidate (b itself is full). Returns whether there was one.
bool remap(__global ulong *table, __global uint *fill, uint b, ulong word, ulong *entries,
            uint seed, uint buckets) {
  const uint tag = tag_of(key_of(word), seed);
  const uint bound = entry_at(*entries, tag);
  for (uint attempt = 0; attempt < (bound ? 1u : 7u); ++attempt) {
    const uint entry = bound ? bound : emptiest(fill, b, tag, seed, buckets);
    if (!entry) return false;
    const uint w = secondary_bucket(b, tag, entry, seed, buckets);
    if (!put_in_bucket(table, fill, w, word)) continue;
    *entries |= entry_bits(entry, tag);
    return true;
  }
  return false;
}

// Remaps one of b's primary items instead and gives its slot to `word`: other tags lead to
// other buckets, so what overflows can choose among 8 x 7 of them instead of 7.
bool remap_another(__global ulong *table, __global uint *fill, uint b, ulong word, ulong *entries,
                    uint seed, uint buckets) {
  for (uint s = 0; s < LAST; ++s) {
    const size_t at = (size_t)b * SLOTS + s;
    if (!remap(table, fill, b, table[at], entries, seed, buckets)) continue;
    table[at] = word;
    return true;
  }
  return false;
}

// One work-item per overflowing bucket: it turns Type B and its overflow is remapped.
// (Buckets in the order of their items, for warps without idle lanes, took as long: it is the
// random accesses to `fill` and to the table that take the time.)
__kernel void place(__global ulong *table, __global uint *fill, __global const ulong *overflow,
                    __global const uint4 *overflowing, __global ulong *stragglers,
                    __global uint *counters, uint n, uint capacity, uint buckets, uint seed) {
  const uint h = get_global_id(0);
  if (h >= n) return;
  const uint4 bucket = overflowing[h];
#if WIDE_VALUES
  ulong entries = table[(size_t)bucket.x * SLOTS + LAST];  // it may have been Type B before
#else
  ulong entries = TYPE_B;
#endif
  for (uint i = 0; i < bucket.z; ++i) {
    const ulong word = overflow[bucket.y + i];
    if (!remap(table, fill, bucket.x, word, &entries, seed, buckets) &&
        !remap_another(table, fill, bucket.x, word, &entries, seed, buckets))
      add_straggler(stragglers, &counters[STRAGGLERS], capacity, word);
  }
  table[(size_t)bucket.x * SLOTS + LAST] = entries;
}
