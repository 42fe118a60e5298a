// Codes of several words over a table of 32-bit keys; the counterpart of
// tables/src/table/multimap/multiword.rs.
//
//   code ──mix──▶ key, check                          split_codes
//   positions by key         [p5] [p1 p9 p4] [p2 p7]   (groups)
//   by key, then check       [p5] [p1 p4][p9] [p2 p7]  order_groups
//   heads of groups           1    1  0   0    1  0    mark_heads
//   starts of runs            1    1  0   1    1  0    mark_runs, and how many in each word
//   runs                      0    1      2    3       write_runs: check, what a lookup answers
//   key ─▶ first run          0    1           3       first_runs
//   code of run               a    b  c    d           keep_codes: only where a check does not tell
//   lookups                   run 1 has another check, its key goes on: run 2      resolve
//
// Nearly all groups are one run, so ordering is for small groups; mark_runs says if a large one is
// of several checks, keep_codes if a run is of several codes.
#ifndef MISS
#error "MISS: no run"
#endif
#ifndef ORDERED
#error "ORDERED: the largest group that order_groups orders"
#endif
#ifndef PREFETCH
#error "PREFETCH: 1 where __builtin_prefetch compiles and works, else 0"
#endif
#define RUNS_AHEAD 24u
#define CODES_AHEAD 12u

// One-to-one for codes of two words.
__kernel void split_codes(__global const uint *codes, __global uint *keys, __global uint *checks,
                          uint n, uint words, uint seed_low, uint seed_high) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  __global const uint *code = codes + (size_t)i * words;
  ulong mixed = seeded(seed_low, seed_high);
  for (uint w = 0; w < words; w += 2)
    mixed = mix(mixed ^ (code[w] | (ulong)(w + 1 < words ? code[w + 1] : 0) << 32));
  keys[i] = (uint)mixed;
  checks[i] = (uint)(mixed >> 32);
}

// ---------------------------------------------------------------- runs

bool bit_at(__global const uint *bits, uint i) { return bits[i / 32] >> (i % 32) & 1; }

// Starts before position p.
uint rank_of(__global const uint *starts, __global const uint *ranks, uint p) {
  return ranks[p / 32] + popcount(starts[p / 32] & ((1u << (p % 32)) - 1));
}

// Positions of the group that p is in.
uint group_size(__global const uint *offsets, uint groups, uint p) {
  uint low = 0, high = groups;
  while (high - low > 1) {
    const uint middle = low + (high - low) / 2;
    if (offsets[middle] <= p) low = middle;
    else high = middle;
  }
  return offsets[low + 1] - offsets[low];
}

__kernel void mark_heads(__global const uint *offsets, volatile __global uint *heads, uint groups) {
  const uint g = get_global_id(0);
  if (g < groups) atomic_or(&heads[offsets[g] / 32], 1u << (offsets[g] % 32));
}

// Stable, so that rows of a run ascend.
__kernel void order_groups(__global const uint *offsets, __global uint *checks, __global uint *rows,
                           uint groups) {
  const uint g = get_global_id(0);
  if (g >= groups) return;
  const uint from = offsets[g], to = offsets[g + 1];
  if (to - from > ORDERED) return;
  for (uint i = from + 1; i < to; ++i) {
    const uint check = checks[i], row = rows[i];
    uint at = i;
    for (; at > from && checks[at - 1] > check; --at) {
      checks[at] = checks[at - 1];
      rows[at] = rows[at - 1];
    }
    if (at == i) continue;
    checks[at] = check;
    rows[at] = row;
  }
}

// One work-item per word of `starts`. mixed[0] becomes 1 if a group that was not ordered has
// several checks.
__kernel void mark_runs(__global const uint *checks, __global const uint *heads,
                        __global const uint *offsets, __global uint *starts, __global uint *counts,
                        __global uint *mixed, uint groups, uint n) {
  const uint w = get_global_id(0), from = 32 * w;
  if (from >= n) return;
  uint word = heads[w];
  const uint size = min(n - from, 32u);
  for (uint bit = 0; bit < size; ++bit) {
    const uint p = from + bit;
    // The first position is a head.
    if (word >> bit & 1 || checks[p] == checks[p - 1]) continue;
    word |= 1u << bit;
    if (group_size(offsets, groups, p) > ORDERED) atomic_or(mixed, 1u);
  }
  starts[w] = word;
  counts[w] = popcount(word);
}

// runs[r]: the check of run r, and the answer to its code: its only row, or r where there are
// `offsets` to write. A bit of goes_on: the next run has the same key.
__kernel void write_runs(__global const uint *starts, __global const uint *heads,
                         __global const uint *ranks, __global const uint *checks,
                         __global const uint *rows, __global uint2 *runs,
                         volatile __global uint *goes_on, __global uint *offsets, uint n) {
  const uint p = get_global_id(0);
  if (p >= n || !bit_at(starts, p)) return;
  const uint r = rank_of(starts, ranks, p);
  runs[r] = (uint2)(checks[p], offsets ? r : rows[p]);
  if (offsets) offsets[r] = p;
  if (!bit_at(heads, p)) atomic_or(&goes_on[(r - 1) / 32], 1u << ((r - 1) % 32));
}

__kernel void first_runs(__global const uint *offsets, __global const uint *starts,
                         __global const uint *ranks, __global uint *first, uint groups) {
  const uint g = get_global_id(0);
  if (g < groups) first[g] = rank_of(starts, ranks, offsets[g]);
}

// Runs of one row each, by position; `rows` may be missing.
__kernel void runs_of_rows(__global const uint *checks, __global const uint *rows,
                           __global uint2 *runs, uint n) {
  const uint p = get_global_id(0);
  if (p < n) runs[p] = (uint2)(checks[p], rows ? rows[p] : p);
}

// ---------------------------------------------------------------- codes that checks do not tell
// apart

bool are_equal(__global const uint *a, __global const uint *b, uint words) {
  uint differ = 0;
  for (uint w = 0; w < words; ++w) differ |= a[w] ^ b[w];
  return differ == 0;
}

// The code of each run; mixed[0] becomes 1 if a run has several.
__kernel void keep_codes(__global const uint *starts, __global const uint *ranks,
                         __global const uint *positions, __global const uint *codes,
                         __global uint *kept, __global uint *mixed, uint words, uint n) {
  const uint p = get_global_id(0);
  if (p >= n) return;
  __global const uint *code = codes + (size_t)positions[p] * words;
  if (bit_at(starts, p)) {
    __global uint *to = kept + (size_t)rank_of(starts, ranks, p) * words;
    for (uint w = 0; w < words; ++w) to[w] = code[w];
  } else if (!are_equal(code, codes + (size_t)positions[p - 1] * words, words)) {
    atomic_or(mixed, 1u);
  }
}

// ---------------------------------------------------------------- lookup

// From the first run of a key to the answer to its code. goes_on may be missing; so may be the
// codes of the runs, where checks tell all.
__kernel void resolve(__global const uint *first, __global const uint *checks,
                      __global const uint2 *runs, __global const uint *goes_on,
                      __global const uint *codes, __global const uint *run_codes,
                      __global uint *answers, uint words, uint n) {
  const uint i = get_global_id(0);
  if (i >= n) return;
#if PREFETCH
  if (i + RUNS_AHEAD < n && first[i + RUNS_AHEAD] != MISS)
    __builtin_prefetch((const __private void *)(size_t)&runs[first[i + RUNS_AHEAD]]);
  if (run_codes && i + CODES_AHEAD < n && first[i + CODES_AHEAD] != MISS)
    __builtin_prefetch((const __private void *)(size_t)&run_codes[(size_t)first[i + CODES_AHEAD] * words]);
#endif
  uint run = first[i], answer = MISS;
  while (run != MISS) {
    const uint2 seen = runs[run];
    if (seen.x == checks[i] &&
        (!run_codes || are_equal(codes + (size_t)i * words, run_codes + (size_t)run * words, words)))
      answer = seen.y;
    // Checks of a key ascend.
    const bool further = seen.x < checks[i] && goes_on && bit_at(goes_on, run);
    run = further ? run + 1 : MISS;
  }
  answers[i] = answer;
}
