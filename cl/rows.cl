// What is done with lists of row numbers.
//
//   numbers  2 0 MISS 2        set_bits     bits   101
//                              gather_rows  column [a b c] ─▶ c a - c
//                              count_up     0 1 2 3
//
// set_bits looks at a word before it changes it where that costs less than an atomic: most rows are
// visited again and again, and reading keeps the line shared. Bits are only ever set, so a late look
// costs an atomic and no more. gather_rows moves columns of any width as 32-bit words, a work-item a word,
// so that a warp writes whole lines and reads each row's words together.
#ifndef MISS
#error "MISS: no row"
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

// out[i] = column[rows[i]]; a row has 1 << log_words words.
__kernel void gather_rows(__global const uint *column, __global const uint *rows,
                          __global uint *out, uint n, uint log_words) {
  const size_t i = get_global_id(0);
  const size_t row = i >> log_words;
  if (row >= n) return;
  const size_t word = i & ((1u << log_words) - 1);
  out[i] = column[((size_t)rows[row] << log_words) + word];
}

__kernel void count_up(__global uint *out, uint n) {
  const uint i = get_global_id(0);
  if (i < n) out[i] = i;
}
