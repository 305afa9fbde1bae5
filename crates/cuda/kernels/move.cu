// Ops that move, compare or choose elements of any type: copies between layouts, casts, comparisons, logic, choice, gather, padding.
#include "common.cuh"

struct Copy {
  u32 total;
  int bytes;  // of an element: 1, 2, 4 or 8
  Walk from, to;
};
// One thread an element.
KERNEL copy_elements(const void* input, void* output, const __grid_constant__ Copy c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.total) return;
  const i64 from = walk(c.from, i), to = walk(c.to, i);
  if (c.bytes == 1) ((u8*)output)[to] = ((const u8*)input)[from];
  else if (c.bytes == 2) ((u16*)output)[to] = ((const u16*)input)[from];
  else if (c.bytes == 4) ((u32*)output)[to] = ((const u32*)input)[from];
  else ((u64*)output)[to] = ((const u64*)input)[from];
}

INLINE i64 load_integer(const void* from, i64 at, int type) {
  switch (type) {
    case I8: return ((const signed char*)from)[at];
    case I32: return ((const int*)from)[at];
    case I64: return ((const i64*)from)[at];
    default: return ((const u8*)from)[at];
  }
}
INLINE i64 clamp(i64 x, i64 low, i64 high) { return x < low ? low : x > high ? high : x; }
INLINE void store_integer(void* to, i64 at, int type, i64 x) {
  switch (type) {
    case I8: ((signed char*)to)[at] = (signed char)clamp(x, -128, 127); break;
    case U8: ((u8*)to)[at] = (u8)clamp(x, 0, 255); break;
    case I32: ((int*)to)[at] = (int)clamp(x, -2147483647ll - 1, 2147483647ll); break;
    case I64: ((i64*)to)[at] = x; break;
    default: ((u8*)to)[at] = x != 0;
  }
}

struct Cast {
  u32 total;
  int from, to;
};
// Contiguous values in another element type. Halves may become infinite, unlike stored values.
KERNEL cast_elements(const void* input, void* output, const __grid_constant__ Cast c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.total) return;
  if (c.from <= BF16) {
    const float x = load(input, i, c.from);
    if (c.to == F32) ((float*)output)[i] = x;
    else if (c.to == F16) ((u16*)output)[i] = to_f16(x);
    else if (c.to == BF16) ((u16*)output)[i] = to_bf16(x);
    else if (c.to == BOOL) ((u8*)output)[i] = x != 0;
    else {
      i64 whole;
      asm("cvt.rzi.s64.f32 %0, %1;" : "=l"(whole) : "f"(x));
      store_integer(output, i, c.to, is_nan(x) ? 0 : whole);
    }
    return;
  }
  const i64 x = load_integer(input, i, c.from);
  if (c.to == F32) ((float*)output)[i] = (float)x;
  else if (c.to == F16) ((u16*)output)[i] = to_f16((float)x);
  else if (c.to == BF16) ((u16*)output)[i] = to_bf16((float)x);
  else store_integer(output, i, c.to, x);
}

struct Logic {
  u32 total;
  int function;  // 0..5 comparisons in the order of CompareKind, 6 and, 7 or, 8 not, 9 select
  int type;      // of a and b, as stored
  int unused;    // of the output, for select
  Walk a, b, condition;
};
// Comparisons and logic to bool, and choice between elements of any type.
KERNEL logic(const void* a, const void* b, const void* condition, void* output, const __grid_constant__ Logic c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.total) return;
  const i64 at = walk(c.a, i);
  if (c.function == 8) {
    ((u8*)output)[i] = !((const u8*)a)[at];
    return;
  }
  const i64 bt = walk(c.b, i);
  if (c.function == 9) {
    const bool first = ((const u8*)condition)[walk(c.condition, i)];
    const void* from = first ? a : b;
    const i64 position = first ? at : bt;
    if (c.type == I64) ((u64*)output)[i] = ((const u64*)from)[position];
    else if (c.type == F32 || c.type == I32) ((u32*)output)[i] = ((const u32*)from)[position];
    else if (c.type == F16 || c.type == BF16) ((u16*)output)[i] = ((const u16*)from)[position];
    else ((u8*)output)[i] = ((const u8*)from)[position];
    return;
  }
  if (c.function >= 6) {
    const bool x = ((const u8*)a)[at], y = ((const u8*)b)[bt];
    ((u8*)output)[i] = c.function == 6 ? x && y : x || y;
    return;
  }
  bool equal, less, greater;
  if (c.type <= BF16) {
    const float x = load(a, at, c.type), y = load(b, bt, c.type);
    equal = x == y, less = x < y, greater = x > y;
  } else {
    const i64 x = load_integer(a, at, c.type), y = load_integer(b, bt, c.type);
    equal = x == y, less = x < y, greater = x > y;
  }
  const bool answers[6] = {equal, !equal, less, less || equal, greater, greater || equal};
  bool answer = answers[0];
  UNROLL for (int k = 1; k < 6; k++) answer = c.function == k ? answers[k] : answer;
  ((u8*)output)[i] = answer;
}

// What a kernel found wrong with the values of its inputs: `step` is 0 where nothing is.
struct Problem {
  u32 step, kind;
  i64 at;
  double value, other;
};
INLINE void report(Problem* problem, u32 step, u32 kind, i64 at, double value, double other) {
  if (atomicCAS(&problem->step, 0u, step) == 0u) {
    problem->kind = kind;
    problem->at = at;
    problem->value = value;
    problem->other = other;
  }
}

struct Gather {
  u32 total, width, rows, step;  // width: elements of a row of the table
  int index_type, from, to, unused;
};
KERNEL gather(const void* table, const void* indices, void* output, Problem* problem, const __grid_constant__ Gather c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.total) return;
  const u32 line = i / c.width, column = i - line * c.width;
  const i64 row = load_integer(indices, line, c.index_type);
  if (row < 0 || row >= c.rows) {
    if (column == 0) report(problem, c.step, 0, line, (double)row, c.rows);
    store(output, i, c.to, not_a_number());
    return;
  }
  store(output, i, c.to, load(table, (u64)row * c.width + column, c.from));
}

struct Pad {
  u32 total;
  int rank, from, to;
  float value;
  u32 unused;
  u32 out_lengths[MOST_AXES], in_lengths[MOST_AXES], before[MOST_AXES];
};
KERNEL pad(const void* input, void* output, const __grid_constant__ Pad c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.total) return;
  u32 rest = i;
  u64 at = 0, stride = 1;
  bool inside = true;
  for (int axis = c.rank - 1; axis >= 0; axis--) {
    const u32 position = rest % c.out_lengths[axis] - c.before[axis];
    rest /= c.out_lengths[axis];
    inside &= position < c.in_lengths[axis];
    at += position * stride;
    stride *= c.in_lengths[axis];
  }
  store(output, i, c.to, inside ? load(input, at, c.from) : c.value);
}

// Writes zeros over the report of problems.
KERNEL clear_problem(Problem* problem) {
  problem->step = 0;
}
