// Attention in windows of 14×14 or 16×16 keys. Where the last window of a row or column of 14×14 windows reaches beyond the grid, its keys and
// values there are the padding rows; 16×16 windows must tile the grid. Queries are the same windows of the same grid, or windows of half the side of a grid of half the size; those
// outside the grid are left out. Macros:
//   NAME  the kernel's symbol        SIDE  14 or 16        HD  channels of a head: 56, 64, 72, 80 or 96
//   BIAS  1 (SIDE = 14): relative positions. Query (qy, qx) and key (ky, kx) add q·rows[ky - qy + 13] + q·columns[kx - qx + 13]. They are
//         part of the products: queries get 28 more channels (the terms of 14 rows and 14 columns), keys the matching ones and zeros.
// Persistent: a block takes (window, head, picture) by (window, head, picture), whole windows first. One thread loads keys and values of the
// next unit by TMA, three warps write padding rows, two warpgroups take tiles of 64 queries in turn. All scores of a query are in
// registers, so there is no running maximum. Launch: 384 threads, as many blocks as multiprocessors.
#include "sm90.cuh"
#include "wgmma.cuh"
#ifndef WG
#define WG 2
#endif
constexpr int THREADS = 128 * (WG + 1);
constexpr int T = SIDE * SIDE, KN = SIDE == 14 ? 200 : 256, VN = SIDE == 14 ? 208 : 256;  // keys; rows of keys and of values in shared memory
constexpr int FIRST = SIDE == 14 ? 96 : 128, SECOND = KN - FIRST;                         // keys of the two products of a tile
constexpr int KS = (HD + 15) / 16, REST = HD > 64 ? (HD - 64 + 15) / 16 * 16 : 0, RB = 2 * REST, WIDE = HD < 64 ? HD : 64;
constexpr int KBYTES = KN * 128, KREST = KN * RB, VBYTES = VN * 128, VREST = VN * RB;
constexpr int BUFFER = (KBYTES + KREST + VBYTES + VREST + 1023) / 1024 * 1024, LOADED = 2 * T * (128 + RB);
constexpr int STEPS = BIAS ? KS + 2 : KS;  // products of queries and keys
#if BIAS  // bytes of the ones and zeros; terms, bytes of their tables; halves of a row of terms
constexpr int EXT = (KN * 64 + 1023) / 1024 * 1024, TERMS = 56, TABLE = TERMS * 128, TREST = (TERMS * RB + 1023) / 1024 * 1024, SP = 58;
#endif

struct Window {
  int pictures, heads;
  int key_grid[2], query_grid[2];        // height, width
  int query_window;                      // SIDE, or half of it
  int windows[2], whole[2];              // along y and x: all, and those inside the grid
  int query_stride, out_stride;          // halves between tokens
  float scale;
};

struct Unit { int head, picture, wy, wx; };
D Unit unit_of(const Window& g, int u) {
  Unit r;
  r.head = u % g.heads; u /= g.heads;
  r.picture = u % g.pictures;
  int w = u / g.pictures;
  const int inner = g.whole[0] * g.whole[1], right = g.windows[1] > g.whole[1] ? g.whole[0] : 0;
  if (w < inner) { r.wy = w / g.whole[1]; r.wx = w % g.whole[1]; }
  else if (w < inner + right) { r.wy = w - inner; r.wx = g.whole[1]; }
  else { r.wy = g.whole[0]; r.wx = w - inner - right; }
  return r;
}

// Where piece `c` (of HD / 8) of a row goes: the first 64 channels in one tile, the rest in another.
D u32 piece_at(u32 wide, u32 rest, u32 r, u32 c) {
  if (!REST || c < 8) return wide + swizzled<128>(r, c);
  return rest + swizzled<RB ? RB : 32>(r, c - 8);
}
D u64 desc_rest(u32 a) { return desc_of<RB ? RB : 32>(a); }
// The tiles of a buffer.
struct Buffer {
  u32 k, v, k_rest, v_rest;
  D explicit Buffer(u32 at) : k(at), v(at + KBYTES), k_rest(at + KBYTES + VBYTES), v_rest(at + KBYTES + VBYTES + KREST) {}
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
NAME(const __grid_constant__ TensorMap K, const __grid_constant__ TensorMap V, const __grid_constant__ TensorMap K_rest,
     const __grid_constant__ TensorMap V_rest, const u16* __restrict__ Q, const float* __restrict__ pad_key,
     const float* __restrict__ pad_value, const u16* __restrict__ rows, const u16* __restrict__ columns, u16* __restrict__ O,
     const __grid_constant__ Window g) {
  extern __shared__ __align__(1024) u8 raw[];
  __shared__ u64 full[2], ready[2], empty[2];
  const u32 base = (smem(raw) + 1023) & ~1023u;
#if BIAS
  const u32 ext = base + 2 * BUFFER, table = ext + EXT, scratch = table + TABLE + TREST;
#endif
  const int wg = threadIdx.x / 128, units = g.windows[0] * g.windows[1] * g.heads * g.pictures;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) { mbar_init(smem(full + i), 1); mbar_init(smem(ready + i), 96); mbar_init(smem(empty + i), WG); }
    mbar_fence();
  }
  // Rows beyond the keys are zeros for ever; the loads never reach them.
  constexpr int LOADED_PIECES = WIDE < 64 ? 8 : (64 + REST) / 8;
  for (int i = threadIdx.x; i < 2 * (VN - T) * LOADED_PIECES; i += THREADS) {
    const Buffer to(base + i % 2 * BUFFER);
    const u32 r = T + i / 2 / LOADED_PIECES, c = i / 2 % LOADED_PIECES;
    if (r < KN) store16(piece_at(to.k, to.k_rest, r, c), make_uint4(0, 0, 0, 0));
    store16(piece_at(to.v, to.v_rest, r, c), make_uint4(0, 0, 0, 0));
  }
#if BIAS
  for (int i = threadIdx.x; i < KN * 4; i += THREADS) {  // ones where a key's row and column are
    const int r = i / 4, c = i % 4, at[2] = {r / 14, 14 + r % 14};
    u32 v[4] = {0, 0, 0, 0};
    if (r < T) UNROLL for (int j = 0; j < 2; j++) UNROLL for (int k = 0; k < 4; k++) {
      const int e = at[j] - c * 8 - k * 2;
      if (e == 0) v[k] |= ONE; else if (e == 1) v[k] |= ONE << 16;
    }
    store16(ext + swizzled<64>(r, c), make_uint4(v[0], v[1], v[2], v[3]));
  }
#endif
  pdl_wait(); pdl_launch();
#if BIAS
  for (int i = threadIdx.x; i < TERMS * (HD / 8); i += THREADS) {
    const int r = i / (HD / 8), c = i % (HD / 8);
    const u16* from = (r < 27 ? rows + r * HD : columns + (r - 27) * HD) + c * 8;
    store16(piece_at(table, table + TABLE, r, c), r < 54 ? *(const uint4*)from : make_uint4(0, 0, 0, 0));
  }
#endif
  fence_async();
  __syncthreads();
  if (wg == 0) {
    regs_dec<WG == 3 ? 32 : SIDE == 16 ? 24 : 40>();
    if (threadIdx.x == 0) {
      int b = 0, ph = 1;
      for (int u = blockIdx.x; u < units; u += gridDim.x) {
        const Unit at = unit_of(g, u);
        const Buffer to(base + b * BUFFER);
        const u32 f = smem(full + b);
        mbar_wait(smem(empty + b), ph);
        mbar_expect(f, LOADED);
        tma_load4(to.k, &K, f, at.head * HD, at.wx * SIDE, at.wy * SIDE, at.picture);
        tma_load4(to.v, &V, f, at.head * HD, at.wx * SIDE, at.wy * SIDE, at.picture);
        if (REST) {
          tma_load4(to.k_rest, &K_rest, f, at.head * HD + 64, at.wx * SIDE, at.wy * SIDE, at.picture);
          tma_load4(to.v_rest, &V_rest, f, at.head * HD + 64, at.wx * SIDE, at.wy * SIDE, at.picture);
        }
        if (b) ph ^= 1;
        b ^= 1;
      }
    } else if (threadIdx.x >= 32) {  // padding rows
      constexpr int PIECES = HD / 8, WRITERS = 96 / PIECES * PIECES;
      const int i = threadIdx.x - 32, c = i % PIECES;
      int b = 0, ph = 0;
      for (int u = blockIdx.x; u < units; u += gridDim.x) {
        const Unit at = unit_of(g, u);
        const int vh = min(SIDE, g.key_grid[0] - at.wy * SIDE), vw = min(SIDE, g.key_grid[1] - at.wx * SIDE);
        mbar_wait(smem(full + b), ph);
        if (SIDE == 14 && (vh < SIDE || vw < SIDE) && i < WRITERS) {
          const Buffer to(base + b * BUFFER);
          const float *pk = pad_key + at.head * HD + c * 8, *pv = pad_value + at.head * HD + c * 8;
          const uint4 x = make_uint4(pack(pk[0], pk[1]), pack(pk[2], pk[3]), pack(pk[4], pk[5]), pack(pk[6], pk[7]));
          const uint4 z = make_uint4(pack(pv[0], pv[1]), pack(pv[2], pv[3]), pack(pv[4], pv[5]), pack(pv[6], pv[7]));
          _Pragma("unroll 1") for (int r = i / PIECES; r < T; r += WRITERS / PIECES)
            if (r / SIDE >= vh || r % SIDE >= vw) { store16(piece_at(to.k, to.k_rest, r, c), x); store16(piece_at(to.v, to.v_rest, r, c), z); }
          fence_async();
        }
        mbar_arrive(smem(ready + b));
        if (b) ph ^= 1;
        b ^= 1;
      }
    }
  } else {
    regs_inc<WG == 3 ? 160 : SIDE == 16 ? 240 : 232>();
    const int me = wg - 1, lane = threadIdx.x % 32, w = (threadIdx.x / 32) % 4, p2 = (lane % 4) * 2;
    const float sl = g.scale * LOG2E;
#if BIAS
    const u32 mine = scratch + (me * 4 + w) * 16 * SP * 2;
#endif
    int b = 0, ph = 0, turn = 0;
    for (int u = blockIdx.x; u < units; u += gridDim.x) {
      const Unit at = unit_of(g, u);
      const int qw = g.query_window, vh = min(qw, g.query_grid[0] - at.wy * qw), vw = min(qw, g.query_grid[1] - at.wx * qw), nq = vh * vw;
      const int first = (at.picture * g.query_grid[0] + at.wy * qw) * g.query_grid[1] + at.wx * qw;
      for (int t = 0; t < nq; t += 64, turn = turn + 1 == WG ? 0 : turn + 1) {
        if (turn != me) continue;
        u32 buffer = base + b * BUFFER;
        asm volatile("" : "+r"(buffer));  // opaque: descriptors kept over the loop would take too many registers
        const Buffer from(buffer);
        const int r0 = t + w * 16 + lane / 4;
        // Row of a query in memory; computed twice, for want of registers.
        auto token = [&](int h) { const int r = min(r0 + h * 8, nq - 1); return first + r / vw * g.query_grid[1] + r % vw; };
        const u16 *q0 = Q + (u64)token(0) * g.query_stride + at.head * HD + p2, *q1 = Q + (u64)token(1) * g.query_stride + at.head * HD + p2;
        u32 q[STEPS][4];
        UNROLL for (int s = 0; s < KS; s++) UNROLL for (int i = 0; i < 4; i++) {
          const int c = s * 16 + (i >> 1) * 8;
          q[s][i] = c < HD ? *(const u32*)((i & 1 ? q1 : q0) + c) : 0;
        }
#if BIAS
        {
          float z[TERMS / 2];
          const float inv = 1 / g.scale;
          wg_fence();
          UNROLL for (int s = 0; s < KS; s++) mma_rs(z, q[s], s < 4 ? moved(desc(table), s * 32) : moved(desc_rest(table + TABLE), (s - 4) * 32), s > 0);
          wg_commit();
          wg_wait<0>();
          hold_all(z);
          UNROLL for (int j = 0; j < TERMS / 8; j++) UNROLL for (int h = 0; h < 2; h++)
            asm volatile("st.shared.b32 [%0],%1;" ::"r"(mine + ((lane / 4 + h * 8) * SP + j * 8 + p2) * 2), "r"(pack(z[j * 4 + h * 2] * inv, z[j * 4 + h * 2 + 1] * inv)) : "memory");
          __syncwarp();
          UNROLL for (int s = 0; s < 2; s++) UNROLL for (int i = 0; i < 4; i++) {
            const int r = min(r0 + (i & 1) * 8, nq - 1), qy = r / vw, qx = r % vw;
            u32 both = 0;
            UNROLL for (int n = 0; n < 2; n++) {
              const int e = s * 16 + (i >> 1) * 8 + p2 + n;
              const int term = e < 14 ? e - qy + 13 : min(27 + e - 14 - qx + 13, TERMS - 1);  // e ≥ 28 meets zeros in the keys
              u32 y;
              asm volatile("ld.shared.u16 %0,[%1];" : "=r"(y) : "r"(mine + ((lane / 4 + (i & 1) * 8) * SP + term) * 2) : "memory");
              both |= y << (16 * n);
            }
            q[KS + s][i] = both;
          }
          __syncwarp();
        }
#endif
        mbar_wait(smem(ready + b), ph);
        float x[FIRST / 2], y[SECOND / 2], m0 = LOWEST, m1 = LOWEST, l0 = 0, l1 = 0;
        {
          const u64 kd = desc(from.k), kr = desc_rest(from.k_rest);
#if BIAS
          const u64 ed = desc64(ext);
#endif
          auto keys = [&](int s, int first) {
            if (s < 4) return moved(kd, first * 128 + s * 32);
#if BIAS
            if (s >= KS) return moved(ed, first * 64 + (s - KS) * 32);
#endif
            return moved(kr, first * RB + (s - 4) * 32);
          };
          wg_fence();
          UNROLL for (int s = 0; s < STEPS; s++) mma_rs(x, q[s], keys(s, 0), s > 0);
          UNROLL for (int s = 0; s < STEPS; s++) mma_rs(y, q[s], keys(s, FIRST), s > 0);
          wg_commit();
          wg_wait<0>();
          hold_all(x); hold_all(y);
        }
        if (SIDE == 14 && p2 >= 4) y[48] = y[49] = y[50] = y[51] = LOWEST;  // rows 196..199 are no keys
        UNROLL for (int j = 0; j < FIRST / 8; j++) { m0 = fmaxf(m0, fmaxf(x[j * 4], x[j * 4 + 1])); m1 = fmaxf(m1, fmaxf(x[j * 4 + 2], x[j * 4 + 3])); }
        UNROLL for (int j = 0; j < SECOND / 8; j++) { m0 = fmaxf(m0, fmaxf(y[j * 4], y[j * 4 + 1])); m1 = fmaxf(m1, fmaxf(y[j * 4 + 2], y[j * 4 + 3])); }
        m0 = -quad_max(m0) * sl; m1 = -quad_max(m1) * sl;
        auto weigh = [&](const float* z, u32* p) {
          const float a = ex2(fmaf(z[0], sl, m0)), c = ex2(fmaf(z[1], sl, m0)), d = ex2(fmaf(z[2], sl, m1)), e = ex2(fmaf(z[3], sl, m1));
          l0 += a + c; l1 += d + e;
          p[0] = pack(a, c); p[1] = pack(d, e);
        };
        float o[WIDE / 2];
        const u64 vd = desc(from.v);
#if HD > 64
        float rest[(HD - 64) / 2];
        const u64 vr = desc_rest(from.v_rest);
#endif
        auto values = [&](const u32* p, int s) {  // 16 keys
          mma_rs_t(o, p, moved(vd, s * 2048), s > 0);
#if HD > 64
          mma_rs_t(rest, p, moved(vr, s * 16 * RB), s > 0);
#endif
        };
        u32 p[FIRST / 4], r[(VN - FIRST) / 4];
        UNROLL for (int j = 0; j < FIRST / 8; j++) weigh(x + j * 4, p + j * 2);
        wg_fence();
        UNROLL for (int s = 0; s < FIRST / 16; s++) values(p + s * 4, s);
        wg_commit();
        UNROLL for (int j = 0; j < SECOND / 8; j++) weigh(y + j * 4, r + j * 2);  // while the first products run
        if (SIDE == 14) r[26] = r[27] = 0;
        wg_fence();
        UNROLL for (int s = FIRST / 16; s < VN / 16; s++) values(r + (s - FIRST / 16) * 4, s);
        wg_commit();
        l0 = 1 / quad_sum(l0); l1 = 1 / quad_sum(l1);
        wg_wait<0>();
        hold_all(o);
#if HD > 64
        hold_all(rest);
#endif
        UNROLL for (int h = 0; h < 2; h++) if (r0 + h * 8 < nq) {
          u16* to = O + (u64)token(h) * g.out_stride + at.head * HD + p2;
          const float d = h ? l1 : l0;
          UNROLL for (int j = 0; j < WIDE / 8; j++) *(u32*)(to + j * 8) = pack(o[j * 4 + h * 2] * d, o[j * 4 + h * 2 + 1] * d);
#if HD > 64
          UNROLL for (int j = 0; j < (HD - 64) / 8; j++) *(u32*)(to + 64 + j * 8) = pack(rest[j * 4 + h * 2] * d, rest[j * 4 + h * 2 + 1] * d);
#endif
        }
      }
      // A warpgroup without a tile in this unit must still see it arrive: parity tells neighbouring phases apart only.
      mbar_wait(smem(ready + b), ph);
      if (threadIdx.x % 128 == 0) mbar_arrive(smem(empty + b));
      if (b) ph ^= 1;
      b ^= 1;
    }
  }
}
