// The 64-bit word of a key and its value in tables that change; the counterpart of
// tables/src/table/primitives/word.rs.
//
//   value <= MAX_VALUE   an item             DELETED << 32 | key   deleted, the key stays
//   EMPTY_WORD           never used          TOMBSTONE             deleted, nobody's
//
// The value half encodes the state of the slot, so that all keys can be stored.
#ifndef MISS
#error "MISS: what a search answers for an absent key"
#endif
#ifndef MAX_VALUE
#error "MAX_VALUE: the largest value of an item"
#endif
#ifndef DELETED
#error "DELETED: value half of a deleted word, and the answer of an insertion without room"
#endif
#ifndef EMPTY_WORD
#error "EMPTY_WORD: a slot that was never used"
#endif
#ifndef TOMBSTONE
#error "TOMBSTONE: a slot whose item was deleted"
#endif
#ifndef PEEK_VOLATILE
#error "PEEK_VOLATILE: 1 where a volatile load sees what atomics wrote, else 0"
#endif
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable

uint key_of(ulong word) { return (uint)word; }
uint value_of(ulong word) { return (uint)(word >> 32); }
ulong word_of(uint key, uint value) { return (ulong)value << 32 | key; }
bool is_live(ulong word) { return value_of(word) <= MAX_VALUE; }
uint live_value(ulong word) { return is_live(word) ? value_of(word) : MISS; }

// A word that others are changing. (64-bit words, aligned, are read whole by every device that
// has 64-bit atomics, but not every compiler and checker takes plain reads beside atomics.)
ulong peek(__global ulong *word) {
#if PEEK_VOLATILE
  return *(volatile __global ulong *)word;
#else
  return atom_add(word, 0ul);
#endif
}

// Which answers are values.
__kernel void mark_found(__global const uint *values, __global uint *found, uint n) {
  const uint i = get_global_id(0);
  if (i < n) found[i] = values[i] != MISS;
}

// How many values cannot be stored.
__kernel void count_invalid(__global const uint *values, __global uint *count, uint n) {
  const uint i = get_global_id(0);
  if (i < n && values[i] > MAX_VALUE) atomic_inc(count);
}
