// Products in f32 on the tensor cores: every number is split into two of TF32, and three of their four products are summed in f32. The relative error
// is that of f32 sums.
//
// The left side is f32 with its depth contiguous. The right side is too (ALONG), or has its columns contiguous. Rows are 16-byte aligned, and lengths
// along contiguous axes multiples of four. Tiles go through stages of shared memory, (BM + BN) * 128 bytes each; 16-byte pieces are exchanged so that
// a warp reads every bank once. The order of the depth within a step is free as long as both sides agree: a thread takes four neighbours.
#include "mma.cuh"
#include "product.cuh"

constexpr int BK = 32;

// Writes the sums of a tile, [BM][BN + 4] in shared memory.
template <int BM, int BN, int THREADS> INLINE void finish_tile(const float* sums, const float* bias, const void* residual, void* output, const Product& p) {
  const u32 m0 = blockIdx.y * BM, n0 = blockIdx.x * BN, outputs = p.shuffle_width ? p.shuffle_outputs : p.columns;
  const u64 matrix = (u64)blockIdx.z * p.rows * p.columns;
  const u32 line = p.shuffle_width * 2;  // pixels of a line of a transposed convolution's result
  // A thread has the same four columns in every row.
  const u32 local = threadIdx.x % (BN / 4) * 4, n = n0 + local;
  if (n >= p.columns) return;
  const u32 tap = n / outputs, channel = n - tap * outputs;
  const bool fours = outputs % 4 == 0 && p.unused & 4;  // whole, aligned and of one tap
  float4 b = make_float4(0, 0, 0, 0);
  if (bias && fours) b = make_float4(bias[channel], bias[channel + 1], bias[channel + 2], bias[channel + 3]);
  _Pragma("unroll 1") for (u32 row = threadIdx.x / (BN / 4); row < BM; row += THREADS * 4 / BN) {
    const u32 m = m0 + row;
    if (m >= p.rows) return;
    const float4 x = *(const float4*)(sums + row * (BN + 4) + local);
    if (fours) {
      u64 at = matrix + (u64)m * p.columns + n;
      if (p.shuffle_width) {
        const u32 y = m / p.shuffle_width, column = m - y * p.shuffle_width;
        at = ((u64)(y * 2 + tap / 2) * line + column * 2 + tap % 2) * outputs + channel;
      }
      float4 v = make_float4(x.x * p.scale + b.x, x.y * p.scale + b.y, x.z * p.scale + b.z, x.w * p.scale + b.w);
      if (p.activation) v = make_float4(activate(v.x, p.activation), activate(v.y, p.activation), activate(v.z, p.activation), activate(v.w, p.activation));
      if (residual) {
        const float4 r = load4(residual, at, p.residual_type);
        v.x += r.x, v.y += r.y, v.z += r.z, v.w += r.w;
      }
      store4(output, at, p.to, v);
    } else {
      _Pragma("unroll 1") for (u32 k = 0; k < 4 && n + k < p.columns; k++) {
        const u32 own = (n + k) / outputs, out = n + k - own * outputs;
        u64 at = matrix + (u64)m * p.columns + n + k;
        if (p.shuffle_width) at = ((u64)(m / p.shuffle_width * 2 + own / 2) * line + m % p.shuffle_width * 2 + own % 2) * outputs + out;
        const float v = activate((k == 0 ? x.x : k == 1 ? x.y : k == 2 ? x.z : x.w) * p.scale + (bias ? bias[out] : 0.0f), p.activation);
        store(output, at, p.to, residual ? v + load(residual, at, p.residual_type) : v);
      }
    }
  }
}

template <int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool ALONG>
INLINE void product(const float* a, const float* b, const float* bias, const void* residual, void* output, const Product& p) {
  constexpr int THREADS = WARPS_M * WARPS_N * 32, WM = BM / WARPS_M, WN = BN / WARPS_N, MI = WM / 16, NI = WN / 8;
  constexpr u32 STAGE = (BM + BN) * BK;
  extern __shared__ __align__(128) float memory[];
  const u32 base = shared_address(memory);
  const u32 m0 = blockIdx.y * BM, n0 = blockIdx.x * BN, warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, four = lane % 4;
  const u32 wm = warp / WARPS_N * WM, wn = warp % WARPS_N * WN;
  a += walk(p.a_batch, blockIdx.z);
  b += walk(p.b_batch, blockIdx.z);
  // Place of piece `index` of a row of 32 along the depth, and of four columns of a line of BN, in floats.
  auto along = [](u32 row, u32 index) { return row * BK + (index ^ (row & 1) * 4) * 4; };
  auto across = [](u32 k, u32 index) { return k * BN + (index ^ (k / 4 % 4) * 2) * 4; };
  auto fetch = [&](u32 stage, u32 k0) {
    const u32 at = base + stage * STAGE * 4;
    UNROLL for (int i = 0; i < BM * 8 / THREADS; i++) {
      const u32 t = threadIdx.x + i * THREADS, row = t / 8, index = t % 8, k = k0 + index * 4;
      const bool exists = m0 + row < p.rows && k < p.depth;
      copy_async(at + along(row, index) * 4, exists ? a + (i64)(m0 + row) * p.a_row + k : a, exists);
    }
    UNROLL for (int i = 0; i < BN * 8 / THREADS; i++) {
      const u32 t = threadIdx.x + i * THREADS;
      if constexpr (ALONG) {
        const u32 row = t / 8, index = t % 8, k = k0 + index * 4;
        const bool exists = n0 + row < p.columns && k < p.depth;
        copy_async(at + (BM * BK + along(row, index)) * 4, exists ? b + (i64)(n0 + row) * p.b_column + k : b, exists);
      } else {
        const u32 k = t / (BN / 4), index = t % (BN / 4), n = n0 + index * 4;
        const bool exists = n < p.columns && k0 + k < p.depth;
        copy_async(at + (BM * BK + across(k, index)) * 4, exists ? b + (i64)(k0 + k) * p.b_depth + n : b, exists);
      }
    }
  };
  float c[MI][NI][4];
  UNROLL for (int i = 0; i < MI; i++) UNROLL for (int j = 0; j < NI; j++) UNROLL for (int k = 0; k < 4; k++) c[i][j][k] = 0;
  const u32 steps = (p.depth + BK - 1) / BK;
  UNROLL for (int s = 0; s < STAGES - 1; s++) {
    if (s < steps) fetch(s, s * BK);
    commit();
  }
  for (u32 step = 0; step < steps; step++) {
    wait_for<STAGES - 2>();
    __syncthreads();
    if (step + STAGES - 1 < steps) fetch((step + STAGES - 1) % STAGES, (step + STAGES - 1) * BK);
    commit();
    const float *as = memory + step % STAGES * STAGE, *bs = as + BM * BK;
    UNROLL for (int half = 0; half < 2; half++) {
      float4 x[MI][2], y[NI];
      UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) x[i][h] = *(const float4*)(as + along(wm + i * 16 + h * 8 + group, half * 4 + four));
      UNROLL for (int j = 0; j < NI; j++) {
        const u32 n = wn + j * 8 + group;
        if constexpr (ALONG) {
          y[j] = *(const float4*)(bs + along(n, half * 4 + four));
        } else {
          const float* from = bs + across(half * 16 + four * 4, n / 4) + n % 4;
          y[j] = make_float4(from[0], from[BN], from[2 * BN], from[3 * BN]);
        }
      }
      UNROLL for (int s = 0; s < 2; s++) {
        u32 high[MI][4], low[MI][4], b_high[NI][2], b_low[NI][2];
        UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
          split(s ? x[i][h].z : x[i][h].x, high[i][h], low[i][h]);
          split(s ? x[i][h].w : x[i][h].y, high[i][h + 2], low[i][h + 2]);
        }
        UNROLL for (int j = 0; j < NI; j++) {
          split(s ? y[j].z : y[j].x, b_high[j][0], b_low[j][0]);
          split(s ? y[j].w : y[j].y, b_high[j][1], b_low[j][1]);
        }
        UNROLL for (int i = 0; i < MI; i++) UNROLL for (int j = 0; j < NI; j++) multiply_tf32(c[i][j], low[i], b_high[j][0], b_high[j][1]);
        UNROLL for (int i = 0; i < MI; i++) UNROLL for (int j = 0; j < NI; j++) multiply_tf32(c[i][j], high[i], b_low[j][0], b_low[j][1]);
        UNROLL for (int i = 0; i < MI; i++) UNROLL for (int j = 0; j < NI; j++) multiply_tf32(c[i][j], high[i], b_high[j][0], b_high[j][1]);
      }
    }
  }
  // The sums go through shared memory, so that neighbours are written together and what follows is one short loop: most blocks run it once, and
  // fetching instructions would take longer than running them.
  wait_for<0>();
  __syncthreads();
  UNROLL for (int i = 0; i < MI; i++) UNROLL for (int j = 0; j < NI; j++) UNROLL for (int h = 0; h < 2; h++)
    *(float2*)(memory + (wm + i * 16 + group + h * 8) * (BN + 4) + wn + j * 8 + four * 2) = make_float2(c[i][j][h * 2], c[i][j][h * 2 + 1]);
  __syncthreads();
  finish_tile<BM, BN, THREADS>(memory, bias, residual, output, p);
}

// BLOCKS: of a multiprocessor, which bounds registers.
#define PRODUCT(NAME, BM, BN, WARPS_M, WARPS_N, STAGES, ALONG, BLOCKS)                                                                                     \
  KERNEL __launch_bounds__(WARPS_M * WARPS_N * 32, BLOCKS)                                                                                                 \
      NAME(const float* a, const float* b, const float* bias, const void* residual, void* output, const __grid_constant__ Product p) {            \
    product<BM, BN, WARPS_M, WARPS_N, STAGES, ALONG>(a, b, bias, residual, output, p);                                                             \
  }
PRODUCT(product_tf32_128x128, 128, 128, 2, 4, 3, true, 1)
PRODUCT(product_tf32_64x64, 64, 64, 2, 2, 4, true, 3)
PRODUCT(product_tf32_32x64, 32, 64, 2, 2, 4, true, 3)
PRODUCT(product_tf32_16x128, 16, 128, 1, 4, 4, true, 3)
PRODUCT(product_tf32_128x128_across, 128, 128, 2, 4, 3, false, 1)
PRODUCT(product_tf32_64x64_across, 64, 64, 2, 2, 4, false, 3)
PRODUCT(product_tf32_32x64_across, 32, 64, 2, 2, 4, false, 3)
