//! The tile registers in plain Rust, with the bits of the processor's.
//!
//! A product of bytes is exact, and its sums wrap. A product of bf16 numbers adds the even depths in one `f32` and the odd depths in another, both from zero, by fused multiply-adds in rising
//! order; adds the two; adds the result to the accumulator. Every step rounds to nearest even, takes denormal inputs as zero, and
//! gives zero instead of a denormal result.

use super::{ROW_BYTES, ROWS, TILE_BYTES, TileUnit};

/// Eight registers.
pub(crate) struct Twin {
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
fn flushed_result(value: f32, exact: impl Fn() -> f64) -> f32 {
    const LEAST: f64 = f32::MIN_POSITIVE as f64;
    const HALF_STEP: f64 = f64::EPSILON * (1u64 << 27) as f64;
    let tiny = value.abs() <= f32::MIN_POSITIVE && exact().abs() < LEAST * (1.0 - HALF_STEP);
    if tiny { 0.0f32.copysign(value) } else { value }
}

fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    let (a, b, c) = (flushed(a), flushed(b), flushed(c));
    flushed_result(a.mul_add(b, c), || f64::from(a).mul_add(f64::from(b), f64::from(c)))
}

fn add(a: f32, b: f32) -> f32 {
    let (a, b) = (flushed(a), flushed(b));
    flushed_result(a + b, || f64::from(a) + f64::from(b))
}

impl Twin {
    /// The four bytes of a sum.
    fn word(&mut self, tile: usize, row: usize, column: usize) -> &mut [u8; 4] {
        let (words, _) = self.tiles[tile].as_chunks_mut();
        &mut words[row * ROWS + column]
    }

    /// The bf16 numbers of a tile.
    fn halves(&self, tile: usize) -> [[f32; 2 * ROWS]; ROWS] {
        let half = |row: usize, column: usize| {
            let at = row * ROW_BYTES + 2 * column;
            let bits = u16::from_le_bytes([self.tiles[tile][at], self.tiles[tile][at + 1]]);
            f32::from_bits(u32::from(bits) << 16)
        };
        std::array::from_fn(|row| std::array::from_fn(|column| half(row, column)))
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

    unsafe fn dot_halves<const D: usize, const A: usize, const B: usize>(&mut self) {
        let (left, right) = (self.halves(A), self.halves(B));
        for row in 0..ROWS {
            for column in 0..ROWS {
                let (mut even, mut odd) = (0.0, 0.0);
                for pair in 0..ROWS {
                    let (left, right) = (&left[row][2 * pair..], &right[pair][2 * column..]);
                    even = multiply_add(left[0], right[0], even);
                    odd = multiply_add(left[1], right[1], odd);
                }
                let word = self.word(D, row, column);
                let sum = add(f32::from_le_bytes(*word), add(even, odd));
                *word = sum.to_le_bytes();
            }
        }
    }

    unsafe fn dot_bytes<const D: usize, const A: usize, const B: usize>(&mut self) {
        let (left, right) = (self.tiles[A], self.tiles[B]);
        for row in 0..ROWS {
            for column in 0..ROWS {
                let word = self.word(D, row, column);
                let mut sum = i32::from_le_bytes(*word);
                for depth in 0..ROW_BYTES {
                    let left = left[row * ROW_BYTES + depth] as i8;
                    let right = right[depth / 4 * ROW_BYTES + column * 4 + depth % 4] as i8;
                    sum = sum.wrapping_add(i32::from(left) * i32::from(right));
                }
                *word = sum.to_le_bytes();
            }
        }
    }
}
