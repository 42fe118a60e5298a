// Of every group of equal keys, the last item.
//
//   keys 7 3 7 3 9, values a b c d e ─group─▶ 3: 1 3 | 7: 0 2 | 9: 4 ─▶ 3 d, 7 c, 9 e

__kernel void last_of_groups(__global const uint *offsets, __global const uint *rows,
                             __global const uint *values, __global uint *out, uint groups) {
  const uint g = get_global_id(0);
  if (g >= groups) return;
  const uint row = rows[offsets[g + 1] - 1];
  out[g] = values ? values[row] : row;
}
