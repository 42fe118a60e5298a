// What work-groups do together in local memory.
//
// On CPU runtimes the same kernels run with work-groups of one item: loops that stride by
// the group then walk everything, and barriers cost nothing.

// Replaces data[0..n) by its exclusive prefix sums and returns the total. The whole work-group
// takes part; `sums` has a word for each work-item. Ends with a barrier.
uint scan_in_group(__local uint *data, uint n, __local uint *sums) {
  const uint self = get_local_id(0), group = get_local_size(0);
  const uint share = (n + group - 1) / group;
  const uint from = min(self * share, n), to = min(from + share, n);
  uint sum = 0;
  for (uint i = from; i < to; ++i) sum += data[i];
  sums[self] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint step = 1; step < group; step *= 2) {
    const uint before = self >= step ? sums[self - step] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[self] += before;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  sum = self ? sums[self - 1] : 0;
  const uint total = sums[group - 1];
  for (uint i = from; i < to; ++i) {
    const uint value = data[i];
    data[i] = sum;
    sum += value;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return total;
}
