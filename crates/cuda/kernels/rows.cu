// Ops along one axis: layer norm, softmax, reductions, the largest element, cumulative sums, group norm, rotation.
#include "common.cuh"

struct Rows {
  u32 rows, width;
  int from, to;
  float epsilon;
  u32 unused;
  Walk walk;  // first element of each row of the input
};
// Layer norm over the last axis, one warp a row. The output is contiguous and may be the input.
KERNEL __launch_bounds__(128) layer_norm(const void* input, const float* gain, const float* shift, void* output, const __grid_constant__ Rows c) {
  const u32 row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= c.rows) return;
  const i64 from = walk(c.walk, row);
  const u64 to = (u64)row * c.width;
  if (c.unused && c.width <= 32 * 4 * 12) {  // aligned, a multiple of four wide: the row stays in registers
    float4 v[12];
    float sum = 0, squares = 0;
    UNROLL for (int i = 0; i < 12; i++) {
      const u32 at = (i * 32 + lane) * 4;
      v[i] = at < c.width ? load4(input, from + at, c.from) : make_float4(0, 0, 0, 0);
      sum += v[i].x + v[i].y + v[i].z + v[i].w;
    }
    const float mean = warp_sum(sum) / c.width;
    UNROLL for (int i = 0; i < 12; i++) if ((i * 32 + lane) * 4 < c.width) {
      v[i].x -= mean, v[i].y -= mean, v[i].z -= mean, v[i].w -= mean;
      squares += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
    }
    const float factor = 1.0f / root(warp_sum(squares) / c.width + c.epsilon);
    UNROLL for (int i = 0; i < 12; i++) {
      const u32 at = (i * 32 + lane) * 4;
      if (at >= c.width) continue;
      const float4 g = *(const float4*)(gain + at), s = *(const float4*)(shift + at);
      store4(output, to + at, c.to, make_float4(v[i].x * factor * g.x + s.x, v[i].y * factor * g.y + s.y, v[i].z * factor * g.z + s.z, v[i].w * factor * g.w + s.w));
    }
    return;
  }
  float sum = 0, squares = 0;
  for (u32 i = lane; i < c.width; i += 32) sum += load(input, from + i, c.from);
  const float mean = warp_sum(sum) / c.width;
  for (u32 i = lane; i < c.width; i += 32) {
    const float d = load(input, from + i, c.from) - mean;
    squares += d * d;
  }
  const float factor = 1.0f / root(warp_sum(squares) / c.width + c.epsilon);
  for (u32 i = lane; i < c.width; i += 32) store(output, to + i, c.to, (load(input, from + i, c.from) - mean) * factor * gain[i] + shift[i]);
}

// Layer norm of contiguous, aligned rows of 4 * LANES * PER numbers: LANES lanes a row, four rows of each at a time, so that their loads are under way
// together. The output may be the input. With the second bit of `unused`, GELU on the way out.
template <int LANES, int PER> INLINE void norm_rows(const void* input, const float* gain, const float* shift, void* output, const Rows& c) {
  constexpr int MANY = 4, WIDTH = 4 * LANES * PER;
  const u32 lane = threadIdx.x % LANES, first = (blockIdx.x * 128 + threadIdx.x) / LANES * MANY;
  float4 v[MANY][PER];
  UNROLL for (int r = 0; r < MANY; r++) UNROLL for (int i = 0; i < PER; i++)
    v[r][i] = load4(input, (u64)min(first + r, c.rows - 1) * WIDTH + (i * LANES + lane) * 4, c.from);
  float4 g[PER], s[PER];
  UNROLL for (int i = 0; i < PER; i++) g[i] = *(const float4*)(gain + (i * LANES + lane) * 4), s[i] = *(const float4*)(shift + (i * LANES + lane) * 4);
  UNROLL for (int r = 0; r < MANY; r++) {
    float sum = 0, squares = 0;
    UNROLL for (int i = 0; i < PER; i++) sum += v[r][i].x + v[r][i].y + v[r][i].z + v[r][i].w;
    UNROLL for (int k = LANES / 2; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
    const float mean = sum / WIDTH;
    UNROLL for (int i = 0; i < PER; i++) {
      v[r][i].x -= mean, v[r][i].y -= mean, v[r][i].z -= mean, v[r][i].w -= mean;
      squares += v[r][i].x * v[r][i].x + v[r][i].y * v[r][i].y + v[r][i].z * v[r][i].z + v[r][i].w * v[r][i].w;
    }
    UNROLL for (int k = LANES / 2; k; k /= 2) squares += __shfl_xor_sync(~0u, squares, k);
    const float factor = 1.0f / root(squares / WIDTH + c.epsilon);
    if (first + r < c.rows) UNROLL for (int i = 0; i < PER; i++) {
      float4 x = make_float4(v[r][i].x * factor * g[i].x + s[i].x, v[r][i].y * factor * g[i].y + s[i].y, v[r][i].z * factor * g[i].z + s[i].z,
                             v[r][i].w * factor * g[i].w + s[i].w);
      if (c.unused & 2) x = make_float4(gelu(x.x), gelu(x.y), gelu(x.z), gelu(x.w));
      store4(output, (u64)(first + r) * WIDTH + (i * LANES + lane) * 4, c.to, x);
    }
  }
}
#define NORM_ROWS(WIDTH, LANES, PER)                                                                                                                       \
  KERNEL __launch_bounds__(128) layer_norm_##WIDTH(const void* input, const float* gain, const float* shift, void* output, const __grid_constant__ Rows c) { \
    norm_rows<LANES, PER>(input, gain, shift, output, c);                                                                                                  \
  }
NORM_ROWS(32, 8, 1)
NORM_ROWS(64, 16, 1)
NORM_ROWS(128, 32, 1)
NORM_ROWS(256, 32, 2)

// Layer norm of rows of a few numbers, one thread a row.
KERNEL __launch_bounds__(128) layer_norm_narrow(const void* input, const float* gain, const float* shift, void* output, const __grid_constant__ Rows c) {
  const u32 row = blockIdx.x * 128 + threadIdx.x;
  if (row >= c.rows) return;
  const i64 from = walk(c.walk, row);
  const u64 to = (u64)row * c.width;
  float sum = 0, squares = 0;
  if (c.unused) {  // aligned, a multiple of four wide
    for (u32 i = 0; i < c.width; i += 4) {
      const float4 x = load4(input, from + i, c.from);
      sum += x.x + x.y + x.z + x.w;
    }
    const float mean = sum / c.width;
    for (u32 i = 0; i < c.width; i += 4) {
      const float4 x = load4(input, from + i, c.from);
      squares += (x.x - mean) * (x.x - mean) + (x.y - mean) * (x.y - mean) + (x.z - mean) * (x.z - mean) + (x.w - mean) * (x.w - mean);
    }
    const float factor = 1.0f / root(squares / c.width + c.epsilon);
    for (u32 i = 0; i < c.width; i += 4) {
      const float4 x = load4(input, from + i, c.from), g = *(const float4*)(gain + i), s = *(const float4*)(shift + i);
      store4(output, to + i, c.to,
             make_float4((x.x - mean) * factor * g.x + s.x, (x.y - mean) * factor * g.y + s.y, (x.z - mean) * factor * g.z + s.z, (x.w - mean) * factor * g.w + s.w));
    }
    return;
  }
  for (u32 i = 0; i < c.width; i++) sum += load(input, from + i, c.from);
  const float mean = sum / c.width;
  for (u32 i = 0; i < c.width; i++) {
    const float d = load(input, from + i, c.from) - mean;
    squares += d * d;
  }
  const float factor = 1.0f / root(squares / c.width + c.epsilon);
  for (u32 i = 0; i < c.width; i++) store(output, to + i, c.to, (load(input, from + i, c.from) - mean) * factor * gain[i] + shift[i]);
}

struct Lines {
  u32 lines, length, inner;  // line = outer * inner + offset
  int from, to;
  float epsilon;
};
INLINE u64 line_start(const Lines& c, u32 line) { return (u64)(line / c.inner) * c.inner * c.length + line % c.inner; }
// Layer norm over another axis than the last, one thread a line: neighbours read neighbours.
KERNEL layer_norm_axis(const void* input, const float* gain, const float* shift, void* output, const __grid_constant__ Lines c) {
  const u32 line = blockIdx.x * blockDim.x + threadIdx.x;
  if (line >= c.lines) return;
  const u64 start = line_start(c, line);
  float sum = 0, squares = 0;
  for (u32 i = 0; i < c.length; i++) sum += load(input, start + (u64)i * c.inner, c.from);
  const float mean = sum / c.length;
  for (u32 i = 0; i < c.length; i++) {
    const float d = load(input, start + (u64)i * c.inner, c.from) - mean;
    squares += d * d;
  }
  const float factor = 1.0f / root(squares / c.length + c.epsilon);
  for (u32 i = 0; i < c.length; i++) {
    const u64 at = start + (u64)i * c.inner;
    store(output, at, c.to, (load(input, at, c.from) - mean) * factor * gain[i] + shift[i]);
  }
}
// Cumulative sums, one thread a line.
KERNEL cumulative_sum(const void* input, void* output, const __grid_constant__ Lines c) {
  const u32 line = blockIdx.x * blockDim.x + threadIdx.x;
  if (line >= c.lines) return;
  const u64 start = line_start(c, line);
  float sum = 0;
  for (u32 i = 0; i < c.length; i++) {
    sum += load(input, start + (u64)i * c.inner, c.from);
    store(output, start + (u64)i * c.inner, c.to, sum);
  }
}
// Index of the largest element as i64, one warp a line; of equal elements the first, a NaN before every number.
KERNEL __launch_bounds__(128) arg_max(const void* input, i64* output, const __grid_constant__ Lines c) {
  const u32 line = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (line >= c.lines) return;
  const u64 start = line_start(c, line);
  float best = -infinity();
  u32 where = ~0u;
  auto consider = [&](float x, u32 i) {
    if (i == ~0u) return;
    const bool better = where == ~0u || (is_nan(x) ? !is_nan(best) || i < where : !is_nan(best) && (x > best || (x == best && i < where)));
    if (better) best = x, where = i;
  };
  for (u32 i = lane; i < c.length; i += 32) consider(load(input, start + (u64)i * c.inner, c.from), i);
  UNROLL for (int k = 16; k; k /= 2) {
    const float x = __shfl_xor_sync(~0u, best, k);
    const u32 i = __shfl_xor_sync(~0u, where, k);
    consider(x, i);
  }
  if (lane == 0) output[line] = where;
}

// Softmax over the last axis, one block of 128 a row. The output is contiguous and may be the input.
KERNEL __launch_bounds__(128) softmax(const void* input, void* output, const __grid_constant__ Rows c) {
  __shared__ float shared[4];
  const u32 row = blockIdx.x;
  const i64 from = walk(c.walk, row);
  const u64 to = (u64)row * c.width;
  float top = -infinity();
  for (u32 i = threadIdx.x; i < c.width; i += 128) top = larger(top, load(input, from + i, c.from));
  top = warp_max(top);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = top;
  __syncthreads();
  top = larger(larger(shared[0], shared[1]), larger(shared[2], shared[3]));
  float sum = 0;
  for (u32 i = threadIdx.x; i < c.width; i += 128) sum += exponential(load(input, from + i, c.from) - top);
  sum = block_sum(sum, shared);
  for (u32 i = threadIdx.x; i < c.width; i += 128) store(output, to + i, c.to, exponential(load(input, from + i, c.from) - top) / sum);
}

// The same for rows of up to 16 numbers, one thread a row.
KERNEL __launch_bounds__(128) softmax_narrow(const void* input, void* output, const __grid_constant__ Rows c) {
  const u32 row = blockIdx.x * 128 + threadIdx.x;
  if (row >= c.rows) return;
  const i64 from = walk(c.walk, row);
  const u64 to = (u64)row * c.width;
  float top = -infinity(), sum = 0;
  if (c.unused) {  // aligned, a multiple of four wide: the row stays in registers
    float4 v[4];
    UNROLL for (int i = 0; i < 4; i++) if (i * 4 < c.width) {
      v[i] = load4(input, from + i * 4, c.from);
      top = larger(top, larger(larger(v[i].x, v[i].y), larger(v[i].z, v[i].w)));
    }
    UNROLL for (int i = 0; i < 4; i++) if (i * 4 < c.width) {
      v[i] = make_float4(exponential(v[i].x - top), exponential(v[i].y - top), exponential(v[i].z - top), exponential(v[i].w - top));
      sum += v[i].x + v[i].y + v[i].z + v[i].w;
    }
    const float factor = 1.0f / sum;
    UNROLL for (int i = 0; i < 4; i++) if (i * 4 < c.width)
      store4(output, to + i * 4, c.to, make_float4(v[i].x * factor, v[i].y * factor, v[i].z * factor, v[i].w * factor));
    return;
  }
  for (u32 i = 0; i < c.width; i++) top = larger(top, load(input, from + i, c.from));
  for (u32 i = 0; i < c.width; i++) sum += exponential(load(input, from + i, c.from) - top);
  for (u32 i = 0; i < c.width; i++) store(output, to + i, c.to, exponential(load(input, from + i, c.from) - top) / sum);
}

// The same for short rows, one warp a row.
KERNEL __launch_bounds__(128) softmax_short(const void* input, void* output, const __grid_constant__ Rows c) {
  const u32 row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= c.rows) return;
  const i64 from = walk(c.walk, row);
  const u64 to = (u64)row * c.width;
  float top = -infinity(), sum = 0;
  for (u32 i = lane; i < c.width; i += 32) top = larger(top, load(input, from + i, c.from));
  top = warp_max(top);
  for (u32 i = lane; i < c.width; i += 32) sum += exponential(load(input, from + i, c.from) - top);
  sum = warp_sum(sum);
  for (u32 i = lane; i < c.width; i += 32) store(output, to + i, c.to, exponential(load(input, from + i, c.from) - top) / sum);
}

struct Reduce {
  u32 outputs, count;
  int kind, from, to;  // kind in the order of ReduceKind
  u32 threads;         // that share one output: 1 or 128
  Walk kept, reduced;
};
INLINE float combine(int kind, float a, float b) { return kind < 2 ? a + b : kind == 2 ? larger(a, b) : smaller(a, b); }
// Sum, mean, largest or smallest over some axes.
KERNEL __launch_bounds__(128) reduce(const void* input, void* output, const __grid_constant__ Reduce c) {
  __shared__ float shared[4];
  const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
  const u32 which = c.threads == 1 ? index : blockIdx.x;
  if (which >= c.outputs) return;
  const i64 start = walk(c.kept, which);
  float result = c.kind < 2 ? 0.0f : c.kind == 2 ? -infinity() : infinity();
  for (u32 i = c.threads == 1 ? 0 : threadIdx.x; i < c.count; i += c.threads) result = combine(c.kind, result, load(input, start + walk(c.reduced, i), c.from));
  if (c.threads > 1) {
    UNROLL for (int k = 16; k; k /= 2) result = combine(c.kind, result, __shfl_xor_sync(~0u, result, k));
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = result;
    __syncthreads();
    if (threadIdx.x > 0) return;
    result = combine(c.kind, combine(c.kind, shared[0], shared[1]), combine(c.kind, shared[2], shared[3]));
  }
  store(output, which, c.to, c.kind == 1 ? result / c.count : result);
}

struct GroupNorm {
  u32 pixels, channels, groups, parts;  // parts: blocks that share a group
  int from, to;
  float epsilon;
  u32 total;  // elements of all images
  u32 wide;   // whether groups are whole fours of channels, aligned
};
// x is contiguous [images, pixels, channels]. Mean and sum of squared distances of a part of a group's pixels: block (group, part).
KERNEL __launch_bounds__(256) group_parts(const void* input, float2* statistics, const __grid_constant__ GroupNorm c) {
  __shared__ float shared[8];
  const u32 width = c.channels / c.groups, group = blockIdx.x % c.groups, per = (c.pixels + c.parts - 1) / c.parts;
  const u32 first = min(blockIdx.y * per, c.pixels), count = (min(first + per, c.pixels) - first) * width;
  const u64 start = ((u64)(blockIdx.x / c.groups) * c.pixels + first) * c.channels + group * width;
  float sum = 0, squares = 0, mean;
  if (c.wide) {  // four channels at once
    const u32 per_pixel = width / 4, fours = count / 4;
    auto four = [&](u32 i) { return load4(input, start + (u64)(i / per_pixel) * c.channels + i % per_pixel * 4, c.from); };
    _Pragma("unroll 4") for (u32 i = threadIdx.x; i < fours; i += 256) {
      const float4 x = four(i);
      sum += x.x + x.y + x.z + x.w;
    }
    mean = count ? block_sum(sum, shared) / count : 0.0f;
    _Pragma("unroll 4") for (u32 i = threadIdx.x; i < fours; i += 256) {
      const float4 x = four(i);
      squares += (x.x - mean) * (x.x - mean) + (x.y - mean) * (x.y - mean) + (x.z - mean) * (x.z - mean) + (x.w - mean) * (x.w - mean);
    }
  } else {
    auto at = [&](u32 i) { return start + (u64)(i / width) * c.channels + i % width; };
    for (u32 i = threadIdx.x; i < count; i += 256) sum += load(input, at(i), c.from);
    mean = count ? block_sum(sum, shared) / count : 0.0f;
    for (u32 i = threadIdx.x; i < count; i += 256) {
      const float d = load(input, at(i), c.from) - mean;
      squares += d * d;
    }
  }
  squares = block_sum(squares, shared);
  if (threadIdx.x == 0) statistics[blockIdx.x * c.parts + blockIdx.y] = make_float2(mean, squares);
}
// Joins the parts of each group in their order, one thread a group: mean and factor.
KERNEL group_join(const float2* statistics, float2* joined, const __grid_constant__ GroupNorm c, u32 groups) {
  const u32 group = blockIdx.x * blockDim.x + threadIdx.x;
  if (group >= groups) return;
  const u32 width = c.channels / c.groups, per = (c.pixels + c.parts - 1) / c.parts;
  float count = 0, mean = 0, squares = 0;
  for (u32 part = 0; part < c.parts; part++) {
    const u32 first = min(part * per, c.pixels);
    const float more = (float)((min(first + per, c.pixels) - first) * width);
    if (more == 0) continue;
    const float2 other = statistics[group * c.parts + part];
    const float all = count + more, distance = other.x - mean;
    mean += distance * (more / all);
    squares += other.y + distance * distance * (count * (more / all));
    count = all;
  }
  joined[group] = make_float2(mean, 1.0f / root(squares / count + c.epsilon));
}
KERNEL group_apply(const void* input, const float2* joined, const float* gain, const float* shift, void* output, const __grid_constant__ GroupNorm c) {
  const u32 index = blockIdx.x * blockDim.x + threadIdx.x, i = c.wide ? index * 4 : index;
  if (i >= c.total) return;
  const u32 channel = i % c.channels, image = i / c.channels / c.pixels;
  const float2 s = joined[image * c.groups + channel / (c.channels / c.groups)];
  if (c.wide) {
    const float4 x = load4(input, i, c.from), g = *(const float4*)(gain + channel), b = *(const float4*)(shift + channel);
    store4(output, i, c.to, make_float4((x.x - s.x) * s.y * g.x + b.x, (x.y - s.x) * s.y * g.y + b.y, (x.z - s.x) * s.y * g.z + b.z, (x.w - s.x) * s.y * g.w + b.w));
    return;
  }
  store(output, i, c.to, (load(input, i, c.from) - s.x) * s.y * gain[channel] + shift[channel]);
}

struct Rope {
  u32 pairs, tokens, rotated, half;  // pairs of all rows, tokens of a batch, of them rotated, pairs of a row
  u32 positions, table;              // rows and pairs of a row of the table: heads repeat it
  u32 grid_width, window_height, window_width;  // positions within windows where grid_width is not 0
  int from, to;
  u32 unused;
  Walk walk;  // first element of each row of the input
};
// Rotation of adjacent pairs of channels, one thread a pair. The output is contiguous and may be the input.
KERNEL rope(const void* input, const float* cosines, const float* sines, void* output, const __grid_constant__ Rope c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.pairs) return;
  const u32 row = i / c.half, pair = i - row * c.half, token = row % c.tokens;
  const i64 at = walk(c.walk, row) + 2 * pair;
  const float a = load(input, at, c.from), b = load(input, at + 1, c.from);
  float x = a, y = b;
  if (token < c.rotated) {
    u32 position = token;
    if (c.grid_width) position = token / c.grid_width % c.window_height * c.window_width + token % c.grid_width % c.window_width;
    const u32 from = position % c.positions * c.table + pair % c.table;
    x = a * cosines[from] - b * sines[from];
    y = a * sines[from] + b * cosines[from];
  }
  store(output, (u64)i * 2, c.to, x);
  store(output, (u64)i * 2 + 1, c.to, y);
}
