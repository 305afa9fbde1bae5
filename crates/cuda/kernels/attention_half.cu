// Attention of halves with f32 scores and sums, for flat and windowed grids, with a separable bias.
//
// A block of 128 threads has 64 queries of one head and window, a warp 16 of them; keys come in tiles of 64 through two stages. Rows are
// gathered one by one, so that windows and their padding cost nothing. Scores stay in registers.
// Macros: ELEMENT type of queries, keys and values, DQ and DV widths in shared memory (multiples of 16), NAME the kernel.
#include "mma.cuh"

struct AttentionHalf {
  u32 heads, width, value_width, queries, keys;  // real widths, multiples of 8
  u32 window_queries, window_keys, windows_x, windowed;
  u32 query_grid_width, query_grid_height, query_window_width, query_window_height;
  u32 key_grid_width, key_grid_height, key_window_width, key_window_height;
  u32 bias, bias_width, bias_height;  // 0 none, 1 absolute, 2 relative
  u32 parts;
  int rows_type, columns_type, to;
  float scale;
  u32 unused;
  i64 query_batch, query_row, key_batch, key_row, value_batch, value_row;
  i64 rows_batch, rows_row, rows_head, columns_batch, columns_row, columns_head;
};
struct Operands {
  const u16 *query, *key, *value;
  const void *rows, *columns;
  const u16 *padding_key, *padding_value;
};
constexpr int T = ELEMENT, BQ = 64, BK = 64, QP = DQ + 8, VP = DV + 8;

INLINE u32 query_token(const AttentionHalf& c, u32 window, u32 index) {
  if (!c.windowed) return index < c.queries ? index : ~0u;
  const u32 y = window / c.windows_x * c.query_window_height + index / c.query_window_width;
  const u32 x = window % c.windows_x * c.query_window_width + index % c.query_window_width;
  return index < c.window_queries && y < c.query_grid_height && x < c.query_grid_width ? y * c.query_grid_width + x : ~0u;
}
INLINE u32 key_token(const AttentionHalf& c, u32 window, u32 index) {
  if (!c.windowed) return index;
  const u32 y = window / c.windows_x * c.key_window_height + index / c.key_window_width;
  const u32 x = window % c.windows_x * c.key_window_width + index % c.key_window_width;
  return y < c.key_grid_height && x < c.key_grid_width ? y * c.key_grid_width + x : ~0u;
}

KERNEL __launch_bounds__(128) NAME(const __grid_constant__ Operands o, void* output, float* partial, const __grid_constant__ AttentionHalf c) {
  extern __shared__ __align__(128) u8 memory[];
  u16 *qs = (u16*)memory, *ks = qs + BQ * QP, *vs = ks + 2 * BK * QP;
  u32* places = (u32*)(vs + 2 * BK * VP);  // row and column of each key of the tile, on the grid of the bias
  float* terms = (float*)(places + 2 * BK);  // [query][height + width]
  const u32 head = blockIdx.y % c.heads, window = blockIdx.y / c.heads, batch = blockIdx.z;
  const u32 part = blockIdx.x % c.parts, q0 = blockIdx.x / c.parts * BQ;
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const u32 tiles = (c.window_keys + BK - 1) / BK, per = (tiles + c.parts - 1) / c.parts;
  const u32 first = part * per, last = min(tiles, (part + 1) * per), end = c.window_keys;
  const u32 term_width = c.bias_height + c.bias_width;

  for (u32 i = threadIdx.x; i < BQ * (DQ / 8); i += 128) {
    const u32 row = i / (DQ / 8), column = i % (DQ / 8) * 8, token = query_token(c, window, q0 + row);
    const bool exists = token != ~0u && column < c.width;
    copy_async(shared_address(qs + row * QP + column), exists ? o.query + batch * c.query_batch + token * c.query_row + head * c.width + column : o.query, exists);
  }
  auto fetch = [&](u32 tile) {
    const u32 stage = tile & 1;
    for (u32 i = threadIdx.x; i < BK * (DQ / 8); i += 128) {
      const u32 row = i / (DQ / 8), column = i % (DQ / 8) * 8, key = tile * BK + row, token = key_token(c, window, key);
      const bool exists = key < end && column < c.width;
      const u16* from = token == ~0u ? o.padding_key : o.key + batch * c.key_batch + token * c.key_row;
      copy_async(shared_address(ks + (stage * BK + row) * QP + column), exists ? from + head * c.width + column : o.key, exists);
    }
    for (u32 i = threadIdx.x; i < BK * (DV / 8); i += 128) {
      const u32 row = i / (DV / 8), column = i % (DV / 8) * 8, key = tile * BK + row, token = key_token(c, window, key);
      const bool exists = key < end && column < c.value_width;
      const u16* from = token == ~0u ? o.padding_value : o.value + batch * c.value_batch + token * c.value_row;
      copy_async(shared_address(vs + (stage * BK + row) * VP + column), exists ? from + head * c.value_width + column : o.value, exists);
    }
    if (c.bias && threadIdx.x < BK) {
      const u32 key = min(tile * BK + threadIdx.x, end - 1);
      places[stage * BK + threadIdx.x] = key / c.bias_width << 16 | key % c.bias_width;
    }
    commit();
  };
  if (first < last) fetch(first);
  else commit();
  if (c.bias) {
    for (u32 i = threadIdx.x; i < BQ * term_width; i += 128) {
      const u32 row = i / term_width, column = i % term_width, index = q0 + row, token = query_token(c, window, index);
      float term = 0;
      if (token != ~0u) {
        const bool vertical = column < c.bias_height;
        u32 at = vertical ? column : column - c.bias_height;
        if (c.bias == 2) at += vertical ? c.bias_height - 1 - index / c.bias_width : c.bias_width - 1 - index % c.bias_width;
        term = vertical ? load(o.rows, batch * c.rows_batch + token * c.rows_row + head * c.rows_head + at, c.rows_type)
                        : load(o.columns, batch * c.columns_batch + token * c.columns_row + head * c.columns_head + at, c.columns_type);
      }
      terms[i] = term * 1.44269504f;
    }
  }
  float mixed[DV / 8][4], top[2] = {-infinity(), -infinity()}, sum[2] = {0, 0};
  UNROLL for (int j = 0; j < DV / 8; j++) UNROLL for (int i = 0; i < 4; i++) mixed[j][i] = 0;
  const float factor = c.scale * 1.44269504f;
  const u32 row = warp * 16 + lane / 4;
  for (u32 tile = first; tile < last; tile++) {
    const u32 stage = tile & 1;
    if (tile + 1 < last) {
      fetch(tile + 1);
      wait_for<1>();
    } else {
      wait_for<0>();
    }
    __syncthreads();
    float s[BK / 8][4];
    UNROLL for (int j = 0; j < BK / 8; j++) UNROLL for (int i = 0; i < 4; i++) s[j][i] = 0;
    UNROLL for (int k = 0; k < DQ / 16; k++) {
      u32 q[4];
      load_matrices(q, shared_address(qs + (warp * 16 + (lane & 15)) * QP + k * 16 + (lane >> 4) * 8));
      UNROLL for (int j = 0; j < BK / 16; j++) {
        u32 b[4];
        load_matrices(b, shared_address(ks + (stage * BK + j * 16 + (lane & 7) + (lane >> 4) * 8) * QP + k * 16 + (lane >> 3 & 1) * 8));
        multiply<T>(s[j * 2], q, b[0], b[1]);
        multiply<T>(s[j * 2 + 1], q, b[2], b[3]);
      }
    }
    float next[2] = {top[0], top[1]};
    const bool whole = (tile + 1) * BK <= end;
    UNROLL for (int j = 0; j < BK / 8; j++) UNROLL for (int i = 0; i < 4; i++) {
      const u32 key = j * 8 + lane % 4 * 2 + (i & 1);
      float x = s[j][i] * factor;
      if (c.bias) {
        const u32 place = places[stage * BK + key];
        const float* own = terms + (row + (i >> 1) * 8) * term_width;
        x += own[place >> 16] + own[c.bias_height + (place & 0xFFFF)];
      }
      if (!whole && tile * BK + key >= end) x = -infinity();
      s[j][i] = x;
      next[i >> 1] = fmaxf(next[i >> 1], x);
    }
    UNROLL for (int h = 0; h < 2; h++) {
      next[h] = fmaxf(next[h], __shfl_xor_sync(~0u, next[h], 1));
      next[h] = fmaxf(next[h], __shfl_xor_sync(~0u, next[h], 2));
      const float correction = ex2(top[h] - next[h]);
      top[h] = next[h];
      sum[h] *= correction;
      UNROLL for (int j = 0; j < DV / 8; j++) mixed[j][h * 2] *= correction, mixed[j][h * 2 + 1] *= correction;
    }
    UNROLL for (int j = 0; j < BK / 8; j++) UNROLL for (int i = 0; i < 4; i++) {
      s[j][i] = ex2(s[j][i] - top[i >> 1]);
      sum[i >> 1] += s[j][i];
    }
    UNROLL for (int j = 0; j < BK / 16; j++) {
      u32 p[4];
      p[0] = pack2<T>(s[j * 2][0], s[j * 2][1]);
      p[1] = pack2<T>(s[j * 2][2], s[j * 2][3]);
      p[2] = pack2<T>(s[j * 2 + 1][0], s[j * 2 + 1][1]);
      p[3] = pack2<T>(s[j * 2 + 1][2], s[j * 2 + 1][3]);
      UNROLL for (int d = 0; d < DV / 16; d++) {
        u32 b[4];
        load_matrices_transposed(b, shared_address(vs + (stage * BK + j * 16 + (lane & 15)) * VP + d * 16 + (lane >> 4) * 8));
        multiply<T>(mixed[d * 2], p, b[0], b[1]);
        multiply<T>(mixed[d * 2 + 1], p, b[2], b[3]);
      }
    }
    __syncthreads();
  }
  UNROLL for (int h = 0; h < 2; h++) {
    sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
    sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
    const u32 token = query_token(c, window, q0 + row + h * 8);
    if (token == ~0u) continue;
    const u64 line = ((u64)batch * c.queries + token) * c.heads + head;
    const float scale = c.parts == 1 ? 1.0f / sum[h] : 1.0f;
    // As part_floats() of attention.cuh has it.
    float* to = partial + (line * c.parts + part) * ((c.value_width + 3) / 4 * 4 + 4);
    if (c.parts > 1 && lane % 4 == 0) to[0] = top[h] * 0.693147182f, to[1] = sum[h];
    UNROLL for (int j = 0; j < DV / 8; j++) {
      const u32 column = j * 8 + lane % 4 * 2;
      if (column >= c.value_width) continue;
      const float a = mixed[j][h * 2] * scale, b = mixed[j][h * 2 + 1] * scale;
      const u64 at = line * c.value_width + column;
      if (c.parts > 1) to[4 + column] = a, to[5 + column] = b;
      else if (c.to == F32) *(float2*)((float*)output + at) = make_float2(a, b);
      else *(u32*)((u16*)output + at) = c.to == F16 ? pack2<F16>(a, b) : pack2<BF16>(a, b);
    }
  }
}
