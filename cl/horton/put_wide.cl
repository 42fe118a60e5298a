// Putting values of 32 bits into buckets that items were removed from.
//
// Such buckets have gaps. Their count gives a work-item a slot, but not which: it looks for one
// with compare-and-swap, so that this part, and no other of a build, needs 64-bit atomics.
//
// hash.cl, bucket.cl and fill.cl come first.
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable

// Puts an item into a free slot of bucket w, if there is one. A wide value may not take the last
// one, which narrow ones therefore try first.
bool put_in_bucket(__global ulong *table, __global uint *fill, uint w, ulong word) {
  if (take_slot(fill, w) == NO_SLOT) return false;
  const uint n = is_wide(word) ? LAST : SLOTS;
  for (uint i = 0; i < 4 * SLOTS; ++i) {
    const uint s = n - 1 - i % n;
    if (atom_cmpxchg(&table[(size_t)w * SLOTS + s], EMPTY_WORD, word) == EMPTY_WORD) return true;
  }
  atomic_sub(&fill[w / 4], 1u << (w % 4 * 8));
  return false;
}
