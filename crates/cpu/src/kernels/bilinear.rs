//! Weighted sums of pixels, for the ops that sample images between pixels.

use crate::kernels::image::{load_count, store_count};
use crate::simd::Simd;

/// Offset of a row or a column of pixels, in elements, and its weight.
pub(crate) type WeightedOffset = (usize, f32);

/// Vectors of channels that are summed at the same time, to hide the latency of a multiply-add.
const VECTORS: usize = 4;

/// Writes `factor * Σ row weight * column weight * pixel` over all given rows and columns of `image`, for each channel.
///
/// Panics if a pixel is outside the image.
#[inline(always)]
pub(crate) fn weighted_pixels<S: Simd>(
    simd: S,
    image: &[f32],
    (rows, columns): (&[WeightedOffset], &[WeightedOffset]),
    factor: f32,
    target: &mut [f32],
) {
    let mut channel = 0;
    while channel + VECTORS * S::LANES <= target.len() {
        let mut sums = [simd.splat(0.0); VECTORS];
        for &(row, row_weight) in rows {
            for &(column, column_weight) in columns {
                let pixel = &image[row + column + channel..][..VECTORS * S::LANES];
                let weight = simd.splat(row_weight * column_weight);
                for (vector, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.fma(weight, simd.load(&pixel[vector * S::LANES..]), *sum);
                }
            }
        }
        for sum in sums {
            simd.store(simd.mul(sum, simd.splat(factor)), &mut target[channel..]);
            channel += S::LANES;
        }
    }
    while channel < target.len() {
        let count = S::LANES.min(target.len() - channel);
        let mut sum = simd.splat(0.0);
        for &(row, row_weight) in rows {
            for &(column, column_weight) in columns {
                let pixel = load_count(simd, &image[row + column + channel..], count);
                sum = simd.fma(simd.splat(row_weight * column_weight), pixel, sum);
            }
        }
        let value = simd.mul(sum, simd.splat(factor));
        store_count(simd, value, &mut target[channel..], count);
        channel += S::LANES;
    }
}
