// Groups of equal keys, a range of buckets at a time in local memory; after split.cl.
//
//   keys  7 3 7 3 9     by range   [3 1][3 3] | [9 4][7 0][7 2]
//   rows  0 1 2 3 4     grouped     3: 1 3    |  7: 0 2   9: 4
//
// group_range brings the items of a range into the order of finer buckets, most of which hold
// one or two keys, sorts each by key and row (they come nearly in order), and counts the groups.
// A prefix sum over ranges says where they go, and emit_groups writes them. So rows of a group
// ascend, and an item is moved four times in all; a radix sort of 32-bit keys moves it four
// times and reads it four times more, in smaller pieces. A range with more rows than local
// memory holds, or a cell with more than one work-item should sort, has a key with many rows: it is
// crowded, gets no groups here, and its rows, and no others, are left to the sort.
//
// hash.cl, bucket.cl, local.cl and split.cl come first.
#ifndef RANGE
#error "RANGE: buckets of a range"
#endif
#ifndef RANGE_ITEMS
#error "RANGE_ITEMS: items that a range may have"
#endif

// Finer buckets of a bucket.
#define FINE 4
#define CELLS (RANGE * FINE)

// Items of a cell that one work-item sorts by insertion.
#define CELL_LIMIT 128

uint cell_of(uint key, uint range, uint buckets, uint seed) {
  return primary_bucket(key, seed, buckets * FINE) - range * CELLS;
}

// By key, then by row. (Turning a word's halves round and comparing words would do, but oclgrind
// does not know the funnel shift that compilers make of it.)
bool comes_before(ulong a, ulong b) {
  return key_of(a) < key_of(b) || (key_of(a) == key_of(b) && a < b);
}

// Sorts words[from .. to) by insertion.
void sort_cell(__local ulong *words, uint from, uint to) {
  for (uint i = from + 1; i < to; ++i) {
    const ulong word = words[i];
    uint at = i;
    for (; at > from && comes_before(word, words[at - 1]); --at) words[at] = words[at - 1];
    words[at] = word;
  }
}

bool begins_group(__local const ulong *words, uint i) {
  return i == 0 || key_of(words[i]) != key_of(words[i - 1]);
}

// Groups that begin in this work-item's share of n words; `from` and `to` receive the share.
uint count_begins(__local const ulong *words, uint n, uint *from, uint *to) {
  const uint share = (n + SPLIT_GROUP - 1) / SPLIT_GROUP;
  *from = min((uint)get_local_id(0) * share, n);
  *to = min(*from + share, n);
  uint begins = 0;
  for (uint i = *from; i < *to; ++i) begins += begins_group(words, i);
  return begins;
}

// Marks the ranges of coarse bins that had no room for all of their items.
__kernel void mark_incomplete(__global const uint *bin_counts, __global uint *incomplete,
                              uint ranges, uint ranges_log2, uint capacity, uint end) {
  const uint range = get_global_id(0), bin = range >> ranges_log2;
  if (range < ranges && bin_counts[bin] > room_in(bin, capacity, end)) incomplete[range] = 1;
}

// One work-group a range: orders its items in place. rows[range] and groups[range] receive the
// numbers of its rows and groups, 0 if it is crowded, for which `crowded` has a bit a range.
__kernel __attribute__((reqd_work_group_size(SPLIT_GROUP, 1, 1))) void group_range(
    __global ulong *all_items, __global const uint *item_counts,
    __global const uint *incomplete, __global uint *crowded, __global uint *rows,
    __global uint *groups, uint buckets, uint seed) {
  __local ulong words[RANGE_ITEMS];
  __local uint cursor[CELLS], first[CELLS], sums[SPLIT_GROUP], large_cells;
  const uint self = get_local_id(0), range = get_group_id(0);
  const bool fits = !incomplete[range] && item_counts[range] <= RANGE_ITEMS;
  const uint n = fits ? item_counts[range] : 0;
  __global ulong *items = all_items + (size_t)range * RANGE_ITEMS;

  if (self == 0) large_cells = 0;
  for (uint c = self; c < CELLS; c += SPLIT_GROUP) cursor[c] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = self; i < n; i += SPLIT_GROUP)
    count_in_group(&cursor[cell_of(key_of(items[i]), range, buckets, seed)]);
  barrier(CLK_LOCAL_MEM_FENCE);
  scan_in_group(cursor, CELLS, 0, sums);
  for (uint c = self; c < CELLS; c += SPLIT_GROUP) first[c] = cursor[c];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = self; i < n; i += SPLIT_GROUP) {
    const ulong item = items[i];
    const uint c = cell_of(key_of(item), range, buckets, seed);
    words[count_in_group(&cursor[c])] = item;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint c = self; c < CELLS; c += SPLIT_GROUP) {
    if (cursor[c] - first[c] > CELL_LIMIT)
      atomic_inc(&large_cells);
    else
      sort_cell(words, first[c], cursor[c]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  uint from, to;
  uint begins = count_begins(words, n, &from, &to);
  const uint total = sums_before(&begins, sums);
  if (self == 0) {
    const bool grouped = fits && large_cells == 0;
    rows[range] = grouped ? n : 0;
    groups[range] = grouped ? total : 0;
    if (!grouped) atomic_or(&crowded[range / 32], 1u << range % 32);
  }
  for (uint i = self; i < n; i += SPLIT_GROUP) items[i] = words[i];
}

// One work-group a range. row_starts, group_starts: rows and groups of the ranges before, one more
// than ranges. first_group, first_row: groups and rows of the parts before.
__kernel __attribute__((reqd_work_group_size(SPLIT_GROUP, 1, 1))) void emit_groups(
    __global const ulong *all_items, __global const uint *row_starts,
    __global const uint *group_starts, __global uint *unique_keys, __global uint *offsets,
    __global uint *rows, uint first_group, uint first_row) {
  __local ulong words[RANGE_ITEMS];
  __local uint sums[SPLIT_GROUP];
  const uint self = get_local_id(0), range = get_group_id(0);
  const uint n = row_starts[range + 1] - row_starts[range];
  const uint row_start = first_row + row_starts[range];
  __global const ulong *items = all_items + (size_t)range * RANGE_ITEMS;
  for (uint i = self; i < n; i += SPLIT_GROUP) {
    words[i] = items[i];
    rows[row_start + i] = value_of(items[i]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  uint from, to;
  uint group = count_begins(words, n, &from, &to);
  sums_before(&group, sums);
  group += first_group + group_starts[range];
  for (uint i = from; i < to; ++i) {
    if (!begins_group(words, i)) continue;
    unique_keys[group] = key_of(words[i]);
    offsets[group++] = row_start + i;
  }
}
