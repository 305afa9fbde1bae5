//! The parameter structures of the kernels: each mirrors the one of the same name in the kernel sources.

use bytemuck::{Pod, Zeroable};
use cutout_tensor::DType;

/// Axes of a [`Walk`].
pub(crate) const MOST_AXES: usize = 8;
/// Inputs of a chain.
pub(crate) const MOST_INPUTS: usize = 17;
/// Steps of a chain.
pub(crate) const MOST_STEPS: usize = 16;

/// Number of an element type in kernels.
pub(crate) fn code(dtype: DType) -> i32 {
    DType::ALL
        .iter()
        .position(|&known| known == dtype)
        .and_then(|index| i32::try_from(index).ok())
        .unwrap_or(-1)
}

/// Declares `#[repr(C)]` structures with the size that the kernel's one has.
macro_rules! parameters {
    ($($name:ident: $size:literal { $($field:ident: $ty:ty),* $(,)? })*) => {
        $(
            #[derive(Clone, Copy, Debug, Pod, Zeroable)]
            #[repr(C)]
            pub(crate) struct $name { $(pub(crate) $field: $ty),* }
            const _: () = assert!(std::mem::size_of::<$name>() == $size);
        )*
    };
}

parameters! {
    Walk: 104 { rank: i32, lengths: [u32; 8], unused: u32, strides: [i64; 8] }
    ChainInput: 72 { strides: [i64; 8], stored: i32, access: i32 }
    ChainStep: 16 { function: i16, a: i16, b: i16, unused: i16, number_a: f32, number_b: f32 }
    Flat: 176 {
        total: u32, steps: i32, out_stored: i32, periods: [u32; 4], stored: [i32; 4], unused: u32, step: [ChainStep; 8],
    }
    Chain: 1600 {
        total: u32, rank: i32, steps: i32, inputs: i32, lengths: [u32; 8], out_strides: [i64; 8], out_stored: i32,
        out_access: i32, input: [ChainInput; 17], step: [ChainStep; 16],
    }
    Copy: 216 { total: u32, bytes: i32, from: Walk, to: Walk }
    Cast: 12 { total: u32, from: i32, to: i32 }
    Logic: 328 { total: u32, function: i32, stored: i32, unused: i32, a: Walk, b: Walk, condition: Walk }
    Gather: 32 {
        total: u32, width: u32, rows: u32, step: u32, index: i32, from: i32, to: i32, unused: i32,
    }
    Pad: 120 {
        total: u32, rank: i32, from: i32, to: i32, value: f32, unused: u32, out_lengths: [u32; 8], in_lengths: [u32; 8],
        before: [u32; 8],
    }
    Rows: 128 { rows: u32, width: u32, from: i32, to: i32, epsilon: f32, aligned: u32, walk: Walk }
    Lines: 24 { lines: u32, length: u32, inner: u32, from: i32, to: i32, epsilon: f32 }
    Reduce: 232 {
        outputs: u32, count: u32, kind: i32, from: i32, to: i32, threads: u32, kept: Walk, reduced: Walk,
    }
    GroupNorm: 36 {
        pixels: u32, channels: u32, groups: u32, parts: u32, from: i32, to: i32, epsilon: f32, total: u32, wide: u32,
    }
    Rope: 152 {
        pairs: u32, tokens: u32, rotated: u32, half: u32, positions: u32, table: u32, grid_width: u32,
        window_height: u32, window_width: u32, from: i32, to: i32, unused: u32, walk: Walk,
    }
    Epilogue: 16 { scale: f32, activation: i32, residual: i32, to: i32 }
    Conv: 80 {
        total: u32, height: u32, width: u32, channels: u32, outputs: u32, out_height: u32, out_width: u32,
        kernel_height: u32, kernel_width: u32, stride_y: u32, stride_x: u32, before_y: u32, before_x: u32, depth: u32,
        per_group: u32, from: i32, epilogue: Epilogue,
    }
    Patches: 68 {
        total: u32, height: u32, width: u32, channels: u32, out_height: u32, out_width: u32, kernel_width: u32,
        stride_y: u32, stride_x: u32, before_y: u32, before_x: u32, depth: u32, padded: u32, from: i32, to: i32,
        group: u32, first: u32,
    }
    Shuffle: 48 {
        total: u32, height: u32, width: u32, outputs: u32, kernel_height: u32, kernel_width: u32, from: i32,
        unused: i32, epilogue: Epilogue,
    }
    Pool: 56 {
        total: u32, height: u32, width: u32, channels: u32, out_height: u32, out_width: u32, kernel: [u32; 2],
        stride: [u32; 2], padding: [u32; 2], from: i32, to: i32,
    }
    Resample: 36 {
        total: u32, length: u32, inner: u32, positions: u32, taps: u32, half: i32, bits: i32, from: i32, to: i32,
    }
    Tap: 8 { at: u32, weight: f32 }
    Resize: 44 {
        total: u32, height: u32, width: u32, channels: u32, out_height: u32, out_width: u32, row_taps: u32,
        column_taps: u32, from: i32, to: i32, wide: u32,
    }
    Sample: 32 {
        total: u32, height: u32, width: u32, channels: u32, points: u32, from: i32, grid: i32, to: i32,
    }
    Roi: 56 {
        total: u32, batch: u32, height: u32, width: u32, channels: u32, rows: u32, columns: u32, ratio: u32,
        aligned: u32, step: u32, scale: f32, from: i32, boxes: i32, to: i32,
    }
    BitTap: 12 { first: u32, second: u32, weight: f32 }
    MaskBits: 44 {
        total: u32, height: u32, width: u32, words: u32, low_height: u32, low_width: u32, groups: u32, from: i32,
        sure: f32, possible: f32, threshold: f32,
    }
    SplitMatrix: 144 {
        matrices: u32, columns: u32, depth: u32, padded: u32, column: i64, along: i64, scale: f32, unused: u32, batch: Walk,
    }
    Product: 288 {
        rows: u32, columns: u32, depth: u32, few_rows: u32, a_row: i64, a_depth: i64, b_column: i64, b_depth: i64,
        a_stored: i32, b_stored: i32, residual: i32, to: i32, scale: f32, activation: i32, a_batch: Walk,
        b_batch: Walk, shuffle_width: u32, shuffle_outputs: u32,
    }
    SumParts: 28 {
        elements: u32, columns: u32, parts: u32, scale: f32, activation: i32, residual: i32, to: i32,
    }
    Gemm: 40 {
        rows: u32, columns: u32, depth: u32, a_row: u32, b_column: u32, scale: f32, activation: i32, residual: i32,
        to: i32, unused: u32,
    }
    Quantize: 120 { rows: u32, width: u32, padded: u32, from: i32, walk: Walk }
    Quantized: 36 {
        rows: u32, columns: u32, padded: u32, group: u32, groups: u32, residual: i32, to: i32, activation: i32,
        scale: f32,
    }
    Attention: 256 {
        heads: u32, width: u32, value_width: u32, queries: u32, keys: u32, window_queries: u32, window_keys: u32,
        windows_x: u32, windows: u32, query_grid_width: u32, query_grid_height: u32, query_window_width: u32,
        query_window_height: u32, key_grid_width: u32, key_grid_height: u32, key_window_width: u32,
        key_window_height: u32, windowed: u32, causal: u32, bias: u32, bias_width: u32, bias_height: u32,
        bias_rows: u32, bias_columns: u32, rotate: u32, query_positions: u32, key_positions: u32, rotated_keys: u32,
        parts: u32, padded_width: u32, padded_value: u32, query_stored: i32, key_stored: i32, value_stored: i32,
        rows_stored: i32, columns_stored: i32, to: i32, scale: f32, wide: u32, unused: u32, query_batch: i64, query_row: i64,
        key_batch: i64, key_row: i64, value_batch: i64, value_row: i64, rows_batch: i64, rows_row: i64,
        rows_head: i64, columns_batch: i64, columns_row: i64, columns_head: i64,
    }
    AttentionHalf: 200 {
        heads: u32, width: u32, value_width: u32, queries: u32, keys: u32, window_queries: u32, window_keys: u32,
        windows_x: u32, windowed: u32, query_grid_width: u32, query_grid_height: u32, query_window_width: u32,
        query_window_height: u32, key_grid_width: u32, key_grid_height: u32, key_window_width: u32,
        key_window_height: u32, bias: u32, bias_width: u32, bias_height: u32, parts: u32, rows_stored: i32,
        columns_stored: i32, to: i32, scale: f32, unused: u32, query_batch: i64, query_row: i64, key_batch: i64,
        key_row: i64, value_batch: i64, value_row: i64, rows_batch: i64, rows_row: i64, rows_head: i64,
        columns_batch: i64, columns_row: i64, columns_head: i64,
    }
    Join: 16 { lines: u32, parts: u32, width: u32, to: i32 }
}

/// Axes with the strides of several tensors along them, outermost first.
pub(crate) struct Axes {
    pub(crate) lengths: Vec<usize>,
    /// For each tensor the stride along each axis.
    pub(crate) strides: Vec<Vec<usize>>,
}

impl Axes {
    /// The axes of `shape`, without those of length one, neighbours merged where every tensor allows it.
    pub(crate) fn merged(shape: &[usize], strides: &[Vec<usize>]) -> Axes {
        let mut axes = Axes { lengths: Vec::new(), strides: vec![Vec::new(); strides.len()] };
        for (axis, &length) in shape.iter().enumerate() {
            if length == 1 {
                continue;
            }
            let merges = axes.lengths.last().is_some()
                && strides
                    .iter()
                    .zip(&axes.strides)
                    .all(|(new, old)| old.last().is_some_and(|&outer| outer == new[axis] * length));
            if merges {
                if let Some(last) = axes.lengths.last_mut() {
                    *last *= length;
                }
            } else {
                axes.lengths.push(length);
            }
            for (new, old) in strides.iter().zip(&mut axes.strides) {
                if merges {
                    old.pop();
                }
                old.push(new[axis]);
            }
        }
        axes
    }

    /// The walk of one tensor; `None` if there are too many axes.
    pub(crate) fn walk(&self, tensor: usize) -> Option<Walk> {
        if self.lengths.len() > MOST_AXES {
            return None;
        }
        let mut walk = Walk::zeroed();
        walk.rank = i32::try_from(self.lengths.len()).ok()?;
        for (axis, &length) in self.lengths.iter().enumerate() {
            walk.lengths[axis] = u32::try_from(length).ok()?;
            walk.strides[axis] = i64::try_from(self.strides[tensor][axis]).ok()?;
        }
        Some(walk)
    }
}

/// The walk over the axes of `shape` with these strides.
pub(crate) fn walk(shape: &[usize], strides: &[usize]) -> Option<Walk> {
    Axes::merged(shape, &[strides.to_vec()]).walk(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_merge_where_all_tensors_allow_it() {
        let axes = Axes::merged(&[2, 1, 3, 4], &[vec![12, 12, 4, 1], vec![0, 0, 4, 1]]);
        assert_eq!((axes.lengths, axes.strides), (vec![2, 12], vec![vec![12, 1], vec![0, 1]]));
        let all = Axes::merged(&[2, 3], &[vec![3, 1]]);
        assert_eq!(all.lengths, [6]);
        let none = Axes::merged(&[1, 1], &[vec![3, 1]]);
        assert_eq!(none.walk(0).unwrap().rank, 0);
    }
}
