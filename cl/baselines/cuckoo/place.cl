// Bulk insert into a bucketized cuckoo table (Horton paper, section 3.3; Li et al., "Algorithmic
// Improvements for Fast Concurrent Cuckoo Hashing", EuroSys 2014, for the breadth-first search).
//
//   items ─place─▶ a free slot of one of two buckets; stragglers
//         { explore ─▶ propose ─▶ commit ─▶ release }* ─▶ none left
//
//   load-balanced   the emptier of the two buckets
//   FIRST_FIT       the first, unless it is full
//
// explore searches for the shortest chain of items that can each move to their other bucket, so
// that a slot becomes free. The search is breadth-first, from both buckets of a straggler. propose
// claims all buckets of the chain, and the lowest number wins; commit moves the chains of those
// that won every claim, from the free slot backwards. Who holds a bucket's claim, and nobody else,
// touches it: no locks. The rest try again. A straggler that finds no chain takes the place of any
// item of its two buckets, which becomes the straggler of the next round: it looks around
// elsewhere. (Without that builds with 4 slots were given up: at load 0.95 one now and then, at
// 0.96 and 0.97 soon.) Cost: one random access for the count of each candidate and one for the
// slot; with first fit at load 0.95 one item in thirty is a straggler.
//
// hash.cl, bucket.cl, fill.cl and put_wide.cl come first.
#ifndef FIRST_FIT
#error "FIRST_FIT: 1 for the first bucket with a free slot, 0 for the emptier one"
#endif
#ifndef NODES
#error "NODES: buckets that a search looks at"
#endif

// A chain of moves: at most MOST_MOVES items, through one bucket more. Counterpart of `PATH_WORDS`
// in tables/src/table/baselines/cuckoo/place.rs: a word of how many moves and which slots, and the
// buckets.
//
//   bits 0-3   moves, which may be none: the straggler has a free slot
//   bit 4      EVICTS: there is no chain, the item of slot 0 of this word gives way
//   bits 8-31  slots, four bits each
#define MOST_MOVES 6
#define PATH_WORDS (MOST_MOVES + 2)
#define EVICTS 0x10u

// Items of every bucket, a byte each; one work-item counts four buckets.
__kernel void count_items(__global const ulong *table, __global uint *fill, uint buckets) {
  const uint q = get_global_id(0), first = 4 * q;
  if (q >= buckets / 4 + (buckets % 4 != 0)) return;
  uint four = 0;
  for (uint b = first; b < min(first + 4, buckets); ++b)
    for (uint s = 0; s < SLOTS; ++s)
      four += (uint)(table[(size_t)b * SLOTS + s] != EMPTY_WORD) << (8 * (b % 4));
  fill[q] = four;
}

// The bucket of an item that it is not in.
uint other_bucket(ulong word, uint bucket, uint buckets, uint seed) {
  const uint first = primary_bucket(key_of(word), seed, buckets);
  return first == bucket ? second_bucket_of(key_of(word), seed, buckets) : first;
}

// One work-item per item.
__kernel void place(__global ulong *table, __global uint *fill, __global const uint *keys,
                    __global const uint *values, __global ulong *stragglers,
                    __global uint *counter, uint n, uint buckets, uint seed) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  const uint key = keys[i];
  uint b = primary_bucket(key, seed, buckets), other = second_bucket_of(key, seed, buckets);
#if !FIRST_FIT
  // Among equals either, so that both functions are used alike, as in the paper.
  const uint held = items_in(fill, b), held_by_other = items_in(fill, other);
  if (held > held_by_other || (held == held_by_other && jenkins(key) & 1u)) {
    const uint swapped = b;
    b = other;
    other = swapped;
  }
#endif
  const ulong word = word_of(key, values ? values[i] : i);
  if (!put_in_bucket(table, fill, b, word) && !put_in_bucket(table, fill, other, word))
    add_straggler(stragglers, counter, n, word);
}

// ---------------------------------------------------------------- displacement

// A bucket that a search has reached, from the slot of the bucket before it whose item leads there.
typedef struct {
  uint bucket;
  ushort before, slot;
} Node;

// Writes the path that ends in node `end`; returns whether it is short enough.
bool write_path(const Node *nodes, uint end, __global uint *path) {
  uint moves = 0;
  for (uint i = end; nodes[i].before != i; i = nodes[i].before) ++moves;
  if (moves > MOST_MOVES) return false;
  uint packed = moves, i = end;
  for (uint k = moves;; --k) {
    path[1 + k] = nodes[i].bucket;
    if (k == 0) break;
    packed |= (uint)nodes[i].slot << (4 + 4 * k);
    i = nodes[i].before;
  }
  path[0] = packed;
  return true;
}

uint moves_of(uint packed) { return packed & 0xfu; }

// The slot of bucket k of the path, whose item moves to bucket k + 1.
uint slot_on_path(uint packed, uint k) { return packed >> (8 + 4 * k) & 0xfu; }

// The shortest way to a free slot, if there is one among NODES buckets.
bool find_path(__global const ulong *table, __global uint *fill, ulong word, uint random,
            __global uint *path, uint buckets, uint seed) {
  Node nodes[NODES];
  const uint first = primary_bucket(key_of(word), seed, buckets);
  nodes[0].bucket = first;
  nodes[1].bucket = second_bucket_of(key_of(word), seed, buckets);
  nodes[0].before = nodes[0].slot = nodes[1].slot = 0;
  nodes[1].before = 1;
  for (uint i = 0; i < 2; ++i)
    if (items_in(fill, nodes[i].bucket) < SLOTS) return write_path(nodes, i, path);
  uint n = 2;
  for (uint at = 0; at < n; ++at) {
    const uint b = nodes[at].bucket;
    for (uint k = 0; k < SLOTS && n < NODES; ++k) {
      // Stragglers of one bucket begin at different slots, so as not to choose the same way.
      const uint s = (k + random) % SLOTS;
      const ulong item = table[(size_t)b * SLOTS + s];
      const uint next = other_bucket(item, b, buckets, seed);
      if (item == EMPTY_WORD || next == b) continue;
      nodes[n].bucket = next;
      nodes[n].before = (ushort)at;
      nodes[n].slot = (ushort)s;
      if (items_in(fill, next) < SLOTS) return write_path(nodes, n, path);
      ++n;
    }
  }
  return false;
}

// Any item of the straggler's two buckets.
void choose_victim(uint key, uint random, __global uint *path, uint buckets, uint seed) {
  path[0] = EVICTS | (random >> 1) % SLOTS << 8;
  path[1] = random & 1u ? primary_bucket(key, seed, buckets) : second_bucket_of(key, seed, buckets);
}

__kernel void explore(__global const ulong *table, __global uint *fill,
                      __global const ulong *stragglers, __global uint *paths, uint n, uint round,
                      uint buckets, uint seed) {
  const uint j = get_global_id(0);
  if (j >= n) return;
  __global uint *path = paths + (size_t)j * PATH_WORDS;
  const uint random = jenkins(key_of(stragglers[j]) + round * FOLD) >> 8;
  if (!find_path(table, fill, stragglers[j], random, path, buckets, seed))
    choose_victim(key_of(stragglers[j]), random, path, buckets, seed);
}

__kernel void propose(__global const uint *paths, __global uint *claims, uint n) {
  const uint j = get_global_id(0);
  if (j >= n) return;
  __global const uint *path = paths + (size_t)j * PATH_WORDS;
  for (uint k = 0; k <= moves_of(path[0]); ++k) atomic_min(&claims[path[1 + k]], j);
}

// Puts `word` into the slot of another item, and returns that one.
ulong take_place(__global ulong *table, ulong word, __global const uint *path) {
  __global ulong *slot = table + (size_t)path[1] * SLOTS + slot_on_path(path[0], 0);
  const ulong out = *slot;
  if (out != EMPTY_WORD) *slot = word;
  return out == EMPTY_WORD ? word : out;
}

// Moves the items of a path, the last one first, and puts `word` into the slot that the first one
// left. Returns EMPTY_WORD, or `word` where the free slot is gone.
ulong follow(__global ulong *table, __global uint *fill, ulong word, __global const uint *path) {
  const uint packed = path[0], moves = moves_of(packed);
  uint to = path[1 + moves];
  if (!moves) return put_in_bucket(table, fill, to, word) ? EMPTY_WORD : word;
  __global ulong *slot = table + (size_t)path[moves] * SLOTS + slot_on_path(packed, moves - 1);
  if (!put_in_bucket(table, fill, to, *slot)) return word;
  for (uint k = moves - 1; k > 0; --k) {
    __global ulong *before = table + (size_t)path[k] * SLOTS + slot_on_path(packed, k - 1);
    *slot = *before;
    slot = before;
  }
  *slot = word;
  return EMPTY_WORD;
}

__kernel void commit(__global ulong *table, __global uint *fill,
                     __global const ulong *stragglers, __global const uint *paths,
                     __global const uint *claims, __global ulong *left, __global uint *counter,
                     uint n) {
  const uint j = get_global_id(0);
  if (j >= n) return;
  __global const uint *path = paths + (size_t)j * PATH_WORDS;
  bool mine = true;
  for (uint k = 0; mine && k <= moves_of(path[0]); ++k) mine = claims[path[1 + k]] == j;
  const ulong word = stragglers[j];
  const ulong out = !mine               ? word
                    : path[0] & EVICTS  ? take_place(table, word, path)
                                        : follow(table, fill, word, path);
  if (out != EMPTY_WORD) add_straggler(left, counter, n, out);
}

// Gives the claims back, so that the next round starts without any.
__kernel void release(__global const uint *paths, __global uint *claims, uint n) {
  const uint j = get_global_id(0);
  if (j >= n) return;
  __global const uint *path = paths + (size_t)j * PATH_WORDS;
  for (uint k = 0; k <= moves_of(path[0]); ++k) atomic_xchg(&claims[path[1 + k]], NONE);
}
