// From looked-up values to (probe row, build row) pairs, in probe order.
//
//   values      7  MISS  2  2          unique keys: a value is the build row
//   offsets     … 2: 4..6 … 7: 9..10   else: a group, rows[offsets[v] .. offsets[v + 1]]
//   pairs       (0, r9) (2, r4) (2, r5) (3, r4) (3, r5)
//
// count_pairs counts the pairs of every tile of rows, and the rows that have any. A prefix sum says
// where the pairs begin. match_bits writes one bit per row. write_pairs writes the pairs, or only
// those in a window: a key with a million matches does not need room for all of its pairs at once.
// A work-group finds the row of an output position by bisection in its tile's counts: a row with
// many matches keeps all lanes busy.
//
// local.cl comes first.
#ifndef PAIR_GROUP
#error "PAIR_GROUP: work-group size"
#endif
#ifndef PAIR_TILE
#error "PAIR_TILE: probe rows of a tile"
#endif
#ifndef MISS
#error "MISS: the value of a row without a match"
#endif
#ifndef PREFETCH
#error "PREFETCH: 1 where __builtin_prefetch compiles and works, else 0"
#endif

// Groups are anywhere in their arrays: where one work-item walks a tile, it asks for them ahead.
#if PREFETCH
#define prefetch_word(p) __builtin_prefetch((const __private void *)(size_t)(p))
#define OFFSETS_AHEAD 32u
#define ROWS_AHEAD 16u
#endif

// Asks for the group of a value that comes OFFSETS_AHEAD rows later, and for the rows of one nearer
// by, unless they are not wanted.
void look_ahead(__global const uint *values, __global const uint *offsets,
                __global const uint *rows, uint i, uint end) {
#if PREFETCH
  if (i + OFFSETS_AHEAD < end && values[i + OFFSETS_AHEAD] != MISS)
    prefetch_word(&offsets[values[i + OFFSETS_AHEAD]]);
  if (rows && i + ROWS_AHEAD < end && values[i + ROWS_AHEAD] != MISS)
    prefetch_word(&rows[offsets[values[i + ROWS_AHEAD]]]);
#endif
}

uint matches_of(__global const uint *offsets, uint value) {
  if (value == MISS) return 0;
  return offsets ? offsets[value + 1] - offsets[value] : 1;
}

// With groups, tile_pairs[tiles + 1] grows by the number of rows with a match: without, they are as
// many as the pairs. tile_pairs[tiles + 2] receives reads[0], so that one download brings all. With
// groups, tile_pairs begins as zeros.
__kernel __attribute__((reqd_work_group_size(PAIR_GROUP, 1, 1))) void count_pairs(
    __global const uint *values, __global const uint *offsets, __global const uint *reads,
    __global ulong *tile_pairs, uint tiles, uint n) {
  __local ulong sums[PAIR_GROUP];
  const uint self = get_local_id(0), from = get_group_id(0) * PAIR_TILE;
  const uint size = min(n - from, (uint)PAIR_TILE);
  ulong sum = 0, matched = 0;
  for (uint i = self; i < size; i += PAIR_GROUP) {
    if (offsets) look_ahead(values, offsets, 0, from + i, n);
    const uint matches = matches_of(offsets, values[from + i]);
    sum += matches;
    matched += matches != 0;
  }
  const ulong total = sums_before(&sum, sums);
  if (self == 0) tile_pairs[get_group_id(0)] = total;
  if (get_global_id(0) == 0) {
    tile_pairs[tiles + 2] = reads[0];
    if (!offsets) tile_pairs[tiles] = tile_pairs[tiles + 1] = 0;
  }
  if (offsets) {
    barrier(CLK_LOCAL_MEM_FENCE);
    const ulong rows = sums_before(&matched, sums);
    // Rows are fewer than 2^32, so the low half of the word, its first, holds their number.
    if (self == 0 && rows)
      atomic_add((__global uint *)&tile_pairs[tiles + 1], (uint)rows);
  }
}

// bits[i / 32] receives bit i % 32: whether row i has a match.
__kernel __attribute__((reqd_work_group_size(PAIR_GROUP, 1, 1))) void match_bits(
    __global const uint *values, __global uint *bits, uint n) {
  const uint from = get_group_id(0) * PAIR_TILE, size = min(n - from, (uint)PAIR_TILE);
#if ONE_ITEM
  for (uint at = 0; at < size; at += 32) {
    uint word = 0;
    for (uint bit = 0; bit < min(size - at, 32u); ++bit)
      word |= (uint)(values[from + at + bit] != MISS) << bit;
    bits[(from + at) / 32] = word;
  }
#else
  __local uint words[PAIR_TILE / 32];
  const uint self = get_local_id(0);
  for (uint w = self; w < PAIR_TILE / 32; w += PAIR_GROUP) words[w] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = self; i < size; i += PAIR_GROUP)
    if (values[from + i] != MISS) atomic_or(&words[i / 32], 1u << (i % 32));
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint w = self; w < (size + 31) / 32; w += PAIR_GROUP) bits[from / 32 + w] = words[w];
#endif
}

#if !ONE_ITEM

// The last of the ascending starts[0..n) that is at most `pair`.
uint row_of(__local const ulong *starts, uint n, ulong pair) {
  uint low = 0;
  for (uint step = PAIR_TILE / 2; step; step /= 2)
    if (low + step < n && starts[low + step] <= pair) low += step;
  return low;
}

// tile_starts: pairs before each tile. Writes pairs first .. first + room, counted over all tiles;
// probe_out may be missing.
__kernel __attribute__((reqd_work_group_size(PAIR_GROUP, 1, 1))) void write_pairs(
    __global const uint *values, __global const uint *offsets, __global const uint *rows,
    __global const ulong *tile_starts, __global uint *probe_out, __global uint *build_out, uint n,
    uint first_low, uint first_high, uint room) {
  __local ulong starts[PAIR_TILE], sums[PAIR_GROUP];
  const uint self = get_local_id(0), from = get_group_id(0) * PAIR_TILE;
  const ulong first = (ulong)first_high << 32 | first_low;
  const ulong tile_start = tile_starts[get_group_id(0)];
  // No return before a barrier, even if all would: PoCL 3.1 corrupts memory.
  const uint size = tile_start < first + room ? min(n - from, (uint)PAIR_TILE) : 0;

  for (uint i = self; i < size; i += PAIR_GROUP)
    starts[i] = matches_of(offsets, values[from + i]);
  barrier(CLK_LOCAL_MEM_FENCE);
  const ulong total = scan_in_group(starts, size, 0, sums);

  const ulong until = min(tile_start + total, first + room);
  if (!offsets) {  // at most one pair per row
    for (uint i = self; i < size; i += PAIR_GROUP) {
      const uint value = values[from + i];
      const ulong pair = tile_start + starts[i];
      if (value == MISS || pair < first || pair >= until) continue;
      if (probe_out) probe_out[pair - first] = from + i;
      build_out[pair - first] = value;
    }
    return;
  }
  for (ulong pair = max(tile_start, first) + self; pair < until; pair += PAIR_GROUP) {
    const uint i = row_of(starts, size, pair - tile_start);
    const uint group = values[from + i];
    if (probe_out) probe_out[pair - first] = from + i;
    build_out[pair - first] = rows[offsets[group] + (uint)(pair - tile_start - starts[i])];
  }
}

#else

// The same by one work-item, for CPU runtimes: it walks the rows, and needs to find none.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void write_pairs(
    __global const uint *values, __global const uint *offsets, __global const uint *rows,
    __global const ulong *tile_starts, __global uint *probe_out, __global uint *build_out, uint n,
    uint first_low, uint first_high, uint room) {
  const uint from = get_group_id(0) * PAIR_TILE, end = from + min(n - from, (uint)PAIR_TILE);
  const ulong first = (ulong)first_high << 32 | first_low, until = first + room;
  ulong pair = tile_starts[get_group_id(0)];
  for (uint i = from; i < end && pair < until; ++i) {
    if (offsets) look_ahead(values, offsets, rows, i, n);
    const uint value = values[i];
    const uint matches = matches_of(offsets, value);
    // Those of the window alone: a hot key may have millions before it.
    const ulong next = pair + matches;
    for (ulong at = max(pair, first); at < min(next, until); ++at) {
      if (probe_out) probe_out[at - first] = i;
      build_out[at - first] = offsets ? rows[offsets[value] + (uint)(at - pair)] : value;
    }
    pair = next;
  }
}

#endif
