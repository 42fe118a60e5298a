// A digit for radix_pass.cl: 0 if the key's range is crowded, else 1; after hash.cl.
//
// `crowded` has a bit a range: a kilobyte for ten million rows, which every cache holds.
#ifndef RANGE
#error "RANGE: buckets of a range"
#endif
#ifndef SEED
#error "SEED: of the hash that ranges are made by"
#endif

uint digit_of(uint key, __global const uint *crowded, uint buckets) {
  const uint range = primary_bucket(key, SEED, buckets) / RANGE;
  return ~(crowded[range / 32] >> range % 32) & 1u;
}
