// Codes of several words mixed to 64 bits; the counterpart of tables/src/table/primitives/mix.rs.
//
//   code, two words at a time ──XOR──▶ mix ──▶ … ──▶ 64 bits       from a table's seed on
//
// One-to-one for codes of two words.

// One-to-one: each step can be undone (the finalizer of MurmurHash3).
ulong mix(ulong code) {
  code ^= code >> 33;
  code *= 0xff51afd7ed558ccdul;
  code ^= code >> 33;
  code *= 0xc4ceb9fe1a85ec53ul;
  return code ^ code >> 33;
}

// What the mixing of a code of this table starts with.
ulong seeded(uint seed_low, uint seed_high) { return (ulong)seed_high << 32 | seed_low; }
