//! The tile registers in plain Rust, with the bits of the processor's.
//!
//! A product adds the even depths in one `f32` and the odd depths in another, both from zero, by fused multiply-adds in rising
//! order; adds the two; adds the result to the accumulator. Every step rounds to nearest even, takes denormal inputs as zero, and
//! gives zero instead of a denormal result.

use super::tiles::{ROW_BYTES, ROWS, TILE_BYTES, TileUnit};

/// Eight registers.
pub(super) struct Twin {
    tiles: [[u8; TILE_BYTES]; 8],
}

/// Zero with the sign of `value` in place of a denormal number.
fn flushed(value: f32) -> f32 {
    if value.is_subnormal() { 0.0f32.copysign(value) } else { value }
}

/// Zero in place of a tiny result; `exact` is the result before it was rounded to `value`.
///
/// A result is tiny if it is below the least normal number when rounded to 24 bits with unbounded exponent. Rounding to a denormal
/// number is coarser and would take some of these to the least normal number.
fn flushed_result(value: f32, exact: f64) -> f32 {
    const LEAST: f64 = f32::MIN_POSITIVE as f64;
    const HALF_STEP: f64 = f64::EPSILON * (1u64 << 27) as f64;
    if exact.abs() < LEAST * (1.0 - HALF_STEP) { 0.0f32.copysign(value) } else { value }
}

fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    let (a, b, c) = (flushed(a), flushed(b), flushed(c));
    flushed_result(a.mul_add(b, c), f64::from(a).mul_add(f64::from(b), f64::from(c)))
}

fn add(a: f32, b: f32) -> f32 {
    let (a, b) = (flushed(a), flushed(b));
    flushed_result(a + b, f64::from(a) + f64::from(b))
}

impl Twin {
    fn bytes<const N: usize>(&self, tile: usize, at: usize) -> [u8; N] {
        std::array::from_fn(|index| self.tiles[tile][at + index])
    }

    fn single(&self, tile: usize, row: usize, column: usize) -> f32 {
        f32::from_le_bytes(self.bytes(tile, row * ROW_BYTES + column * 4))
    }

    fn half(&self, tile: usize, row: usize, column: usize) -> f32 {
        let bits = u16::from_le_bytes(self.bytes(tile, row * ROW_BYTES + column * 2));
        f32::from_bits(u32::from(bits) << 16)
    }
}

impl TileUnit for Twin {
    unsafe fn configure() -> Twin {
        Twin { tiles: [[0; TILE_BYTES]; 8] }
    }

    unsafe fn zero<const D: usize>(&mut self) {
        self.tiles[D] = [0; TILE_BYTES];
    }

    unsafe fn load<const D: usize>(&mut self, source: *const u8, stride: usize) {
        for (row, target) in self.tiles[D].chunks_exact_mut(ROW_BYTES).enumerate() {
            let source = source.wrapping_add(row * stride);
            // SAFETY: the caller vouches for the rows, and nobody else has the registers.
            unsafe { std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), ROW_BYTES) };
        }
    }

    unsafe fn store<const S: usize>(&mut self, target: *mut u8, stride: usize) {
        for (row, source) in self.tiles[S].chunks_exact(ROW_BYTES).enumerate() {
            let target = target.wrapping_add(row * stride);
            // SAFETY: the caller vouches for the rows, and nobody else has the registers.
            unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), target, ROW_BYTES) };
        }
    }

    unsafe fn dot<const D: usize, const A: usize, const B: usize>(&mut self) {
        for row in 0..ROWS {
            for column in 0..ROW_BYTES / 4 {
                let (mut even, mut odd) = (0.0, 0.0);
                for pair in 0..ROWS {
                    let (left, right) = (2 * pair, 2 * column);
                    even = multiply_add(self.half(A, row, left), self.half(B, pair, right), even);
                    let factors = [self.half(A, row, left + 1), self.half(B, pair, right + 1)];
                    odd = multiply_add(factors[0], factors[1], odd);
                }
                let sum = add(self.single(D, row, column), add(even, odd));
                self.tiles[D][row * ROW_BYTES + column * 4..][..4]
                    .copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
}
