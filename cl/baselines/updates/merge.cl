// New items into a table that has items already (Horton paper, section 5.3), after build.cl.
//
//   new items by range ─merge_range─▶ primary slots; overflow by bucket ─▶ place, displace
//                                     └─▶ guests that lost their slots  ─▶ displace
//
// The build's fill_range for buckets that are not empty. A range of buckets is read into local
// memory. There one work-item per bucket inserts that bucket's new items one after the other, as
// the paper does. No other work-item touches the bucket. A new item takes:
//
//   1  a free slot
//   2  the slot of a secondary item, a guest, which moves on (guidelines 1 and 2)
//   3  else the item overflows; a Type A bucket turns Type B, and its last item overflows too
//
// A value with the top bit may not stand in the last slot of a Type A bucket (paper, section 4).
// One without goes there in exchange; if all have it, the item overflows. The cost is that of
// reading and writing the table in order; inserting into the table itself would take locks on
// buckets, which OpenCL's work-items cannot wait for.
//
// hash.cl, bucket.cl, local.cl, split.cl, fill.cl, put_wide.cl and build.cl come first.
#ifndef RANGE_ITEMS
#error "RANGE_ITEMS: new items that a range may have"
#endif

// Puts an item into slot s of the range's bucket b, whose item is gone, or into another one whose
// item moves to s. Returns whether it could.
bool put_in_range(__local ulong *words, uint b, uint s, ulong word) {
  if (s != LAST || !is_wide(word)) {
    words[AT(s, b)] = word;
    return true;
  }
  for (uint t = 0; t < LAST; ++t) {
    const ulong other = words[AT(t, b)];
    if (other == EMPTY_WORD || is_wide(other)) continue;
    words[AT(LAST, b)] = other;
    words[AT(t, b)] = word;
    return true;
  }
  return false;
}

// Puts an item of the range's bucket b into a free slot. The last slot is tried first, as what
// may not stand there needs the others.
bool put_in_gap(__local ulong *words, uint b, ulong word) {
  const uint n = item_slots(words[AT(LAST, b)]);
  for (uint i = 0; i < n; ++i) {
    const uint s = is_wide(word) ? i : n - 1 - i;
    if (words[AT(s, b)] == EMPTY_WORD) return put_in_range(words, b, s, word);
  }
  return false;
}

// Puts an item of bucket `bucket`, b of its range, into the slot of a guest; the guest, or
// EMPTY_WORD.
ulong put_out_guest(__local ulong *words, uint b, ulong word, uint bucket, uint seed,
                    uint buckets) {
  const uint n = item_slots(words[AT(LAST, b)]);
  for (uint s = 0; s < n; ++s) {
    const ulong guest = words[AT(s, b)];
    const bool is_guest =
        guest != EMPTY_WORD && primary_bucket(key_of(guest), seed, buckets) != bucket;
    if (is_guest && put_in_range(words, b, s, word)) return guest;
  }
  return EMPTY_WORD;
}

// Where items go that have no slot in the range.
typedef struct {
  __global ulong *stragglers;
  __global uint *counters;
  uint capacity, seed, buckets;
} Leaving;

void leave(const Leaving *to, ulong word) {
  add_straggler(to->stragglers, &to->counters[STRAGGLERS], to->capacity, word);
}

// Inserts a chain of items into bucket `bucket`, b of its range; returns the chain of those that
// overflow.
uint insert_chain(__local ulong *words, uint b, uint bucket, __global const ulong *items,
                  __local ushort *next, uint head, const Leaving *to) {
  uint left = NO_LINK;
  for (uint l = head; l != NO_LINK;) {
    const uint after = next[l];
    if (!put_in_gap(words, b, items[l])) {
      const ulong guest = put_out_guest(words, b, items[l], bucket, to->seed, to->buckets);
      if (guest != EMPTY_WORD) {
        leave(to, guest);
      } else {
        next[l] = left;
        left = l;
      }
    }
    l = after;
  }
  return left;
}

// Whether a bucket that turns Type B has an item of its own in its last slot.
bool last_overflows(ulong last, uint bucket, uint seed, uint buckets) {
  return !is_type_b(last) && last != EMPTY_WORD &&
         primary_bucket(key_of(last), seed, buckets) == bucket;
}

// One work-group per range; its items are `capacity` words of `all_items` apart. `fill` receives
// the counts of all buckets; overflowing[h] = (bucket, first item, items, 0) as in fill_range.
__kernel __attribute__((reqd_work_group_size(RANGE_GROUP, 1, 1))) void merge_range(
    __global ulong *table, __global uint *fill, __global const ulong *all_items,
    __global const uint *item_counts, __global ulong *overflow, __global uint4 *overflowing,
    __global ulong *stragglers, __global uint *counters, uint capacity,
    uint straggler_capacity, uint buckets, uint seed) {
  __local ulong words[RANGE_WORDS];
  __local uint chain[RANGE], starts[RANGE];
  __local ushort next[RANGE_ITEMS];
  __local uint sums[RANGE_GROUP], base[2];
  const uint self = get_local_id(0), range = get_group_id(0), first = range * RANGE;
  const uint present = min(buckets - first, (uint)RANGE);
  const uint n = min(item_counts[range], capacity);
  __global const ulong *items = all_items + (size_t)range * capacity;
  __global ulong *slots = table + (size_t)first * SLOTS;
  const Leaving to = {stragglers, counters, straggler_capacity, seed, buckets};

  for (uint i = self; i < present * SLOTS; i += RANGE_GROUP)
    words[AT(i % SLOTS, i / SLOTS)] = slots[i];
  for (uint b = self; b < RANGE; b += RANGE_GROUP) chain[b] = NO_LINK;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = self; i < n; i += RANGE_GROUP) {
    const uint b = primary_bucket(key_of(items[i]), seed, buckets) - first;
    next[i] = (ushort)atomic_xchg(&chain[b], i);
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  // In one sum: items that overflow in the low half, buckets that do in the high one.
  for (uint b = self; b < RANGE; b += RANGE_GROUP) {
    uint count = 0;
    if (chain[b] != NO_LINK) {
      chain[b] = insert_chain(words, b, first + b, items, next, chain[b], &to);
      for (uint l = chain[b]; l != NO_LINK; l = next[l]) ++count;
      if (count) count += last_overflows(words[AT(LAST, b)], first + b, seed, buckets);
    }
    starts[b] = count ? 1u << 16 | count : 0;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint total = scan_in_group(starts, RANGE, 0, sums);
  if (self == 0) {
    base[0] = atomic_add(&counters[OVERFLOW], total & 0xffffu);
    base[1] = atomic_add(&counters[OVERFLOWING], total >> 16);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint b = self; b < present; b += RANGE_GROUP) {
    if (chain[b] == NO_LINK) continue;
    const uint from = base[0] + (starts[b] & 0xffffu);
    uint at = from;
    for (uint l = chain[b]; l != NO_LINK; l = next[l]) overflow[at++] = items[l];
    const ulong last = words[AT(LAST, b)];
    if (last_overflows(last, first + b, seed, buckets))
      overflow[at++] = last;
    else if (!is_type_b(last) && last != EMPTY_WORD)
      leave(&to, last);
    if (!is_type_b(last)) words[AT(LAST, b)] = TYPE_B;
    overflowing[base[1] + (starts[b] >> 16)] = (uint4)(first + b, from, at - from, 0);
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  for (uint i = self; i < present * SLOTS && n; i += RANGE_GROUP)
    slots[i] = words[AT(i % SLOTS, i / SLOTS)];
  for (uint q = self; q * 4 < present; q += RANGE_GROUP) {
    uint four = 0;
    for (uint b = 4 * q; b < min(4 * q + 4, present); ++b) {
      uint held = 0;
      for (uint s = 0; s < SLOTS; ++s) held += words[AT(s, b)] != EMPTY_WORD;
      four |= held << (8 * (b % 4));
    }
    fill[first / 4 + q] = four;
  }
}
