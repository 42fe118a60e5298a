// One pass of a stable radix sort: items by digit, in their order within each.
//
//   digits  2 0 2 0 1     keys  k1 k3 | k4 | k0 k2
//   keys    k0 … k4   ─▶  rows  1  3  | 4  | 0  2
//
// The digits of every tile are counted. A prefix sum over (digit, tile) turns counts into places,
// and each tile moves to its places in order. A digit that most items have costs what any other
// costs.
//
// On a CPU a work-item moves its tile item by item (scatter). On a GPU a work-group first
// sorts the tile by digit in local memory (scatter_tile), so that what goes to one place is
// written together. local.cl comes first.
#ifndef PASS_GROUP
#error "PASS_GROUP: work-group size of histogram and scatter_tile"
#endif
#ifndef PASS_TILE
#error "PASS_TILE: items that a work-group of scatter_tile sorts"
#endif
#ifndef RADIX
#error "RADIX: digits, 256 at most"
#endif

// The bits of the key from bit `shift` on.
uint digit_of(uint key, uint shift) { return key >> shift & (RADIX - 1); }

// counts[digit * tiles + tile]
__kernel __attribute__((reqd_work_group_size(PASS_GROUP, 1, 1))) void histogram(
    __global const uint *keys, __global uint *counts, uint n, uint tile, uint tiles, uint shift) {
  __local uint count[RADIX];
  const uint self = get_local_id(0), t = get_group_id(0), from = t * tile;
  const uint to = from + min(n - from, tile);
  for (uint d = self; d < RADIX; d += PASS_GROUP) count[d] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = from + self; i < to; i += PASS_GROUP)
    count_in_group(&count[digit_of(keys[i], shift)]);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint d = self; d < RADIX; d += PASS_GROUP) counts[d * tiles + t] = count[d];
}

#if PASS_GROUP == 1

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

#define ITEMS (PASS_TILE / PASS_GROUP)
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
  for (uint d = 0; d < NIBBLE; ++d) counts[d * PASS_GROUP + self] = 0;
#pragma unroll
  for (uint k = 0; k < ITEMS; ++k) {
    mine[k] = items[self * ITEMS + k];
    const uint d = digit_of_item(mine[k]) >> shift & (NIBBLE - 1);
    ++counts[d * PASS_GROUP + self];
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
    items[counts[d * PASS_GROUP + self]++] = mine[k];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}

// The same as scatter, one tile per work-group. What the last tile lacks is filled with the largest
// digit, which stays behind all its items.
__kernel __attribute__((reqd_work_group_size(PASS_GROUP, 1, 1))) void scatter_tile(
    __global const uint *keys, __global const uint *rows, __global uint *keys_out,
    __global uint *rows_out, __global const uint *places, uint n, uint tiles, uint shift) {
  __local uint items[PASS_TILE], start[RADIX], sums[PASS_GROUP];
  __local ushort counts[NIBBLE * PASS_GROUP];
  const uint self = get_local_id(0), t = get_group_id(0), from = t * PASS_TILE;
  const uint size = min(n - from, (uint)PASS_TILE);
  for (uint i = self; i < PASS_TILE; i += PASS_GROUP)
    items[i] = item_of(i < size ? digit_of(keys[from + i], shift) : RADIX - 1, i);
  barrier(CLK_LOCAL_MEM_FENCE);
  sort_nibble(items, counts, sums, 0);
  sort_nibble(items, counts, sums, 4);
  for (uint i = self; i < size; i += PASS_GROUP) {
    const uint d = digit_of_item(items[i]);
    if (i == 0 || d != digit_of_item(items[i - 1])) start[d] = places[d * tiles + t] - i;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = self; i < size; i += PASS_GROUP) {
    const uint item = items[i], source = from + place_of_item(item);
    const uint at = start[digit_of_item(item)] + i;
    keys_out[at] = keys[source];
    rows_out[at] = rows ? rows[source] : source;
  }
}

#endif
