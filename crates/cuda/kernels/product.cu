// Products in f32 on the ordinary units: any strides, any float storage. One kernel for tiles, one for few rows. `product_tf32.cu` is faster where it
// can be used.
#include "product.cuh"

// Output[m, n] = sum over k of a[m, k] * b[n, k]; a block of 256 threads computes TILE x TILE, a thread SIDE x SIDE.
template <int TILE> INLINE void tiles(const void* a, const void* b, const float* bias, const void* residual, void* output, const Product& p) {
  constexpr int SIDE = TILE / 16, DEPTH = 16, PER = TILE * DEPTH / 256;
  __shared__ __align__(16) float as[DEPTH][TILE + 4], bs[DEPTH][TILE + 4];
  const u32 m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const i64 a_start = walk(p.a_batch, blockIdx.z), b_start = walk(p.b_batch, blockIdx.z);
  float sums[SIDE][SIDE];
  UNROLL for (int i = 0; i < SIDE; i++) UNROLL for (int j = 0; j < SIDE; j++) sums[i][j] = 0;
  float next_a[PER], next_b[PER];
  // Neighbouring threads read neighbours in memory, along the depth or along the rows.
  auto fetch = [&](u32 k0) {
    UNROLL for (int i = 0; i < PER; i++) {
      const u32 t = threadIdx.x + i * 256;
      const u32 am = p.a_depth == 1 ? t / DEPTH : t % TILE, ak = p.a_depth == 1 ? t % DEPTH : t / TILE;
      const u32 bn = p.b_depth == 1 ? t / DEPTH : t % TILE, bk = p.b_depth == 1 ? t % DEPTH : t / TILE;
      next_a[i] = m0 + am < p.rows && k0 + ak < p.depth ? load(a, a_start + (i64)(m0 + am) * p.a_row + (i64)(k0 + ak) * p.a_depth, p.a_type) : 0.0f;
      next_b[i] = n0 + bn < p.columns && k0 + bk < p.depth ? load(b, b_start + (i64)(n0 + bn) * p.b_column + (i64)(k0 + bk) * p.b_depth, p.b_type) : 0.0f;
    }
  };
  fetch(0);
  for (u32 k0 = 0; k0 < p.depth; k0 += DEPTH) {
    __syncthreads();
    UNROLL for (int i = 0; i < PER; i++) {
      const u32 t = threadIdx.x + i * 256;
      if (p.a_depth == 1) as[t % DEPTH][t / DEPTH] = next_a[i];
      else as[t / TILE][t % TILE] = next_a[i];
      if (p.b_depth == 1) bs[t % DEPTH][t / DEPTH] = next_b[i];
      else bs[t / TILE][t % TILE] = next_b[i];
    }
    __syncthreads();
    if (k0 + DEPTH < p.depth) fetch(k0 + DEPTH);
    UNROLL for (int k = 0; k < DEPTH; k++) {
      float x[SIDE], y[SIDE];
      UNROLL for (int i = 0; i < SIDE; i += 4) {
        *(float4*)&x[i] = *(const float4*)&as[k][ty * 4 + (i / 4) * 64];
        *(float4*)&y[i] = *(const float4*)&bs[k][tx * 4 + (i / 4) * 64];
      }
      UNROLL for (int i = 0; i < SIDE; i++) UNROLL for (int j = 0; j < SIDE; j++) sums[i][j] = multiply_add(x[i], y[j], sums[i][j]);
    }
  }
  const u64 matrix = (u64)blockIdx.z * p.rows * p.columns;
  UNROLL for (int i = 0; i < SIDE; i++) UNROLL for (int j = 0; j < SIDE; j++) {
    const u32 m = m0 + ty * 4 + i % 4 + (i / 4) * 64, n = n0 + tx * 4 + j % 4 + (j / 4) * 64;
    if (m < p.rows && n < p.columns) finish(p, bias, residual, output, matrix + (u64)m * p.columns + n, n, sums[i][j]);
  }
}
KERNEL __launch_bounds__(256) product_64(const void* a, const void* b, const float* bias, const void* residual, void* output, const __grid_constant__ Product p) {
  tiles<64>(a, b, bias, residual, output, p);
}
KERNEL __launch_bounds__(256) product_128(const void* a, const void* b, const float* bias, const void* residual, void* output, const __grid_constant__ Product p) {
  tiles<128>(a, b, bias, residual, output, p);
}

// A depth of at most four: a thread computes four columns of a row.
KERNEL __launch_bounds__(256) product_thin(const void* a, const void* b, const float* bias, const void* residual, void* output, const __grid_constant__ Product p) {
  const u32 fours = (p.columns + 3) / 4, index = blockIdx.x * 256 + threadIdx.x, m = index / fours, n = (index - m * fours) * 4;
  if (m >= p.rows) return;
  const i64 a_start = walk(p.a_batch, blockIdx.z) + (i64)m * p.a_row, b_start = walk(p.b_batch, blockIdx.z);
  const u64 at = ((u64)blockIdx.z * p.rows + m) * p.columns + n;
  float sums[4] = {0, 0, 0, 0};
  for (u32 k = 0; k < p.depth; k++) {
    const float x = load(a, a_start + (i64)k * p.a_depth, p.a_type);
    UNROLL for (int i = 0; i < 4; i++) sums[i] = multiply_add(x, load(b, b_start + (i64)min(n + i, p.columns - 1) * p.b_column + (i64)k * p.b_depth, p.b_type), sums[i]);
  }
  if (p.columns % 4 == 0 && p.unused & 4) {
    UNROLL for (int i = 0; i < 4; i++) sums[i] = activate(sums[i] * p.scale + (bias ? bias[n + i] : 0.0f), p.activation);
    float4 v = make_float4(sums[0], sums[1], sums[2], sums[3]);
    if (residual) {
      const float4 r = load4(residual, at, p.residual_type);
      v.x += r.x, v.y += r.y, v.z += r.z, v.w += r.w;
    }
    store4(output, at, p.to, v);
  } else {
    UNROLL for (int i = 0; i < 4; i++) if (n + i < p.columns) finish(p, bias, residual, output, at + i, n + i, sums[i]);
  }
}

// Few rows: a warp, or with `split` the four warps of a block, compute one column of eight rows; lanes share the depth. The grid has
// groups of eight rows along y.
KERNEL __launch_bounds__(128) product_few_rows(const void* a, const void* b, const float* bias, const void* residual, void* output, const __grid_constant__ Product p) {
  __shared__ float shared[4][8];
  constexpr int ROWS = 8;
  const bool split = p.unused & 1, wide = p.unused & 2;  // wide: both sides are f32 with 16-byte aligned rows
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = split ? blockIdx.x : blockIdx.x * 4 + warp, m0 = blockIdx.y * ROWS;
  if (n >= p.columns) return;  // the whole block, where warps meet below
  const i64 a_start = walk(p.a_batch, blockIdx.z) + (i64)m0 * p.a_row, b_start = walk(p.b_batch, blockIdx.z) + (i64)n * p.b_column;
  const u32 rows = min((u32)ROWS, p.rows - m0);
  float sums[ROWS];
  UNROLL for (int i = 0; i < ROWS; i++) sums[i] = 0;
  if (wide) {
    const float4* weight = (const float4*)((const float*)b + b_start);
    const u32 fours = p.depth / 4, step = split ? 128 : 32;
    UNROLL_BY(2) for (u32 k = split ? threadIdx.x : lane; k < fours; k += step) {
      const float4 w = weight[k];
      UNROLL for (int i = 0; i < ROWS; i++) {
        const float4 x = ((const float4*)((const float*)a + a_start + (i64)min((u32)i, rows - 1) * p.a_row))[k];
        sums[i] = multiply_add(x.x, w.x, multiply_add(x.y, w.y, multiply_add(x.z, w.z, multiply_add(x.w, w.w, sums[i]))));
      }
    }
  } else {
    for (u32 k = split ? threadIdx.x : lane; k < p.depth; k += split ? 128 : 32) {
      const float w = load(b, b_start + (i64)k * p.b_depth, p.b_type);
      UNROLL for (int i = 0; i < ROWS; i++)
        if (i < rows) sums[i] = multiply_add(load(a, a_start + (i64)i * p.a_row + (i64)k * p.a_depth, p.a_type), w, sums[i]);
    }
  }
  UNROLL for (int i = 0; i < ROWS; i++) sums[i] = warp_sum(sums[i]);
  float sum = sums[0];
  UNROLL for (int i = 1; i < ROWS; i++) sum = lane == i ? sums[i] : sum;
  if (split) {
    if (lane < ROWS) shared[warp][lane] = sum;
    __syncthreads();
    if (warp > 0) return;
    sum = lane < ROWS ? shared[0][lane] + shared[1][lane] + shared[2][lane] + shared[3][lane] : 0.0f;
  }
  if (lane < rows) finish(p, bias, residual, output, ((u64)blockIdx.z * p.rows + m0 + lane) * p.columns + n, n, sum);
}

struct Quantize {
  u32 rows, width, padded;
  int from;
  Walk walk;  // first element of each row
};
// Rows to signed bytes and one step each, as QuantizedLinear defines it; one warp a row.
KERNEL __launch_bounds__(128) quantize_rows(const void* input, signed char* bytes, float* steps, const __grid_constant__ Quantize c) {
  const u32 row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= c.rows) return;
  const i64 from = walk(c.walk, row);
  float largest = 0;
  for (u32 i = lane; i < c.width; i += 32) {
    const float x = absolute(load(input, from + i, c.from));
    largest = larger(largest, x < infinity() ? x : not_a_number());
  }
  largest = warp_max(largest);
  const float inverse = largest < __uint_as_float((127u - 120u) << 23) ? 0.0f : 127.0f / largest;
  for (u32 i = lane; i < c.padded; i += 32) {
    const float x = i < c.width && !is_nan(largest) ? round_even(load(input, from + i, c.from) * inverse) : 0.0f;
    bytes[(u64)row * c.padded + i] = (signed char)(int)fminf(fmaxf(x, -127.0f), 127.0f);
  }
  if (lane == 0) steps[row] = largest / 127.0f;
}

struct Quantized {
  u32 rows, columns, padded, group, groups;  // group: elements under one scale, a multiple of 4 or all
  int residual_type, to, activation;
  float scale;
};
// Products of bytes, 64 x 64 outputs a block of 256 threads, 4 x 4 a thread; sums of a group are exact.
KERNEL __launch_bounds__(256) product_bytes(const signed char* a, const float* steps, const signed char* b, const float* scales, const float* bias,
                                            const void* residual, void* output, const __grid_constant__ Quantized p) {
  __shared__ int as[8][64 + 1], bs[8][64 + 1];
  const u32 m0 = blockIdx.y * 64, n0 = blockIdx.x * 64, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sums[4][4];
  int whole[4][4];
  UNROLL for (int i = 0; i < 4; i++) UNROLL for (int j = 0; j < 4; j++) sums[i][j] = 0, whole[i][j] = 0;
  const u32 words = p.padded / 4;
  auto close = [&](u32 group) {
    UNROLL for (int j = 0; j < 4; j++) {
      const u32 n = n0 + tx + j * 16;
      const float s = n < p.columns && group < p.groups ? scales[(u64)n * p.groups + group] : 0.0f;
      UNROLL for (int i = 0; i < 4; i++) sums[i][j] += (float)whole[i][j] * s, whole[i][j] = 0;
    }
  };
  for (u32 k0 = 0; k0 < words; k0 += 8) {  // 32 bytes: never more than one group of a block
    __syncthreads();
    UNROLL for (int i = 0; i < 2; i++) {
      const u32 t = threadIdx.x + i * 256, line = t / 8, word = t % 8;
      as[word][line] = m0 + line < p.rows && k0 + word < words ? ((const int*)a)[(u64)(m0 + line) * words + k0 + word] : 0;
      bs[word][line] = n0 + line < p.columns && k0 + word < words ? ((const int*)b)[(u64)(n0 + line) * words + k0 + word] : 0;
    }
    __syncthreads();
    UNROLL for (int k = 0; k < 8; k++) {
      int x[4], y[4];
      UNROLL for (int i = 0; i < 4; i++) x[i] = as[k][ty + i * 16], y[i] = bs[k][tx + i * 16];
      UNROLL for (int i = 0; i < 4; i++) UNROLL for (int j = 0; j < 4; j++) whole[i][j] = __dp4a(x[i], y[j], whole[i][j]);
    }
    if (p.groups > 1) close(k0 / 8);
  }
  if (p.groups == 1) close(0);
  UNROLL for (int i = 0; i < 4; i++) UNROLL for (int j = 0; j < 4; j++) {
    const u32 m = m0 + ty + i * 16, n = n0 + tx + j * 16;
    if (m >= p.rows || n >= p.columns) continue;
    const u64 at = (u64)m * p.columns + n;
    const float sum = activate(steps[m] * sums[i][j] * p.scale + (bias ? bias[n] : 0.0f), p.activation);
    store(output, at, p.to, residual ? sum + load(residual, at, p.residual_type) : sum);
  }
}

struct SplitMatrix {
  u32 matrices, columns, depth, padded;  // the depth, and the same padded to a multiple of 32
  i64 column, along;                     // elements from one column and from one step of the depth to the next
  float scale;
  u32 unused;
  Walk batch;  // first element of each matrix
};
// Matrices [depth, columns] of any strides in the form that `sm90/gemm_split.cu` multiplies with, scaled: [columns, 2 * padded] of bf16, of each column the high
// parts and then what is left of them, 16 along the depth in the order 0 1 4 5 8 9 12 13, 2 3 6 7 10 11 14 15. A thread has two neighbours.
KERNEL split_matrix(const float* input, u32* output, const __grid_constant__ SplitMatrix c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x, pairs = c.padded / 2;
  if (i >= c.matrices * c.columns * pairs) return;
  const u32 pair = i % pairs, column = i / pairs % c.columns, matrix = i / pairs / c.columns;
  const u32 k = pair / 8 * 16 + (pair % 8 < 4 ? pair % 8 * 4 : (pair % 8 - 4) * 4 + 2);
  const float* from = input + walk(c.batch, matrix) + column * c.column;
  const float x = k < c.depth ? from[k * c.along] * c.scale : 0.0f, y = k + 1 < c.depth ? from[(k + 1) * c.along] * c.scale : 0.0f;
  const u32 high = pack2<BF16>(x, y);
  const u64 at = (u64)(matrix * c.columns + column) * c.padded + pair;
  output[at] = high;
  output[at + pairs] = pack2<BF16>(x - from_bf16((u16)high), y - from_bf16((u16)(high >> 16)));
}

struct SumParts {
  u32 elements, columns, parts;
  float scale;
  int activation, residual_type, to;
};
// Sums products of parts of the depth in their order, and finishes them; four elements a thread, which are aligned and of one row.
KERNEL __launch_bounds__(256) sum_parts(const float* partial, const float* bias, const void* residual, void* output, const __grid_constant__ SumParts c) {
  const u32 at = (blockIdx.x * 256 + threadIdx.x) * 4, n = at % c.columns;
  if (at >= c.elements) return;
  float4 sum = make_float4(0, 0, 0, 0);
  UNROLL_BY(8) for (u32 part = 0; part < c.parts; part++) {
    const float4 x = *(const float4*)(partial + (u64)part * c.elements + at);
    sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
  }
  float v[4] = {sum.x, sum.y, sum.z, sum.w};
  UNROLL for (int k = 0; k < 4; k++) v[k] = activate(v[k] * c.scale + (bias ? bias[n + k] : 0.0f), c.activation);
  const float4 r = residual ? load4(residual, at, c.residual_type) : make_float4(0, 0, 0, 0);
  store4(output, at, c.to, make_float4(v[0] + r.x, v[1] + r.y, v[2] + r.z, v[3] + r.w));
}
