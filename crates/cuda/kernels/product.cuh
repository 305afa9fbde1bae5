// What all products in f32 share: parameters and what follows the sums.
#pragma once
#include "common.cuh"

struct Product {
  u32 rows, columns, depth, unused;  // unused: bits of `product_few_rows`; 4: residual and output are aligned for four elements
  i64 a_row, a_depth, b_column, b_depth;  // strides in elements
  int a_type, b_type, residual_type, to;
  float scale;
  int activation;
  Walk a_batch, b_batch;  // first element of each matrix
  // Products of a transposed convolution of 2 x 2: rows are pixels, `shuffle_width` of them a line, columns [2, 2, shuffle_outputs]. 0: a matrix.
  u32 shuffle_width, shuffle_outputs;
};
INLINE void finish(const Product& p, const float* bias, const void* residual, void* output, u64 at, u32 column, float sum) {
  sum = activate(sum * p.scale + (bias ? bias[column] : 0.0f), p.activation);
  store(output, at, p.to, residual ? sum + load(residual, at, p.residual_type) : sum);
}
