// What the attentions in f32 share: parameters, and where parts of a line are kept until they are joined.
#pragma once
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

// Floats of one part of a line: the largest score, the sum, two that are not used, the channels.
INLINE u32 part_floats(u32 value_width) { return (value_width + 3) / 4 * 4 + 4; }
