// Ops on channel-last images: direct convolutions, patches as rows for a product, pooling, resampling.
#include "common.cuh"

// activation(scale * sum + bias) + residual; the pointers may be null.
struct Epilogue {
  float scale;
  int activation, residual_type, to;
};
INLINE void finish(const Epilogue& e, const float* bias, const void* residual, void* output, u64 at, u32 channel, float sum) {
  sum = sum * e.scale + (bias ? bias[channel] : 0.0f);
  sum = activate(sum, e.activation);
  store(output, at, e.to, residual ? sum + load(residual, at, e.residual_type) : sum);
}

struct Conv {
  u32 total, height, width, channels, outputs, out_height, out_width;
  u32 kernel_height, kernel_width, stride_y, stride_x, before_y, before_x, depth, per_group;  // depth: inputs of a group
  int from;
  Epilogue epilogue;
};
// Any convolution, one thread an output. weight: [kernel_height, kernel_width, depth, outputs] if `packed`, else as PyTorch keeps it.
INLINE float conv_sum(const void* input, const float* weight, const Conv& c, u32 index, bool packed) {
  const u32 output = index % c.outputs, pixel = index / c.outputs;
  const u32 x0 = pixel % c.out_width * c.stride_x, y0 = pixel / c.out_width % c.out_height * c.stride_y, image = pixel / c.out_width / c.out_height;
  const u32 first = output / c.per_group * c.depth, taps = c.kernel_height * c.kernel_width;
  float sum = 0;
  for (u32 ky = 0; ky < c.kernel_height; ky++) {
    const u32 y = y0 + ky - c.before_y;
    if (y >= c.height) continue;
    for (u32 kx = 0; kx < c.kernel_width; kx++) {
      const u32 x = x0 + kx - c.before_x;
      if (x >= c.width) continue;
      const u64 at = ((u64)(image * c.height + y) * c.width + x) * c.channels + first;
      const u32 tap = ky * c.kernel_width + kx;
      for (u32 i = 0; i < c.depth; i++) {
        const float w = packed ? weight[((u64)tap * c.depth + i) * c.outputs + output] : weight[((u64)output * c.depth + i) * taps + tap];
        sum = multiply_add(load(input, at + i, c.from), w, sum);
      }
    }
  }
  return sum;
}
KERNEL conv_direct(const void* input, const float* weight, const float* bias, const void* residual, void* output, const __grid_constant__ Conv c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < c.total) finish(c.epilogue, bias, residual, output, i, i % c.outputs, conv_sum(input, weight, c, i, false));
}
KERNEL conv_packed(const void* input, const float* weight, const float* bias, const void* residual, void* output, const __grid_constant__ Conv c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < c.total) finish(c.epilogue, bias, residual, output, i, i % c.outputs, conv_sum(input, weight, c, i, true));
}

// One channel in, one out, a multiple of four of them: one thread four channels. weight: [kernel_height, kernel_width, channels].
KERNEL conv_depthwise(const void* input, const float* weight, const float* bias, const void* residual, void* output, const __grid_constant__ Conv c) {
  const u32 i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i >= c.total) return;
  const u32 channel = i % c.channels, pixel = i / c.channels;
  const u32 left = pixel % c.out_width * c.stride_x, top = pixel / c.out_width % c.out_height * c.stride_y, image = pixel / c.out_width / c.out_height;
  float4 sum = make_float4(0, 0, 0, 0);
  for (u32 ky = 0; ky < c.kernel_height; ky++) {
    const u32 y = top + ky - c.before_y;
    if (y >= c.height) continue;
    UNROLL_BY(4) for (u32 kx = 0; kx < c.kernel_width; kx++) {
      const u32 x = left + kx - c.before_x;
      if (x >= c.width) continue;
      const float4 a = load4(input, ((u64)(image * c.height + y) * c.width + x) * c.channels + channel, c.from);
      const float4 w = *(const float4*)(weight + (u64)(ky * c.kernel_width + kx) * c.channels + channel);
      sum.x = multiply_add(a.x, w.x, sum.x), sum.y = multiply_add(a.y, w.y, sum.y);
      sum.z = multiply_add(a.z, w.z, sum.z), sum.w = multiply_add(a.w, w.w, sum.w);
    }
  }
  finish(c.epilogue, bias, residual, output, i, channel, sum.x);
  finish(c.epilogue, bias, residual, output, i + 1, channel + 1, sum.y);
  finish(c.epilogue, bias, residual, output, i + 2, channel + 2, sum.z);
  finish(c.epilogue, bias, residual, output, i + 3, channel + 3, sum.w);
}

// Any transposed convolution, one thread an output. weight: [inputs, outputs, kernel_height, kernel_width].
KERNEL conv_transpose(const void* input, const float* weight, const float* bias, const void* residual, void* output, const __grid_constant__ Conv c) {
  const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= c.total) return;
  const u32 out = index % c.outputs, pixel = index / c.outputs, taps = c.kernel_height * c.kernel_width;
  const u32 left = pixel % c.out_width, top = pixel / c.out_width % c.out_height, image = pixel / c.out_width / c.out_height;
  float sum = 0;
  for (u32 ky = 0; ky < c.kernel_height; ky++) {
    const u32 down = top + c.before_y - ky, y = down / c.stride_y;
    if (top + c.before_y < ky || down % c.stride_y || y >= c.height) continue;
    for (u32 kx = 0; kx < c.kernel_width; kx++) {
      const u32 right = left + c.before_x - kx, x = right / c.stride_x;
      if (left + c.before_x < kx || right % c.stride_x || x >= c.width) continue;
      const u64 at = ((u64)(image * c.height + y) * c.width + x) * c.channels;
      for (u32 i = 0; i < c.channels; i++)
        sum = multiply_add(load(input, at + i, c.from), weight[((u64)i * c.outputs + out) * taps + ky * c.kernel_width + kx], sum);
    }
  }
  finish(c.epilogue, bias, residual, output, index, out, sum);
}

struct Patches {
  u32 total, height, width, channels, out_height, out_width;
  u32 kernel_width, stride_y, stride_x, before_y, before_x, depth, padded;  // depth: elements of a row; padded: with zeros behind
  int from, to;
  u32 group;  // elements a thread writes: 1, or 4 where channels and alignment allow
  u32 first;  // pixel of row 0
};
// Row `pixel` of the output: the patch under the kernel, [kernel_height, kernel_width, channels], for a product with the weight.
KERNEL patches(const void* input, void* output, const __grid_constant__ Patches c) {
  const u32 i = (blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= c.total) return;
  const u32 groups = c.padded / c.group, row = i / groups, k = (i - row * groups) * c.group, pixel = row + c.first;
  const u32 tap = k / c.channels, channel = k - tap * c.channels;
  const u32 y = pixel / c.out_width % c.out_height * c.stride_y + tap / c.kernel_width - c.before_y;
  const u32 x = pixel % c.out_width * c.stride_x + tap % c.kernel_width - c.before_x;
  const u32 image = pixel / c.out_width / c.out_height;
  const bool inside = k < c.depth && y < c.height && x < c.width;
  const u64 at = ((u64)(image * c.height + y) * c.width + x) * c.channels + channel, to = (u64)row * c.padded + k;
  if (c.group == 4) store4(output, to, c.to, inside ? load4(input, at, c.from) : make_float4(0, 0, 0, 0));
  else store(output, to, c.to, inside ? load(input, at, c.from) : 0.0f);
}

struct Shuffle {
  u32 total, height, width, outputs, kernel_height, kernel_width;
  int from, unused;
  Epilogue epilogue;
};
// Products [image, y, x, (ky, kx, output)] to the image [image, y * kernel_height + ky, x * kernel_width + kx, output].
KERNEL pixel_shuffle(const void* input, const float* bias, const void* residual, void* output, const __grid_constant__ Shuffle c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.total) return;
  const u32 channel = i % c.outputs, pixel = i / c.outputs, out_width = c.width * c.kernel_width;
  const u32 x = pixel % out_width, row = pixel / out_width, y = row % (c.height * c.kernel_height), image = row / (c.height * c.kernel_height);
  const u32 from = (image * c.height + y / c.kernel_height) * c.width + x / c.kernel_width;
  const u32 tap = y % c.kernel_height * c.kernel_width + x % c.kernel_width;
  const float sum = load(input, ((u64)from * c.kernel_height * c.kernel_width + tap) * c.outputs + channel, c.from);
  finish(c.epilogue, bias, residual, output, i, channel, sum);
}

struct Pool {
  u32 total, height, width, channels, out_height, out_width;
  u32 kernel_y, kernel_x, stride_y, stride_x, padding_y, padding_x;
  int from, to;
};
KERNEL max_pool(const void* input, void* output, const __grid_constant__ Pool c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.total) return;
  const u32 channel = i % c.channels, pixel = i / c.channels;
  const u32 left = pixel % c.out_width * c.stride_x, top = pixel / c.out_width % c.out_height * c.stride_y, image = pixel / c.out_width / c.out_height;
  float best = -infinity();
  for (u32 ky = 0; ky < c.kernel_y; ky++)
    for (u32 kx = 0; kx < c.kernel_x; kx++) {
      const u32 y = top + ky - c.padding_y, x = left + kx - c.padding_x;
      if (y < c.height && x < c.width) best = larger(best, load(input, ((u64)(image * c.height + y) * c.width + x) * c.channels + channel, c.from));
    }
  store(output, i, c.to, best);
}

struct Tap {
  u32 at;
  float weight;
};
struct Resize {
  u32 total, height, width, channels, out_height, out_width, row_taps, column_taps;  // taps of every position, padded with weight 0
  int from, to;
  u32 wide;  // whether a thread computes four channels, which are aligned
};
// rows: [out_height, row_taps], columns: [out_width, column_taps].
KERNEL resize(const void* input, const Tap* rows, const Tap* columns, void* output, const __grid_constant__ Resize c) {
  const u32 index = blockIdx.x * blockDim.x + threadIdx.x, i = c.wide ? index * 4 : index;
  if (i >= c.total) return;
  const u32 channel = i % c.channels, pixel = i / c.channels, x = pixel % c.out_width, y = pixel / c.out_width % c.out_height;
  const u64 image = (u64)(pixel / c.out_width / c.out_height) * c.height;
  if (c.wide) {
    float4 sum = make_float4(0, 0, 0, 0);
    for (u32 r = 0; r < c.row_taps; r++) {
      const Tap row = rows[y * c.row_taps + r];
      for (u32 k = 0; k < c.column_taps; k++) {
        const Tap column = columns[x * c.column_taps + k];
        const float weight = row.weight * column.weight;
        if (weight == 0.0f) continue;
        const float4 v = load4(input, ((image + row.at) * c.width + column.at) * c.channels + channel, c.from);
        sum.x = multiply_add(v.x, weight, sum.x), sum.y = multiply_add(v.y, weight, sum.y);
        sum.z = multiply_add(v.z, weight, sum.z), sum.w = multiply_add(v.w, weight, sum.w);
      }
    }
    store4(output, i, c.to, sum);
    return;
  }
  float sum = 0;
  for (u32 r = 0; r < c.row_taps; r++) {
    const Tap row = rows[y * c.row_taps + r];
    for (u32 k = 0; k < c.column_taps; k++) {
      const Tap column = columns[x * c.column_taps + k];
      const float weight = row.weight * column.weight;
      if (weight != 0.0f) sum = multiply_add(load(input, ((image + row.at) * c.width + column.at) * c.channels + channel, c.from), weight, sum);
    }
  }
  store(output, i, c.to, sum);
}

struct Sample {
  u32 total, height, width, channels, points;  // points of an image
  int from, grid_type, to;
};
KERNEL grid_sample(const void* input, const void* grid, void* output, const __grid_constant__ Sample c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.total) return;
  const u32 channel = i % c.channels, point = i / c.channels, image = point / c.points;
  const float lengths[2] = {(float)c.width, (float)c.height};
  float low[2], fraction[2];
  UNROLL for (int d = 0; d < 2; d++) {
    const float position = ((load(grid, (u64)point * 2 + d, c.grid_type) + 1.0f) * lengths[d] - 1.0f) * 0.5f;
    low[d] = round_down(position);
    fraction[d] = position - low[d];
  }
  float sum = 0;
  UNROLL for (int dy = 0; dy < 2; dy++) UNROLL for (int dx = 0; dx < 2; dx++) {
    const float x = low[0] + dx, y = low[1] + dy;
    if (!(x >= 0 && x < lengths[0] && y >= 0 && y < lengths[1])) continue;
    const float weight = (dy ? fraction[1] : 1.0f - fraction[1]) * (dx ? fraction[0] : 1.0f - fraction[0]);
    sum = multiply_add(load(input, ((u64)(image * c.height + (u32)y) * c.width + (u32)x) * c.channels + channel, c.from), weight, sum);
  }
  store(output, i, c.to, sum);
}

struct Problem {
  u32 step, kind;
  i64 at;
  double value, other;
};
struct Roi {
  u32 total, batch, height, width, channels, rows, columns, ratio, aligned, step;
  float scale;
  int from, box_type, to;
};
struct Side {
  float start, cell;
  u32 samples;
};
INLINE Side side(const Roi& c, float low, float high, u32 cells) {
  const float offset = c.aligned ? 0.5f : 0.0f, start = low * c.scale - offset;
  float length = (high * c.scale - offset) - start;
  if (!c.aligned) length = larger(length, 1.0f);
  const float cell = length / cells, pixels = -round_down(-cell);
  return {start, cell, c.ratio ? c.ratio : pixels > 0 ? (u32)pixels : 0};
}
// The lower neighbour of a position and the fraction beyond it; false more than one pixel outside.
INLINE bool neighbour(float position, u32 length, u32& low, float& fraction) {
  if (!(position >= -1.0f && position <= (float)length)) return false;
  const float inside = larger(position, 0.0f);
  low = (u32)inside;
  fraction = inside - (float)low;
  if (low + 1 >= length) low = length - 1, fraction = 0;
  return true;
}
KERNEL roi_align(const void* input, const void* boxes, void* output, Problem* problem, const __grid_constant__ Roi c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.total) return;
  const u32 channel = i % c.channels, cell = i / c.channels, column = cell % c.columns, row = cell / c.columns % c.rows, box = cell / c.columns / c.rows;
  float corner[5];
  UNROLL for (int k = 0; k < 5; k++) corner[k] = load(boxes, (u64)box * 5 + k, c.box_type);
  const Side ys = side(c, corner[2], corner[4], c.rows), xs = side(c, corner[1], corner[3], c.columns);
  const bool known = round_down(corner[0]) == corner[0] && corner[0] >= 0 && corner[0] < (float)c.batch;
  bool finite = true;
  UNROLL for (int k = 1; k < 5; k++) finite &= absolute(corner[k]) < infinity();
  const u32 most = max(ys.samples, xs.samples);
  if (!known || !finite || most > 4096) {
    if (channel + column + row == 0 && atomicCAS(&problem->step, 0u, c.step) == 0u) {
      problem->kind = !known ? 1 : !finite ? 2 : 3;
      problem->at = box;
      problem->value = !known ? corner[0] : (double)most;
      problem->other = c.batch;
    }
    store(output, i, c.to, not_a_number());
    return;
  }
  const u64 image = (u64)corner[0] * c.height;
  float sum = 0;
  for (u32 a = 0; a < ys.samples; a++) {
    u32 y, x;
    float fy, fx;
    if (!neighbour(ys.start + ((float)row + ((float)a + 0.5f) / ys.samples) * ys.cell, c.height, y, fy)) continue;
    for (u32 b = 0; b < xs.samples; b++) {
      if (!neighbour(xs.start + ((float)column + ((float)b + 0.5f) / xs.samples) * xs.cell, c.width, x, fx)) continue;
      UNROLL for (int dy = 0; dy < 2; dy++) UNROLL for (int dx = 0; dx < 2; dx++) {
        const float weight = (dy ? fy : 1.0f - fy) * (dx ? fx : 1.0f - fx);
        const u32 py = min(y + dy, c.height - 1), px = min(x + dx, c.width - 1);
        sum = multiply_add(load(input, ((image + py) * c.width + px) * c.channels + channel, c.from), weight, sum);
      }
    }
  }
  store(output, i, c.to, sum / (float)max(ys.samples * xs.samples, 1u));
}

struct BitTap {
  u32 first, second;
  float weight;  // of the second
};
struct MaskBits {
  u32 total, height, width, words, low_height, low_width, groups;  // words of a column; groups of 32 columns
  int from;
  float sure, possible, threshold;
};
// Not fused, so that masks are the same bits as on the host.
INLINE float mixed(float first, float second, float weight) {
  return __fadd_rn(__fmul_rn(__fsub_rn(1.0f, weight), first), __fmul_rn(weight, second));
}
// The two input rows around an output row, each resampled to N columns; kept while the next output rows need the same ones.
template <int N> struct RowPair {
  u32 at[2] = {~0u, ~0u};
  float value[2][N];
  // `make(row, values)` resamples a row. All threads of a warp have the same taps.
  template <class Make> INLINE void advance(RowPair& pair, const BitTap& tap, Make make) {
    if (pair.at[0] != tap.first) {
      if (pair.at[1] == tap.first) UNROLL for (int k = 0; k < N; k++) pair.value[0][k] = pair.value[1][k];
      else make(tap.first, pair.value[0]);
      pair.at[0] = tap.first;
    }
    if (pair.at[1] != tap.second) {
      if (pair.at[0] == tap.second) UNROLL for (int k = 0; k < N; k++) pair.value[1][k] = pair.value[0][k];
      else make(tap.second, pair.value[1]);
      pair.at[1] = tap.second;
    }
  }
};
// The counts of each row of `length` words start from 0.
KERNEL mask_bits_clear(u32* output, const u32 masks, const u32 length) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < masks * 2) output[(u64)(i / 2) * length + i % 2] = 0;
}
// One thread a word: 32 rows of a column; a warp has neighbouring columns of one mask. rows, columns: taps of the last resampling;
// first_rows, first_columns: of the one before it, or null. output: [masks, 2 + width * words].
KERNEL mask_bits(const void* logits, const BitTap* rows, const BitTap* columns, const BitTap* first_rows, const BitTap* first_columns,
                 u32* output, const __grid_constant__ MaskBits c) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= c.total) return;  // whole warps: the total is a multiple of 32
  const u32 warp = i / 32, x = warp % c.groups * 32 + i % 32, word = warp / c.groups % c.words, mask = warp / c.groups / c.words;
  u32* const result = output + (u64)mask * (2 + (u64)c.width * c.words);
  const u64 image = (u64)mask * c.low_height;
  u32 bits = 0, sure = 0, possible = 0;
  if (x < c.width) {
    const BitTap column = columns[x];
    const BitTap left = first_columns ? first_columns[column.first] : column, right = first_columns ? first_columns[column.second] : column;
    const auto across = [&](u32 y, const BitTap& tap) {
      const u64 row = (image + y) * c.low_width;
      return mixed(load(logits, row + tap.first, c.from), load(logits, row + tap.second, c.from), tap.weight);
    };
    RowPair<1> last;
    RowPair<2> first;
    const u32 end = min(32u, c.height - word * 32);
    for (u32 bit = 0; bit < end; bit++) {
      const BitTap row = rows[word * 32 + bit];
      RowPair<1>::advance(last, row, [&](u32 y, float* value) {
        if (!first_rows) {
          value[0] = across(y, column);
          return;
        }
        const BitTap between = first_rows[y];
        RowPair<2>::advance(first, between, [&](u32 low, float* two) { two[0] = across(low, left), two[1] = across(low, right); });
        const float a = mixed(first.value[0][0], first.value[1][0], between.weight);
        const float b = mixed(first.value[0][1], first.value[1][1], between.weight);
        value[0] = mixed(a, b, column.weight);
      });
      const float value = mixed(last.value[0][0], last.value[1][0], row.weight);
      bits |= (u32)(value > c.threshold) << bit;
      sure += value > c.sure;
      possible += value > c.possible;
    }
    result[2 + (u64)x * c.words + word] = bits;
  }
  sure = __reduce_add_sync(~0u, sure), possible = __reduce_add_sync(~0u, possible);
  if (i % 32 == 0 && sure) atomicAdd(result, sure);
  if (i % 32 == 0 && possible) atomicAdd(result + 1, possible);
}
