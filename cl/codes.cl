// Linear probing over codes of two words, a cache line at a time; the twin of src/table/codes.rs.
//
//   a line    m0 m1 m2 m3 m4 | v0 v1 v2 v3 v4 | MISS        five mixed codes, their values, all ones
//             8 bytes each     4 bytes each
//
// A mixed code stands for its code, so comparing it is all there is to compare. A line fills up
// from the left and then goes on in the next one; where its last code is EMPTY_CODE, it does not. A code
// that mixes to EMPTY_CODE cannot be entered; looked up, it meets an empty slot, whose value is MISS.
//
// A work-item does a share of the codes, one after the other, so that prefetching has something to
// run ahead of.
#ifndef MISS
#error "MISS: the answer to a code that is not there, all ones"
#endif
#ifndef EMPTY_CODE
#error "EMPTY_CODE: an empty slot, all ones"
#endif
#ifndef LINE_CODES
#error "LINE_CODES: codes of a line of eight 64-bit words"
#endif
#ifndef CODES_GROUP
#error "CODES_GROUP: work-group size"
#endif
#ifndef LOOK_AHEAD
#error "LOOK_AHEAD: codes between a prefetch and its use"
#endif
#ifndef PREFETCH
#error "PREFETCH: 1 where __builtin_prefetch compiles and works, else 0"
#endif
#ifndef PEEK_VOLATILE
#error "PEEK_VOLATILE: 1 where a volatile load sees what atomics wrote, else 0"
#endif
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#define LINE_WORDS 8
// Codes between two looks at what others found wrong.
#define STOP_EVERY 256
// What enter finds wrong.
#define REPEATS 1u
#define NO_SLOT 2u

ulong mixed_code(__global const uint2 *codes, uint i, ulong seed) {
  return mix(seed ^ as_ulong(codes[i]));
}

// The line where the search for a mixed code starts.
uint home_of(ulong mixed, uint lines) { return mul_hi((uint)mixed, lines); }

// Asks for the line of a code that comes later.
void ask_ahead(__global ulong *table, __global const uint2 *codes, uint i, uint end, ulong seed,
               uint lines) {
#if PREFETCH
  if (i + LOOK_AHEAD < end) {
    const uint home = home_of(mixed_code(codes, i + LOOK_AHEAD, seed), lines);
    __builtin_prefetch((const __private void *)(size_t)&table[(size_t)home * LINE_WORDS]);
  }
#endif
}

// A slot that others may be taking.
ulong code_at(__global ulong *slot) {
#if PEEK_VOLATILE
  return *(volatile __global ulong *)slot;
#else
  return atom_add(slot, 0ul);
#endif
}

// Takes the first free slot on the code's way, or finds that it is there: 0, REPEATS or NO_SLOT.
uint enter_code(__global ulong *table, uint lines, ulong mixed, uint value) {
  if (mixed == EMPTY_CODE) return NO_SLOT;
  uint line = home_of(mixed, lines);
  for (uint passed = 0; passed < lines; ++passed) {
    __global ulong *codes = table + (size_t)line * LINE_WORDS;
    for (uint s = 0; s < LINE_CODES; ++s) {
      ulong seen = code_at(&codes[s]);
      if (seen == EMPTY_CODE) seen = atom_cmpxchg(&codes[s], EMPTY_CODE, mixed);
      if (seen == EMPTY_CODE) {
        ((__global uint *)(codes + LINE_CODES))[s] = value;
        return 0;
      }
      if (seen == mixed) return REPEATS;
    }
    line = line + 1 == lines ? 0 : line + 1;
  }
  return NO_SLOT;
}

// `values` may be missing: then a code's is its position. All is in vain once one code repeats, so the
// work-items that see it stop.
__kernel __attribute__((reqd_work_group_size(CODES_GROUP, 1, 1))) void enter_codes(
    __global ulong *table, __global const uint2 *codes, __global const uint *values,
    volatile __global uint *wrong, uint lines, uint seed_low, uint seed_high, uint share, uint n) {
  const uint from = min((uint)get_global_id(0) * share, n), end = from + min(share, n - from);
  const ulong seed = seeded(seed_low, seed_high);
  uint found = 0;
  for (uint i = from; i < end && !found; ++i) {
    ask_ahead(table, codes, i, end, seed, lines);
    found = enter_code(table, lines, mixed_code(codes, i, seed), values ? values[i] : i);
    if (i % STOP_EVERY == 0) found |= atomic_or(wrong, 0u);
  }
  if (found) atomic_or(wrong, found);
}

uint find_code(__global const ulong *table, uint lines, ulong mixed) {
  uint line = home_of(mixed, lines);
  for (uint passed = 0; passed < lines; ++passed) {
    __global const ulong *codes = table + (size_t)line * LINE_WORDS;
    // Without a branch: where a code is in its line, nothing foretells.
    uint at = LINE_CODES;
    for (uint s = 0; s < LINE_CODES; ++s) at = codes[s] == mixed ? s : at;
    if (at < LINE_CODES || codes[LINE_CODES - 1] == EMPTY_CODE)
      return ((__global const uint *)(codes + LINE_CODES))[at];
    line = line + 1 == lines ? 0 : line + 1;
  }
  return MISS;
}

__kernel __attribute__((reqd_work_group_size(CODES_GROUP, 1, 1))) void find_codes(
    __global ulong *table, __global const uint2 *codes, __global uint *values, uint lines,
    uint seed_low, uint seed_high, uint share, uint n) {
  const uint from = min((uint)get_global_id(0) * share, n), end = from + min(share, n - from);
  const ulong seed = seeded(seed_low, seed_high);
  for (uint i = from; i < end; ++i) {
    ask_ahead(table, codes, i, end, seed, lines);
    values[i] = find_code(table, lines, mixed_code(codes, i, seed));
  }
}
