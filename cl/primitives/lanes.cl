// Lanes that work together, and what they tell each other.
//
//   tile       LANES lanes that share one piece of work at a time
//   company    the work-items that run in step: a warp, a sub-group, a work-group, or one alone;
//              all of a company call these functions together, at the same places
//
//   from_lane(v, l)     v of the tile's lane l        ballot(p)   which lanes of the tile say p
//   anyone(p)           does any of the company say p?
//
// One lane (CPU runtimes) needs no words; NVIDIA's warps shuffle and vote in inline PTX; sub-groups
// shuffle; others go through local memory, where a word costs two barriers.
#ifndef LANES
#error "LANES: lanes of a tile, a power of two up to 8"
#endif
#ifndef LANES_GROUP
#error "LANES_GROUP: work-group size, a multiple of LANES"
#endif
#ifndef SHUFFLE_PTX
#error "SHUFFLE_PTX: 1 for NVIDIA's shuffles in inline PTX"
#endif
#ifndef SHUFFLE_SUB_GROUP
#error "SHUFFLE_SUB_GROUP: 1 for those of SUB_GROUP_SHUFFLE, 0 with SHUFFLE_PTX 0 for local memory"
#endif

#if LANES == 1

typedef struct {
  uint lane;
} Lanes;
#define LANES_LOCALS
#define OWN_LANES {0}
uint from_lane(const Lanes *lanes, uint value, uint lane) { return value; }
uint ballot(const Lanes *lanes, bool says) { return says; }
bool anyone(const Lanes *lanes, bool says) { return says; }

#elif SHUFFLE_PTX

typedef struct {
  uint lane, first;
} Lanes;
#define LANES_LOCALS
#define OWN_LANES {get_local_id(0) % LANES, get_local_id(0) % 32 / LANES * LANES}

uint from_lane(const Lanes *lanes, uint value, uint lane) {
  uint answer;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=r"(answer)
               : "r"(value), "r"(lanes->first + lane));
  return answer;
}

uint vote(bool says) {
  uint answer;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
               : "=r"(answer)
               : "r"((uint)says));
  return answer;
}

uint ballot(const Lanes *lanes, bool says) {
  return vote(says) >> lanes->first & ((1u << LANES) - 1);
}
bool anyone(const Lanes *lanes, bool says) { return vote(says) != 0; }

#elif SHUFFLE_SUB_GROUP

#ifdef cl_intel_subgroups
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#endif
#ifdef cl_khr_subgroup_shuffle
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#endif
typedef struct {
  uint lane, first;
} Lanes;
#define LANES_LOCALS
#define OWN_LANES                                                                                  \
  {get_sub_group_local_id() % LANES, get_sub_group_local_id() / LANES * LANES}

uint from_lane(const Lanes *lanes, uint value, uint lane) {
  return SUB_GROUP_SHUFFLE(value, lanes->first + lane);
}

// Not every sub-group has a ballot: bits are gathered in log2(LANES) steps.
uint ballot(const Lanes *lanes, bool says) {
  uint bits = (uint)says << lanes->lane;
  for (uint step = 1; step < LANES; step *= 2) bits |= from_lane(lanes, bits, lanes->lane ^ step);
  return bits;
}
bool anyone(const Lanes *lanes, bool says) { return sub_group_any(says) != 0; }

#else

typedef struct {
  uint lane, first;
  __local uint *box;
} Lanes;
#define LANES_LOCALS __local uint lanes_box[LANES_GROUP + 1];
#define OWN_LANES {get_local_id(0) % LANES, get_local_id(0) / LANES * LANES, lanes_box}
#define ALL_MEMORY (CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

uint from_lane(const Lanes *lanes, uint value, uint lane) {
  lanes->box[lanes->first + lanes->lane] = value;
  barrier(ALL_MEMORY);
  const uint answer = lanes->box[lanes->first + lane];
  barrier(ALL_MEMORY);
  return answer;
}

uint ballot(const Lanes *lanes, bool says) {
  lanes->box[lanes->first + lanes->lane] = says;
  barrier(ALL_MEMORY);
  uint bits = 0;
  for (uint i = 0; i < LANES; ++i) bits |= lanes->box[lanes->first + i] << i;
  barrier(ALL_MEMORY);
  return bits;
}

bool anyone(const Lanes *lanes, bool says) {
  __local uint *answer = lanes->box + LANES_GROUP;
  if (get_local_id(0) == 0) *answer = 0;
  barrier(ALL_MEMORY);
  // An atomic: plain stores by many would be a race, even of one value.
  if (says) atomic_or(answer, 1u);
  barrier(ALL_MEMORY);
  const bool any = *answer != 0;
  barrier(ALL_MEMORY);
  return any;
}

#endif

// The lowest set bit of a word that has one. (OpenCL C 1.2 lacks ctz.)
uint lowest(uint bits) { return 31 - clz(bits & -bits); }
