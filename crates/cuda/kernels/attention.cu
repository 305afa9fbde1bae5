// Attention in f32 on the ordinary units, with everything the op has: masks, causal order, separable bias, rotation, windows with
// padding. A block computes 32 queries of one head (and window) over a part of the keys; parts are joined by `join_parts`.
#include "common.cuh"

struct Attention {
  u32 heads, width, value_width, queries, keys;        // queries and keys of a batch
  u32 window_queries, window_keys, windows_x, windows; // of a window; without windows one window of everything
  u32 query_grid_width, query_grid_height, query_window_width, query_window_height;
  u32 key_grid_width, key_grid_height, key_window_width, key_window_height;
  u32 windowed, causal, bias, bias_width, bias_height, bias_rows, bias_columns;  // bias: 0 none, 1 absolute, 2 relative
  u32 rotate, query_positions, key_positions, rotated_keys;
  u32 parts, padded_width, padded_value;  // rows of shared memory, in floats: multiples of 4
  int query_type, key_type, value_type, rows_type, columns_type, to;
  float scale;
  u32 wide, unused;  // wide: every row is a multiple of four channels, aligned
  i64 query_batch, query_row, key_batch, key_row, value_batch, value_row;
  i64 rows_batch, rows_row, rows_head, columns_batch, columns_row, columns_head;
};
struct Operands {
  const void *query, *key, *value;
  const u8* mask;
  const void *rows, *columns;
  const float *query_cos, *query_sin, *key_cos, *key_sin;
  const void *padding_key, *padding_value;  // f32
};
constexpr int BQ = 32, BK = 32;

// Token of query `index` of a window, or ~0 beyond the grid.
INLINE u32 query_token(const Attention& c, u32 window, u32 index) {
  if (!c.windowed) return index < c.queries ? index : ~0u;
  const u32 y = window / c.windows_x * c.query_window_height + index / c.query_window_width;
  const u32 x = window % c.windows_x * c.query_window_width + index % c.query_window_width;
  return index < c.window_queries && y < c.query_grid_height && x < c.query_grid_width ? y * c.query_grid_width + x : ~0u;
}
INLINE u32 key_token(const Attention& c, u32 window, u32 index) {
  if (!c.windowed) return index;
  const u32 y = window / c.windows_x * c.key_window_height + index / c.key_window_width;
  const u32 x = window % c.windows_x * c.key_window_width + index % c.key_window_width;
  return y < c.key_grid_height && x < c.key_grid_width ? y * c.key_grid_width + x : ~0u;
}
INLINE float rotated(const void* from, i64 at, u32 channel, int type, const float* cosines, const float* sines, u32 row) {
  const float own = load(from, at + channel, type), other = load(from, at + (channel ^ 1), type);
  return channel & 1 ? other * sines[row + channel / 2] + own * cosines[row + channel / 2] : own * cosines[row + channel / 2] - other * sines[row + channel / 2];
}

// One row of `width` channels into shared memory, by the lanes of a warp; zeros behind them to a multiple of four.
INLINE void load_row(float* to, const void* from, i64 at, u32 width, int type, const float* cosines, const float* sines, u32 table, bool wide) {
  const u32 lane = threadIdx.x % 32;
  if (!from) {
    for (u32 i = lane; i < (width + 3) / 4 * 4; i += 32) to[i] = 0;
  } else if (cosines) {
    for (u32 i = lane; i < (width + 3) / 4 * 4; i += 32) to[i] = i < width ? rotated(from, at, i, type, cosines, sines, table) : 0.0f;
  } else if (wide) {
    for (u32 i = lane * 4; i < width; i += 128) *(float4*)(to + i) = load4(from, at + i, type);
  } else {
    for (u32 i = lane; i < (width + 3) / 4 * 4; i += 32) to[i] = i < width ? load(from, at + i, type) : 0.0f;
  }
}

// Grid: x tiles of queries times parts, y heads times windows, z batch. 128 threads: four a query. Each has 8 keys of a tile, then
// every fourth group of four channels of the values, FOURS of them at most.
template <int FOURS> INLINE void attend(const Operands& o, void* output, float* partial, const Attention& c) {
  extern __shared__ __align__(16) float memory[];
  float *qs = memory, *ks = qs + BQ * c.padded_width, *vs = ks + BK * c.padded_width, *ps = vs + BK * c.padded_value;
  const u32 head = blockIdx.y % c.heads, window = blockIdx.y / c.heads, batch = blockIdx.z;
  const u32 part = blockIdx.x % c.parts, q0 = blockIdx.x / c.parts * BQ;
  const u32 mine = threadIdx.x / 4, quarter = threadIdx.x % 4, warp = threadIdx.x / 32;
  const u32 half = c.width / 2;
  const bool wide = c.wide;
  for (u32 row = warp; row < BQ; row += 4) {
    const u32 index = q0 + row, token = query_token(c, window, index);
    load_row(qs + row * c.padded_width, token == ~0u ? 0 : o.query, batch * c.query_batch + token * c.query_row + head * c.width, c.width, c.query_type,
             c.rotate ? o.query_cos : 0, o.query_sin, c.rotate ? index % c.query_positions * half : 0, wide);
  }
  const u32 index = q0 + mine, token = query_token(c, window, index);
  const i64 line = token == ~0u ? 0 : (i64)token;
  const i64 rows_at = batch * c.rows_batch + line * c.rows_row + head * c.rows_head, columns_at = batch * c.columns_batch + line * c.columns_row + head * c.columns_head;
  const u32 own_y = index / c.bias_width, own_x = index % c.bias_width;
  // Keys of this part: whole tiles.
  const u32 tiles = (c.window_keys + BK - 1) / BK, per = (tiles + c.parts - 1) / c.parts;
  const u32 first = part * per * BK, end = min(c.window_keys, (part + 1) * per * BK);
  const u32 fours = (c.width + 3) / 4, value_fours = (c.value_width + 3) / 4;
  float top = -infinity(), sum = 0;
  float4 mixed[FOURS];
  UNROLL for (int i = 0; i < FOURS; i++) mixed[i] = make_float4(0, 0, 0, 0);
  for (u32 k0 = first; k0 < end; k0 += BK) {
    __syncthreads();
    for (u32 row = warp; row < BK; row += 4) {
      const u32 key = k0 + row;
      const bool exists = key < end, rotate = c.rotate && key < c.rotated_keys;
      const u32 from = exists ? key_token(c, window, key) : 0;
      const bool padding = from == ~0u;
      load_row(ks + row * c.padded_width, !exists ? 0 : padding ? o.padding_key : o.key,
               (padding ? 0 : batch * c.key_batch + from * c.key_row) + head * c.width, c.width, padding ? F32 : c.key_type,
               rotate ? o.key_cos : 0, o.key_sin, rotate ? key % c.key_positions * half : 0, wide);
      load_row(vs + row * c.padded_value, !exists ? 0 : padding ? o.padding_value : o.value,
               (padding ? 0 : batch * c.value_batch + from * c.value_row) + head * c.value_width, c.value_width, padding ? F32 : c.value_type, 0, 0, 0, wide);
    }
    __syncthreads();
    float score[8];
    UNROLL for (int j = 0; j < 8; j++) score[j] = 0;
    const float4* q = (const float4*)(qs + mine * c.padded_width);
    for (u32 d = 0; d < fours; d++) {
      const float4 x = q[d];
      UNROLL for (int j = 0; j < 8; j++) {
        const float4 y = ((const float4*)(ks + (j * 4 + quarter) * c.padded_width))[d];
        score[j] = multiply_add(x.x, y.x, multiply_add(x.y, y.y, multiply_add(x.z, y.z, multiply_add(x.w, y.w, score[j]))));
      }
    }
    float highest = -infinity();
    UNROLL for (int j = 0; j < 8; j++) {
      const u32 key = k0 + j * 4 + quarter;
      bool seen = key < end;
      if (seen && c.causal) seen = key <= index + (c.keys - c.queries);
      if (seen && o.mask) seen = o.mask[(u64)batch * c.keys + key];
      float s = score[j] * c.scale;
      if (seen && c.bias && token != ~0u) {
        u32 y = key / c.bias_width, x = key % c.bias_width;
        if (c.bias == 2) y += c.bias_height - 1 - own_y, x += c.bias_width - 1 - own_x;
        s += load(o.rows, rows_at + y, c.rows_type) + load(o.columns, columns_at + x, c.columns_type);
      }
      score[j] = seen ? s : -infinity();
      highest = larger(highest, score[j]);
    }
    highest = larger(highest, __shfl_xor_sync(~0u, highest, 1));
    highest = larger(highest, __shfl_xor_sync(~0u, highest, 2));
    const float next = larger(top, highest);
    const float correction = next == -infinity() ? 1.0f : exponential(top - next);
    sum *= correction;
    UNROLL for (int j = 0; j < 8; j++) {
      const float p = next == -infinity() ? 0.0f : exponential(score[j] - next);
      sum += p;
      ps[mine * (BK + 1) + j * 4 + quarter] = p;
    }
    top = next;
    __syncwarp();
    UNROLL for (int i = 0; i < FOURS; i++) mixed[i].x *= correction, mixed[i].y *= correction, mixed[i].z *= correction, mixed[i].w *= correction;
    for (u32 j = 0; j < BK; j++) {
      const float p = ps[mine * (BK + 1) + j];
      const float4* v = (const float4*)(vs + j * c.padded_value) + quarter;
      UNROLL for (int i = 0; i < FOURS; i++) if (i * 4 + quarter < value_fours) {
        const float4 y = v[i * 4];
        mixed[i].x = multiply_add(p, y.x, mixed[i].x), mixed[i].y = multiply_add(p, y.y, mixed[i].y);
        mixed[i].z = multiply_add(p, y.z, mixed[i].z), mixed[i].w = multiply_add(p, y.w, mixed[i].w);
      }
    }
    __syncwarp();
  }
  sum += __shfl_xor_sync(~0u, sum, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  if (token == ~0u) return;
  const u64 to = ((u64)batch * c.queries + token) * c.heads * c.value_width + head * c.value_width;
  // [batch, query, head, part, top, sum, channels]
  float* parts = partial + ((((u64)batch * c.queries + token) * c.heads + head) * c.parts + part) * (c.value_width + 2);
  if (c.parts > 1 && quarter == 0) parts[0] = top, parts[1] = sum;
  UNROLL for (int i = 0; i < FOURS; i++) {
    const float values[4] = {mixed[i].x, mixed[i].y, mixed[i].z, mixed[i].w};
    UNROLL for (int k = 0; k < 4; k++) {
      const u32 d = (i * 4 + quarter) * 4 + k;
      if (d >= c.value_width) continue;
      if (c.parts > 1) parts[2 + d] = values[k];
      else store(output, to + d, c.to, values[k] / sum);
    }
  }
}
KERNEL __launch_bounds__(128) attention_f32_32(const __grid_constant__ Operands o, void* output, float* partial, const __grid_constant__ Attention c) { attend<2>(o, output, partial, c); }
KERNEL __launch_bounds__(128) attention_f32_64(const __grid_constant__ Operands o, void* output, float* partial, const __grid_constant__ Attention c) { attend<4>(o, output, partial, c); }
KERNEL __launch_bounds__(128) attention_f32_256(const __grid_constant__ Operands o, void* output, float* partial, const __grid_constant__ Attention c) { attend<16>(o, output, partial, c); }
KERNEL __launch_bounds__(128) attention_f32_512(const __grid_constant__ Operands o, void* output, float* partial, const __grid_constant__ Attention c) { attend<32>(o, output, partial, c); }

struct Join {
  u32 lines, parts, width;  // lines: batch * queries * heads
  int to;
};
// Joins the parts of attention, one warp a line.
KERNEL __launch_bounds__(128) join_parts(const float* partial, void* output, const __grid_constant__ Join c) {
  const u32 line = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (line >= c.lines) return;
  const float* from = partial + (u64)line * c.parts * (c.width + 2);
  float top = -infinity(), sum = 0;
  for (u32 i = 0; i < c.parts; i++) top = larger(top, from[i * (c.width + 2)]);
  for (u32 i = 0; i < c.parts; i++) sum += top == -infinity() ? 0.0f : from[i * (c.width + 2) + 1] * exponential(from[i * (c.width + 2)] - top);
  for (u32 d = lane; d < c.width; d += 32) {
    float mixed = 0;
    for (u32 i = 0; i < c.parts; i++) mixed += top == -infinity() ? 0.0f : from[i * (c.width + 2) + 2 + d] * exponential(from[i * (c.width + 2)] - top);
    store(output, (u64)line * c.width + d, c.to, mixed / sum);
  }
}
