// A digit for radix_pass.cl: the number of the hot key, from 1 on, or 0 for any other; after
// hash.cl.
//
// `table` is a hash table of so many slots, a power of two, of pairs (key, number), which the
// driver filled to a quarter at most: most keys are known not to be hot after one read. A few hot
// keys take a few slots, so the lanes of a warp read one or two cache lines, not one each.

uint digit_of(uint key, __global const uint *table, uint slots) {
  const uint home = jenkins(key);
  for (uint probe = 0; probe < slots; ++probe) {
    // One load: buffers are aligned, but vload2 would not say so and become two.
    const uint2 entry = ((__global const uint2 *)table)[(home + probe) & (slots - 1)];
    if (entry.y == 0 || entry.x == key) return entry.y;
  }
  return 0;
}
