// Keys to look up, and whether the answers are right. Both are made on the device: the host would
// take longer to draw and check a gigabyte of keys than the device to look them up.
//
//   repeat_keys   distinct keys, all of them every `count` keys, `stride` apart in their array
//   draw_keys     position ─▶ key, one-to-one over all 32 bits
//   count_wrong   answer i must be its key's position, or MISS where no key is there
//
// A stride: of an array's first keys more are in their primary buckets than of the others, as they
// were built first. The stride is a prime, so that every key is met before one is met again.

uint position_of(uint i, uint stride, uint count) { return (uint)((ulong)i * stride % count); }

__kernel void repeat_keys(__global const uint *distinct, __global uint *keys, uint stride,
                          uint count, uint n) {
  const uint i = get_global_id(0);
  if (i < n) keys[i] = distinct[position_of(i, stride, count)];
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
__kernel void count_wrong(__global const uint *values, __global uint *wrong, uint from,
                          uint stride, uint count, uint miss, uint n) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  const uint right = count ? position_of(from + i, stride, count) : miss;
  if (values[i] != right) atomic_inc(wrong);
}
