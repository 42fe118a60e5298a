// Groups of equal keys: a stable radix sort, then the boundaries of runs of equal keys.
//
//   keys  7 3 7 3 9      sort    3 3 7 7 9    unique keys  3 7 9
//   rows  0 1 2 3 4     ─────▶   1 3 0 2 4 ─▶ offsets      0 2 4 5     rows 1 3 0 2 4
//
// Least significant digit first, `1 << RADIX_BITS` digits a pass: each work-item counts the
// digits of its own contiguous tile, a prefix sum over (digit, tile) turns counts into
// places, and the same work-item moves its tile in order. So the sort is stable (rows of a
// group ascend), and a key repeated ten million times costs what any other key costs.
// Hashing into groups with atomics would be faster for few repeats, but hot keys would
// queue on one counter and rows would come out in any order.
#ifndef RADIX_BITS
#error "RADIX_BITS: bits a digit"
#endif

#define RADIX (1 << RADIX_BITS)

uint digit_of(uint key, uint shift) { return key >> shift & (RADIX - 1); }

__kernel void histogram(__global const uint *keys, __global uint *counts, uint n, uint tile,
                        uint tiles, uint shift) {
  const uint t = get_global_id(0);
  if (t >= tiles) return;
  uint count[RADIX];
  for (uint d = 0; d < RADIX; ++d) count[d] = 0;
  const uint to = min(n - t * tile, tile) + t * tile;
  for (uint i = t * tile; i < to; ++i) ++count[digit_of(keys[i], shift)];
  for (uint d = 0; d < RADIX; ++d) counts[d * tiles + t] = count[d];
}

// rows == 0: the row is the position.
__kernel void scatter(__global const uint *keys, __global const uint *rows,
                      __global uint *keys_out, __global uint *rows_out,
                      __global const uint *places, uint n, uint tile, uint tiles, uint shift) {
  const uint t = get_global_id(0);
  if (t >= tiles) return;
  uint place[RADIX];
  for (uint d = 0; d < RADIX; ++d) place[d] = places[d * tiles + t];
  const uint to = min(n - t * tile, tile) + t * tile;
  for (uint i = t * tile; i < to; ++i) {
    const uint at = place[digit_of(keys[i], shift)]++;
    keys_out[at] = keys[i];
    rows_out[at] = rows ? rows[i] : i;
  }
}

// Sum of each tile.
__kernel void tile_sums(__global const uint *data, __global uint *sums, uint n, uint tile,
                        uint tiles) {
  const uint t = get_global_id(0);
  if (t >= tiles) return;
  const uint to = min(n - t * tile, tile) + t * tile;
  uint sum = 0;
  for (uint i = t * tile; i < to; ++i) sum += data[i];
  sums[t] = sum;
}

// Exclusive prefix sums within each tile, starting from the tile's own base (bases == 0: zero).
__kernel void tile_scan(__global uint *data, __global const uint *bases, uint n, uint tile,
                        uint tiles) {
  const uint t = get_global_id(0);
  if (t >= tiles) return;
  const uint to = min(n - t * tile, tile) + t * tile;
  uint sum = bases ? bases[t] : 0;
  for (uint i = t * tile; i < to; ++i) {
    const uint value = data[i];
    data[i] = sum;
    sum += value;
  }
}

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
