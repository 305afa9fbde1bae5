// Shared by all kernels: element types, conversions, arithmetic without library functions, strided walks, reductions.
#pragma once
#include "gelu.cuh"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define INLINE static __device__ __forceinline__
#define INLINE_METHOD __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define UNROLL _Pragma("unroll")
#define PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(count) PRAGMA(unroll count)

// Element types, in the order of cutout_tensor::DType.
enum { F32, F16, BF16, I8, U8, I32, I64, BOOL };

// ---- conversions

INLINE float from_f16(u16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
INLINE float from_bf16(u16 x) { return __uint_as_float((u32)x << 16); }
INLINE u16 to_f16(float x) {
  u16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
INLINE u16 to_bf16(float x) {
  u16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
// The nearest finite half; NaN stays NaN. Stored values saturate instead of becoming infinite.
INLINE u16 to_f16_finite(float x) {
  float y;
  asm("min.NaN.f32 %0, %1, 0f477FE000;" : "=f"(y) : "f"(x));
  asm("max.NaN.f32 %0, %0, 0fC77FE000;" : "+f"(y));
  return to_f16(y);
}
// Two halves, the first in the lower bits.
template <int T> INLINE u32 pack2(float a, float b) {
  if constexpr (T == F16) return (u32)to_f16_finite(a) | (u32)to_f16_finite(b) << 16;
  return (u32)to_bf16(a) | (u32)to_bf16(b) << 16;
}

// An element of a float type as f32. `type` is the same for all threads.
INLINE float load(const void* from, u64 at, int type) {
  if (type == F32) return ((const float*)from)[at];
  const u16 half = ((const u16*)from)[at];
  return type == F16 ? from_f16(half) : from_bf16(half);
}
INLINE void store(void* to, u64 at, int type, float value) {
  if (type == F32) ((float*)to)[at] = value;
  else ((u16*)to)[at] = type == F16 ? to_f16_finite(value) : to_bf16(value);
}
// Four neighbours; `at` is a multiple of 4 elements from an aligned start.
INLINE float4 load4(const void* from, u64 at, int type) {
  if (type == F32) return *(const float4*)((const float*)from + at);
  const uint2 two = *(const uint2*)((const u16*)from + at);
  const u16 a = (u16)two.x, b = (u16)(two.x >> 16), c = (u16)two.y, d = (u16)(two.y >> 16);
  if (type == F16) return make_float4(from_f16(a), from_f16(b), from_f16(c), from_f16(d));
  return make_float4(from_bf16(a), from_bf16(b), from_bf16(c), from_bf16(d));
}
INLINE void store4(void* to, u64 at, int type, float4 v) {
  if (type == F32) {
    *(float4*)((float*)to + at) = v;
  } else {
    uint2 two;
    if (type == F16) two = make_uint2(pack2<F16>(v.x, v.y), pack2<F16>(v.z, v.w));
    else two = make_uint2(pack2<BF16>(v.x, v.y), pack2<BF16>(v.z, v.w));
    *(uint2*)((u16*)to + at) = two;
  }
}

// ---- arithmetic

INLINE float infinity() { return __uint_as_float(0x7F800000u); }
INLINE float not_a_number() { return __uint_as_float(0x7FC00000u); }
INLINE bool is_nan(float x) { return x != x; }
INLINE float absolute(float x) { return __uint_as_float(__float_as_uint(x) & 0x7FFFFFFFu); }
INLINE float ex2(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
INLINE float lg2(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
INLINE float root(float x) {
  float y;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
INLINE float round_down(float x) {
  float y;
  asm("cvt.rmi.f32.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
INLINE float round_even(float x) {
  float y;
  asm("cvt.rni.f32.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
INLINE float multiply_add(float a, float b, float c) {
  float y;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(y) : "f"(a), "f"(b), "f"(c));
  return y;
}
INLINE float larger(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
INLINE float smaller(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
// e^x: the product with log2(e) in two parts, so that large arguments keep their relative accuracy.
INLINE float exponential(float x) {
  const float high = 1.44269502f, low = 1.92596303e-8f;
  const float t = x * high;
  if (absolute(t) > 200.0f || is_nan(t)) return ex2(t);
  const float rest = multiply_add(x, low, multiply_add(x, high, -t));
  return ex2(t) * multiply_add(rest, 0.693147182f, 1.0f);
}
INLINE float logistic(float x) { return 1.0f / (1.0f + exponential(-x)); }
INLINE float gelu(float x) { return gelu_single(x); }
INLINE float hyperbolic_tangent(float x) {
  const float a = absolute(x);
  if (a < 0.3f) {
    const float s = x * x;
    float p = multiply_add(s, 0.0218694885f, -0.0539682540f);
    p = multiply_add(s, p, 0.133333333f);
    p = multiply_add(s, p, -0.333333333f);
    return multiply_add(x * s, p, x);
  }
  const float y = 1.0f - 2.0f / (exponential(2.0f * a) + 1.0f);
  return is_nan(x) ? x : x < 0 ? -y : y;
}
// Sine of x plus a quarter turn times `quarter`: reduction by pi/2 in three parts, then polynomials on ±pi/4.
INLINE float sine(float x, int quarter) {
  const float n = round_even(x * 0.636619772f);
  float r = multiply_add(n, -1.57079601f, x);
  r = multiply_add(n, -3.13916473e-7f, r);
  r = multiply_add(n, -5.39030253e-15f, r);
  const int q = ((int)n + quarter) & 3;
  const float s = r * r;
  float y;
  if (q & 1) {
    y = multiply_add(s, 2.44331571e-5f, -1.38873162e-3f);
    y = multiply_add(s, y, 4.16666456e-2f);
    y = multiply_add(s, y, -0.5f);
    y = multiply_add(s, y, 1.0f);
  } else {
    y = multiply_add(s, -1.95152959e-4f, 8.33216087e-3f);
    y = multiply_add(s, y, -1.66666546e-1f);
    y = multiply_add(s * r, y, r);
  }
  return q & 2 ? -y : y;
}
INLINE float power(float a, float b) {
  if (b == 0.0f || a == 1.0f) return 1.0f;
  const float magnitude = ex2(b * lg2(absolute(a)));
  if (a >= 0.0f || is_nan(a)) return is_nan(a) ? a : magnitude;
  if (round_down(b) != b) return not_a_number();
  const float half = b * 0.5f;
  return round_down(half) != half ? -magnitude : magnitude;
}
// Activations of epilogues, in the order of cutout_graph::ops::Activation.
INLINE float activate(float x, int activation) {
  if (activation == 1) return larger(x, 0.0f);
  if (activation == 2) return gelu(x);
  if (activation == 3) return logistic(x);
  return x;
}

// ---- strided walks

constexpr int MOST_AXES = 8;

// Lengths of axes, outermost first, and the strides of one tensor along them, in elements.
struct Walk {
  int rank;
  u32 lengths[MOST_AXES];
  u32 unused;
  i64 strides[MOST_AXES];
};
// Position of element `index` in row-major order.
INLINE i64 walk(const Walk& w, u32 index) {
  i64 at = 0;
  for (int axis = w.rank - 1; axis > 0; axis--) {
    const u32 rest = index / w.lengths[axis];
    at += (i64)(index - rest * w.lengths[axis]) * w.strides[axis];
    index = rest;
  }
  return w.rank > 0 ? at + (i64)index * w.strides[0] : at;
}

// ---- reductions over a warp and over a block

INLINE float warp_sum(float x) {
  UNROLL for (int k = 16; k; k /= 2) x += __shfl_xor_sync(~0u, x, k);
  return x;
}
INLINE float warp_max(float x) {
  UNROLL for (int k = 16; k; k /= 2) x = larger(x, __shfl_xor_sync(~0u, x, k));
  return x;
}
// Sum over the block, in a fixed order; every thread gets it. `shared` has one float per warp.
INLINE float block_sum(float x, float* shared) {
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (u32 i = 0; i < blockDim.x / 32; i++) sum += shared[i];
  return sum;
}

INLINE u32 shared_address(const void* pointer) { return (u32)__cvta_generic_to_shared(pointer); }
