// Keys to look up, and whether the answers are right: made and counted where they are, as an array
// of a gigabyte takes the host longer to draw and to check than the device to look up.
//
//   repeat_keys   distinct keys k0 k1 … ─▶ k0 k1 … k0 k1 …      repeats stand `count` apart
//   draw_keys     position ─▶ key, one-to-one over all 32 bits
//   count_wrong   answer i must be (from + i) % count, or MISS where no key is there

__kernel void repeat_keys(__global const uint *distinct, __global uint *keys, uint count, uint n) {
  const uint i = get_global_id(0);
  if (i < n) keys[i] = distinct[i % count];
}

// The finalizer of MurmurHash3, another hash than the tables'.
__kernel void draw_keys(__global uint *keys, uint from, uint n) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  uint key = from + i;
  key = (key ^ key >> 16) * 0x85ebca6bu;
  key = (key ^ key >> 13) * 0xc2b2ae35u;
  keys[i] = key ^ key >> 16;
}

// `count` is 0 where no key is there.
__kernel void count_wrong(__global const uint *values, __global uint *wrong, uint from, uint count,
                          uint miss, uint n) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  const uint right = count ? (from + i) % count : miss;
  if (values[i] != right) atomic_inc(wrong);
}
