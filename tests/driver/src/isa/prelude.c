/* What every translated program begins with: types, registers, memory and arithmetic.
 *
 *   S[0..107]  scalar registers; VCC is 106   S[256..257]  program counter
 *   S[126..127]  EXEC, the active lanes       S[258]       SCC, the scalar condition
 *   S[259]     bytes of private memory a lane
 *   V[n * W + l]  vector register n of lane l; W is the size of a wave, given by -DW=
 *   L  local memory of the work-group         X  private memory of the wave's lanes
 *   N  numbers of the instruction: its registers and constants
 *
 * A function does one instruction in all active lanes and moves the program counter on.
 * Global memory is the process's own. What lies in no range of the launch is a fault: the first one
 * is noted, and the access goes nowhere.
 */
#include <stdint.h>
#include <string.h>
#include <math.h>

typedef uint64_t u64;
typedef int64_t i64;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint16_t u16;
typedef int16_t i16;
typedef uint8_t u8;
typedef float f32;

/* The caller sorts the ranges, which do not overlap. A fault is 1 global, 2 local, 3 private. If the
 * caller asks for it, what an instruction touches of memory that lanes share is noted: two places a
 * lane at most. The caller takes the notes away.
 */
typedef struct { u64 from, to; } Range;
typedef struct { u64 address; u32 bytes, lane; } Touch;
typedef struct {
  u64 n;
  const Range *ranges;
  u64 lds, fault, address, last, notes, touched;
  Touch touches[128];
} Memory;
Memory memory;

/* Registers. A pair of them holds 64 bits, the lower half first. */
#define S64(n) (S[n] | (u64)S[(n) + 1] << 32)
#define SET64(n, v) do { \
  const u64 v_ = (v); \
  S[n] = (u32)v_; \
  S[(n) + 1] = (u32)(v_ >> 32); \
} while (0)
#define V32(n) V[(n) * W + l]
#define V64(n) (V32(n) | (u64)V32((n) + 1) << 32)
#define PC 256
#define SCC S[258]

/* The head of a function, and the step to an instruction that lies `n` bytes further on. */
#define F(name) \
  static void name(u32 *restrict S, u32 *restrict V, u8 *L, u8 *X, const i64 *restrict N)
#define NEXT(n) SET64(PC, S64(PC) + (n))

/* A mask has a bit for each lane. E is a copy of EXEC: an instruction may change EXEC itself. */
#define LANES for (u64 e_ = E, l; e_ && (l = __builtin_ctzll(e_), 1); e_ &= e_ - 1)
#define FIRST (EXEC ? (u32)__builtin_ctzll(EXEC) : 0)
#if W == 64
#define EXEC S64(126)
#define VCC S64(106)
#define MASK(n) S64(n)
#define SETMASK(n, v) SET64(n, v)
#else
#define EXEC ((u64)S[126])
#define VCC ((u64)S[106])
#define MASK(n) ((u64)S[n])
#define SETMASK(n, v) (S[n] = (u32)(v))
#endif

static u8 nowhere[64];
static u8 *fault(u64 kind, u64 address) {
  if (!memory.fault) memory.fault = kind, memory.address = address;
  return nowhere;
}
/* Global memory. The range that held the last access is tried first. */
static int holds(const Range *range, u64 a, u32 n) { return a >= range->from && a + n <= range->to; }
static void note(u64 a, u32 n, u32 l) {
  if (memory.notes) memory.touches[memory.touched++] = (Touch){ a, n, l };
}
static u8 *at(u64 a, u32 n, u32 l) {
  note(a, n, l);
  if (memory.last < memory.n && holds(&memory.ranges[memory.last], a, n)) return (u8 *)a;
  u64 lo = 0, hi = memory.n;
  while (lo < hi) {
    const u64 mid = (lo + hi) / 2;
    if (memory.ranges[mid].from <= a) lo = mid + 1;
    else hi = mid;
  }
  if (!lo || !holds(&memory.ranges[lo - 1], a, n)) return fault(1, a);
  memory.last = lo - 1;
  return (u8 *)a;
}
static u8 *lds(u8 *L, u32 a, u32 n, u32 l) {
  note(a, n, l);
  return (u64)a + n <= memory.lds ? L + a : fault(2, a);
}
static u8 *priv(u8 *X, u32 stride, u32 l, u64 a, u32 n) {
  return a + n <= stride ? X + (u64)l * stride + a : fault(3, a);
}
/* Moves bytes of a lane between memory and registers. What is less than a word becomes one. */
static void load(u32 *to, const void *from, u32 bytes) {
  for (u32 at = 0; at < bytes; at += 4, to += W) {
    *to = 0;
    memcpy(to, (const u8 *)from + at, bytes < 4 ? bytes : 4);
  }
}
static void store(u8 *to, const u32 *from, u32 bytes) {
  for (u32 at = 0; at < bytes; at += 4, from += W) memcpy(to + at, from, bytes < 4 ? bytes : 4);
}

/* The bits of a float, and back. */
static f32 asf(u32 v) { f32 f; memcpy(&f, &v, 4); return f; }
static u32 asu(f32 f) { u32 v; memcpy(&v, &f, 4); return v; }

/* v_perm_b32: each byte of `s` picks a byte of `a` and `b`, a sign, 0 or 255. */
static u32 perm(u32 a, u32 b, u32 s) {
  const u64 both = (u64)a << 32 | b;
  u32 r = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 k = s >> 8 * i & 255;
    u32 v = k == 12 ? 0 : 255;
    if (k <= 7) v = both >> 8 * k & 255;
    else if (k <= 11) v = both >> (16 * (k - 8) + 15) & 1 ? 255 : 0;
    r |= v << 8 * i;
  }
  return r;
}
/* The `n` bits of `a` from bit `o` on. */
static u32 bfe(u32 a, u32 o, u32 n) { return a >> (o & 31) & (n > 31 ? ~0u : (1u << n) - 1); }
/* A float as an integer: what does not fit becomes the nearest that does, and NaN 0. */
static u32 toint(f32 f) { return f != f || f <= 0 ? 0 : f >= 4294967296.0f ? ~0u : (u32)f; }
/* The bits of `m` below bit `l`, counted. */
static u32 below(u32 m, u32 l) {
  return __builtin_popcount(l >= 32 ? m : m & (u32)((1ull << l) - 1));
}
