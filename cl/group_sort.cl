// Groups of equal keys: a stable radix sort, then the boundaries of runs of equal keys.
//
//   keys  7 3 7 3 9      sort    3 3 7 7 9    unique keys  3 7 9
//   rows  0 1 2 3 4     ─────▶   1 3 0 2 4 ─▶ offsets      0 2 4 5     rows 1 3 0 2 4
//
// Least significant digit first, 8 bits a pass: the digits of every tile are counted, a prefix
// sum over (digit, tile) turns counts into places, and each tile moves to its places in order.
// So the sort is stable (rows of a group ascend), and a key repeated ten million times costs
// what any other key costs. Hashing into groups with atomics would be faster for few
// repeats, but hot keys would queue on one counter and rows would come out in any order.
//
// On a CPU a work-item moves its tile item by item (scatter). On a GPU a work-group first
// sorts the tile by digit in local memory (scatter_tile), so that what goes to one place is
// written together. local.cl comes first.
#ifndef SORT_GROUP
#error "SORT_GROUP: work-group size of histogram and scatter_tile"
#endif
#ifndef SORT_TILE
#error "SORT_TILE: items that a work-group of scatter_tile sorts"
#endif

#define RADIX_BITS 8
#define RADIX (1 << RADIX_BITS)

uint digit_of(uint key, uint shift) { return key >> shift & (RADIX - 1); }

// counts[digit * tiles + tile]
__kernel __attribute__((reqd_work_group_size(SORT_GROUP, 1, 1))) void histogram(
    __global const uint *keys, __global uint *counts, uint n, uint tile, uint tiles, uint shift) {
  __local uint count[RADIX];
  const uint self = get_local_id(0), t = get_group_id(0), from = t * tile;
  const uint to = from + min(n - from, tile);
  for (uint d = self; d < RADIX; d += SORT_GROUP) count[d] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = from + self; i < to; i += SORT_GROUP) atomic_inc(&count[digit_of(keys[i], shift)]);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint d = self; d < RADIX; d += SORT_GROUP) counts[d * tiles + t] = count[d];
}

#if SORT_GROUP == 1

// rows == 0: the row is the position.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void scatter(
    __global const uint *keys, __global const uint *rows, __global uint *keys_out,
    __global uint *rows_out, __global const uint *places, uint n, uint tile, uint tiles,
    uint shift) {
  const uint t = get_group_id(0), from = t * tile;
  const uint to = from + min(n - from, tile);
  uint place[RADIX];
  for (uint d = 0; d < RADIX; ++d) place[d] = places[d * tiles + t];
  for (uint i = from; i < to; ++i) {
    const uint at = place[digit_of(keys[i], shift)]++;
    keys_out[at] = keys[i];
    rows_out[at] = rows ? rows[i] : i;
  }
}

#else

#define ITEMS (SORT_TILE / SORT_GROUP)
#define NIBBLE 16

// An item of a tile: its digit, and where in the tile it stood.
uint item_of(uint digit, uint at) { return digit << 16 | at; }
uint digit_of_item(uint item) { return item >> 16; }
uint place_of_item(uint item) { return item & 0xffffu; }

// Sorts the tile's items stably by 4 bits of their digits. Work-item w counts the items
// w * ITEMS .. (w + 1) * ITEMS; counts stand digit after digit, so that their prefix sums
// are the items' places.
void sort_nibble(__local uint *items, __local ushort *counts, __local uint *sums, uint shift) {
  const uint self = get_local_id(0);
  uint mine[ITEMS];
  for (uint d = 0; d < NIBBLE; ++d) counts[d * SORT_GROUP + self] = 0;
#pragma unroll
  for (uint k = 0; k < ITEMS; ++k) {
    mine[k] = items[self * ITEMS + k];
    const uint d = digit_of_item(mine[k]) >> shift & (NIBBLE - 1);
    ++counts[d * SORT_GROUP + self];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  uint sum = 0;
  for (uint k = 0; k < NIBBLE; ++k) sum += counts[self * NIBBLE + k];
  sums_before(&sum, sums);
  for (uint k = 0; k < NIBBLE; ++k) {
    const uint count = counts[self * NIBBLE + k];
    counts[self * NIBBLE + k] = sum;
    sum += count;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (uint k = 0; k < ITEMS; ++k) {
    const uint d = digit_of_item(mine[k]) >> shift & (NIBBLE - 1);
    items[counts[d * SORT_GROUP + self]++] = mine[k];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}

// rows == 0: the row is the position. What the last tile lacks is filled with the largest
// digit, which stays behind all its items.
__kernel __attribute__((reqd_work_group_size(SORT_GROUP, 1, 1))) void scatter_tile(
    __global const uint *keys, __global const uint *rows, __global uint *keys_out,
    __global uint *rows_out, __global const uint *places, uint n, uint tiles, uint shift) {
  __local uint items[SORT_TILE], start[RADIX], sums[SORT_GROUP];
  __local ushort counts[NIBBLE * SORT_GROUP];
  const uint self = get_local_id(0), t = get_group_id(0), from = t * SORT_TILE;
  const uint size = min(n - from, (uint)SORT_TILE);
  for (uint i = self; i < SORT_TILE; i += SORT_GROUP)
    items[i] = item_of(i < size ? digit_of(keys[from + i], shift) : RADIX - 1, i);
  barrier(CLK_LOCAL_MEM_FENCE);
  sort_nibble(items, counts, sums, 0);
  sort_nibble(items, counts, sums, 4);
  for (uint i = self; i < size; i += SORT_GROUP) {
    const uint d = digit_of_item(items[i]);
    if (i == 0 || d != digit_of_item(items[i - 1])) start[d] = places[d * tiles + t] - i;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = self; i < size; i += SORT_GROUP) {
    const uint item = items[i], source = from + place_of_item(item);
    const uint at = start[digit_of_item(item)] + i;
    keys_out[at] = keys[source];
    rows_out[at] = rows ? rows[source] : source;
  }
}

#endif

bool starts_group(__global const uint *keys, uint i) { return i == 0 || keys[i] != keys[i - 1]; }

__kernel void mark_groups(__global const uint *keys, __global uint *marks, uint n) {
  const uint i = get_global_id(0);
  if (i < n) marks[i] = starts_group(keys, i);
}

// marks: their exclusive prefix sums, so the number of the group that starts at i.
__kernel void collect_groups(__global const uint *keys, __global const uint *marks,
                             __global uint *unique_keys, __global uint *offsets, uint n) {
  const uint i = get_global_id(0);
  if (i >= n || !starts_group(keys, i)) return;
  unique_keys[marks[i]] = keys[i];
  offsets[marks[i]] = i;
}
