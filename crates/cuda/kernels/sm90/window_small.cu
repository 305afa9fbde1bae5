// Attention in small windows (at most KP keys), with pooled queries or not, by mma.sync: a warp has 16 queries of one window and head, and
// reads keys and values straight into fragments. Bound by memory. Positions of a window outside the key grid are the padding rows. Macros:
//   NAME  the kernel's symbol     HD  channels of a head, a multiple of 8     KP  keys of a window, rounded up: 16 or 64
// A lane reads 4 neighbouring channels at a time, so channels are permuted inside a product, alike for queries and keys; values are
// transposed by movmatrix. Launch: ceil(units / 4) blocks of 128 threads, units = pictures · windows · heads · tiles of 16 queries.
#include "sm90.cuh"
constexpr int PARTS = HD / 16, HALF = HD % 16 / 8, GROUPS = KP / 8;

struct Window {
  int pictures, heads;
  int key_grid[2], query_grid[2];                            // height, width
  int key_window[2], query_window[2], windows[2];            // height, width; windows along y and x
  int query_stride, key_stride, value_stride, out_stride;    // halves between tokens
  float scale;
};

D u32 transpose(u32 v) { u32 r; asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;" : "=r"(r) : "r"(v)); return r; }
#ifdef HALF_BF16
#define TYPES "f32.bf16.bf16.f32"
#else
#define TYPES "f32.f16.f16.f32"
#endif
D void mma16(float* c, const u32* a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col." TYPES " {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
D void mma8(float* c, u32 a0, u32 a1, u32 b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col." TYPES " {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(b));
}

// One row of keys or values: 4 channels of each part of 16, 2 channels of the last 8.
struct Row { uint2 part[PARTS]; u32 half; };
D Row read_row(const u16* row, int p) {
  Row r;
  UNROLL for (int i = 0; i < PARTS; i++) r.part[i] = *(const uint2*)(row + i * 16 + p * 4);
  r.half = HALF ? *(const u32*)(row + PARTS * 16 + p * 2) : 0;
  return r;
}
D Row read_padding(const float* row, int p) {
  Row r;
  UNROLL for (int i = 0; i < PARTS; i++) {
    const float* f = row + i * 16 + p * 4;
    r.part[i] = make_uint2(pack(f[0], f[1]), pack(f[2], f[3]));
  }
  r.half = HALF ? pack(row[PARTS * 16 + p * 2], row[PARTS * 16 + p * 2 + 1]) : 0;
  return r;
}

extern "C" __global__ void __launch_bounds__(128, 4)
NAME(const u16* __restrict__ Q, const u16* __restrict__ K, const u16* __restrict__ V, const float* __restrict__ pad_key,
     const float* __restrict__ pad_value, u16* __restrict__ O, const __grid_constant__ Window g) {
  pdl_wait(); pdl_launch();
  const int lane = threadIdx.x % 32, row = lane / 4, p = lane % 4;
  const int tiles = (g.query_window[0] * g.query_window[1] + 15) / 16;
  int unit = blockIdx.x * 4 + threadIdx.x / 32;
  const int tile = unit % tiles; unit /= tiles;
  const int head = unit % g.heads; unit /= g.heads;
  const int wx = unit % g.windows[1]; unit /= g.windows[1];
  const int wy = unit % g.windows[0], picture = unit / g.windows[0];
  if (picture >= g.pictures) return;
  const int keys = g.key_window[0] * g.key_window[1];
  // Rows of queries; -1 where there is none.
  int token[2];
  u32 q[PARTS][4], qh[2] = {0, 0};
  UNROLL for (int h = 0; h < 2; h++) {
    const int r = tile * 16 + row + h * 8, y = wy * g.query_window[0] + r / g.query_window[1], x = wx * g.query_window[1] + r % g.query_window[1];
    const bool inside = r < g.query_window[0] * g.query_window[1] && y < g.query_grid[0] && x < g.query_grid[1];
    token[h] = inside ? (picture * g.query_grid[0] + y) * g.query_grid[1] + x : -1;
    const u16* from = Q + (u64)max(token[h], 0) * g.query_stride + head * HD;
    UNROLL for (int i = 0; i < PARTS; i++) { const uint2 v = *(const uint2*)(from + i * 16 + p * 4); q[i][h] = v.x; q[i][2 + h] = v.y; }
    if (HALF) qh[h] = *(const u32*)(from + PARTS * 16 + p * 2);
  }
  // Token of the key that this lane reads in each group of 8; -1 for padding, beyond the window any key will do.
  int key[GROUPS];
  UNROLL for (int j = 0; j < GROUPS; j++) {
    const int r = min(j * 8 + row, keys - 1), y = wy * g.key_window[0] + r / g.key_window[1], x = wx * g.key_window[1] + r % g.key_window[1];
    key[j] = y < g.key_grid[0] && x < g.key_grid[1] ? (picture * g.key_grid[0] + y) * g.key_grid[1] + x : -1;
  }
  float s[GROUPS][4], m0 = LOWEST, m1 = LOWEST, l0 = 0, l1 = 0;
  UNROLL for (int j = 0; j < GROUPS; j++) {
    const Row k = key[j] >= 0 ? read_row(K + (u64)key[j] * g.key_stride + head * HD, p) : read_padding(pad_key + head * HD, p);
    s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
    UNROLL for (int i = 0; i < PARTS; i++) mma16(s[j], q[i], k.part[i].x, k.part[i].y);
    if (HALF) mma8(s[j], qh[0], qh[1], k.half);
  }
  UNROLL for (int j = 0; j < GROUPS; j++) {
    UNROLL for (int i = 0; i < 2; i++) if (j * 8 + p * 2 + i >= keys) s[j][i] = s[j][2 + i] = LOWEST;
    m0 = fmaxf(m0, fmaxf(s[j][0], s[j][1])); m1 = fmaxf(m1, fmaxf(s[j][2], s[j][3]));
  }
  const float sl = g.scale * LOG2E;
  m0 = -quad_max(m0) * sl; m1 = -quad_max(m1) * sl;
  u32 w[GROUPS * 2];
  UNROLL for (int j = 0; j < GROUPS; j++) {
    const float a = ex2(fmaf(s[j][0], sl, m0)), b = ex2(fmaf(s[j][1], sl, m0)), c = ex2(fmaf(s[j][2], sl, m1)), d = ex2(fmaf(s[j][3], sl, m1));
    l0 += a + b; l1 += c + d;
    w[j * 2] = pack(a, b); w[j * 2 + 1] = pack(c, d);
  }
  float o[PARTS * 2 + 1][4];
  UNROLL for (int i = 0; i <= PARTS * 2; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0;
  UNROLL for (int j = 0; j < GROUPS / 2; j++) {
    Row v[2];
    UNROLL for (int h = 0; h < 2; h++) {
      const int t = key[j * 2 + h];
      v[h] = t >= 0 ? read_row(V + (u64)t * g.value_stride + head * HD, p) : read_padding(pad_value + head * HD, p);
    }
    __syncwarp();
    UNROLL for (int i = 0; i < PARTS; i++) {
      mma16(o[i * 2], w + j * 4, transpose(v[0].part[i].x), transpose(v[1].part[i].x));
      mma16(o[i * 2 + 1], w + j * 4, transpose(v[0].part[i].y), transpose(v[1].part[i].y));
    }
    if (HALF) mma16(o[PARTS * 2], w + j * 4, transpose(v[0].half), transpose(v[1].half));
  }
  l0 = 1 / quad_sum(l0); l1 = 1 / quad_sum(l1);
  UNROLL for (int h = 0; h < 2; h++) if (token[h] >= 0) {
    u16* to = O + (u64)token[h] * g.out_stride + head * HD;
    const float d = h ? l1 : l0;
    UNROLL for (int i = 0; i < PARTS; i++)
      *(uint2*)(to + i * 16 + p * 4) = make_uint2(pack(o[i * 2][h * 2] * d, o[i * 2][h * 2 + 1] * d), pack(o[i * 2 + 1][h * 2] * d, o[i * 2 + 1][h * 2 + 1] * d));
    if (HALF) *(u32*)(to + PARTS * 16 + p * 2) = pack(o[PARTS * 2][h * 2] * d, o[PARTS * 2][h * 2 + 1] * d);
  }
}
