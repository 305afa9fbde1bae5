// Attention in f32 on the ordinary units, with everything the op has: masks, causal order, separable bias, rotation, windows with
// padding. A block computes 32 queries of one head (and window) over a part of the keys; parts are joined by `join_parts`.
#include "attention.cuh"

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
  // [batch, query, head, part, part_floats]
  float* parts = partial + ((((u64)batch * c.queries + token) * c.heads + head) * c.parts + part) * part_floats(c.value_width);
  if (c.parts > 1 && quarter == 0) parts[0] = top, parts[1] = sum;
  UNROLL for (int i = 0; i < FOURS; i++) {
    const float values[4] = {mixed[i].x, mixed[i].y, mixed[i].z, mixed[i].w};
    UNROLL for (int k = 0; k < 4; k++) {
      const u32 d = (i * 4 + quarter) * 4 + k;
      if (d >= c.value_width) continue;
      if (c.parts > 1) parts[4 + d] = values[k];
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
// Joins the parts of attention, a block a line. At most 128 parts; up to 512 channels.
KERNEL __launch_bounds__(256) join_parts(const float* partial, void* output, const __grid_constant__ Join c) {
  __shared__ float weights[128], shared[8];
  __shared__ float4 sums[256];
  const u32 thread = threadIdx.x, floats = part_floats(c.width), columns = floats / 4 - 1, groups = 256 / columns;
  const float* from = partial + (u64)blockIdx.x * c.parts * floats;
  const bool mine = thread < c.parts;
  const float own = mine ? from[thread * floats] : -infinity(), own_sum = mine ? from[thread * floats + 1] : 0.0f;
  const float highest = warp_max(own);
  if (thread % 32 == 0) shared[thread / 32] = highest;
  __syncthreads();
  float top = -infinity();
  UNROLL for (int i = 0; i < 8; i++) top = larger(top, shared[i]);
  const float weight = top == -infinity() ? 0.0f : exponential(own - top);
  if (mine) weights[thread] = weight;
  const float sum = block_sum(mine ? weight * own_sum : 0.0f, shared);
  const u32 group = thread / columns, column = thread % columns;
  float4 mixed = make_float4(0, 0, 0, 0);
  if (group < groups) {
    UNROLL_BY(8) for (u32 i = group; i < c.parts; i += groups) {
      const float4 x = *(const float4*)(from + (u64)i * floats + 4 + column * 4);
      const float w = weights[i];
      // A part that saw no key has no channels.
      if (w == 0.0f) continue;
      mixed.x = multiply_add(x.x, w, mixed.x), mixed.y = multiply_add(x.y, w, mixed.y);
      mixed.z = multiply_add(x.z, w, mixed.z), mixed.w = multiply_add(x.w, w, mixed.w);
    }
  }
  sums[thread] = mixed;
  __syncthreads();
  if (group > 0) return;
  for (u32 i = 1; i < groups; i++) {
    const float4 x = sums[i * columns + column];
    mixed.x += x.x, mixed.y += x.y, mixed.z += x.z, mixed.w += x.w;
  }
  const float values[4] = {mixed.x, mixed.y, mixed.z, mixed.w};
  UNROLL for (int k = 0; k < 4; k++)
    if (column * 4 + k < c.width) store(output, (u64)blockIdx.x * c.width + column * 4 + k, c.to, values[k] / sum);
}
