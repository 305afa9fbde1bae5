// out = epilogue(A[R, K] · B[C, K]ᵀ) of f32 numbers, each taken as the sum of two bf16: high·high + low·high + high·low with f32 sums. What is left out
// is 2^-17 of a factor. TMA, wgmma, persistent blocks of one producer warp and two consumer warpgroups. Macros:
//   NAME  the kernel's symbol
//   MI    rows of a consumer's tile / 64        BN  columns of a tile        ST  stages
// A is f32 and is split on its way from shared memory to registers. B is split beforehand, [C, 2·depth] with the high parts first and the depth padded to
// multiples of 32. A thread reads four neighbours along the depth at once, so within 16 of them B has them in the order of a fragment:
// 0 1 4 5 8 9 12 13, 2 3 6 7 10 11 14 15.
// Rows of eight are taken in the order 0 4 1 5 2 6 3 7, in which a quarter of a warp reads every bank once.
// With `shuffle_width` the columns are (dy, dx, channel) of a 2×2 transposed convolution and go to their pixels.
// Several matrices lie one after the other; a null bias or residual counts as zeros; a residual may be the output itself. Launch: 384 threads, as many blocks as multiprocessors.
#define HALF_BF16
#include "sm90.cuh"
#include "wgmma.cuh"
#include "gelu.cuh"

struct Split {
  int rows, columns, depth;       // of each matrix; the depth padded
  int row_tiles, column_tiles;
  int matrices, a_rows, b_rows;   // how many, and rows of A and of B from one to the next
  int bias_mask;                  // -1 where there is a bias, else 0
  int activation;                 // after the bias: 1 ReLU, and after the residual: 2 GELU
  int shuffle_width, outputs;     // pixels of a line or 0, and channels of the result
  u32 period;                     // elements of the residual, which is repeated; a multiple of a row, or of a picture if shuffled
};

constexpr int WM = MI * 64, BM = 2 * WM, ABYTES = BM * 128, BBYTES = BN * 64, STAGE = ABYTES + 2 * BBYTES, BK = 32;

__device__ const float zeros[2] = {0, 0};

struct Tile { int matrix, r, c; };
D Tile tile_of(const Split& g, int t) {
  const int row_tile = t / g.column_tiles;
  return {row_tile / g.row_tiles, row_tile % g.row_tiles * BM, t % g.column_tiles * BN};
}

D float4 shared4(u32 at) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3},[%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at));
  return v;
}
// Two numbers as their high parts and as what is left of them.
D void split(float x, float y, u32& high, u32& low) {
  high = pack(x, y);
  low = pack(x - lo(high), y - hi(high));
}

extern "C" __global__ void __launch_bounds__(384, 1)
NAME(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, float* out, const float* __restrict__ bias_or_null, const float* residual,
     const __grid_constant__ Split g) {
  extern __shared__ __align__(1024) u8 raw[];
  __shared__ u64 full[ST], empty[ST];
  const u32 base = (smem(raw) + 1023) & ~1023u;
  const int wg = threadIdx.x / 128, kt = g.depth / BK, items = g.matrices * g.row_tiles * g.column_tiles;
  if (threadIdx.x == 0) {
    for (int i = 0; i < ST; i++) { mbar_init(smem(full + i), 1); mbar_init(smem(empty + i), 2); }
    mbar_fence();
  }
  __syncthreads();
  pdl_wait(); pdl_launch();
  if (wg == 0) {
    regs_dec<40>();
    if (threadIdx.x == 0) {
      int s = 0, ph = 1;
      for (int t = blockIdx.x; t < items; t += gridDim.x) {
        const Tile tile = tile_of(g, t);
        const int r = tile.matrix * g.a_rows + tile.r, c = tile.matrix * g.b_rows + tile.c;
        _Pragma("unroll 1") for (int k = 0; k < kt; k++) {
          const u32 a = base + s * STAGE, b = a + ABYTES, f = smem(full + s);
          mbar_wait(smem(empty + s), ph);
          mbar_expect(f, STAGE);
          tma_load2(a, &A, f, k * BK, r);
          tma_load2(b, &B, f, k * BK, c);
          tma_load2(b + BBYTES, &B, f, g.depth + k * BK, c);
          if (++s == ST) { s = 0; ph ^= 1; }
        }
      }
    }
  } else {
    regs_inc<232>();
    const int me = wg - 1, lane = threadIdx.x % 32, w = (threadIdx.x / 32) % 4, q = lane / 4, p = lane % 4;
    const int row = w * 16 + (q & 1) * 4 + q / 2;  // of the first of this thread's rows, in a tile of 64
    const bool leader = threadIdx.x % 128 == 0;
    // This thread's 16 bytes of the first and the second half of a line.
    const u32 at = me * WM * 128 + row * 128, piece[2] = {(u32)((p ^ (row & 7)) << 4), (u32)(((4 + p) ^ (row & 7)) << 4)};
    const float* bias = bias_or_null ? bias_or_null : zeros;
    int s = 0, ph = 0;
    for (int t = blockIdx.x; t < items; t += gridDim.x) {
      const Tile tile = tile_of(g, t);
      const int r0 = tile.r + me * WM, c0 = tile.c, m0 = tile.matrix * g.rows;
      // Starts from the bias. An absent one is read from zeros: a branch would serialise the products.
      float acc[MI][BN / 2];
      u32 tap = c0 / g.outputs, channel = c0 % g.outputs;
      UNROLL for (int j = 0; j < BN / 8; j++) {
        const float2 b = *(const float2*)(bias + ((channel + p * 2) & g.bias_mask));
        channel += 8;
        if (channel == g.outputs) channel = 0;
        UNROLL for (int u = 0; u < MI; u++) acc[u][j * 4] = acc[u][j * 4 + 2] = b.x, acc[u][j * 4 + 1] = acc[u][j * 4 + 3] = b.y;
      }
      UNROLL for (int u = 0; u < MI; u++) hold_all(acc[u]);
      u32 high[2][MI][4], low[2][MI][4];
      int last = 0;
      for (int k = 0; k < kt; k++) {
        const u32 a = base + s * STAGE + at, b = base + s * STAGE + ABYTES;
        mbar_wait(smem(full + s), ph);
        UNROLL for (int h = 0; h < 2; h++) {
          // The other half's products run meanwhile.
          UNROLL for (int u = 0; u < MI; u++) {
            const float4 x = shared4(a + u * 8192 + piece[h]), y = shared4(a + u * 8192 + 1024 + piece[h]);
            split(x.x, x.y, high[h][u][0], low[h][u][0]);
            split(y.x, y.y, high[h][u][1], low[h][u][1]);
            split(x.z, x.w, high[h][u][2], low[h][u][2]);
            split(y.z, y.w, high[h][u][3], low[h][u][3]);
          }
          wg_fence();
          UNROLL for (int u = 0; u < MI; u++) mma_rs(acc[u], low[h][u], desc64(b + h * 32), 1);
          UNROLL for (int u = 0; u < MI; u++) mma_rs(acc[u], high[h][u], desc64(b + BBYTES + h * 32), 1);
          UNROLL for (int u = 0; u < MI; u++) mma_rs(acc[u], high[h][u], desc64(b + h * 32), 1);
          wg_commit();
          wg_wait<1>();
          if (h == 0 && k && leader) mbar_arrive(smem(empty + last));
        }
        last = s;
        if (++s == ST) { s = 0; ph ^= 1; }
      }
      wg_wait<0>();
      UNROLL for (int u = 0; u < MI; u++) hold_all(acc[u]);
      if (leader) mbar_arrive(smem(empty + last));
      if (g.activation == 1) UNROLL for (int u = 0; u < MI; u++) UNROLL for (int i = 0; i < BN / 2; i++) acc[u][i] = fmaxf(acc[u][i], 0.f);
      // A thread has two neighbouring columns of two rows in each eight columns, which lie next to each other in the result.
      u32 row_at[MI][2];
      UNROLL for (int u = 0; u < MI; u++) UNROLL for (int h = 0; h < 2; h++) {
        const u32 r = m0 + r0 + u * 64 + row + 8 * h;
        row_at[u][h] = g.shuffle_width ? (r / g.shuffle_width * 4 * g.shuffle_width + r % g.shuffle_width * 2) * g.outputs : r * g.columns;
      }
      u32 rest_at[MI][2];
      UNROLL for (int u = 0; u < MI; u++) UNROLL for (int h = 0; h < 2; h++) rest_at[u][h] = row_at[u][h] % g.period;
      auto exists = [&](int u, int h) { return r0 + u * 64 + row + 8 * h < g.rows; };
      auto place = [&](u32 tap, u32 channel) {
        return g.shuffle_width ? (tap / 2 * 2 * g.shuffle_width + tap % 2) * g.outputs + channel + p * 2 : channel + p * 2;
      };
      channel = c0 % g.outputs;
      constexpr int BATCH = 4;
      UNROLL for (int j0 = 0; j0 < BN / 8; j0 += BATCH) {
        u32 at[BATCH];
        bool inside[BATCH];
        UNROLL for (int j = 0; j < BATCH; j++) {
          at[j] = place(tap, channel);
          inside[j] = c0 + (j0 + j) * 8 < g.columns;
          channel += 8;
          if (channel == g.outputs) channel = 0, tap++;
        }
        if (residual) {  // reads of a batch before its writes: the residual may be the output
          float2 add[BATCH][MI][2];
          UNROLL for (int j = 0; j < BATCH; j++) UNROLL for (int u = 0; u < MI; u++) UNROLL for (int h = 0; h < 2; h++)
            if (inside[j] && exists(u, h)) add[j][u][h] = *(const float2*)(residual + rest_at[u][h] + at[j]);
          UNROLL for (int j = 0; j < BATCH; j++) UNROLL for (int u = 0; u < MI; u++) UNROLL for (int h = 0; h < 2; h++)
            acc[u][(j0 + j) * 4 + h * 2] += add[j][u][h].x, acc[u][(j0 + j) * 4 + h * 2 + 1] += add[j][u][h].y;
        }
        if (g.activation == 2) UNROLL for (int u = 0; u < MI; u++) UNROLL for (int i = 0; i < 4 * BATCH; i++) acc[u][j0 * 4 + i] = gelu_single(acc[u][j0 * 4 + i]);
        UNROLL for (int j = 0; j < BATCH; j++) UNROLL for (int u = 0; u < MI; u++) UNROLL for (int h = 0; h < 2; h++)
          if (inside[j] && exists(u, h)) *(float2*)(out + row_at[u][h] + at[j]) = make_float2(acc[u][(j0 + j) * 4 + h * 2], acc[u][(j0 + j) * 4 + h * 2 + 1]);
      }
    }
  }
}
