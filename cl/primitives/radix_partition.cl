// Splits items into ranges of buckets, so that a range's buckets fit local memory.
//
//   items   ─▶  by coarse range        ─▶  by range
//   · · · ·     [b0 … b32767][b32768 …     [b0 … b255][b256 … b511]…      in no order within
//
// A table of 2^23 buckets has 32,768 ranges, too many places for one work-group to write to. So
// there are levels: each splits every source bin into at most MAX_BINS bins. A work-group takes a
// tile of one source bin, counts it per bin, and reserves room in every bin with one atomic. It
// orders the tile in local memory first, so that what it writes to a bin is contiguous. Bins have a
// fixed capacity, because hashed keys spread evenly: no counting pass. A key repeated many times
// overflows its bin: what does not fit is counted and dropped, and the bin's count exceeds its
// room, which tells that it is incomplete. A build then groups its keys first, and grouping takes
// the rows of incomplete bins from the input again. Cost: each level reads and writes an item once,
// at the memory's copy speed; a naive build's random accesses run at a fifth of that.
//
// hash.cl, bucket.cl and local.cl come first.
#ifndef SPLIT_GROUP
#error "SPLIT_GROUP: work-group size of split"
#endif
#ifndef SPLIT_TILE
#error "SPLIT_TILE: items that a work-group orders at once"
#endif
#ifndef CROWDED
#error "CROWDED: the counter of items without room"
#endif
#ifndef MAX_BINS
#error "MAX_BINS: bins that a source bin may be split into"
#endif

// Item i of a source: its words, or its key with its value or position.
ulong item_at(__global const uint *keys, __global const uint *values,
              __global const ulong *items, size_t i) {
  return items ? items[i] : word_of(keys[i], values ? values[i] : (uint)i);
}

uint key_at(__global const uint *keys, __global const ulong *items, size_t i) {
  return items ? key_of(items[i]) : keys[i];
}

// Items that fit into a bin: fewer in the last one, whose buckets may be fewer. `end` is where
// all bins end, in units of SLOTS items.
uint room_in(uint bin, uint capacity, uint end) {
  return (uint)min((ulong)capacity, (ulong)end * SLOTS - (ulong)bin * capacity);
}

#if !ONE_ITEM

// `tiles` work-groups per source bin. Source bin s is items [s * in_capacity ..][.. in_counts[s]],
// or, at the first level (items == 0), all in_capacity keys. It is split into bins
// s * bins .. (s + 1) * bins, which hold `1 << shift` buckets each. The first is first_source.
__kernel __attribute__((reqd_work_group_size(SPLIT_GROUP, 1, 1))) void split(
    __global const uint *keys, __global const uint *values, __global const ulong *items,
    __global const uint *in_counts, __global ulong *out, __global uint *out_counts,
    __global uint *counters, uint first_source, uint in_capacity, uint in_end, uint tiles, uint bins, uint shift,
    uint out_capacity, uint out_end, uint buckets, uint seed) {
  __local ulong staged[SPLIT_TILE];
  __local uint cursor[MAX_BINS], offset[MAX_BINS], sums[SPLIT_GROUP];
  const uint self = get_local_id(0), source = first_source + get_group_id(0) / tiles;
  const uint from = get_group_id(0) % tiles * SPLIT_TILE;
  const uint n =
      in_counts ? min(in_counts[source], room_in(source, in_capacity, in_end)) : in_capacity;
  // No return before a barrier, even if all would: PoCL 3.1 corrupts memory.
  const uint tile = from < n ? min(n - from, (uint)SPLIT_TILE) : 0;
  const size_t at = (size_t)source * in_capacity + from;
  const uint first = source * bins;
  bins = tile ? bins : 0;

  for (uint bin = self; bin < bins; bin += SPLIT_GROUP) cursor[bin] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = self; i < tile; i += SPLIT_GROUP) {
    const uint b = primary_bucket(key_at(keys, items, at + i), seed, buckets);
    atomic_inc(&cursor[(b >> shift) - first]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint bin = self; bin < bins; bin += SPLIT_GROUP) {
    const uint count = cursor[bin];
    if (!count) continue;
    const uint room = room_in(first + bin, out_capacity, out_end);
    offset[bin] = atomic_add(&out_counts[first + bin], count);
    if (offset[bin] + count > room)
      atomic_add(&counters[CROWDED], offset[bin] + count - max(offset[bin], room));
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  scan_in_group(cursor, bins, 0, sums);
  // From a place in the tile to one in the bin, modulo 2^32.
  for (uint bin = self; bin < bins; bin += SPLIT_GROUP) offset[bin] -= cursor[bin];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = self; i < tile; i += SPLIT_GROUP) {
    const ulong item = item_at(keys, values, items, at + i);
    const uint b = primary_bucket(key_of(item), seed, buckets);
    staged[atomic_inc(&cursor[(b >> shift) - first])] = item;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = self; i < tile; i += SPLIT_GROUP) {
    const uint bin = primary_bucket(key_of(staged[i]), seed, buckets) >> shift;
    const uint place = offset[bin - first] + i;
    if (place < room_in(bin, out_capacity, out_end)) out[(size_t)bin * out_capacity + place] = staged[i];
  }
}

#else

// The same by one work-item, for CPU runtimes: no atomics in the loops over items, hashes in a
// loop of their own, which compilers vectorise, and whole runs copied to their bins.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void split_chunk(
    __global const uint *keys, __global const uint *values, __global const ulong *items,
    __global const uint *in_counts, __global ulong *out, __global uint *out_counts,
    __global uint *counters, uint first_source, uint in_capacity, uint in_end, uint tiles, uint bins, uint shift,
    uint out_capacity, uint out_end, uint buckets, uint seed) {
  __local ulong staged[SPLIT_TILE];
  __local ushort bin_of[SPLIT_TILE];
  __local uint cursor[MAX_BINS];
  const uint source = first_source + get_group_id(0) / tiles;
  const uint from = get_group_id(0) % tiles * SPLIT_TILE;
  const uint n =
      in_counts ? min(in_counts[source], room_in(source, in_capacity, in_end)) : in_capacity;
  const uint tile = from < n ? min(n - from, (uint)SPLIT_TILE) : 0;
  const size_t at = (size_t)source * in_capacity + from;
  const uint first = source * bins;
  if (!tile) return;

  for (uint i = 0; i < tile; ++i)
    bin_of[i] = (ushort)((primary_bucket(key_at(keys, items, at + i), seed, buckets) >> shift) - first);
  for (uint bin = 0; bin < bins; ++bin) cursor[bin] = 0;
  for (uint i = 0; i < tile; ++i) ++cursor[bin_of[i]];
  uint sum = 0;
  for (uint bin = 0; bin < bins; ++bin) {
    const uint count = cursor[bin];
    cursor[bin] = sum;
    sum += count;
  }
  for (uint i = 0; i < tile; ++i)
    staged[cursor[bin_of[i]]++] = item_at(keys, values, items, at + i);
  uint start = 0;
  for (uint bin = 0; bin < bins; ++bin) {
    const uint count = cursor[bin] - start;
    if (!count) continue;
    const uint room = room_in(first + bin, out_capacity, out_end);
    const uint offset = atomic_add(&out_counts[first + bin], count);
    const uint fits = offset < room ? min(count, room - offset) : 0;
    if (fits < count) atomic_add(&counters[CROWDED], count - fits);
    const size_t to = (size_t)(first + bin) * out_capacity + offset;
    for (uint i = 0; i < fits; ++i) out[to + i] = staged[start + i];
    start += count;
  }
}

#endif
