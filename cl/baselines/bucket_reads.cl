// Counts what lookups read: buckets and the cache lines they lie on.
//
//   key ─▶ primary bucket [ line(s) ] ─miss─▶ second bucket [ line(s), unless it is the same ]
//
// (Horton paper, section 8.) The lookup kernels count second buckets only, and whole work-groups at
// a time; this one is for the evaluation, and slow. A bucket of 4 slots is half a line, one of 16
// two lines.
//
// hash.cl and bucket.cl come first.
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#ifndef LINE_WORDS
#error "LINE_WORDS: 64-bit words of a cache line"
#endif
#ifndef READS_GROUP
#error "READS_GROUP: work-group size of count_reads"
#endif

#if SLOTS > LINE_WORDS
#define LINES_OF_BUCKET (SLOTS / LINE_WORDS)
#else
#define LINES_OF_BUCKET 1
#endif

uint line_of(uint bucket) { return (uint)((ulong)bucket * SLOTS / LINE_WORDS); }

// sums[0] grows by the buckets, sums[1] by the lines.
__kernel __attribute__((reqd_work_group_size(READS_GROUP, 1, 1))) void count_reads(
    __global const ulong *table, __global const uint *keys, __global ulong *sums, uint n,
    uint buckets, uint seed) {
  __local uint read, lines;
  if (get_local_id(0) == 0) read = lines = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint first = 0, second = 0, second_lines = 0;
  const ulong stride = get_global_size(0);
  for (ulong i = get_global_id(0); i < n; i += stride) {
    const uint b = primary_bucket(keys[i], seed, buckets);
    ulong last;
    ++first;
    if (slot_in_bucket(table, b, keys[i], &last) != MISS) continue;
    const uint w = second_bucket(keys[i], b, last, seed, buckets);
    if (w == NONE) continue;
    ++second;
    second_lines += line_of(w) != line_of(b) ? LINES_OF_BUCKET : 0;
  }
  atomic_add(&read, first + second);
  atomic_add(&lines, first * LINES_OF_BUCKET + second_lines);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) == 0) {
    atom_add(&sums[0], (ulong)read);
    atom_add(&sums[1], (ulong)lines);
  }
}
