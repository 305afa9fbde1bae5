// GELU with the accuracy of f32, for kernels that include nothing else of ours.
#pragma once

// erf by Abramowitz and Stegun 7.1.26, absolute error 1.5e-7. Approximate units suffice: their errors are multiplied by less than 1.
static __device__ __forceinline__ float error_function(float x) {
  const float a = __uint_as_float(__float_as_uint(x) & 0x7FFFFFFFu);
  float t, e;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(__fmaf_rn(0.3275911f, a, 1.0f)));
  asm("ex2.approx.f32 %0, %1;" : "=f"(e) : "f"(a * a * -1.44269502f));
  float p = __fmaf_rn(1.061405429f, t, -1.453152027f);
  p = __fmaf_rn(p, t, 1.421413741f);
  p = __fmaf_rn(p, t, -0.284496736f);
  p = __fmaf_rn(p, t, 0.254829592f);
  const float y = __fmaf_rn(-p * t, e, 1.0f);
  return __uint_as_float((__float_as_uint(y) & 0x7FFFFFFFu) | (__float_as_uint(x) & 0x80000000u));
}
static __device__ __forceinline__ float gelu_single(float x) { return 0.5f * x * (1.0f + error_function(x * 0.707106781f)); }
