// Chains of elementwise functions over f32 values, stored in any float type, and copies of such values between layouts.
//
// The steps are data in the parameters: every thread takes the same branch, so a step costs a few instructions beside its
// arithmetic, and no chain has to be compiled. A thread computes four neighbours along the innermost axis.
#include "common.cuh"

constexpr int MOST_INPUTS = 17, MOST_STEPS = 16;
enum Access { STRIDED, DENSE4, REPEATED };

struct Input {
  i64 strides[MOST_AXES];
  int type, access;
};
struct Step {
  // Operands: 0 and up an input, -1 - n the result of step n, PREVIOUS the step before, NUMBER the number.
  short function, a, b, unused;
  float number_a, number_b;
};
constexpr int PREVIOUS = 1000, NUMBER = 1001;

struct Chain {
  u32 total;  // groups of four elements
  int rank, steps, inputs;
  u32 lengths[MOST_AXES];
  i64 out_strides[MOST_AXES];
  int out_type, out_access;
  Input input[MOST_INPUTS];
  Step step[MOST_STEPS];
};
struct Pointers {
  const void* of[MOST_INPUTS];
};

// Applies the function of one element with this number, in the order of cutout_graph::ops::UnaryKind. Every thread has the same number.
template <class A> INLINE void with_unary(int function, A apply) {
  switch (function) {
    case 0: return apply([](float x) { return absolute(x); });
    case 1: return apply([](float x) { return sine(x, 1); });
    case 2: return apply([](float x) { return error_function(x); });
    case 3: return apply([](float x) { return exponential(x); });
    case 4: return apply([](float x) { return round_down(x); });
    case 5: return apply([](float x) { return gelu(x); });
    case 6: return apply([](float x) { return lg2(x) * 0.693147182f; });
    case 7: return apply([](float x) { return lg2(x); });
    case 8: return apply([](float x) { return -x; });
    case 9: return apply([](float x) { return 1.0f / x; });
    case 10: return apply([](float x) { return larger(x, 0.0f); });
    case 11: return apply([](float x) { return round_even(x); });
    case 12: return apply([](float x) { return logistic(x); });
    case 13: return apply([](float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; });
    case 14: return apply([](float x) { return x / (1.0f + exponential(-x)); });
    case 15: return apply([](float x) { return sine(x, 0); });
    case 16: return apply([](float x) { return root(x); });
    case 17: return apply([](float x) { return hyperbolic_tangent(x); });
  }
}
// The same for functions of two elements, in the order of cutout_graph::ops::BinaryKind.
template <class A> INLINE void with_binary(int function, A apply) {
  switch (function) {
    case 0: return apply([](float a, float b) { return a + b; });
    case 1: return apply([](float a, float b) { return a - b; });
    case 2: return apply([](float a, float b) { return a * b; });
    case 3: return apply([](float a, float b) { return a / b; });
    case 4: return apply([](float a, float b) { return larger(a, b); });
    case 5: return apply([](float a, float b) { return smaller(a, b); });
    case 6: return apply([](float a, float b) { return power(a, b); });
  }
}
template <class F> INLINE float4 each(float4 a, F f) { return make_float4(f(a.x), f(a.y), f(a.z), f(a.w)); }
template <class F> INLINE float4 each2(float4 a, float4 b, F f) { return make_float4(f(a.x, b.x), f(a.y, b.y), f(a.z, b.z), f(a.w, b.w)); }

KERNEL __launch_bounds__(256) chain(const __grid_constant__ Pointers inputs, void* output, const __grid_constant__ Chain c) {
  const u32 group = blockIdx.x * 256 + threadIdx.x;
  if (group >= c.total) return;
  // Index of the first of the four: the innermost axis counts groups.
  u32 index[MOST_AXES], rest = group;
  const u32 inner = c.lengths[c.rank - 1], groups = (inner + 3) / 4;
  u32 start = (rest % groups) * 4;
  rest /= groups;
  for (int axis = c.rank - 2; axis >= 0; axis--) {
    index[axis] = rest % c.lengths[axis];
    rest /= c.lengths[axis];
  }
  const int valid = min(4u, inner - start);
  auto read = [&](int which) {
    const Input& in = c.input[which];
    i64 at = (i64)start * in.strides[c.rank - 1];
    for (int axis = c.rank - 2; axis >= 0; axis--) at += (i64)index[axis] * in.strides[axis];
    const void* from = inputs.of[which];
    if (in.access == DENSE4) return load4(from, at, in.type);
    const float x = load(from, at, in.type);
    if (in.access == REPEATED) return make_float4(x, x, x, x);
    const i64 step = in.strides[c.rank - 1];
    return make_float4(x, valid > 1 ? load(from, at + step, in.type) : x, valid > 2 ? load(from, at + 2 * step, in.type) : x,
                       valid > 3 ? load(from, at + 3 * step, in.type) : x);
  };
  float4 results[MOST_STEPS], last = make_float4(0, 0, 0, 0);
  if (c.steps == 0) last = read(0);
  for (int i = 0; i < c.steps; i++) {
    const Step s = c.step[i];
    auto operand = [&](int which, float number) {
      if (which == PREVIOUS) return last;
      if (which == NUMBER) return make_float4(number, number, number, number);
      return which < 0 ? results[-1 - which] : read(which);
    };
    const float4 a = operand(s.a, s.number_a);
    if (s.function < 64) {
      with_unary(s.function, [&](auto f) { last = each(a, f); });
    } else {
      const float4 b = operand(s.b, s.number_b);
      with_binary(s.function - 64, [&](auto f) { last = each2(a, b, f); });
    }
    results[i] = last;
  }
  i64 at = (i64)start * c.out_strides[c.rank - 1];
  for (int axis = c.rank - 2; axis >= 0; axis--) at += (i64)index[axis] * c.out_strides[axis];
  if (c.out_access == DENSE4) {
    store4(output, at, c.out_type, last);
  } else {
    const i64 step = c.out_strides[c.rank - 1];
    const float values[4] = {last.x, last.y, last.z, last.w};
    UNROLL for (int i = 0; i < 4; i++) if (i < valid) store(output, at + i * step, c.out_type, values[i]);
  }
}

// The same where everything is contiguous: inputs are as long as the output, or shorter and repeated, and steps use inputs, numbers and the step before. A
// thread has four groups of four elements, so that four loads are under way at a time and a step is decoded once for sixteen elements.
constexpr int FLAT_INPUTS = 4, FLAT_STEPS = 8, FLAT_GROUPS = 4;
struct Flat {
  u32 total;  // groups of four elements
  int steps, out_type;
  u32 periods[FLAT_INPUTS];  // groups of an input that is repeated, else 0
  int types[FLAT_INPUTS];
  u32 unused;
  Step step[FLAT_STEPS];
};
struct FlatPointers {
  const void* of[FLAT_INPUTS];
};
KERNEL __launch_bounds__(256) chain_flat(const __grid_constant__ FlatPointers inputs, void* output, const __grid_constant__ Flat c) {
  const u32 first = blockIdx.x * 256 * FLAT_GROUPS + threadIdx.x;
  float4 last[FLAT_GROUPS], a[FLAT_GROUPS], b[FLAT_GROUPS];
  UNROLL for (int k = 0; k < FLAT_GROUPS; k++) last[k] = make_float4(0, 0, 0, 0);
  auto operand = [&](int which, float number, float4 (&to)[FLAT_GROUPS]) {
    if (which == PREVIOUS) {
      UNROLL for (int k = 0; k < FLAT_GROUPS; k++) to[k] = last[k];
    } else if (which == NUMBER) {
      UNROLL for (int k = 0; k < FLAT_GROUPS; k++) to[k] = make_float4(number, number, number, number);
    } else {
      const void* from = inputs.of[which];
      const u32 period = c.periods[which];
      UNROLL for (int k = 0; k < FLAT_GROUPS; k++) {
        const u32 group = min(first + k * 256, c.total - 1);
        to[k] = load4(from, (u64)(period ? group % period : group) * 4, c.types[which]);
      }
    }
  };
  if (c.steps == 0) operand(0, 0, last);
  for (int i = 0; i < c.steps; i++) {
    const Step s = c.step[i];
    operand(s.a, s.number_a, a);
    if (s.function < 64) {
      with_unary(s.function, [&](auto f) { UNROLL for (int k = 0; k < FLAT_GROUPS; k++) last[k] = each(a[k], f); });
    } else {
      operand(s.b, s.number_b, b);
      with_binary(s.function - 64, [&](auto f) { UNROLL for (int k = 0; k < FLAT_GROUPS; k++) last[k] = each2(a[k], b[k], f); });
    }
  }
  UNROLL for (int k = 0; k < FLAT_GROUPS; k++) if (first + k * 256 < c.total) store4(output, (u64)(first + k * 256) * 4, c.out_type, last[k]);
}
