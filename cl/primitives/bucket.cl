// Buckets of SLOTS 64-bit words; the counterpart of tables/src/table/primitives/bucket.rs.
//
//   slot:         value << 32 | key                 empty: EMPTY_WORD
//   last slot of a Type B bucket: 1 (bit 63) | TAGS × 3-bit remap entries
//
// (Horton paper, figure 2.) A key equal to EMPTY_KEY is told from an empty slot by its value. With
// CUCKOO all slots of all buckets hold items.
#ifndef SLOTS
#error "SLOTS: slots per bucket, 4, 8 or 16"
#endif
#ifndef EMPTY_WORD
#error "EMPTY_WORD: the word of an empty slot"
#endif
#ifndef EMPTY_KEY
#error "EMPTY_KEY: the key half of EMPTY_WORD"
#endif
#ifndef MISS
#error "MISS: what a lookup answers for an absent key"
#endif
#ifndef NONE
#error "NONE: no item, no bucket"
#endif
#ifndef WIDE_VALUES
#error "WIDE_VALUES: 1 if values have 32 bits, 0 if they have 31 and none is an empty slot's"
#endif
#ifndef CUCKOO
#error "CUCKOO: 1 if keys have two buckets and buckets no remap entries"
#endif
#ifndef PREFETCH
#error "PREFETCH: 1 where __builtin_prefetch compiles and works, else 0"
#endif
#if PREFETCH
#define prefetch_bucket(table, b)                                                                  \
  __builtin_prefetch((const __private void *)(size_t)((table) + (size_t)(b) * SLOTS))
#else
#define prefetch_bucket(table, b)
#endif

#define LAST (SLOTS - 1)
#define NO_SLOT SLOTS
#define TYPE_B (1ul << 63)

uint key_of(ulong word) { return (uint)word; }
uint value_of(ulong word) { return (uint)(word >> 32); }
#if CUCKOO
bool is_type_b(ulong last) { return false; }
bool is_wide(ulong word) { return false; }
#else
bool is_type_b(ulong last) { return (last >> 63) != 0; }
// Whether a word may not stand in a Type A bucket's last slot, where it would look like entries.
bool is_wide(ulong word) { return WIDE_VALUES && (word >> 63) != 0; }
#endif
uint entry_at(ulong last, uint tag) { return (uint)(last >> (3 * tag)) & 7u; }
ulong entry_bits(uint entry, uint tag) { return (ulong)entry << (3 * tag); }
ulong word_of(uint key, uint value) { return (ulong)value << 32 | key; }

// Words 2 * i and 2 * i + 1 in one load: buffers are aligned, but vload2 would not say so and
// become two.
ulong2 pair_of_words(__global const ulong *table, size_t i) {
  return ((__global const ulong2 *)table)[i];
}

// Slots of a bucket that hold items: all, or all but the last.
uint item_slots(ulong last) { return SLOTS - (is_type_b(last) ? 1 : 0); }

// Slot of `key` in one bucket, or MISS; `last` receives the last slot's word.
uint slot_in_bucket(__global const ulong *table, uint bucket, uint key, ulong *last) {
  __global const ulong *slots = table + (size_t)bucket * SLOTS;
#if SLOTS == 8
  // Compare all slots at once, then load the one that matched.
  ulong8 words = vload8(0, slots);
  *last = words.s7;
  if (key != EMPTY_KEY) {
    if (is_type_b(*last)) words.s7 = EMPTY_WORD;
    const int8 hit = (convert_uint8(words) == (uint8)(key)) & (int8)(1, 2, 3, 4, 5, 6, 7, 8);
    const int4 half_hit = hit.lo | hit.hi;
    const int2 quarter_hit = half_hit.lo | half_hit.hi;
    const int slot = quarter_hit.x | quarter_hit.y;
    return slot ? (uint)slot - 1 : MISS;
  }
#else
  *last = slots[LAST];
#endif
  const uint n = item_slots(*last);
  for (uint s = 0; s < n; ++s) {
    const ulong word = slots[s];
    if (key_of(word) == key && word != EMPTY_WORD) return s;
  }
  return MISS;
}

// Value of `key` in one bucket, or MISS; `last` receives the last slot's word.
uint find_in_bucket(__global const ulong *table, uint bucket, uint key, ulong *last) {
  const uint slot = slot_in_bucket(table, bucket, key, last);
  return slot == MISS ? MISS : value_of(table[(size_t)bucket * SLOTS + slot]);
}

// Secondary bucket of a key that its primary bucket does not hold, NONE if it has none.
uint second_bucket(uint key, uint bucket, ulong last, uint seed, uint buckets) {
#if CUCKOO
  return second_bucket_of(key, seed, buckets);
#else
  if (!is_type_b(last)) return NONE;
  const uint tag = tag_of(key, seed);
  const uint entry = entry_at(last, tag);
  return entry ? secondary_bucket(bucket, tag, entry, seed, buckets) : NONE;
#endif
}
