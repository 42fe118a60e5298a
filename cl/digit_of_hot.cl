// A digit for radix_pass.cl: the number of the hot key, from 1 on, or 0 for any other; after
// hash.cl.
//
// `table` is a hash table of so many slots, a power of two, of pairs (key, number), which the driver
// filled to a quarter at most: most keys are known not to be hot after one read. A few hot keys take a
// few slots, so the lanes of a warp read one or two cache lines, not one each.

uint digit_of(uint key, __global const uint *table, uint slots) {
  const uint home = jenkins(key);
  for (uint probe = 0; probe < slots; ++probe) {
    const uint2 entry = vload2((home + probe) & (slots - 1), table);
    if (entry.y == 0 || entry.x == key) return entry.y;
  }
  return 0;
}
