// Attention in f32 on the tensor cores: scores and mixtures as products of numbers split into two of TF32, see `product_tf32.cu`.
//
// Masks, causal order and separable bias; no windows, no rotation. Rows are f32, 16-byte aligned, with widths that are multiples of four. A warp has 16
// queries, a block WARPS * 16 of one head and a part of the keys; parts are joined by `join_parts`. WIDTH is that of queries and keys, VALUES that of
// values, in shared memory. Keys of a tile are loaded while values of the tile before are mixed, and the other way round.
// Most blocks run the code once, and fetching instructions takes longer than running them: loops are rolled where they can be.
// Shared memory: (WARPS * 16 + 32) * (row of keys) + 32 * (VALUES + 4) + WARPS * 16 * 36 floats, and WARPS * 16 rows of the terms of an absolute bias.
#include "attention.cuh"
#include "mma.cuh"

constexpr int BK = 32;
// Rows of queries and keys start 16 banks apart, those of values 4: every bank is read once.
constexpr int KEY_ROW = WIDTH == 16 ? 16 : WIDTH + 16, VALUE_ROW = VALUES + 4, SCORE_ROW = 36;

// `count` rows of `width` channels to shared memory, zeros behind them and where there is no row.
template <int CHANNELS, int ROW, int THREADS> INLINE void fetch_rows(u32 to, const float* from, i64 stride, u32 count, u32 rows, u32 width) {
  for (u32 i = threadIdx.x; i < count * (CHANNELS / 4); i += THREADS) {
    const u32 row = i / (CHANNELS / 4), channel = i % (CHANNELS / 4) * 4;
    const bool exists = row < rows && channel < width;
    copy_async(to + (row * ROW + channel) * 4, exists ? from + (i64)row * stride + channel : from, exists);
  }
}

// Terms of an absolute bias, for each query those of its rows, then those of its columns. Rows start 8 banks apart.
struct Terms {
  u32 span, row;
  INLINE_METHOD explicit Terms(const Attention& c) : span(c.bias ? c.bias_height + c.bias_width : 0), row(span + (40 - span % 32) % 32) {}
  template <int BQ, int THREADS> INLINE_METHOD void fetch(float* to, const Operands& o, const Attention& c, u32 q0) const {
    const u32 head = blockIdx.y, batch = blockIdx.z;
    auto from = [&](u32 query, u32 at, bool& of_rows) {
      const i64 line = min(q0 + query, c.queries - 1);
      of_rows = at < c.bias_height;
      return of_rows ? batch * c.rows_batch + line * c.rows_row + head * c.rows_head + at : batch * c.columns_batch + line * c.columns_row + head * c.columns_head + at - c.bias_height;
    };
    const i64 lengths = c.bias_height | c.bias_width | c.rows_batch | c.rows_row | c.rows_head | c.columns_batch | c.columns_row | c.columns_head;
    const bool fours = lengths % 4 == 0 && ((u64)o.rows | (u64)o.columns) % 16 == 0 && c.rows_type == F32 && c.columns_type == F32;
    const u32 pieces = fours ? span / 4 : span;
    for (u32 i = threadIdx.x; i < BQ * pieces; i += THREADS) {
      const u32 query = i / pieces, piece = i - query * pieces, at = fours ? piece * 4 : piece;
      bool of_rows;
      const i64 element = from(query, at, of_rows);
      if (fours) copy_async(shared_address(to + query * row + at), (const float*)(of_rows ? o.rows : o.columns) + element, true);
      else to[query * row + at] = load(of_rows ? o.rows : o.columns, element, of_rows ? c.rows_type : c.columns_type);
    }
  }
};

// e^x for x <= 0, without branches.
INLINE float falling(float x) {
  const float high = 1.44269502f, low = 1.92596303e-8f, y = larger(x, -200.0f), t = y * high;
  return ex2(t) * multiply_add(multiply_add(y, low, multiply_add(y, high, -t)), 0.693147182f, 1.0f);
}

template <int WARPS> INLINE void attend(const Operands& o, void* output, float* partial, const Attention& c) {
  constexpr int BQ = WARPS * 16, THREADS = WARPS * 32, KEYS = BK / 8, MIXED = VALUES / 8, FOUR = MIXED < 4 ? MIXED : 4;
  extern __shared__ __align__(16) float memory[];
  float *qs = memory, *ks = qs + BQ * KEY_ROW, *vs = ks + BK * KEY_ROW, *ps = vs + BK * VALUE_ROW, *terms = ps + BQ * SCORE_ROW;
  const u32 qs_at = shared_address(qs), ks_at = shared_address(ks), vs_at = shared_address(vs);
  const u32 head = blockIdx.y, batch = blockIdx.z, part = blockIdx.x % c.parts, q0 = blockIdx.x / c.parts * BQ;
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, four = lane % 4;
  const u32 tiles = (c.keys + BK - 1) / BK, per = (tiles + c.parts - 1) / c.parts;
  const u32 first = part * per * BK, end = min(c.keys, (part + 1) * per * BK);
  const float* queries = (const float*)o.query + batch * c.query_batch + (i64)q0 * c.query_row + head * c.width;
  const float* keys = (const float*)o.key + batch * c.key_batch + head * c.width;
  const float* values = (const float*)o.value + batch * c.value_batch + head * c.value_width;
  auto fetch_keys = [&](u32 k0) {
    if (k0 < end) fetch_rows<WIDTH, KEY_ROW, THREADS>(ks_at, keys + (i64)k0 * c.key_row, c.key_row, BK, end - k0, c.width);
    commit();
  };
  auto fetch_values = [&](u32 k0) {
    if (k0 < end) fetch_rows<VALUES, VALUE_ROW, THREADS>(vs_at, values + (i64)k0 * c.value_row, c.value_row, BK, end - k0, c.value_width);
    commit();
  };
  fetch_rows<WIDTH, KEY_ROW, THREADS>(qs_at, queries, c.query_row, BQ, c.queries - q0, c.width);
  const Terms bias(c);
  if (bias.span) bias.fetch<BQ, THREADS>(terms, o, c, q0);
  fetch_keys(first);
  fetch_values(first);
  // The two queries of this thread.
  const u32 index[2] = {q0 + warp * 16 + group, q0 + warp * 16 + group + 8};
  const float *row_terms = terms + (warp * 16 + group) * bias.row, *column_terms = row_terms + c.bias_height;
  const bool plain = !c.causal && !o.mask;
  float top[2] = {-infinity(), -infinity()}, sum[2] = {0, 0};
  float mixed[MIXED][4];
  UNROLL for (int n = 0; n < MIXED; n++) UNROLL for (int k = 0; k < 4; k++) mixed[n][k] = 0;
  const float* q = qs + (warp * 16 + group) * KEY_ROW + four * 4;
  const float* k = ks + group * KEY_ROW + four * 4;
  for (u32 k0 = first; k0 < end; k0 += BK) {
    wait_for<1>();
    __syncthreads();
    float score[KEYS][4];
    UNROLL for (int j = 0; j < KEYS; j++) UNROLL for (int i = 0; i < 4; i++) score[j][i] = 0;
    _Pragma("unroll 1") for (int d = 0; d < WIDTH; d += 16) {
      const float4 x[2] = {*(const float4*)(q + d), *(const float4*)(q + 8 * KEY_ROW + d)};
      float4 y[KEYS];
      UNROLL for (int j = 0; j < KEYS; j++) y[j] = *(const float4*)(k + j * 8 * KEY_ROW + d);
      UNROLL for (int s = 0; s < 2; s++) {
        u32 high[4], low[4], b_high[KEYS][2], b_low[KEYS][2];
        UNROLL for (int h = 0; h < 2; h++) {
          split(s ? x[h].z : x[h].x, high[h], low[h]);
          split(s ? x[h].w : x[h].y, high[h + 2], low[h + 2]);
        }
        UNROLL for (int j = 0; j < KEYS; j++) {
          split(s ? y[j].z : y[j].x, b_high[j][0], b_low[j][0]);
          split(s ? y[j].w : y[j].y, b_high[j][1], b_low[j][1]);
        }
        UNROLL for (int j = 0; j < KEYS; j++) multiply_tf32(score[j], low, b_high[j][0], b_high[j][1]);
        UNROLL for (int j = 0; j < KEYS; j++) multiply_tf32(score[j], high, b_low[j][0], b_low[j][1]);
        UNROLL for (int j = 0; j < KEYS; j++) multiply_tf32(score[j], high, b_high[j][0], b_high[j][1]);
      }
    }
    __syncthreads();
    fetch_keys(k0 + BK);
    float next[2] = {top[0], top[1]};
    UNROLL for (int j = 0; j < KEYS; j++) UNROLL for (int i = 0; i < 4; i++) score[j][i] *= c.scale;
    if (c.bias) {
      u32 y = (k0 + four * 2) / c.bias_width, x = k0 + four * 2 - y * c.bias_width;
      UNROLL for (int j = 0; j < KEYS; j++) {
        UNROLL for (int i = 0; i < 2; i++) {
          const bool next_row = x + i >= c.bias_width;
          const u32 at_x = next_row ? 0 : x + i, at_y = min(y + next_row, c.bias_height - 1);
          UNROLL for (int h = 0; h < 2; h++) score[j][h * 2 + i] += row_terms[h * 8 * bias.row + at_y] + column_terms[h * 8 * bias.row + at_x];
        }
        for (x += 8; x >= c.bias_width; x -= c.bias_width) y++;
      }
    }
    if (!plain || k0 + BK > end) {
      UNROLL for (int j = 0; j < KEYS; j++) UNROLL for (int i = 0; i < 4; i++) {
        const u32 key = k0 + j * 8 + four * 2 + i % 2;
        bool seen = key < end;
        if (seen && c.causal) seen = key <= index[i / 2] + (c.keys - c.queries);
        if (seen && o.mask) seen = o.mask[(u64)batch * c.keys + key];
        if (!seen) score[j][i] = -infinity();
      }
    }
    UNROLL for (int j = 0; j < KEYS; j++) UNROLL for (int i = 0; i < 4; i++) next[i / 2] = larger(next[i / 2], score[j][i]);
    UNROLL for (int h = 0; h < 2; h++) {
      next[h] = larger(next[h], __shfl_xor_sync(~0u, next[h], 1));
      next[h] = larger(next[h], __shfl_xor_sync(~0u, next[h], 2));
      const float correction = next[h] == -infinity() ? 1.0f : falling(top[h] - next[h]);
      sum[h] *= correction;
      top[h] = next[h];
      UNROLL for (int n = 0; n < MIXED; n++) mixed[n][h * 2] *= correction, mixed[n][h * 2 + 1] *= correction;
    }
    // A row without keys so far subtracts nothing, so that e^-infinity stays 0.
    const float less[2] = {top[0] == -infinity() ? 0.0f : top[0], top[1] == -infinity() ? 0.0f : top[1]};
    float* p = ps + (warp * 16 + group) * SCORE_ROW + four * 2;
    UNROLL for (int j = 0; j < KEYS; j++) UNROLL for (int h = 0; h < 2; h++) {
      const float2 two = make_float2(falling(score[j][h * 2] - less[h]), falling(score[j][h * 2 + 1] - less[h]));
      sum[h] += two.x + two.y;
      *(float2*)(p + h * 8 * SCORE_ROW + j * 8) = two;
    }
    wait_for<1>();
    __syncthreads();
    _Pragma("unroll 1") for (int j = 0; j < KEYS; j++) {
      // Keys 2t and 2t + 1 are t and t + 4 of the step. A thread reads what it has written.
      const float2 first = *(const float2*)(p + j * 8), second = *(const float2*)(p + 8 * SCORE_ROW + j * 8);
      u32 high[4], low[4];
      split(first.x, high[0], low[0]);
      split(second.x, high[1], low[1]);
      split(first.y, high[2], low[2]);
      split(second.y, high[3], low[3]);
      const float* v = vs + (j * 8 + four * 2) * VALUE_ROW + group;
      UNROLL for (int start = 0; start < MIXED; start += FOUR) {
        u32 b_high[FOUR][2], b_low[FOUR][2];
        UNROLL for (int n = 0; n < FOUR; n++) {
          split(v[(start + n) * 8], b_high[n][0], b_low[n][0]);
          split(v[VALUE_ROW + (start + n) * 8], b_high[n][1], b_low[n][1]);
        }
        UNROLL for (int n = 0; n < FOUR; n++) multiply_tf32(mixed[start + n], low, b_high[n][0], b_high[n][1]);
        UNROLL for (int n = 0; n < FOUR; n++) multiply_tf32(mixed[start + n], high, b_low[n][0], b_low[n][1]);
        UNROLL for (int n = 0; n < FOUR; n++) multiply_tf32(mixed[start + n], high, b_high[n][0], b_high[n][1]);
      }
    }
    __syncthreads();
    fetch_values(k0 + BK);
  }
  UNROLL for (int h = 0; h < 2; h++) {
    sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
    sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
    if (index[h] >= c.queries) continue;
    const u64 line = ((u64)batch * c.queries + index[h]) * c.heads + head;
    float* parts = partial + (line * c.parts + part) * part_floats(c.value_width);
    if (c.parts > 1 && four == 0) *(float2*)parts = make_float2(top[h], sum[h]);
    const float factor = c.parts > 1 ? 1.0f : 1.0f / sum[h];
    UNROLL for (int n = 0; n < MIXED; n++) {
      const u32 d = n * 8 + four * 2;
      if (d >= c.value_width) continue;
      const float2 two = make_float2(mixed[n][h * 2] * factor, mixed[n][h * 2 + 1] * factor);
      if (c.parts > 1) *(float2*)(parts + 4 + d) = two;
      else if (c.to == F32) *(float2*)((float*)output + line * c.value_width + d) = two;
      else *(u32*)((u16*)output + line * c.value_width + d) = c.to == F16 ? pack2<F16>(two.x, two.y) : pack2<BF16>(two.x, two.y);
    }
  }
}

#define ATTENTION(NAME, WARPS) \
  KERNEL __launch_bounds__(WARPS * 32) NAME(const __grid_constant__ Operands o, void* output, float* partial, const __grid_constant__ Attention c) { attend<WARPS>(o, output, partial, c); }
#define JOINED(A, B) A##B
#define NAMED(A, B) JOINED(A, B)
ATTENTION(NAMED(NAME, _16), 1)
ATTENTION(NAMED(NAME, _64), 4)
