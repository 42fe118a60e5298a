// A table whose items are moved by many work-items at once.
//
//   group   items with one primary bucket and one tag: they are in one bucket besides it, which a
//           remap entry names
//
// Slots and entries are words of 64 bits that others change, so they are read and written with
// atomics.
//
// hash.cl and bucket.cl come first.
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable

// A group, and the bucket its items were found in.
typedef struct {
  uint home, tag;
} Group;

Group group_of(uint key, uint seed, uint buckets) {
  const Group group = {primary_bucket(key, seed, buckets), tag_of(key, seed)};
  return group;
}

bool same_group(Group a, Group b) { return a.home == b.home && a.tag == b.tag; }

// The table while it changes, and where items go that lose their slot.
typedef struct {
  __global ulong *table;
  __global uint *fill;
  __global ulong *left;
  __global uint *left_count;
  uint capacity, buckets, seed;
} Changing;

__global ulong *slot_at(const Changing *c, uint w, uint s) {
  return c->table + (size_t)w * SLOTS + s;
}

ulong read_slot(const Changing *c, uint w, uint s) { return atom_add(slot_at(c, w, s), 0ul); }
