// What a table is made of: Type B buckets, items, and items outside their primary bucket. Reads
// the table in order, at the memory's copy speed.
//
// hash.cl and bucket.cl come first.
#ifndef CENSUS_GROUP
#error "CENSUS_GROUP: work-group size of census"
#endif

// Adds up Type B buckets, items and secondary items. A work-group takes its share of the table,
// work-items read neighbouring pairs of words.
__kernel __attribute__((reqd_work_group_size(CENSUS_GROUP, 1, 1))) void census(
    __global const ulong *table, __global uint *sums, uint buckets, uint seed) {
  __local uint totals[3];
  const uint self = get_local_id(0);
  for (uint i = self; i < 3; i += CENSUS_GROUP) totals[i] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  const size_t pairs = (size_t)buckets * (SLOTS / 2);
  const size_t share = (pairs + get_num_groups(0) - 1) / get_num_groups(0);
  const size_t from = share * get_group_id(0);
  uint type_b = 0, items = 0, secondary = 0;
  for (size_t at = from + self; at < from + share && at < pairs; at += CENSUS_GROUP) {
    const ulong2 words = pair_of_words(table, at);
    const uint b = (uint)(at / (SLOTS / 2));
    const bool entries = at % (SLOTS / 2) == SLOTS / 2 - 1 && is_type_b(words.y);
    type_b += entries;
    const bool x = words.x != EMPTY_WORD, y = !entries && words.y != EMPTY_WORD;
    items += x + y;
    secondary += (x && primary_bucket(key_of(words.x), seed, buckets) != b) +
                 (y && primary_bucket(key_of(words.y), seed, buckets) != b);
  }
  atomic_add(&totals[0], type_b);
  atomic_add(&totals[1], items);
  atomic_add(&totals[2], secondary);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = self; i < 3; i += CENSUS_GROUP) atomic_add(&sums[i], totals[i]);
}
