// SlabAlloc and SlabAlloc-light (slab hash paper, section V): slabs of 128 bytes by 32-bit address.
//
//   address   [ super block : 8 ][ memory block : 14 ][ unit : 10 ]
//   super block   a bitmap of 128 bytes for each of its BLOCKS memory blocks, then the slabs
//   memory block  1024 units; a set bit of its bitmap is a unit that is free
//
// A tile has a resident block, whose bitmap its lanes hold in registers, 32 / LANES words each. A
// slab costs one atomic on one word of it. When the block is full, the tile goes on to another by
// two hashes (section V, "resident changes"): super blocks by turns, and within them in steps that
// visit every block, so that what is free is found before `EXHAUSTED` is said. Bits are set where
// units are *free*: one fill of ones then makes an empty pool, since an empty slab is all ones as
// well. A slab in the pool is always empty, so that whoever takes one can link it at once: OpenCL C
// 1.2 has no fence that would order its first words before the link.
//
// LIGHT 1: all super blocks in one buffer, an address is one addition away from its slab.
// LIGHT 0: a buffer each, more can be added; their beginnings are in local memory.
//
// hash.cl, word.cl and lanes.cl come first.
#ifndef LIGHT
#error "LIGHT: 1 for one buffer, 0 for a buffer each super block"
#endif
#ifndef BLOCKS
#error "BLOCKS: memory blocks of a super block, a power of two"
#endif
#ifndef POOL_PARAMS
#error "POOL_PARAMS: parameters of a kernel for the super blocks"
#endif
#ifndef POOL_BASES
#error "POOL_BASES: those parameters, comma-separated"
#endif
#ifndef SUPER_BLOCKS
#error "SUPER_BLOCKS: how many parameters those are"
#endif
#ifndef KEY_ONLY
#error "KEY_ONLY: 1 for slabs of 32-bit keys, 0 for slabs of 64-bit pairs"
#endif

#define UNITS 1024
#define BITMAP_WORDS 32
#define BITS_PER_LANE (BITMAP_WORDS / LANES)
#define NO_SLAB 0xffffffffu
#define EXHAUSTED 0xfffffffeu

#if KEY_ONLY
typedef uint entry_t;
#define WORDS 32
#else
typedef ulong entry_t;
#define WORDS 16
#endif
// Of a super block, in entries.
#define BITMAPS ((size_t)BLOCKS * BITMAP_WORDS * WORDS / 32)
#define SUPER_SIZE (BITMAPS + (size_t)BLOCKS * UNITS * WORDS)

// ---------------------------------------------------------------- where things are

#if LIGHT
typedef struct {
  __global entry_t *first;
} Pool;
#define POOL_LOCALS
#define OWN_POOL Pool pool = {POOL_BASES};
__global entry_t *super_block(const Pool *pool, uint number) {
  return pool->first + number * SUPER_SIZE;
}
#else
typedef struct {
  __global entry_t *__local *bases;
} Pool;
#define POOL_LOCALS __global entry_t *__local pool_bases[SUPER_BLOCKS];
// The whole work-group takes part.
#define OWN_POOL                                                                                   \
  if (get_local_id(0) == 0) {                                                                      \
    __global entry_t *const bases[SUPER_BLOCKS] = {POOL_BASES};                                    \
    for (uint s = 0; s < SUPER_BLOCKS; ++s) pool_bases[s] = bases[s];                              \
  }                                                                                                \
  barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
  Pool pool = {pool_bases};
__global entry_t *super_block(const Pool *pool, uint number) { return pool->bases[number]; }
#endif

__global entry_t *slab_of(const Pool *pool, uint address) {
  return super_block(pool, address >> 24) + BITMAPS + (size_t)(address & 0xffffffu) * WORDS;
}

// The bitmap of a block, whose number has the bits of an address without its unit.
__global uint *bitmap_of(const Pool *pool, uint block) {
  return (__global uint *)super_block(pool, block >> 14) + (block & 0x3fffu) * BITMAP_WORDS;
}

uint peek_bits(__global uint *bits) {
#if PEEK_VOLATILE
  return *(volatile __global uint *)bits;
#else
  return atomic_or(bits, 0u);
#endif
}

// ---------------------------------------------------------------- allocation

// A tile's resident block. `tried`: blocks found full since the last slab.
typedef struct {
  uint tile, block, attempts, tried;
  uint bits[BITS_PER_LANE];
} Resident;

Resident no_resident(uint tile) {
  Resident resident = {tile, 0, 0, 0, {0}};
  return resident;
}

// The block of a tile's next attempt: over all attempts, every block of every super block.
uint next_block(Resident *resident, uint super_blocks) {
  const uint h = jenkins(resident->tile);
  const uint turn = resident->attempts / super_blocks;
  const uint super = (h + resident->attempts) % super_blocks;
  const uint step = jenkins(h) | 1u;
  ++resident->attempts;
  return super << 14 | ((h / super_blocks + turn * step) & (BLOCKS - 1));
}

// Makes another block resident; the company takes part, those tiles that are `leaving` do it.
void change_resident(const Pool *pool, const Lanes *lanes, bool leaving, uint super_blocks,
                     Resident *resident) {
  if (!leaving) return;
  resident->block = next_block(resident, super_blocks);
  ++resident->tried;
  __global uint *bits = bitmap_of(pool, resident->block) + lanes->lane * BITS_PER_LANE;
  for (uint i = 0; i < BITS_PER_LANE; ++i) resident->bits[i] = peek_bits(&bits[i]);
}

// One attempt at a slab for each tile that wants one (the same in all its lanes): its address,
// NO_SLAB if it must be tried again, EXHAUSTED if every block was found full.
uint allocate(const Pool *pool, const Lanes *lanes, bool wants, uint super_blocks,
              Resident *resident) {
  uint word = BITS_PER_LANE, free_bits = 0;
  for (uint i = 0; i < BITS_PER_LANE; ++i)
    if (word == BITS_PER_LANE && resident->bits[i]) {
      word = i;
      free_bits = resident->bits[i];
    }
  const uint offers = ballot(lanes, wants && free_bits);
  // Tiles that share a block begin at different lanes.
  const uint turned = resident->tile % LANES;
  const uint above = offers >> turned << turned;
  const uint taker = offers ? lowest(above ? above : offers) : 0;
  const bool takes = offers && lanes->lane == taker;
  const uint bit = takes ? lowest(free_bits) : 0, at = taker * BITS_PER_LANE + word;
  uint before = 0;
  if (takes) before = atomic_and(&bitmap_of(pool, resident->block)[at], ~(1u << bit));
  for (uint i = 0; i < BITS_PER_LANE; ++i)
    resident->bits[i] = takes && i == word ? before & ~(1u << bit) : resident->bits[i];
  const uint taken = before >> bit & 1u ? resident->block << 10 | at * 32 + bit : NO_SLAB;
  const uint address = from_lane(lanes, taken, taker);
  if (address != NO_SLAB) resident->tried = 0;
  const bool leaving = wants && !offers;
  const bool exhausted = leaving && resident->tried >= super_blocks * BLOCKS;
  change_resident(pool, lanes, leaving && !exhausted, super_blocks, resident);
  if (exhausted) resident->tried = 0;
  return exhausted ? EXHAUSTED : address;
}

// One work-item does it. The slab is empty.
void deallocate(const Pool *pool, uint address) {
  const uint unit = address % UNITS;
  atomic_or(&bitmap_of(pool, address / UNITS)[unit / 32], 1u << (unit % 32));
}

bool is_allocated(const Pool *pool, uint address) {
  const uint unit = address % UNITS;
  return !(bitmap_of(pool, address / UNITS)[unit / 32] >> (unit % 32) & 1u);
}

// ---------------------------------------------------------------- the allocator alone

#define LANES_KERNEL __kernel __attribute__((reqd_work_group_size(LANES_GROUP, 1, 1))) void

// A lane that asks for a slab.
typedef struct {
  bool waits;
  __global uint *answer, *failures;
} Request;

// One attempt for the first lane of each tile that waits; the company takes part.
// (One exit here, and in the other functions that loops with barriers call: with early returns,
// tests failed on PoCL 3.1. Why is not known.)
void serve(const Pool *pool, const Lanes *lanes, uint super_blocks, Request *own,
           Resident *resident) {
  const uint queue = ballot(lanes, own->waits);
  const uint address = allocate(pool, lanes, queue != 0, super_blocks, resident);
  const bool answered = queue && address != NO_SLAB && lanes->lane == lowest(queue);
  if (answered) *own->answer = address == EXHAUSTED ? NO_SLAB : address;
  if (answered && address == EXHAUSTED) atomic_inc(own->failures);
  own->waits = own->waits && !answered;
}

// A slab for each work-item, one after the other in a tile, as independent threads ask for them.
// addresses[i] = its address, or NO_SLAB without any left. failures[0] grows.
LANES_KERNEL allocate_slabs(POOL_PARAMS, __global uint *addresses, __global uint *failures, uint n,
                            uint super_blocks) {
  LANES_LOCALS
  POOL_LOCALS
  OWN_POOL
  const Lanes lanes = OWN_LANES;
  const uint i = get_global_id(0);
  Resident resident = no_resident(i / LANES);
  Request own = {i < n, addresses + i, failures};
  while (anyone(&lanes, own.waits)) serve(&pool, &lanes, super_blocks, &own, &resident);
}

LANES_KERNEL deallocate_slabs(POOL_PARAMS, __global const uint *addresses, uint n) {
  POOL_LOCALS
  OWN_POOL
  const uint i = get_global_id(0);
  if (i < n && addresses[i] != NO_SLAB) deallocate(&pool, addresses[i]);
}
