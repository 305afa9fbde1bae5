// Streaming attention: TMA, wgmma, scores and probabilities in registers. Whole pictures or windows that tile their grid. Macros:
//   NAME   the kernel's symbol; with SPLIT the unit also exports NAME_combine
//   HD     channels of queries and keys of a head, a multiple of 8     HV  channels of values
//   BN     keys of a tile     NW  consumer warpgroups of 64 queries     ST  stages
//   QROWS  rows of the queries' box: NW · 64, or 96 for windows 24 wide, which use 64 of them from an offset of 0, 8 or 16
//   BIAS   1: SAM 1's decomposed relative positions on a 64×64 grid (BN = 128). A tile of 64 queries is one row of the grid. Its terms
//          q·rows[ky - qy + 63] and q·columns[kx - qx + 63] are two products with the tables before the loop. The column part is the
//          initial accumulator of every tile of scores; the row part is a number for each query and row of keys, added in the softmax.
//   SPLIT  1: the keys are divided over blocks; sums, maxima and denominators go to `part` and `ml`, which NAME_combine joins
//   PING   1 (NW = 2): the two warpgroups take turns, one's softmax under the other's products
// Channels beyond a multiple of 64 (8, 16 or 32 of them) are tiles of their own with rows of 32 or 64 bytes: the maps named _rest.
// Maps have axes (channel, x, y, picture), so that flat rows and windows are one case; boxes are (64, bx, by, 1) with bx·by = BN or QROWS.
// Items are (query tile, head, picture and window or split); a block takes every gridDim.x-th, and loads of the next begin under the last tile of
// one. With BIAS a block takes one item. Launch: at most `items` blocks of 128 · (NW + 1) threads.
#include "sm90.cuh"
#include "wgmma.cuh"
constexpr int KS = (HD + 15) / 16;                                         // products over 16 channels
constexpr int HP = HD < 64 ? 1 : HD / 64, VP = HV < 64 ? 1 : HV / 64;      // blocks of 64 channels
constexpr int REST = HD < 64 ? 0 : (HD % 64 + 15) / 16 * 16, RB = 2 * REST;  // channels after them as loaded, bytes of their rows
constexpr int HW = HV < 64 ? HV : HV / 64 * 64; [[maybe_unused]] constexpr int HR = HV - HW;              // channels of values in the blocks, and after them
static_assert(!REST || HD == HV, "the rest of keys and values has one width");
constexpr int QB = QROWS * 128, KB = BN * 128;  // bytes of one block of queries, of keys
constexpr int QBYTES = HP * QB + QROWS * RB, KBYTES = HP * KB + BN * RB, VBYTES = VP * KB + BN * RB, STAGE = KBYTES + VBYTES;
#if BIAS
constexpr int SP = 132;  // halves of a row of column terms: 127 and room against bank conflicts
constexpr int TABLES = (128 + NW * 64) * (128 + RB);
static_assert(TABLES <= STAGE && NW * 64 * SP * 2 <= STAGE && HP == 1, "the tables lie in the last stage before its first use");
#endif

struct Attention {
  int queries, keys, heads, tiles;               // of one picture or window; key tiles of one block
  int splits, pictures;
  int windows_x, windows;                        // of one picture
  int query_window, key_window, query_grid;      // widths; flat: all queries, all keys, all queries
  int query_step, key_step_x, key_step_y;        // query_step: 1 where query tiles advance along x
  int picture_queries, out_stride;
  int query_tiles, items;
  float scale;
};

// One item: its queries, and the keys it meets.
struct Item { int head, picture, which, wx, wy, q0, t0, nt; };
D Item item_of(const Attention& g, int i) {
  Item r;
  const int parts = SPLIT ? g.splits : g.windows;
  r.q0 = i % g.query_tiles * (NW * 64); i /= g.query_tiles;
  r.head = i % g.heads; i /= g.heads;
  r.which = i % parts; r.picture = i / parts;
  r.wx = SPLIT ? 0 : r.which % g.windows_x; r.wy = SPLIT ? 0 : r.which / g.windows_x;
  r.t0 = SPLIT ? r.which * g.tiles : 0;
  r.nt = min(g.tiles, (g.keys + BN - 1) / BN - r.t0);
  return r;
}

extern "C" __global__ void __launch_bounds__(128 * (NW + 1), NW == 1 ? 2 : 1)
NAME(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K, const __grid_constant__ TensorMap V,
     const __grid_constant__ TensorMap Q_rest, const __grid_constant__ TensorMap K_rest, const __grid_constant__ TensorMap V_rest,
     const __grid_constant__ TensorMap rows_table, const __grid_constant__ TensorMap columns_table,
     const __grid_constant__ TensorMap rows_rest, const __grid_constant__ TensorMap columns_rest,
     u16* O, float* part, float2* ml, const __grid_constant__ Attention g) {
  extern __shared__ __align__(1024) u8 raw[];
  __shared__ u64 fk[ST], fv[ST], ek[ST], ev[ST], fq, eq, ft;
  const u32 sq = (smem(raw) + 1023) & ~1023u, stages = sq + QBYTES;
#if BIAS  // tables and column terms in the last stage, row terms after it
  const u32 st = stages + (ST - 1) * STAGE, str = st + (128 + NW * 64) * 128, sr = stages + ST * STAGE;
#endif
  const int wg = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    for (int i = 0; i < ST; i++) {
      mbar_init(smem(fk + i), 1); mbar_init(smem(fv + i), 1);
      mbar_init(smem(ek + i), NW); mbar_init(smem(ev + i), NW);
    }
    mbar_init(smem(&fq), 1); mbar_init(smem(&eq), NW); mbar_init(smem(&ft), NW);
    mbar_fence();
  }
  __syncthreads();
  pdl_wait(); pdl_launch();
  if (wg == 0) {
    if (NW == 1) regs_dec<24>(); else regs_dec<40>();
    if (threadIdx.x == 0) {
      int s = 0, ph = 1, qph = 1;
      _Pragma("unroll 1") for (int item = blockIdx.x; item < g.items; item += gridDim.x, qph ^= 1) {
        const Item at = item_of(g, item);
        const u32 f = smem(&fq);
        const int qx = at.wx * g.query_window + (g.query_step ? at.q0 : 0), qy = g.query_step ? 0 : at.wy * g.query_window + at.q0 / g.query_window;
        mbar_wait(smem(&eq), qph);
        mbar_expect(f, QBYTES + (BIAS ? (128 + NW * 64) * (128 + RB) : 0));
        for (int c = 0; c < HP; c++) tma_load4(sq + c * QB, &Q, f, at.head * HD + c * 64, qx, qy, at.picture);
        if (REST) tma_load4(sq + HP * QB, &Q_rest, f, at.head * HD + HP * 64, qx, qy, at.picture);
#if BIAS
        tma_load2(st, &columns_table, f, 0, 0);
        if (REST) tma_load2(str, &columns_rest, f, 64, 0);
        for (int i = 0; i < NW; i++) {
          tma_load2(st + 16384 + i * 8192, &rows_table, f, 0, 63 - (at.q0 / 64 + i));
          if (REST) tma_load2(str + (128 + i * 64) * RB, &rows_rest, f, 64, 63 - (at.q0 / 64 + i));
        }
#endif
        int x = at.wx * g.key_window + at.t0 * g.key_step_x, y = at.wy * g.key_window + at.t0 * g.key_step_y;
        _Pragma("unroll 1") for (int t = 0; t < at.nt; t++) {
          const u32 k = stages + s * STAGE, v = k + KBYTES;
          if (BIAS && t == ST - 1) mbar_wait(smem(&ft), 0);  // the tables have been read
          mbar_wait(smem(ek + s), ph); mbar_expect(smem(fk + s), KBYTES);
          for (int c = 0; c < HP; c++) tma_load4(k + c * KB, &K, smem(fk + s), at.head * HD + c * 64, x, y, at.picture);
          if (REST) tma_load4(k + HP * KB, &K_rest, smem(fk + s), at.head * HD + HP * 64, x, y, at.picture);
          mbar_wait(smem(ev + s), ph); mbar_expect(smem(fv + s), VBYTES);
          for (int c = 0; c < VP; c++) tma_load4(v + c * KB, &V, smem(fv + s), at.head * HV + c * 64, x, y, at.picture);
          if (REST) tma_load4(v + VP * KB, &V_rest, smem(fv + s), at.head * HV + VP * 64, x, y, at.picture);
          x += g.key_step_x; y += g.key_step_y;
          if (++s == ST) { s = 0; ph ^= 1; }
        }
      }
    }
  } else {
    regs_inc<232>();  // (24 + 232) twice a multiprocessor, or 40 + 2 · 232
    const int me = wg - 1, lane = threadIdx.x % 32, w = (threadIdx.x / 32) % 4, p2 = (lane % 4) * 2;
    const bool leader = threadIdx.x % 128 == 0;
    const float sl = g.scale * LOG2E;
    int s = 0, ph = 0, sp = 0, php = 0, qph = 0;  // stage of the scores, and of the values one tile behind
    _Pragma("unroll 1") for (int item = blockIdx.x; item < g.items; item += gridDim.x, qph ^= 1) {
      const Item at = item_of(g, item);
      const int t0 = at.t0, nt = at.nt, skip = QROWS > NW * 64 ? at.q0 % g.query_window : 0;  // rows of the queries' box before the first
      const int i0 = at.q0 + me * 64 + w * 16 + lane / 4;                                     // this thread's queries: i0 and i0 + 8
      float o[HW / 2], a[BN / 2], m0 = LOWEST, m1 = LOWEST, l0 = 0, l1 = 0, c0, c1;
      u32 p[BN / 4];
      UNROLL for (int i = 0; i < HW / 2; i++) o[i] = 0;
#if HV > 64 && HV % 64
      float r[HR / 2];
      UNROLL for (int i = 0; i < HR / 2; i++) r[i] = 0;
#endif
      auto release = [&](u64* bar) { if (leader) mbar_arrive(smem(bar)); };
      mbar_wait(smem(&fq), qph);
      // Products take channels 16 at a time: those of the next head must not count. Zeros in the queries suffice, halves being finite.
      if (HD % 16) {
        const u32 row = skip + me * 64 + threadIdx.x % 128;
        const u32 at = HD < 64 ? sq + swizzled<128>(row, HD / 8) : sq + HP * QB + swizzled<RB ? RB : 32>(row, HD % 64 / 8);
        if (threadIdx.x % 128 < 64) store16(at, make_uint4(0, 0, 0, 0));
        fence_async();
        bar_sync(3 + me, 128);
      }
      const u64 qd = desc(sq + skip * 128 + me * 8192), qr = desc_of<RB ? RB : 32>(sq + HP * QB + (skip + me * 64) * RB);
      auto query = [&](int k) { return k < HP * 4 ? moved(qd, (k / 4) * QB + (k % 4) * 32) : moved(qr, (k - HP * 4) * 32); };
#if BIAS
      u32 cb[16], rb0 = 0, rb1 = 0;  // column terms of 2 rows × 8 octets × 2 keys; row terms of 2 rows × 2 rows of keys
      u32 rows_at;
      {
        float r[32];
        const float inv = 1 / g.scale;
        auto table = [&](int k, u32 wide, u32 rest) { return k < 4 ? desc(wide + k * 32) : desc_of<RB ? RB : 32>(rest + (k - 4) * 32); };
        wg_fence();
        UNROLL for (int k = 0; k < KS; k++) mma_ss(a, query(k), table(k, st, str), k > 0);
        UNROLL for (int k = 0; k < KS; k++) mma_ss(r, query(k), table(k, st + 16384 + me * 8192, str + (128 + me * 64) * RB), k > 0);
        wg_commit();
        wg_wait<0>();
        hold_all(a); hold_all(r);
        bar_sync(5, NW * 128);  // the tables are read: their place takes the column terms
        const u32 warp = st + (me * 4 + w) * 16 * SP * 2;
        rows_at = sr + (me * 4 + w) * 16 * 128 + (lane / 4) * 128;
        UNROLL for (int j = 0; j < 8; j++) UNROLL for (int h = 0; h < 2; h++)
          asm volatile("st.shared.b32 [%0],%1;" ::"r"(rows_at + h * 1024 + j * 16 + p2 * 2), "r"(pack(r[j * 4 + h * 2] * inv, r[j * 4 + h * 2 + 1] * inv)) : "memory");
        UNROLL for (int j = 0; j < 16; j++) UNROLL for (int h = 0; h < 2; h++)
          asm volatile("st.shared.b32 [%0],%1;" ::"r"(warp + (lane / 4 + h * 8) * SP * 2 + j * 16 + p2 * 2), "r"(pack(a[j * 4 + h * 2] * inv, a[j * 4 + h * 2 + 1] * inv)) : "memory");
        __syncwarp();
        UNROLL for (int j = 0; j < 16; j++) {  // key column kx of query column qx has term kx - qx + 63
          const int row = lane / 4 + (j & 1) * 8, term = (j / 2) * 8 + p2 - (w * 16 + row) + 63;
          u32 x, y;
          const u32 from = warp + (row * SP + term) * 2;
          asm volatile("ld.shared.u16 %0,[%1];" : "=r"(x) : "r"(from) : "memory");
          asm volatile("ld.shared.u16 %0,[%1];" : "=r"(y) : "r"(from + 2) : "memory");
          cb[j] = x | y << 16;
        }
        fence_async();  // ordinary accesses before the loads that follow
        bar_sync(3 + me, 128);
        release(&ft);
      }
#endif
      auto start = [&](int t) {  // the accumulator before the products
#if BIAS
        asm volatile("ld.shared.b32 %0,[%1];" : "=r"(rb0) : "r"(rows_at + t * 4) : "memory");
        asm volatile("ld.shared.b32 %0,[%1];" : "=r"(rb1) : "r"(rows_at + 1024 + t * 4) : "memory");
        UNROLL for (int j = 0; j < BN / 8; j++) {
          u32 b = cb[(j & 7) * 2], c = cb[(j & 7) * 2 + 1];
          a[j * 4] = lo(b); a[j * 4 + 1] = hi(b); a[j * 4 + 2] = lo(c); a[j * 4 + 3] = hi(c);
        }
        hold_all(a);
#endif
      };
      auto scores = [&](int s) {
        const u32 at = stages + s * STAGE;
        const u64 kd = desc(at), kr = desc_of<RB ? RB : 32>(at + HP * KB);
        wg_fence();
        UNROLL for (int k = 0; k < KS; k++)
          mma_ss(a, query(k), k < HP * 4 ? moved(kd, (k / 4) * KB + (k % 4) * 32) : moved(kr, (k - HP * 4) * 32), BIAS | (k > 0));
        wg_commit();
      };
      auto values = [&](int s) {
        const u32 at = stages + s * STAGE + KBYTES;
        const u64 vd = desc(at, KB);
#if HV > 64 && HV % 64
        const u64 vr = desc_of<RB>(at + VP * KB);
#endif
        wg_fence();
        UNROLL for (int k = 0; k < BN / 16; k++) {
          mma_rs_t(o, p + k * 4, moved(vd, k * 2048), 1);
#if HV > 64 && HV % 64
          mma_rs_t(r, p + k * 4, moved(vr, k * 16 * RB), 1);
#endif
        }
        wg_commit();
      };
      auto hold_sums = [&]() {
        hold_all(o);
#if HV > 64 && HV % 64
        hold_all(r);
#endif
      };
      auto softmax = [&](int t) {
        hold_all(a);
        const int left = g.keys - t * BN;
        if (left < BN) UNROLL for (int j = 0; j < BN / 8; j++) {
          if (j * 8 + p2 >= left) a[j * 4] = a[j * 4 + 2] = LOWEST;
          if (j * 8 + p2 + 1 >= left) a[j * 4 + 1] = a[j * 4 + 3] = LOWEST;
        }
        float n0 = m0, n1 = m1, z0, z1, z2, z3;
#if BIAS
        float u0 = LOWEST, u1 = LOWEST, v0 = LOWEST, v1 = LOWEST;
        UNROLL for (int j = 0; j < 8; j++) { u0 = fmaxf(u0, fmaxf(a[j * 4], a[j * 4 + 1])); u1 = fmaxf(u1, fmaxf(a[j * 4 + 2], a[j * 4 + 3])); }
        UNROLL for (int j = 8; j < 16; j++) { v0 = fmaxf(v0, fmaxf(a[j * 4], a[j * 4 + 1])); v1 = fmaxf(v1, fmaxf(a[j * 4 + 2], a[j * 4 + 3])); }
        n0 = fmaxf(n0, fmaxf(u0 + lo(rb0), v0 + hi(rb0))); n1 = fmaxf(n1, fmaxf(u1 + lo(rb1), v1 + hi(rb1)));
#else
        UNROLL for (int j = 0; j < BN / 8; j++) { n0 = fmaxf(n0, fmaxf(a[j * 4], a[j * 4 + 1])); n1 = fmaxf(n1, fmaxf(a[j * 4 + 2], a[j * 4 + 3])); }
#endif
        n0 = quad_max(n0); n1 = quad_max(n1);
        c0 = ex2((m0 - n0) * sl); c1 = ex2((m1 - n1) * sl);
        m0 = n0; m1 = n1; l0 *= c0; l1 *= c1;
        z0 = z2 = -n0 * sl; z1 = z3 = -n1 * sl;
#if BIAS
        z0 = (lo(rb0) - n0) * sl; z2 = (hi(rb0) - n0) * sl; z1 = (lo(rb1) - n1) * sl; z3 = (hi(rb1) - n1) * sl;
#endif
        UNROLL for (int j = 0; j < BN / 8; j++) {
          const float y0 = BIAS && j >= 8 ? z2 : z0, y1 = BIAS && j >= 8 ? z3 : z1;
          a[j * 4] = ex2(fmaf(a[j * 4], sl, y0)); a[j * 4 + 1] = ex2(fmaf(a[j * 4 + 1], sl, y0));
          a[j * 4 + 2] = ex2(fmaf(a[j * 4 + 2], sl, y1)); a[j * 4 + 3] = ex2(fmaf(a[j * 4 + 3], sl, y1));
          l0 += a[j * 4] + a[j * 4 + 1]; l1 += a[j * 4 + 2] + a[j * 4 + 3];
        }
      };
      auto pack_p = [&]() { UNROLL for (int j = 0; j < BN / 4; j++) p[j] = pack(a[j * 2], a[j * 2 + 1]); };
      auto turn = [&]() { if (PING) bar_sync(1 + me, 256); };
      auto pass = [&]() { if (PING) bar_arrive(2 - me, 256); };
      if (PING && me == 1) bar_arrive(1, 256);
      start(t0);
      mbar_wait(smem(fk + s), ph);
      turn(); scores(s); pass();
      wg_wait<0>();
      release(ek + s);
      if (nt == 1) release(&eq);
      softmax(t0);
      pack_p();
      if (++s == ST) { s = 0; ph ^= 1; }
      for (int t = t0 + 1; t < t0 + nt; t++) {
        start(t);
        mbar_wait(smem(fk + s), ph);
        turn();
        scores(s);
        mbar_wait(smem(fv + sp), php);
        values(sp);
        pass();
        wg_wait<1>();
        release(ek + s);
        if (t + 1 == t0 + nt) release(&eq);  // the queries' place is free
        softmax(t);  // while the values' products run
        wg_wait<0>();
        hold_sums();
        release(ev + sp);
        UNROLL for (int i = 0; i < HW / 8; i++) { o[i * 4] *= c0; o[i * 4 + 1] *= c0; o[i * 4 + 2] *= c1; o[i * 4 + 3] *= c1; }
#if HV > 64 && HV % 64
        UNROLL for (int i = 0; i < HR / 8; i++) { r[i * 4] *= c0; r[i * 4 + 1] *= c0; r[i * 4 + 2] *= c1; r[i * 4 + 3] *= c1; }
#endif
        pack_p();
        if (++s == ST) { s = 0; ph ^= 1; }
        if (++sp == ST) { sp = 0; php ^= 1; }
      }
      mbar_wait(smem(fv + sp), php);
      values(sp);
      wg_wait<0>();
      hold_sums();
      release(ev + sp);
      if (++sp == ST) { sp = 0; php ^= 1; }
      l0 = quad_sum(l0); l1 = quad_sum(l1);
      if (PING && me == 0) bar_sync(1, 256);  // takes the last turn the other passed
      UNROLL for (int h = 0; h < 2; h++) {
        const int i = i0 + h * 8;
        if (i >= g.queries) continue;
        const float d = h ? 1 / l1 : 1 / l0;
        if (SPLIT) {
          const u64 row = (((u64)at.which * g.pictures + at.picture) * g.queries + i) * g.heads + at.head;
          UNROLL for (int j = 0; j < HV / 8; j++) *(float2*)(part + row * HV + j * 8 + p2) = make_float2(o[j * 4 + h * 2], o[j * 4 + h * 2 + 1]);
          if (lane % 4 == 0) ml[row] = h ? make_float2(m1 * sl, l1) : make_float2(m0 * sl, l0);
        } else {
          const int y = at.wy * g.query_window + i / g.query_window, x = at.wx * g.query_window + i % g.query_window;
          u16* to = O + ((u64)at.picture * g.picture_queries + y * g.query_grid + x) * g.out_stride + at.head * HV + p2;
          UNROLL for (int j = 0; j < HW / 8; j++) *(u32*)(to + j * 8) = pack(o[j * 4 + h * 2] * d, o[j * 4 + h * 2 + 1] * d);
#if HV > 64 && HV % 64
          UNROLL for (int j = 0; j < HR / 8; j++) *(u32*)(to + HW + j * 8) = pack(r[j * 4 + h * 2] * d, r[j * 4 + h * 2 + 1] * d);
#endif
        }
      }
    }
  }
}

#if SPLIT
#define JOIN(a, b) a##b
#define SYMBOL(name) JOIN(name, _combine)
// Joins the parts of each row (picture, query, head): a warp a row. Launch: ceil(rows / 8) blocks of 256 threads.
struct Combine { int rows, splits; };
extern "C" __global__ void __launch_bounds__(256) SYMBOL(NAME)(const float* part, const float2* ml, u16* O, const __grid_constant__ Combine c) {
  pdl_wait(); pdl_launch();
  const int rows = c.rows, splits = c.splits;
  const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float m = LOWEST, l = 0, x[HV / 32];
  UNROLL for (int i = 0; i < HV / 32; i++) x[i] = 0;
  for (int s = 0; s < splits; s++) m = fmaxf(m, ml[(u64)s * rows + row].x);
  for (int s = 0; s < splits; s++) {
    const float2 v = ml[(u64)s * rows + row];
    const float f = ex2(v.x - m);
    l += v.y * f;
    UNROLL for (int i = 0; i < HV / 64; i++) {
      const float2 o = *(const float2*)(part + ((u64)s * rows + row) * HV + i * 64 + lane * 2);
      x[i * 2] += o.x * f; x[i * 2 + 1] += o.y * f;
    }
  }
  UNROLL for (int i = 0; i < HV / 64; i++) *(u32*)(O + (u64)row * HV + i * 64 + lane * 2) = pack(x[i * 2] / l, x[i * 2 + 1] / l);
}
#endif
