// Layer norm of f32 rows into halves, or into bytes with a scale for each row; and halves into bytes. Macros: HALF_BF16 for bfloat16.
// A unit exports, for KIND f16 or bf16 (also a macro, for the names) and each pair of LANES lanes a row and PER float4 a lane
// (width = 4 · LANES · PER):  norm_KIND_LANESxPER (halves)  norm_bytes_KIND_LANESxPER (bytes)  and  quantize_KIND_LANESxPER (halves into bytes).
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
#if HALF_BF16
#define MAX2 "max.NaN.bf16x2"
#else
#define MAX2 "max.NaN.f16x2"
#endif
// The larger of each pair of halves, NaN if either is.
D u32 max2(u32 a, u32 b) { u32 y; asm(MAX2 " %0,%1,%2;" : "=r"(y) : "r"(a), "r"(b)); return y; }
D uint4 read_once(const uint4* p) {
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
// Bytes of two pairs of halves. The product is rounded before the sum with 1.5 · 2^23 rounds it to a whole number, halves to even; with
// |x| up to `largest` it is within -127..=127, and the byte is the lowest of the sum.
D u32 bytes_of(u32 a, u32 b, float inverse) {
  const float x[4] = {lo(a), hi(a), lo(b), hi(b)};
  u32 q[4];
  UNROLL for (int k = 0; k < 4; k++) q[k] = __float_as_uint(__fadd_rn(__fmul_rn(x[k], inverse), 12582912.f));
  return __byte_perm(__byte_perm(q[0], q[1], 0x0040), __byte_perm(q[2], q[3], 0x0040), 0x5410);
}

// Rows of halves into bytes, LANES lanes a row (32 or 128) and PER pieces of 8 a lane: width a multiple of 8, more than
// 8 · LANES · (PER - 1) and at most 8 · LANES · PER. The last rows come first: what was written last is in the L2 still.
template <int LANES, int PER> D void quantize(const u16* x, u8* y, float* step, const Quantize& g) {
  __shared__ u32 tops[4];
  const int index = (blockIdx.x * 128 + threadIdx.x) / LANES, lane = threadIdx.x % LANES, pieces = g.width / 8;
  const bool exists = index < g.rows;
  const u64 row = max(g.rows - 1 - index, 0);
  const uint4* from = (const uint4*)(x + row * g.width) + lane;
  uint4 v[PER];
  u32 largest = 0;
  UNROLL for (int i = 0; i < PER; i++) v[i] = i + 1 < PER || i * LANES + lane < pieces ? read_once(from + i * LANES) : make_uint4(0, 0, 0, 0);
  UNROLL for (int i = 0; i < PER; i++) {
    const u32 w[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
    UNROLL for (int k = 0; k < 4; k++) largest = max2(largest, w[k] & 0x7fff7fff);
  }
  UNROLL for (int k = 16; k; k /= 2) largest = max2(largest, __shfl_xor_sync(~0u, largest, k));
  if (LANES > 32) {
    if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = largest;
    __syncthreads();
    largest = max2(max2(tops[0], tops[1]), max2(tops[2], tops[3]));
  }
  const float top = lo(max2(largest, largest >> 16));
  const float inverse = finite(top) && top >= SMALLEST ? __fdiv_rn(127.f, top) : 0.f;
  if (!exists) return;
  uint2* to = (uint2*)(y + row * g.width) + lane;
  UNROLL for (int i = 0; i < PER; i++)
    if (i + 1 < PER || i * LANES + lane < pieces) to[i * LANES] = make_uint2(bytes_of(v[i].x, v[i].y, inverse), bytes_of(v[i].z, v[i].w, inverse));
  if (lane == 0) step[row] = finite(top) ? __fdiv_rn(top, 127.f) : __uint_as_float(0x7fc00000);
}

// Launch: ceil(rows · LANES / 128) blocks of 128 threads.
#define QUANTIZE(LANES, PER)                                                                                                              \
  extern "C" __global__ void __launch_bounds__(128) JOIN(quantize_, KIND, LANES, x, PER)(const u16* x, u8* y, float* step, const __grid_constant__ Quantize g) { \
    pdl_wait(); pdl_launch();                                                                                                             \
    quantize<LANES, PER>(x, y, step, g);                                                                                                  \
  }
QUANTIZE(32, 1) QUANTIZE(32, 2) QUANTIZE(32, 3) QUANTIZE(32, 4) QUANTIZE(32, 5)
QUANTIZE(128, 2) QUANTIZE(128, 3) QUANTIZE(128, 4) QUANTIZE(128, 5) QUANTIZE(128, 6) QUANTIZE(128, 7) QUANTIZE(128, 8)
