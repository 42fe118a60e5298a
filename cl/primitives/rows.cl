// What is done with lists of row numbers.
//
//   numbers  2 0 MISS 2        set_bits     bits   101
//                              gather_rows  column [a b c] at 2 0 2 ─▶ c a c
//                              gather_bits  bits [x y z] at 2 0 2 ─▶ z x z
//                              count_up     0 1 2 3
//
// set_bits looks at a word before it changes it where that costs less than an atomic: most rows are
// visited again and again, and reading keeps the line shared. Bits are only ever set, so a late
// look costs an atomic and no more. gather_rows moves a row's words in one go, whatever they are.
// In gather_bits a work-item makes a word: the bits of a column are few enough for the caches, and
// items that set bits of the same word would need atomics. Both write to a place in a larger
// buffer, so that the host gets many columns by one copy.
#ifndef MISS
#error "MISS: no row"
#endif
#ifndef ELEMENT
#error "ELEMENT: what a row of a gathered column is: uint, uint2, uint4 or uint8"
#endif
#ifndef PEEK_VOLATILE
#error "PEEK_VOLATILE: 1 where a volatile load sees what atomics wrote, else 0"
#endif

__kernel void set_bits(__global const uint *numbers, volatile __global uint *bits, uint n) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  const uint number = numbers[i];
  if (number == MISS) return;
  const uint bit = 1u << (number % 32);
#if PEEK_VOLATILE
  if (bits[number / 32] & bit) return;
#endif
  atomic_or(&bits[number / 32], bit);
}

__kernel void gather_rows(__global const ELEMENT *column, __global const uint *rows,
                          __global ELEMENT *out, uint at, uint n) {
  const uint i = get_global_id(0);
  if (i < n) out[at + i] = column[rows[i]];
}

__kernel void gather_bits(__global const uint *bits, __global const uint *rows,
                          __global uint *out, uint at, uint n) {
  const uint word = get_global_id(0);
  if (word >= (n + 31) / 32) return;
  const uint first = word * 32;
  const uint count = min(32u, n - first);
  uint gathered = 0;
  for (uint i = 0; i < count; i++) {
    const uint row = rows[first + i];
    gathered |= (bits[row / 32] >> (row % 32) & 1u) << i;
  }
  out[at + word] = gathered;
}

__kernel void count_up(__global uint *out, uint n) {
  const uint i = get_global_id(0);
  if (i < n) out[i] = i;
}
