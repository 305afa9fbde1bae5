// out = epilogue(A[R, K] · B[C, K]ᵀ), both operands K-major: TMA, wgmma, persistent blocks of one producer warp and two consumer
// warpgroups. Macros:
//   NAME  the kernel's symbol
//   KIND  0: half precision · 1: bytes with exact sums; the sum is scaled by row_scale[r] · column_scale[c]
//   WM    rows of a consumer's tile, 64 or 128        BN  columns of a tile        ST  stages
//   PP    1: "ping-pong", each consumer has its own WM×BN tile and one's epilogue runs under the other's products
//         0: "cooperative", both work on one (2·WM)×BN tile
//   CL    blocks of a cluster, 1 or 2: neighbours along R share the B tile by multicast
//   EPI   0: half = x + bias · 1: half = gelu(x + bias) · 2: f32 = x + bias + residual · 3: half = relu(x + bias)
//   SL    (EPI 2) slots of the second pipeline: a slot holds FW columns (SWAP: tokens) of a tile of the residual, the consumer adds its
//         values in place, and the sum leaves from there
//         4: half = x + bias, then neighbouring pairs of the first `rope_columns` columns are rotated by tables [positions, HEAD / 2]; the
//         position of row r is that of token r % rope_tokens in its window, on a grid `rope_grid` wide
//   HEAD  (EPI 4) channels of a head, 64 or 256
//   SWAP  1: A is the weight and B the tokens, so out[c][r] is written and the bias belongs to rows (for shapes that tile better so)
//   CONV  1: the rows of A are the pixels of an image, by boxes of bx×by pixels; the depth is `taps` × channels, 1 or 3×3 taps with zero
//         padding; with `shuffle` the columns are (dy, dx, channel) of a 2×2 transposed convolution and go to their pixels
// A bias or residual that is absent counts as zeros. Launch: 384 threads, as many blocks as multiprocessors.
#include "sm90.cuh"
#if KIND
#define BYTES
#endif
#include "wgmma.cuh"

struct Gemm {
  int rows, columns, depth, row_tiles, column_tiles;  // rows and columns of the result as A and B have them
  int bias_mask, residual_mask;                       // -1 where the operand is present, 0 where it counts as zeros
  int rope_columns, rope_tokens, rope_grid, rope_window;
  int height, width, tiles_x, tiles_y, box_x_log2, channels, taps, shuffle;
};

constexpr int BM = PP ? WM : 2 * WM, MI = WM / 64, NR = BN / 2, ES = KIND ? 1 : 2, BKE = 128 / ES;
constexpr int ABYTES = BM * 128, BBYTES = BN * 128, STAGE = ABYTES + BBYTES;
constexpr int CW = SWAP ? 32 : (BN % 64 ? (BN % 32 ? 16 : 32) : 64);  // output columns (SWAP: tokens) staged at a time
constexpr int CHUNK = SWAP ? MI * 32 * 128 : WM * CW * 2;             // bytes of one staging buffer
constexpr int FW = BN % 32 ? 16 : 32, SLOT = BM * FW * 4, CHUNKS = BN / FW;  // for results in f32
static_assert(!SWAP || PP && FW == 32, "slots of swapped operands are boxes of 32 tokens by 32 outputs of one consumer");
// 128 · (idle + 2 · busy) may not exceed the 65536 registers of a multiprocessor: more compiles and then hangs.
constexpr bool MANY = EPI == 4 && KIND && WM * BN > 128 * 160;
constexpr int IDLE_REGISTERS = MANY ? 24 : 40, BUSY_REGISTERS = MANY ? 240 : 232;
#if KIND
typedef int acc_t;
#define products_of mma_s8
#else
typedef float acc_t;
#define products_of mma_ss
#endif
__device__ const float zeros[4] = {0, 0, 0, 0};

// The operand, or zeros. By bit operations: the compiler would turn a condition into two copies of the loads, and branches among the
// accumulator's definitions serialise the products (C7515).
D const float* present(const float* operand, int mask) {
  return (const float*)((u64)operand & (long long)mask | (u64)zeros & ~(long long)mask);
}
// Reads of memory that nothing writes meanwhile.
D float read1(const float* p) { float v; asm("ld.global.nc.f32 %0,[%1];" : "=f"(v) : "l"(p)); return v; }
D float2 read2(const float* p) { float2 v; asm("ld.global.nc.v2.f32 {%0,%1},[%2];" : "=f"(v.x), "=f"(v.y) : "l"(p)); return v; }
D float shared1(u32 at) { float v; asm volatile("ld.shared.f32 %0,[%1];" : "=f"(v) : "r"(at) : "memory"); return v; }
D float2 shared2(u32 at) { float2 v; asm volatile("ld.shared.v2.f32 {%0,%1},[%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory"); return v; }
D void store1(u32 at, float x) { asm volatile("st.shared.f32 [%0],%1;" ::"r"(at), "f"(x) : "memory"); }
D void store2(u32 at, float2 v) { asm volatile("st.shared.v2.f32 [%0],{%1,%2};" ::"r"(at), "f"(v.x), "f"(v.y) : "memory"); }

// Bytes of the 16-byte piece `c` of row `r` in a staging tile whose rows are CW halves long (the TMA swizzle of that width).
D u32 staged(u32 r, u32 c) {
  if (SWAP || CW == 64) return r * 128 + ((c ^ (r & 7)) << 4);
  if (CW == 32) return r * 64 + ((c ^ ((r >> 1) & 3)) << 4);
  return r * 32 + ((c ^ ((r >> 2) & 1)) << 4);
}

// First pixel of a row tile.
struct Pixel { int b, y, x; };
D Pixel pixel_of(const Gemm& g, int tile, int box_y) {
  Pixel p;
  p.x = tile % g.tiles_x << g.box_x_log2;
  p.y = tile / g.tiles_x % g.tiles_y * box_y;
  p.b = tile / (g.tiles_x * g.tiles_y);
  return p;
}

extern "C" __global__ void __launch_bounds__(384, 1)
#if CL > 1
__cluster_dims__(CL, 1, 1)
#endif
NAME(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, const __grid_constant__ TensorMap C,
     const __grid_constant__ TensorMap residual, const float* __restrict__ bias_or_null, const float* __restrict__ row_scale,
     const float* __restrict__ column_scale, const float* __restrict__ cosines, const float* __restrict__ sines,
     const __grid_constant__ Gemm g) {
  extern __shared__ __align__(1024) u8 raw[];
  __shared__ u64 full[ST], empty[ST], filled[SL], drained[SL];
  const u32 base = (smem(raw) + 1023) & ~1023u, stage0 = base + ST * STAGE;
  const int wg = threadIdx.x / 128, rank = CL > 1 ? cta_rank() : 0, R = g.rows, Cc = g.columns, tc = g.column_tiles;
  const int slices = CONV ? (g.channels + BKE - 1) / BKE : 1, kt = CONV ? g.taps * slices : (g.depth + BKE - 1) / BKE;
  const int items = (g.row_tiles + CL - 1) / CL * tc, step = gridDim.x / CL, box_y = CONV ? BM >> g.box_x_log2 : 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < ST; i++) { mbar_init(smem(full + i), 1); mbar_init(smem(empty + i), (PP ? 1 : 2) * CL); }
    for (int i = 0; i < SL; i++) { mbar_init(smem(filled + i), 1); mbar_init(smem(drained + i), PP ? 1 : 2); }
    mbar_fence();
  }
  if (CL > 1) cluster_sync(); else __syncthreads();
  pdl_wait(); pdl_launch();
  if (wg == 0) {
    regs_dec<IDLE_REGISTERS>();
    if (threadIdx.x == 0) {
      int s = 0, ph = 1;
      for (int t = blockIdx.x / CL; t < items; t += step) {
        const int row_tile = t / tc * CL + rank, r = row_tile * BM, c = t % tc * BN;
        Pixel at;
        if (CONV) at = pixel_of(g, row_tile, box_y);
        int tap = 0, slice = 0;
        for (int k = 0; k < kt; k++) {
          u32 a = base + s * STAGE, b = a + ABYTES, f = smem(full + s);
          mbar_wait(smem(empty + s), ph);
          mbar_expect(f, STAGE);
          if (CONV) {
            const int dy = g.taps == 9 ? tap / 3 - 1 : 0, dx = g.taps == 9 ? tap % 3 - 1 : 0;
            tma_load4(a, &A, f, slice * BKE, at.x + dx, at.y + dy, at.b);
            tma_load2(b, &B, f, tap * g.channels + slice * BKE, c);
            if (++slice == slices) { slice = 0; tap++; }
          } else {
            tma_load2(a, &A, f, k * BKE, r);
            if (CL == 1) tma_load2(b, &B, f, k * BKE, c);
            else tma_load2_multicast(b + rank * (BBYTES / CL), &B, f, k * BKE, c + rank * (BN / CL), (1 << CL) - 1);
          }
          if (++s == ST) { s = 0; ph ^= 1; }
        }
      }
    }
    if (EPI == 2 && threadIdx.x == 32) {  // fills the slots with the residual
      int s = 0, ph = 1;
      for (int t = blockIdx.x / CL; t < items; t += step) {
        const int r = (t / tc * CL + rank) * BM, c = t % tc * BN;
        for (int k = 0; k < CHUNKS; k++) {
          const u32 to = stage0 + s * SLOT, f = smem(filled + s);
          mbar_wait(smem(drained + s), ph);
          if (!g.residual_mask) mbar_arrive(f);
          else {
            mbar_expect(f, SLOT);
            if (SWAP) for (int i = 0; i < BM / 32; i++) tma_load2(to + i * 4096, &residual, f, r + i * 32, c + k * 32);
            else for (int i = 0; i < BM / WM; i++) tma_load2(to + i * (WM * FW * 4), &residual, f, c + k * FW, r + i * WM);
          }
          if (++s == SL) { s = 0; ph ^= 1; }
        }
      }
    }
    __syncwarp();  // without it lanes 1..31 would sit in the last cluster barrier and the loading lane never run
  } else {
    regs_inc<BUSY_REGISTERS>();
    const int me = wg - 1, lane = threadIdx.x % 32, w = (threadIdx.x / 32) % 4, q = lane / 4, p2 = (lane % 4) * 2;
    const u32 mine = stage0 + me * 2 * CHUNK;
    const bool leader = threadIdx.x % 128 == 0;
    // An absent operand is read from one line of zeros: pointer and index are masked.
    const int bias_mask = g.bias_mask;
    const float* bias = present(bias_or_null, bias_mask);
    int s = 0, ph = 0, turn = 0, buf = 0, slot = 0, slot_ph = 0;
    auto skip = [&]() {
      s += kt; while (s >= ST) { s -= ST; ph ^= 1; }
      slot += CHUNKS; while (slot >= SL) { slot -= SL; slot_ph ^= 1; }
    };
    auto release = [&](int st) {
      if (CL == 1) { if (leader) mbar_arrive(smem(empty + st)); }
      else if (threadIdx.x % 128 < CL) mbar_arrive_at(smem(empty + st), threadIdx.x % 128);
    };
    for (int t = blockIdx.x / CL; t < items; t += step, turn ^= 1) {
      if (PP && turn != me) { skip(); continue; }
      const int row_tile = t / tc * CL + rank, r0 = row_tile * BM + (PP ? 0 : me * WM), c0 = t % tc * BN;
      acc_t acc[MI][NR];
      // Starts from the bias, read while the other consumer's products run. Addresses are clamped instead of guarded: a branch here
      // makes ptxas serialise the products (C7515).
      UNROLL for (int u = 0; u < MI; u++) {
        const int r = r0 + u * 64 + w * 16 + q, ra = min(r, R - 1), rb = min(r + 8, R - 1);
        float b0 = 0, b1 = 0;
        if (SWAP && !KIND) { b0 = read1(bias + (ra & bias_mask)); b1 = read1(bias + (rb & bias_mask)); }
        UNROLL for (int j = 0; j < BN / 8; j++) {
          float x0 = b0, x1 = b0, y0 = b1, y1 = b1;
          if (!KIND && !SWAP) {
            const int c = min(c0 + j * 8 + p2, Cc - 2);
            float2 b = read2(bias + (c & bias_mask));
            x0 = y0 = b.x; x1 = y1 = b.y;
          }
          acc[u][j * 4] = x0; acc[u][j * 4 + 1] = x1; acc[u][j * 4 + 2] = y0; acc[u][j * 4 + 3] = y1;
        }
      }
      int last = 0;
      auto products = [&]() {
        u32 a = base + s * STAGE + (PP ? 0 : me * WM * 128), b = base + s * STAGE + ABYTES;
        wg_fence();
        UNROLL for (int k = 0; k < 4; k++)
          UNROLL for (int u = 0; u < MI; u++) products_of(acc[u], desc(a + u * 8192 + k * 32), desc(b + k * 32), 1);
        wg_commit();
      };
      UNROLL for (int u = 0; u < MI; u++) hold_all(acc[u]);
      // Ping-pong needs an order: a barrier's parity tells neighbouring phases apart only, so a consumer must not look at its first
      // stage before the other has passed all of its own.
      if (PP && t >= step) bar_sync(3 + me, 256);
      for (int k = 0; k < kt; k++) {
        mbar_wait(smem(full + s), ph);
        products();
        wg_wait<1>();
        if (k) release(last);
        last = s;
        if (++s == ST) { s = 0; ph ^= 1; }
      }
      if (PP && t + step < items) bar_arrive(4 - me, 256);
      wg_wait<0>();
      UNROLL for (int u = 0; u < MI; u++) hold_all(acc[u]);
      release(last);
#if KIND  // scales and bias of exact sums
      float rs[MI][2], rb[MI][2];
      UNROLL for (int u = 0; u < MI; u++) UNROLL for (int h = 0; h < 2; h++) {
        const int r = min(r0 + u * 64 + w * 16 + q + 8 * h, R - 1);
        rs[u][h] = row_scale[r]; rb[u][h] = SWAP ? read1(bias + (r & bias_mask)) : 0;
      }
      float2 cs = make_float2(0, 0), cb = cs;
      auto column = [&](int j) {
        const int c = c0 + j * 8 + p2, pair = min(c, Cc - 2);
        // There may be an odd number of tokens, but not of outputs.
        if (SWAP) cs = make_float2(column_scale[min(c, Cc - 1)], column_scale[min(c + 1, Cc - 1)]);
        else { cs = *(const float2*)(column_scale + pair); cb = read2(bias + (pair & bias_mask)); }
      };
      auto value = [&](int u, int j, int h, int i) {
        return fmaf((float)acc[u][j * 4 + h * 2 + i], rs[u][h] * (i ? cs.y : cs.x), SWAP ? rb[u][h] : i ? cb.y : cb.x);
      };
#else
      auto column = [&](int) {};
      auto value = [&](int u, int j, int h, int i) { return acc[u][j * 4 + h * 2 + i]; };
#endif
#if EPI == 4 && KIND  // pairs are rotated as they are stored: there are no registers for sums and numbers
      int angle[MI][2];
      UNROLL for (int u = 0; u < MI; u++) UNROLL for (int h = 0; h < 2; h++) {
        const int token = (r0 + u * 64 + w * 16 + q + 8 * h) % g.rope_tokens, y = token / g.rope_grid, x = token % g.rope_grid;
        angle[u][h] = (y % g.rope_window * g.rope_window + x % g.rope_window) * (HEAD / 2) + p2 / 2;
      }
#elif EPI == 4  // a pair of table entries serves the same channels of every head in the tile
      constexpr int PERIOD = HEAD < BN ? HEAD / 8 : BN / 8;
      static_assert(BN / 8 % PERIOD == 0, "heads end where tiles end");
      UNROLL for (int u = 0; u < MI; u++) UNROLL for (int h = 0; h < 2; h++) {
        const int token = (r0 + u * 64 + w * 16 + q + 8 * h) % g.rope_tokens, y = token / g.rope_grid, x = token % g.rope_grid;
        const int at = (y % g.rope_window * g.rope_window + x % g.rope_window) * (HEAD / 2) + p2 / 2;
        UNROLL for (int j = 0; j < PERIOD; j++) {
          const int i = at + ((c0 + j * 8) & (HEAD - 1)) / 2;
          const float cs = read1(cosines + i), sn = read1(sines + i);
          UNROLL for (int k = j; k < BN / 8; k += PERIOD) if (c0 + k * 8 < g.rope_columns) {
            const float x0 = acc[u][k * 4 + h * 2], x1 = acc[u][k * 4 + h * 2 + 1];
            acc[u][k * 4 + h * 2] = x0 * cs - x1 * sn; acc[u][k * 4 + h * 2 + 1] = x0 * sn + x1 * cs;
          }
        }
      }
#endif
      auto halves = [&](int u, int j, int h) {
        float x = value(u, j, h, 0), y = value(u, j, h, 1);
#if EPI == 4 && KIND
        if (c0 + j * 8 < g.rope_columns) {
          const int i = angle[u][h] + ((c0 + j * 8) & (HEAD - 1)) / 2;
          const float cs = read1(cosines + i), sn = read1(sines + i), turned = x * cs - y * sn;
          y = x * sn + y * cs; x = turned;
        }
#endif
        return EPI == 1 ? pack(gelu(x), gelu(y)) : EPI == 3 ? pack(fmaxf(x, 0.f), fmaxf(y, 0.f)) : pack(x, y);
      };
      Pixel pixel;
      if (CONV) { pixel = pixel_of(g, row_tile, box_y); if (!PP) pixel.y += me * (box_y / 2); }
      u32 last_used = 0;
      if (EPI == 2) {
        // The slots are filled in the order of the tiles. As above, a consumer must not look at its first one before the other has passed its own.
        if (PP && t >= step) bar_sync(5 + me, 256);
        UNROLL for (int k = 0; k < CHUNKS; k++) {
          const u32 at = stage0 + slot * SLOT + (PP ? 0 : me * (WM * FW * 4)), used = smem(drained + slot);
          mbar_wait(smem(filled + slot), slot_ph);
          if (++slot == SL) { slot = 0; slot_ph ^= 1; }
          if (PP && k + 1 == CHUNKS && t + step < items) bar_arrive(6 - me, 256);
          // Where the value of row `row` and column `in` of the slot lies.
          auto place = [&](int row, int in) {
            if (!SWAP) return at + swizzled<FW * 4>(row, in / 4) + in % 4 * 4;
            return at + row / 32 * 4096 + swizzled<128>(in, row % 32 / 4) + row % 4 * 4;
          };
          UNROLL for (int i0 = 0; i0 < FW / 8; i0 += 2) {
            float2 v[2][MI][2];  // reads of a batch before its writes
            UNROLL for (int i = 0; i < 2; i++) UNROLL for (int u = 0; u < MI; u++) UNROLL for (int h = 0; h < 2; h++) {
              const int row = u * 64 + w * 16 + q + 8 * h, in = (i0 + i) * 8 + p2;
              v[i][u][h] = make_float2(0, 0);
              if (g.residual_mask) v[i][u][h] = SWAP ? make_float2(shared1(place(row, in)), shared1(place(row, in + 1))) : shared2(place(row, in));
            }
            UNROLL for (int i = 0; i < 2; i++) {
              const int j = k * (FW / 8) + i0 + i;
              column(j);
              UNROLL for (int u = 0; u < MI; u++) UNROLL for (int h = 0; h < 2; h++) {
                const int row = u * 64 + w * 16 + q + 8 * h, in = (i0 + i) * 8 + p2;
                const float x = v[i][u][h].x + value(u, j, h, 0), y = v[i][u][h].y + value(u, j, h, 1);
                if (!SWAP) store2(place(row, in), make_float2(x, y));
                else { store1(place(row, in), x); store1(place(row, in + 1), y); }
              }
            }
          }
          fence_async();
          bar_sync(1 + me, 128);
          if (leader) {
            const int column0 = c0 + k * FW;
            if (CONV) tma_store4(&C, at, column0, pixel.x, pixel.y, pixel.b);
            else if (!SWAP) tma_store2(&C, at, column0, r0);
            else UNROLL for (int i = 0; i < BM / 32; i++) tma_store2(&C, at + i * 4096, r0 + i * 32, column0);
            tma_commit();
            if (k) { tma_wait_read<1>(); mbar_arrive(last_used); }
            if (k + 1 == CHUNKS) { tma_wait_read<0>(); mbar_arrive(used); }
            last_used = used;
          }
        }
      } else {
        UNROLL for (int c = 0; c < BN / CW; c++) {
          const u32 to = mine + buf * CHUNK;
          if (leader) tma_wait_read<1>();  // the store that used this buffer two chunks ago has read it
          bar_sync(1 + me, 128);
          UNROLL for (int u = 0; u < MI; u++) UNROLL for (int j = 0; j < CW / 8; j += 2) {
            const int jj = c * (CW / 8) + j, i = lane >> 3;
            column(jj);
            u32 x0 = halves(u, jj, 0), x1 = halves(u, jj, 1);
            column(jj + 1);
            u32 x2 = halves(u, jj + 1, 0), x3 = halves(u, jj + 1, 1);
            if (!SWAP) stmatrix4(to + staged(u * 64 + w * 16 + (lane & 7) + (i & 1) * 8, j + (i >> 1)), x0, x1, x2, x3);
            else stmatrix4_trans(to + u * 4096 + staged((j + (i >> 1)) * 8 + (lane & 7), w * 2 + (i & 1)), x0, x1, x2, x3);
          }
          fence_async();
          bar_sync(1 + me, 128);
          if (leader) {
            const int column0 = c0 + c * CW;
            if (CONV && g.shuffle) {
              const int quarter = Cc / 4, part = column0 / quarter;
              if (column0 < Cc) tma_store5(&C, to, column0 - part * quarter, part & 1, pixel.x, part >> 1, pixel.b * g.height + pixel.y);
            }
            else if (CONV) tma_store4(&C, to, column0, pixel.x, pixel.y, pixel.b);
            else if (!SWAP) tma_store2(&C, to, column0, r0);
            else UNROLL for (int u = 0; u < MI; u++) tma_store2(&C, to + u * 4096, r0 + u * 64, column0);
            tma_commit();
          }
          buf ^= 1;
        }
      }
    }
    if (leader) tma_wait<0>();
  }
  if (CL > 1) cluster_sync();
}
