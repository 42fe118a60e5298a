// What work-groups do together in local memory.
//
// On CPU runtimes the same kernels run with work-groups of one item: loops that stride by
// the group then walk everything, and barriers cost nothing.
#ifndef WORD
#error "WORD: what is added up, uint or ulong"
#endif
#ifndef ONE_ITEM
#error "ONE_ITEM: 1 where work-groups have one work-item, else 0"
#endif

// Turns each work-item's `sum` into that of the work-items before it; returns the sum of all.
// The whole work-group takes part; `sums` has a word for each work-item.
WORD sums_before(WORD *sum, __local WORD *sums) {
  const uint self = get_local_id(0), group = get_local_size(0);
  sums[self] = *sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint step = 1; step < group; step *= 2) {
    const WORD before = self >= step ? sums[self - step] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[self] += before;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  *sum = self ? sums[self - 1] : 0;
  return sums[group - 1];
}

// Replaces data[0..n) by `base` and its exclusive prefix sums, and returns their total without
// the base. Ends with a barrier.
WORD scan_in_group(__local WORD *data, uint n, WORD base, __local WORD *sums) {
  const uint self = get_local_id(0), group = get_local_size(0);
  const uint share = (n + group - 1) / group;
  const uint from = min(self * share, n), to = min(from + share, n);
  WORD sum = 0;
  for (uint i = from; i < to; ++i) sum += data[i];
  const WORD total = sums_before(&sum, sums);
  sum += base;
  for (uint i = from; i < to; ++i) {
    const WORD value = data[i];
    data[i] = sum;
    sum += value;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return total;
}

// Counts one more and returns the count before. A work-group of one item needs no atomic, which
// costs a CPU twenty times as much.
uint count_in_group(__local uint *counter) {
#if ONE_ITEM
  return (*counter)++;
#else
  return atomic_inc(counter);
#endif
}
