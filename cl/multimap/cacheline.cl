// Linear probing over codes of one or two words, a cache line at a time; the counterpart of
// tables/src/table/multimap/cacheline.rs.
//
//   a line    m0 m1 m2 m3 m4 | v0 v1 v2 v3 v4 | stays       five mixed codes, their values, 32 bits
//             8 bytes each     4 bytes each     4 bytes
//
// A mixed code stands for its code, so comparing it is all there is to compare. A line fills up
// from the left; codes that find it full go into the next line with room. As a Horton table's remap
// entries tell which keys left their bucket, so do the bits of `stays` here: bit t is 1 as long as
// no code with tag t that belongs into this line stands in another. So one line answers nearly
// every miss. A code that mixes to EMPTY_CODE cannot be entered; looked up, it meets an empty slot,
// whose value is MISS.
//
// A work-item does a share of the codes, a block at a time: while it does one, it asks for the
// lines of the next. Each code is mixed once, by a loop of its own that compilers vectorize.
//
//   ways      | block: mixed, homes | next block |      a ring of two blocks in private memory
//
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
#ifndef CODE_WORDS
#error "CODE_WORDS: words of a code, 1 or 2"
#endif
#ifndef BLOCK
#error "BLOCK: codes whose lines are asked for together"
#endif
#ifndef PREFETCH
#error "PREFETCH: 1 where __builtin_prefetch compiles and works, else 0"
#endif
#ifndef PEEK_VOLATILE
#error "PEEK_VOLATILE: 1 where a volatile load sees what atomics wrote, else 0"
#endif
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#define LINE_WORDS 8
// What enter finds wrong.
#define REPEATS 1u
#define NO_SLOT 2u

#if CODE_WORDS == 1
typedef uint code_t;
ulong bits_of(code_t code) { return code; }
#else
typedef uint2 code_t;
ulong bits_of(code_t code) { return as_ulong(code); }
#endif

// The line where the search for a mixed code starts.
uint home_of(ulong mixed, uint lines) { return (uint)((mixed & 0xfffffffful) * lines >> 32); }

// Which bit of `stays` tells of a mixed code.
uint tag_of(ulong mixed) { return (uint)(mixed >> 59); }

uint line_after(uint line, uint lines) { return line + 1 == lines ? 0 : line + 1; }

// Mixes the codes of a block.
void mix_block(__global const code_t *codes, uint size, ulong seed, uint lines, ulong *mixed,
               uint *homes) {
  for (uint k = 0; k < size; ++k) {
    mixed[k] = mix(seed ^ bits_of(codes[k]));
    homes[k] = home_of(mixed[k], lines);
  }
}

// Asks for the line of a code of the next block.
void ask_for(__global const ulong *table, uint home) {
#if PREFETCH
  __builtin_prefetch((const __private void *)(size_t)&table[(size_t)home * LINE_WORDS]);
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
  const uint home = home_of(mixed, lines);
  uint line = home;
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
    if (line == home)
      atomic_and((__global uint *)(codes + LINE_CODES) + LINE_CODES, ~(1u << tag_of(mixed)));
    line = line_after(line, lines);
  }
  return NO_SLOT;
}

// `values` may be missing: then a code's is its position. The build fails once one code repeats, so
// work-items look after each block whether another saw one.
__kernel __attribute__((reqd_work_group_size(CODES_GROUP, 1, 1))) void enter_codes(
    __global ulong *table, __global const code_t *codes, __global const uint *values,
    volatile __global uint *wrong, uint lines, uint seed_low, uint seed_high, uint per_item,
    uint n) {
  const uint from = min((uint)get_global_id(0) * per_item, n), end = from + min(per_item, n - from);
  const ulong seed = seeded(seed_low, seed_high);
  ulong mixed[2][BLOCK];
  uint homes[2][BLOCK], now = 0, found = 0;
  mix_block(codes + from, min(end - from, (uint)BLOCK), seed, lines, mixed[now], homes[now]);
  for (uint block = from; block < end && !found; block += BLOCK, now ^= 1) {
    const uint size = min(end - block, (uint)BLOCK), next = min(end - block - size, (uint)BLOCK);
    mix_block(codes + block + size, next, seed, lines, mixed[now ^ 1], homes[now ^ 1]);
    for (uint k = 0; k < size; ++k) {
      if (k < next) ask_for(table, homes[now ^ 1][k]);
      found |= enter_code(table, lines, mixed[now][k], values ? values[block + k] : block + k);
    }
    if (found) atomic_or(wrong, found);
    found |= atomic_or(wrong, 0u);
  }
}

// Where a mixed code is in a line, LINE_CODES if it is not. Without a branch: none is predictable.
uint slot_in(__global const ulong *codes, ulong mixed) {
  uint at = LINE_CODES;
  for (uint s = 0; s < LINE_CODES; ++s) at = codes[s] == mixed ? s : at;
  return at;
}

// The value of a mixed code, or MISS, if its first line tells; else *further is 1.
uint find_at_home(__global const ulong *codes, ulong mixed, uint *further) {
  const uint at = slot_in(codes, mixed);
  __global const uint *values = (__global const uint *)(codes + LINE_CODES);
  *further = (at == LINE_CODES) & ~(values[LINE_CODES] >> tag_of(mixed)) & 1u;
  return values[at] | (at == LINE_CODES ? MISS : 0);
}

// The value of a mixed code that is not in its first line.
uint find_further(__global const ulong *table, uint lines, ulong mixed) {
  const uint home = home_of(mixed, lines);
  for (uint line = line_after(home, lines); line != home; line = line_after(line, lines)) {
    __global const ulong *codes = table + (size_t)line * LINE_WORDS;
    const uint at = slot_in(codes, mixed);
    if (at != LINE_CODES) return ((__global const uint *)(codes + LINE_CODES))[at];
    if (codes[LINE_CODES - 1] == EMPTY_CODE) break;
  }
  return MISS;
}

// Codes that their first line does not tell of are gone after once the block is done.
__kernel __attribute__((reqd_work_group_size(CODES_GROUP, 1, 1))) void find_codes(
    __global const ulong *table, __global const code_t *codes, __global uint *values, uint lines,
    uint seed_low, uint seed_high, uint per_item, uint n) {
  const uint from = min((uint)get_global_id(0) * per_item, n), end = from + min(per_item, n - from);
  const ulong seed = seeded(seed_low, seed_high);
  ulong mixed[2][BLOCK];
  uint homes[2][BLOCK], late[BLOCK + 1], now = 0;
  mix_block(codes + from, min(end - from, (uint)BLOCK), seed, lines, mixed[now], homes[now]);
  for (uint block = from; block < end; block += BLOCK, now ^= 1) {
    const uint size = min(end - block, (uint)BLOCK), next = min(end - block - size, (uint)BLOCK);
    mix_block(codes + block + size, next, seed, lines, mixed[now ^ 1], homes[now ^ 1]);
    uint count = 0;
    for (uint k = 0; k < size; ++k) {
      if (k < next) ask_for(table, homes[now ^ 1][k]);
      __global const ulong *line = table + (size_t)homes[now][k] * LINE_WORDS;
      uint further;
      values[block + k] = find_at_home(line, mixed[now][k], &further);
      late[count] = k;
      count += further;
    }
    for (uint l = 0; l < count; ++l)
      values[block + late[l]] = find_further(table, lines, mixed[now][late[l]]);
  }
}
