// Attention of a few queries, heads of 256, over many keys, of f32 numbers each taken as the sum of two bf16 (see `gemm_split.cu`): 64 queries of a block
// attend to a part of the keys. Macros: NAME.
// Two warpgroups load keys and values, split them and lay them out in shared memory, 32 keys at a time in two buffers each; the third computes scores,
// softmax and sums. Results of the parts go to `partial` as `join_parts` reads them: highest score, sum, two that are not used, channels.
// Launch: (tiles of queries · parts, heads, batch) blocks of 384 threads.
#define HALF_BF16
#include "sm90.cuh"
#include "wgmma.cuh"

struct Attention {
  int queries, keys, heads, parts;
  long long query_batch, query_row, key_batch, key_row, value_batch, value_row;
  float scale;
  u32 unused;
};

constexpr int WIDTH = 256, BQ = 64, BK = 32, PIECES = WIDTH / 8;
// Tiles: blocks of 64 channels, of which all rows lie together. High parts, then low parts.
constexpr u32 Q_BLOCK = BQ * 128, Q_BYTES = 4 * Q_BLOCK, K_BLOCK = BK * 128, K_BYTES = 4 * K_BLOCK, STAGE = 2 * K_BYTES;

// Eight neighbours as their high parts and as what is left of them.
D void split8(const float4& a, const float4& b, uint4& high, uint4& low) {
  auto two = [](float x, float y, u32& h, u32& l) { h = pack(x, y); l = pack(x - lo(h), y - hi(h)); };
  two(a.x, a.y, high.x, low.x);
  two(a.z, a.w, high.y, low.y);
  two(b.x, b.y, high.z, low.z);
  two(b.z, b.w, high.w, low.w);
}

// Lays out ROWS rows that begin at `from`; rows from `rows` on are zeros. The numbers are read before `ready` is called, which waits for the memory.
template <int ROWS, class F> D void lay_out(u32 to, const float* from, long long stride, int rows, F ready) {
  constexpr int EACH = 8;
  _Pragma("unroll 1") for (int first = 0; first < ROWS * PIECES; first += 128 * EACH) {
    float4 v[EACH][2];
    UNROLL for (int i = 0; i < EACH; i++) {
      const int at = first + i * 128 + threadIdx.x % 128, row = at / PIECES, piece = at % PIECES;
      const float* p = from + min(row, rows - 1) * stride + piece * 8;
      v[i][0] = *(const float4*)p; v[i][1] = *(const float4*)(p + 4);
    }
    ready();
    UNROLL for (int i = 0; i < EACH; i++) {
      const int at = first + i * 128 + threadIdx.x % 128, row = at / PIECES, piece = at % PIECES;
      if (row >= rows) v[i][0] = v[i][1] = make_float4(0, 0, 0, 0);
      uint4 high, low;
      split8(v[i][0], v[i][1], high, low);
      const u32 place = to + piece / 8 * (ROWS * 128) + swizzled<128>(row, piece % 8);
      store16(place, high);
      store16(place + 4 * ROWS * 128, low);
    }
  }
}

extern "C" __global__ void __launch_bounds__(384, 1)
NAME(const float* query, const float* key, const float* value, float* output, float* partial, const __grid_constant__ Attention c) {
  extern __shared__ __align__(1024) u8 raw[];
  __shared__ u64 full[2][2], empty[2][2];  // of keys and of values
  const u32 base = (smem(raw) + 1023) & ~1023u, tiles_at = base + 2 * Q_BYTES;  // keys 0, keys 1, values 0, values 1
  const int wg = threadIdx.x / 128, head = blockIdx.y, batch = blockIdx.z, part = blockIdx.x % c.parts, q0 = blockIdx.x / c.parts * BQ;
  const int tiles = (c.keys + BK - 1) / BK, per = (tiles + c.parts - 1) / c.parts, first = part * per, end = min(tiles, first + per);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4; i++) { mbar_init(smem(&full[i / 2][i % 2]), 128); mbar_init(smem(&empty[i / 2][i % 2]), 1); }
    mbar_fence();
  }
  __syncthreads();
  pdl_wait(); pdl_launch();
  if (wg < 2) {
    regs_dec<136>();
    const float* from = wg == 0 ? key + batch * c.key_batch : value + batch * c.value_batch;
    const long long stride = wg == 0 ? c.key_row : c.value_row;
    int s = 0, ph = 1;
    for (int t = first; t < end; t++) {
      const u32 to = tiles_at + (wg * 2 + s) * STAGE, ready = smem(&empty[wg][s]);
      lay_out<BK>(to, from + head * WIDTH + (long long)t * BK * stride, stride, min(c.keys - t * BK, BK), [&] { mbar_wait(ready, ph); });
      fence_async();
      mbar_arrive(smem(&full[wg][s]));
      s ^= 1;
      if (s == 0) ph ^= 1;
    }
  } else {
    regs_inc<232>();
    const float* from = query + batch * c.query_batch + q0 * c.query_row + head * WIDTH;
    lay_out<BQ>(base, from, c.query_row, min(c.queries - q0, BQ), [] {});
    fence_async();
    bar_sync(1, 128);
    const int lane = threadIdx.x % 32, w = (threadIdx.x / 32) % 4, p2 = (lane % 4) * 2;
    const bool leader = threadIdx.x % 128 == 0;
    float o[WIDTH / 2], top[2] = {LOWEST, LOWEST}, sum[2] = {0, 0};
    UNROLL for (int i = 0; i < WIDTH / 2; i++) o[i] = 0;
    hold_all(o);
    int s = 0, ph = 0;
    for (int t = first; t < end; t++) {
      const u32 keys = tiles_at + s * STAGE, values = tiles_at + (2 + s) * STAGE;
      float a[BK / 2];
      mbar_wait(smem(&full[0][s]), ph);
      wg_fence();
      UNROLL for (int k = 0; k < WIDTH / 16; k++) {
        const u32 q = base + k / 4 * Q_BLOCK + k % 4 * 32, b = keys + k / 4 * K_BLOCK + k % 4 * 32;
        mma_ss(a, desc(q + Q_BYTES), desc(b), k > 0);
        mma_ss(a, desc(q), desc(b + K_BYTES), 1);
        mma_ss(a, desc(q), desc(b), 1);
      }
      wg_commit();
      wg_wait<0>();
      hold_all(a);
      if (leader) mbar_arrive(smem(&empty[0][s]));
      const int rest = c.keys - t * BK;
      float next[2] = {top[0], top[1]};
      UNROLL for (int j = 0; j < BK / 8; j++) UNROLL for (int i = 0; i < 4; i++) {
        float& x = a[j * 4 + i];
        x = j * 8 + p2 + i % 2 < rest ? x * c.scale : LOWEST;
        next[i / 2] = fmaxf(next[i / 2], x);
      }
      u32 high[BK / 16][4], low[BK / 16][4];
      float correction[2], more[2] = {0, 0};
      UNROLL for (int h = 0; h < 2; h++) {
        next[h] = quad_max(next[h]);
        correction[h] = ex2((top[h] - next[h]) * LOG2E);
        top[h] = next[h];
      }
      UNROLL for (int j = 0; j < BK / 8; j++) UNROLL for (int h = 0; h < 2; h++) {
        const float x = ex2((a[j * 4 + h * 2] - top[h]) * LOG2E), y = ex2((a[j * 4 + h * 2 + 1] - top[h]) * LOG2E);
        more[h] += x + y;
        u32& both = high[j / 2][j % 2 * 2 + h];
        both = pack(x, y);
        low[j / 2][j % 2 * 2 + h] = pack(x - lo(both), y - hi(both));
      }
      UNROLL for (int h = 0; h < 2; h++) sum[h] = sum[h] * correction[h] + more[h];
      UNROLL for (int i = 0; i < WIDTH / 2; i++) o[i] *= correction[i / 2 % 2];
      hold_all(o);
      mbar_wait(smem(&full[1][s]), ph);
      const u64 v_high = desc(values, K_BLOCK), v_low = desc(values + K_BYTES, K_BLOCK);
      wg_fence();
      UNROLL for (int k = 0; k < BK / 16; k++) {
        mma_rs_t(o, low[k], moved(v_high, k * 2048), 1);
        mma_rs_t(o, high[k], moved(v_low, k * 2048), 1);
        mma_rs_t(o, high[k], moved(v_high, k * 2048), 1);
      }
      wg_commit();
      wg_wait<0>();
      hold_all(o);
      if (leader) mbar_arrive(smem(&empty[1][s]));
      s ^= 1;
      if (s == 0) ph ^= 1;
    }
    UNROLL for (int h = 0; h < 2; h++) {
      sum[h] = quad_sum(sum[h]);
      const int index = q0 + w * 16 + lane / 4 + h * 8;
      if (index >= c.queries) continue;
      const u64 line = ((u64)batch * c.queries + index) * c.heads + head;
      float* to = c.parts > 1 ? partial + (line * c.parts + part) * (WIDTH + 4) + 4 : output + line * WIDTH;
      if (c.parts > 1 && lane % 4 == 0) *(float2*)(to - 4) = make_float2(top[h], sum[h]);
      const float factor = c.parts > 1 ? 1.0f : 1.0f / sum[h];
      UNROLL for (int j = 0; j < WIDTH / 8; j++) *(float2*)(to + j * 8 + p2) = make_float2(o[j * 4 + h * 2] * factor, o[j * 4 + h * 2 + 1] * factor);
    }
  }
}
