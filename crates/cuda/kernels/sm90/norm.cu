// Layer norm of f32 rows into halves, or into bytes with a scale for each row; and halves into bytes. Macros: HALF_BF16 for bfloat16.
// A unit exports, for KIND f16 or bf16 (also a macro, for the names) and each pair of LANES lanes a row and PER float4 a lane
// (width = 4 · LANES · PER):  norm_KIND_LANESxPER (halves)  norm_bytes_KIND_LANESxPER (bytes)  and  quantize_KIND.
// Bytes follow QuantizedLinear: largest = max|x|, q = round(x · 127 / largest), step = largest / 127; NaN step for a row that is not finite.
#include "sm90.cuh"

struct Norm { int rows; float epsilon; };

// Largest magnitude below which a row counts as zeros: 2^-120.
constexpr float SMALLEST = 7.52316385e-37f;
template <int LANES> D float row_sum(float x) { UNROLL for (int k = LANES / 2; k; k /= 2) x += __shfl_xor_sync(~0u, x, k); return x; }
template <int LANES> D float row_max(float x) { UNROLL for (int k = LANES / 2; k; k /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, k)); return x; }
D bool finite(float x) { return fabsf(x) <= 3.402823466e38f; }
D u32 to_byte(float x, float inverse) {
  const int q = __float2int_rn(x * inverse);
  return (u32)(min(max(q, -127), 127) & 255);
}

template <int LANES, int PER> struct Rows {
  float4 v[PER];
  int row, lane;
  // Loads a row and normalises it. False beyond the last row.
  D bool load(const float* x, const float* gain, const float* bias, const Norm& g) {
    row = (blockIdx.x * 128 + threadIdx.x) / LANES; lane = threadIdx.x % LANES;
    const bool exists = row < g.rows;
    const float4* from = (const float4*)x + (u64)min(row, g.rows - 1) * (LANES * PER) + lane;
    UNROLL for (int i = 0; i < PER; i++) v[i] = from[i * LANES];
    float s = 0, d = 0;
    UNROLL for (int i = 0; i < PER; i++) s += v[i].x + v[i].y + v[i].z + v[i].w;
    const float mean = row_sum<LANES>(s) * (1.f / (4 * LANES * PER));
    UNROLL for (int i = 0; i < PER; i++) {
      v[i].x -= mean; v[i].y -= mean; v[i].z -= mean; v[i].w -= mean;
      d += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
    }
    const float r = rsqrtf(row_sum<LANES>(d) * (1.f / (4 * LANES * PER)) + g.epsilon);
    UNROLL for (int i = 0; i < PER; i++) {
      const float4 a = ((const float4*)gain)[i * LANES + lane], b = ((const float4*)bias)[i * LANES + lane];
      v[i].x = fmaf(v[i].x * r, a.x, b.x); v[i].y = fmaf(v[i].y * r, a.y, b.y);
      v[i].z = fmaf(v[i].z * r, a.z, b.z); v[i].w = fmaf(v[i].w * r, a.w, b.w);
    }
    return exists;
  }
  D void store_halves(u16* y) const {
    UNROLL for (int i = 0; i < PER; i++) ((uint2*)y)[(u64)row * (LANES * PER) + i * LANES + lane] = make_uint2(pack(v[i].x, v[i].y), pack(v[i].z, v[i].w));
  }
  D void store_bytes(u32* y, float* step, bool exists) const {
    float top = 0, sum = 0;
    UNROLL for (int i = 0; i < PER; i++) {
      top = fmaxf(fmaxf(fmaxf(top, fabsf(v[i].x)), fabsf(v[i].y)), fmaxf(fabsf(v[i].z), fabsf(v[i].w)));
      sum += v[i].x * 0.f + v[i].y * 0.f + v[i].z * 0.f + v[i].w * 0.f;  // NaN for a number that is not finite
    }
    top = row_max<LANES>(top); sum = row_sum<LANES>(sum);
    if (!exists) return;
    const float inverse = top < SMALLEST || sum != 0.f ? 0.f : __fdiv_rn(127.f, top);
    UNROLL for (int i = 0; i < PER; i++)
      y[(u64)row * (LANES * PER) + i * LANES + lane] = to_byte(v[i].x, inverse) | to_byte(v[i].y, inverse) << 8 | to_byte(v[i].z, inverse) << 16 | to_byte(v[i].w, inverse) << 24;
    if (lane == 0) step[row] = sum != 0.f ? sum : __fdiv_rn(top, 127.f);
  }
};

#define JOIN2(a, b, c, d, e) a##b##_##c##d##e
#define JOIN(a, b, c, d, e) JOIN2(a, b, c, d, e)
// Launch: ceil(rows · LANES / 128) blocks of 128 threads.
#define NORM(LANES, PER)                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(128) JOIN(norm_, KIND, LANES, x, PER)(const float* x, const float* gain, const float* bias, u16* y, const __grid_constant__ Norm g) { \
    pdl_wait(); pdl_launch();                                                                                                             \
    Rows<LANES, PER> r;                                                                                                                   \
    if (r.load(x, gain, bias, g)) r.store_halves(y);                                                                                      \
  }                                                                                                                                       \
  extern "C" __global__ void __launch_bounds__(128) JOIN(norm_bytes_, KIND, LANES, x, PER)(const float* x, const float* gain, const float* bias, u32* y, float* step, const __grid_constant__ Norm g) { \
    pdl_wait(); pdl_launch();                                                                                                             \
    Rows<LANES, PER> r;                                                                                                                   \
    const bool exists = r.load(x, gain, bias, g);                                                                                         \
    r.store_bytes(y, step, exists);                                                                                                       \
  }
NORM(4, 7) NORM(4, 9) NORM(8, 3) NORM(8, 7) NORM(8, 9) NORM(16, 3) NORM(16, 4) NORM(16, 7) NORM(16, 9)
NORM(32, 3) NORM(32, 4) NORM(32, 6) NORM(32, 7) NORM(32, 8) NORM(32, 9) NORM(32, 10)

struct Quantize { int rows, width; };
#define QUANTIZE2(kind) quantize_##kind
#define QUANTIZE(kind) QUANTIZE2(kind)
// Rows of halves into bytes: width a multiple of 8, at most 8192. Launch: a block of 128 threads for each row.
extern "C" __global__ void __launch_bounds__(128) QUANTIZE(KIND)(const u16* x, u8* y, float* step, const __grid_constant__ Quantize g) {
  __shared__ float tops[4], sums[4];
  pdl_wait(); pdl_launch();
  const uint4* from = (const uint4*)(x + (u64)blockIdx.x * g.width);
  const int pieces = g.width / 8;
  uint4 v[8];
  float top = 0, sum = 0;
  UNROLL for (int i = 0; i < 8; i++) {
    const int at = i * 128 + threadIdx.x;
    v[i] = at < pieces ? from[at] : make_uint4(0, 0, 0, 0);
    const u32 w[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
    UNROLL for (int k = 0; k < 4; k++) { top = fmaxf(top, fmaxf(fabsf(lo(w[k])), fabsf(hi(w[k])))); sum += lo(w[k]) * 0.f + hi(w[k]) * 0.f; }
  }
  top = row_max<32>(top); sum = row_sum<32>(sum);
  if (threadIdx.x % 32 == 0) { tops[threadIdx.x / 32] = top; sums[threadIdx.x / 32] = sum; }
  __syncthreads();
  top = fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3])); sum = sums[0] + sums[1] + sums[2] + sums[3];
  const float inverse = top < SMALLEST || sum != 0.f ? 0.f : __fdiv_rn(127.f, top);
  UNROLL for (int i = 0; i < 8; i++) {
    const int at = i * 128 + threadIdx.x;
    if (at >= pieces) continue;
    const u32 w[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
    u32 b[2];
    UNROLL for (int k = 0; k < 2; k++)
      b[k] = to_byte(lo(w[k * 2]), inverse) | to_byte(hi(w[k * 2]), inverse) << 8 | to_byte(lo(w[k * 2 + 1]), inverse) << 16 | to_byte(hi(w[k * 2 + 1]), inverse) << 24;
    ((uint2*)(y + (u64)blockIdx.x * g.width))[at] = make_uint2(b[0], b[1]);
  }
  if (threadIdx.x == 0) step[blockIdx.x] = sum != 0.f ? sum : __fdiv_rn(top, 127.f);
}
