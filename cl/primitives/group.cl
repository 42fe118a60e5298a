// Groups of equal keys that have been sorted by radix_sort.cl: the boundaries of runs.
//
//   keys  3 3 7 7 9    unique keys  3 7 9
//   rows  1 3 0 2 4 ─▶ offsets      0 2 4 5
//
// The sort is stable, so rows of a group ascend. Hashing into groups with atomics would be faster
// for few repeats. But hot keys would queue on one counter, and rows would come out in any order.

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
