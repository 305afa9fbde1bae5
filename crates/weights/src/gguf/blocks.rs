//! Quantised blocks of GGUF: packing from and unpacking to `f32`.
//!
//! A row of a matrix is split into blocks of 32 or 256 elements. A block holds small integers and the scales that convert
//! them to numbers. Rows do not share blocks, so the last axis is a multiple of the block length.

use std::fmt;

use cutout_tensor::{OutOfMemory, memory};
use half::f16;

use crate::error::Problem;

/// A quantised element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockType {
    /// 32 signed bytes, one scale.
    Q8_0,
    /// 32 four-bit integers with offset 8, one scale.
    Q4_0,
    /// 256 four-bit integers in eight groups, each with a six-bit scale and a six-bit minimum.
    Q4K,
    /// 256 six-bit integers with offset 32 in sixteen groups, each with an eight-bit scale.
    Q6K,
}

impl BlockType {
    /// Elements per block.
    pub const fn length(self) -> usize {
        match self {
            BlockType::Q8_0 | BlockType::Q4_0 => 32,
            BlockType::Q4K | BlockType::Q6K => 256,
        }
    }

    /// Bytes per block.
    pub const fn bytes(self) -> usize {
        match self {
            BlockType::Q8_0 => 2 + 32,
            BlockType::Q4_0 => 2 + 16,
            BlockType::Q4K => 2 + 2 + 12 + 128,
            BlockType::Q6K => 128 + 64 + 16 + 2,
        }
    }

    /// Name used by llama.cpp.
    pub const fn name(self) -> &'static str {
        match self {
            BlockType::Q8_0 => "q8_0",
            BlockType::Q4_0 => "q4_0",
            BlockType::Q4K => "q4_k",
            BlockType::Q6K => "q6_k",
        }
    }

    /// Unpacks whole blocks to `f32`.
    pub(crate) fn dequantize(self, bytes: &[u8]) -> Result<Vec<f32>, OutOfMemory> {
        let mut values = memory::zeroed::<f32>(bytes.len() / self.bytes() * self.length())?;
        let blocks = bytes.chunks_exact(self.bytes());
        for (block, values) in blocks.zip(values.chunks_exact_mut(self.length())) {
            match self {
                BlockType::Q8_0 => unpack_q8_0(block, values),
                BlockType::Q4_0 => unpack_q4_0(block, values),
                BlockType::Q4K => unpack_q4_k(block, values),
                BlockType::Q6K => unpack_q6_k(block, values),
            }
        }
        Ok(values)
    }
}

impl fmt::Display for BlockType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Block layout: scale, then 32 signed bytes.
fn unpack_q8_0(block: &[u8], values: &mut [f32]) {
    let scale = half_at(block, 0);
    for (value, &byte) in values.iter_mut().zip(&block[2..]) {
        *value = f32::from(byte as i8) * scale;
    }
}

/// Block layout: scale, then 16 bytes. The low nibbles are elements 0..16, the high nibbles elements 16..32.
fn unpack_q4_0(block: &[u8], values: &mut [f32]) {
    let scale = half_at(block, 0);
    for (i, &byte) in block[2..].iter().enumerate() {
        values[i] = (f32::from(byte & 15) - 8.0) * scale;
        values[i + 16] = (f32::from(byte >> 4) - 8.0) * scale;
    }
}

/// Six-bit scale and minimum of one of the eight groups of 32. Groups 0..4: low six bits of bytes 0..4 (scales) and 4..8
/// (minima). Groups 4..8: low nibbles in bytes 8..12, high bits in the top two bits of bytes 0..8.
fn scale_and_minimum(packed: &[u8], group: usize) -> (f32, f32) {
    let (scale, minimum) = if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let low = packed[group + 4];
        ((low & 15) | (packed[group - 4] >> 6 << 4), (low >> 4) | (packed[group] >> 6 << 4))
    };
    (f32::from(scale), f32::from(minimum))
}

/// Block layout: scale of the scales, scale of the minima, 12 bytes of scales and minima, then 128 bytes. Each run of 32
/// bytes holds two groups: the first in the low nibbles, the second in the high nibbles.
fn unpack_q4_k(block: &[u8], values: &mut [f32]) {
    let (scales, minima) = (half_at(block, 0), half_at(block, 2));
    for group in 0..8 {
        let (scale, minimum) = scale_and_minimum(&block[4..16], group);
        let (scale, minimum) = (scales * scale, minima * minimum);
        let bytes = &block[16 + group / 2 * 32..][..32];
        for (value, &byte) in values[group * 32..][..32].iter_mut().zip(bytes) {
            let nibble = if group % 2 == 0 { byte & 15 } else { byte >> 4 };
            *value = scale * f32::from(nibble) - minimum;
        }
    }
}

/// Block layout: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, then the scale of the scales. Each
/// half of 128 elements consists of four quarters of 32. Quarters 0 and 2 share the low-nibble bytes 0..32, quarters 1 and
/// 3 the bytes 32..64; all four share the same 32 bytes of high bits.
fn unpack_q6_k(block: &[u8], values: &mut [f32]) {
    let scales = half_at(block, 208);
    for half in 0..2 {
        for quarter in 0..4 {
            for i in 0..32 {
                let byte = block[half * 64 + quarter % 2 * 32 + i];
                let low = if quarter < 2 { byte & 15 } else { byte >> 4 };
                let high = block[128 + half * 32 + i] >> (2 * quarter) & 3;
                let scale = block[192 + half * 8 + quarter * 2 + i / 16] as i8;
                let number = f32::from(low | high << 4) - 32.0;
                values[half * 128 + quarter * 32 + i] = scales * f32::from(scale) * number;
            }
        }
    }
}

/// The scale of the block with this number in half precision; an error if it is out of range.
fn half_scale(scale: f32, number: usize) -> Result<f16, Problem> {
    let half = f16::from_f32(scale);
    if half.is_finite() {
        return Ok(half);
    }
    let what = format!("elements {} to {}", 32 * number, 32 * number + 31);
    let wanted = "numbers within the range of a quantised block, whose scale is f16";
    Err(Problem::invalid(what, wanted, format!("a scale of {scale:e}")))
}

/// Packs blocks of 32: `scale = max|x| / 127`, `value = round(x / scale)`.
pub(crate) fn pack_q8_0(values: &[f32], packed: &mut Vec<u8>) -> Result<(), Problem> {
    for (number, block) in values.chunks_exact(32).enumerate() {
        let largest = largest_by_size(block)?.abs();
        let scale = largest / 127.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        packed.extend(half_scale(scale, number)?.to_le_bytes());
        packed.extend(block.iter().map(|x| (x * inverse).round() as i8 as u8));
    }
    Ok(())
}

/// Packs blocks of 32: `scale = x / -8` for the element with the largest `|x|`, `value = round(x / scale) + 8` in `0..=15`.
pub(crate) fn pack_q4_0(values: &[f32], packed: &mut Vec<u8>) -> Result<(), Problem> {
    for (number, block) in values.chunks_exact(32).enumerate() {
        let scale = largest_by_size(block)? / -8.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        packed.extend(half_scale(scale, number)?.to_le_bytes());
        let nibble = |x: f32| ((x * inverse + 8.5) as u8).min(15);
        packed.extend((0..16).map(|i| nibble(block[i]) | nibble(block[i + 16]) << 4));
    }
    Ok(())
}

/// The first element with the largest absolute value.
fn largest_by_size(block: &[f32]) -> Result<f32, Problem> {
    let mut largest = 0f32;
    for &value in block {
        if !value.is_finite() {
            return Err(Problem::invalid("quantised block", "finite numbers", value));
        }
        if value.abs() > largest.abs() {
            largest = value;
        }
    }
    Ok(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_loses_at_most_half_a_step() {
        let values: Vec<f32> = (0..96).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
        let mut packed = Vec::new();
        pack_q8_0(&values, &mut packed).unwrap();
        for (value, back) in values.iter().zip(BlockType::Q8_0.dequantize(&packed).unwrap()) {
            assert!((value - back).abs() <= 50.0 / 7.0 / 127.0 * 0.51, "{value} {back}");
        }
        packed.clear();
        pack_q4_0(&values, &mut packed).unwrap();
        for (value, back) in values.iter().zip(BlockType::Q4_0.dequantize(&packed).unwrap()) {
            // The largest element maps to -8; the opposite end stops at 7, so its error may reach a whole step.
            assert!((value - back).abs() <= 50.0 / 7.0 / 8.0 * 1.01, "{value} {back}");
        }
    }

    #[test]
    fn zeros_stay_zero_and_out_of_range_scales_are_errors() {
        let mut packed = Vec::new();
        pack_q8_0(&[0.0; 32], &mut packed).unwrap();
        assert_eq!(BlockType::Q8_0.dequantize(&packed).unwrap(), [0.0; 32]);
        packed.clear();
        pack_q4_0(&[0.0; 32], &mut packed).unwrap();
        assert_eq!(BlockType::Q4_0.dequantize(&packed).unwrap(), [0.0; 32]);
        for bad in [f32::NAN, f32::INFINITY, 1e30] {
            assert!(pack_q8_0(&[bad; 32], &mut packed).is_err(), "{bad}");
            assert!(pack_q4_0(&[bad; 32], &mut packed).is_err(), "{bad}");
        }
    }
}
