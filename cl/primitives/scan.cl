// Exclusive prefix sums of WORDs, tile by tile.
//
//   data      3 1 4 | 1 5 9 | 2 6        sum_tiles   8 15 8
//   bases     0       8       23         (scanned in the same way)
//   result    0 3 4 | 8 9 14 | 23 25     scan_tiles
//
// A work-group takes a tile. Every pass reads in order; the sums of tiles are few. local.cl
// comes first.
#ifndef SCAN_GROUP
#error "SCAN_GROUP: work-group size"
#endif
#ifndef SCAN_TILE
#error "SCAN_TILE: words of a tile"
#endif

__kernel __attribute__((reqd_work_group_size(SCAN_GROUP, 1, 1))) void sum_tiles(
    __global const WORD *data, __global WORD *tile_sums, uint n) {
  __local WORD sums[SCAN_GROUP];
  const uint self = get_local_id(0), from = get_group_id(0) * SCAN_TILE;
  const uint to = from + min(n - from, (uint)SCAN_TILE);
  WORD sum = 0;
  for (uint i = from + self; i < to; i += SCAN_GROUP) sum += data[i];
  const WORD total = sums_before(&sum, sums);
  if (self == 0) tile_sums[get_group_id(0)] = total;
}

// bases: what stands before each tile; 0 for nothing.
__kernel __attribute__((reqd_work_group_size(SCAN_GROUP, 1, 1))) void scan_tiles(
    __global WORD *data, __global const WORD *bases, uint n) {
  __local WORD sums[SCAN_GROUP], tile[SCAN_TILE];
  const uint self = get_local_id(0), from = get_group_id(0) * SCAN_TILE;
  const uint size = min(n - from, (uint)SCAN_TILE);
  for (uint i = self; i < size; i += SCAN_GROUP) tile[i] = data[from + i];
  barrier(CLK_LOCAL_MEM_FENCE);
  scan_in_group(tile, size, bases ? bases[get_group_id(0)] : 0, sums);
  for (uint i = self; i < size; i += SCAN_GROUP) data[from + i] = tile[i];
}
