// Hash functions of a Horton table; the counterpart of tables/src/table/primitives/hash.rs, word
// for word.
//
//   key ──jenkins──▶ h ──× buckets──▶ primary bucket     (paper, section 5.3.1)
//                    └──jenkins──▶ × TAGS ──▶ tag          (H_tag, section 4)
//   (primary bucket, tag) ──▶ k_sec ──▶ R_1 … R_7          (section 5.3.4, equations 1, 2)
//
// Hashes are reduced by multiply-high instead of the paper's `%`: as uniform, and a
// division costs 20-40 instructions on a GPU. MODULO selects `%`. Cuckoo tables have a second
// function of the key instead of tags.
#ifndef TAGS
#error "TAGS: remap entries per Type B bucket"
#endif
#ifndef TAG_SALT
#error "TAG_SALT: what separates the tag's hash from the primary hash"
#endif
#ifndef SECOND_SALT
#error "SECOND_SALT: what separates a cuckoo table's second hash from the primary hash"
#endif
#ifndef MODULO
#error "MODULO: 1 to reduce hashes by %, 0 by multiply-high"
#endif
#ifndef FOLD
#error "FOLD: multiplier that folds the high word of k_sec into the low one"
#endif
#ifndef KT
#error "KT: the eight step constants of the secondary functions, comma-separated"
#endif

__constant uint kt[8] = {KT};

// Bob Jenkins' 32-bit to 32-bit integer hash: six shifts, full avalanche, invertible.
uint jenkins(uint a) {
  a = (a + 0x7ed55d16u) + (a << 12);
  a = (a ^ 0xc761c23cu) ^ (a >> 19);
  a = (a + 0x165667b1u) + (a << 5);
  a = (a + 0xd3a2646cu) ^ (a << 9);
  a = (a + 0xfd7046c5u) + (a << 3);
  a = (a ^ 0xb55a4f09u) ^ (a >> 16);
  return a;
}

#if MODULO
uint reduce(uint hash, uint buckets) { return hash % buckets; }
#else
uint reduce(uint hash, uint buckets) { return mul_hi(hash, buckets); }
#endif

uint primary_bucket(uint key, uint seed, uint buckets) {
  return reduce(jenkins(key ^ seed), buckets);
}

uint second_bucket_of(uint key, uint seed, uint buckets) {
  return reduce(jenkins(jenkins(key ^ seed) + SECOND_SALT), buckets);
}

uint tag_of(uint key, uint seed) {
  return mul_hi(jenkins(jenkins(key ^ seed) + TAG_SALT), (uint)TAGS);
}

// Bucket of secondary function `entry` (1..7) for what overflows `bucket` with `tag`.
uint secondary_bucket(uint bucket, uint tag, uint entry, uint seed, uint buckets) {
  const ulong k = (ulong)bucket * TAGS + tag;
  const uint base = jenkins((uint)k ^ ((uint)(k >> 32) * FOLD) ^ ~seed);
  return reduce(base + kt[k & 7] * entry, buckets);
}
