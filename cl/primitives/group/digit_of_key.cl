// A digit for radix_pass.cl: 8 bits of the key, from bit `shift` on.
uint digit_of(uint key, __global const uint *table, uint shift) {
  return key >> shift & (RADIX - 1);
}
