// Products of halves with f32 sums: output[m, n] = activation(scale * sum over k of a[m, k] * b[n, k] + bias[n]) + residual[m, n].
//
// Rows of a and b are 16-byte aligned, and the depth is a multiple of 8. Tiles go through four stages of shared memory; 16-byte pieces
// of a row are exchanged within 64 bytes so that ldmatrix reads every bank once.
// Shared memory: 4 stages * (BM + BN) * 64 bytes.
#include "mma.cuh"

struct Gemm {
  u32 rows, columns, depth, a_row, b_column;  // strides in elements
  float scale;
  int activation, residual_type, to;
  u32 unused;
};
constexpr int BK = 32, STAGES = 4;

INLINE u32 piece(u32 row, u32 index) { return row * 64 + ((index ^ (row >> 1 & 3)) * 16); }

template <int T, int BM, int BN, int WARPS_M, int WARPS_N>
INLINE void gemm(const u16* a, const u16* b, const float* bias, const void* residual, void* output, const Gemm& p) {
  constexpr int THREADS = WARPS_M * WARPS_N * 32, WM = BM / WARPS_M, WN = BN / WARPS_N, MI = WM / 16, NI = WN / 8;
  extern __shared__ __align__(128) u8 memory[];
  const u32 base = shared_address(memory);
  constexpr u32 STAGE = (BM + BN) * 64;
  const u32 m0 = blockIdx.y * BM, n0 = blockIdx.x * BN, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const u32 wm = warp / WARPS_N * WM, wn = warp % WARPS_N * WN;
  auto fetch = [&](u32 stage, u32 k0) {
    UNROLL for (int i = 0; i < BM * 4 / THREADS; i++) {
      const u32 t = threadIdx.x + i * THREADS, row = t / 4, index = t % 4, k = k0 + index * 8;
      const bool exists = m0 + row < p.rows && k < p.depth;
      copy_async(base + stage * STAGE + piece(row, index), exists ? a + (u64)(m0 + row) * p.a_row + k : a, exists);
    }
    UNROLL for (int i = 0; i < BN * 4 / THREADS; i++) {
      const u32 t = threadIdx.x + i * THREADS, row = t / 4, index = t % 4, k = k0 + index * 8;
      const bool exists = n0 + row < p.columns && k < p.depth;
      copy_async(base + stage * STAGE + BM * 64 + piece(row, index), exists ? b + (u64)(n0 + row) * p.b_column + k : b, exists);
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
    const u32 as = base + step % STAGES * STAGE, bs = as + BM * 64;
    UNROLL for (int k = 0; k < 2; k++) {
      u32 x[MI][4], y[NI / 2][4];
      UNROLL for (int i = 0; i < MI; i++) load_matrices(x[i], as + piece(wm + i * 16 + (lane & 15), k * 2 + (lane >> 4)));
      UNROLL for (int j = 0; j < NI / 2; j++) load_matrices(y[j], bs + piece(wn + j * 16 + (lane & 7) + (lane >> 4) * 8, k * 2 + (lane >> 3 & 1)));
      UNROLL for (int i = 0; i < MI; i++) UNROLL for (int j = 0; j < NI; j++) multiply<T>(c[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
    }
  }
  const bool pairs = p.columns % 2 == 0;
  UNROLL for (int j = 0; j < NI; j++) {
    const u32 n = n0 + wn + j * 8 + lane % 4 * 2;
    if (n >= p.columns) continue;
    const bool both = n + 1 < p.columns;
    const float b0 = bias ? bias[n] : 0.0f, b1 = bias && both ? bias[n + 1] : 0.0f;
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
      const u32 m = m0 + wm + i * 16 + lane / 4 + h * 8;
      if (m >= p.rows) continue;
      const u64 at = (u64)m * p.columns + n;
      float v0 = activate(c[i][j][h * 2] * p.scale + b0, p.activation), v1 = activate(c[i][j][h * 2 + 1] * p.scale + b1, p.activation);
      if (pairs) {
        if (residual) {
          if (p.residual_type == F32) {
            const float2 r = *(const float2*)((const float*)residual + at);
            v0 += r.x, v1 += r.y;
          } else {
            v0 += load(residual, at, p.residual_type), v1 += load(residual, at + 1, p.residual_type);
          }
        }
        if (p.to == F32) *(float2*)((float*)output + at) = make_float2(v0, v1);
        else *(u32*)((u16*)output + at) = p.to == F16 ? pack2<F16>(v0, v1) : pack2<BF16>(v0, v1);
      } else {
        store(output, at, p.to, residual ? v0 + load(residual, at, p.residual_type) : v0);
        if (both) store(output, at + 1, p.to, residual ? v1 + load(residual, at + 1, p.residual_type) : v1);
      }
    }
  }
}

#define GEMM(NAME, T, BM, BN, WARPS_M, WARPS_N)                                                                                                     \
  KERNEL __launch_bounds__(WARPS_M * WARPS_N * 32)                                                                                                  \
      NAME(const u16* a, const u16* b, const float* bias, const void* residual, void* output, const __grid_constant__ Gemm p) {                     \
    gemm<T, BM, BN, WARPS_M, WARPS_N>(a, b, bias, residual, output, p);                                                                             \
  }
GEMM(gemm_f16_128x128, F16, 128, 128, 2, 4)
GEMM(gemm_bf16_128x128, BF16, 128, 128, 2, 4)
GEMM(gemm_f16_64x64, F16, 64, 64, 2, 2)
GEMM(gemm_bf16_64x64, BF16, 64, 64, 2, 2)
