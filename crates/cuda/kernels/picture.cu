// Pictures as they come from files: bytes, resized with the arithmetic of the libraries that the models were trained with.
#include "common.cuh"

struct Resample {
  u32 total, length, inner, positions, taps;  // [outer, length, inner] to [outer, positions, inner]
  int half, bits;                             // start value and final shift of whole sums
  int from, to;
};
// What an output element is made of.
struct Line {
  u64 first;  // input element at position 0
  u32 position;
};
INLINE Line line(const Resample& c, u32 i) {
  const u32 line = i / c.inner, outer = line / c.positions;
  return {(u64)outer * c.length * c.inner + (i - line * c.inner), line - outer * c.positions};
}
// Positions outside are those at the ends.
INLINE u64 inside(const Resample& c, i64 position) {
  const i64 last = c.length - 1;
  return (u64)(position < 0 ? 0 : position > last ? last : position) * c.inner;
}
// Weights with fractional bits, sums of 32 bits, which wrap. One thread an output.
KERNEL resample_fixed(const u8* input, const int* starts, const u32* weights, u8* output, const __grid_constant__ Resample c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.total) return;
  const Line at = line(c, i);
  const i64 start = starts[at.position];
  const u32* own = weights + (u64)at.position * c.taps;
  u32 sum = (u32)c.half;
  UNROLL_BY(4) for (u32 tap = 0; tap < c.taps; tap++) sum += own[tap] * (u32)input[at.first + inside(c, start + tap)];
  const int value = (int)sum >> c.bits;
  output[i] = (u8)(value < 0 ? 0 : value > 255 ? 255 : value);
}
// Products are not fused with their sums, so that pictures are the same bits as on the host.
KERNEL resample_single(const void* input, const int* starts, const float* weights, void* output, const __grid_constant__ Resample c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.total) return;
  const Line at = line(c, i);
  const i64 start = starts[at.position];
  const float* own = weights + (u64)at.position * c.taps;
  float sum = 0;
  UNROLL_BY(4) for (u32 tap = 0; tap < c.taps; tap++) {
    const u64 from = at.first + inside(c, start + tap);
    const float value = c.from == U8 ? (float)((const u8*)input)[from] / 255.0f : load(input, from, c.from);
    sum = __fadd_rn(sum, __fmul_rn(own[tap], value));
  }
  store(output, i, c.to, sum);
}
