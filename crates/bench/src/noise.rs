//! Seeded random numbers, and the error between two results.

use std::sync::Arc;

use anyhow::{Result, ensure};
use cutout_parallel::AlignedBuffer;
use cutout_tensor::{Bytes, Shape, Tensor, TensorType};

/// A stream of numbers that depends only on its seed; a shorter stream is the prefix of a longer one.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Noise {
        Noise(seed)
    }

    /// The next 24 random bits.
    pub(crate) fn bits(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as u32
    }

    /// Uniform in -1..1.
    pub(crate) fn number(&mut self) -> f32 {
        self.bits() as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Numbers in -1..1 in an aligned buffer with huge pages, as kernels use them.
pub(crate) fn buffer(seed: u64, length: usize) -> AlignedBuffer<f32> {
    let mut noise = Noise::new(seed);
    let mut buffer = AlignedBuffer::zeroed(length);
    buffer.iter_mut().for_each(|value| *value = noise.number());
    buffer
}

/// A buffer as the memory of a tensor.
struct Shared(AlignedBuffer<f32>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl Bytes for Shared {}

/// A tensor of numbers in -1..1 in an aligned buffer, like the activations of a program.
pub(crate) fn tensor(seed: u64, shape: impl Into<Shape>) -> Result<Tensor> {
    let ty = TensorType::f32(shape);
    let values = Shared(buffer(seed, ty.shape.elements()));
    Ok(Tensor::from_bytes(ty, Arc::new(values), 0)?)
}

/// Largest difference between two results, relative to the largest element of the first.
pub(crate) fn relative_error(ours: &[f32], other: &[f32]) -> Result<f64> {
    ensure!(ours.len() == other.len(), "{} elements, expected {}", other.len(), ours.len());
    let (mut largest, mut difference) = (0f32, 0f32);
    for (a, b) in ours.iter().zip(other) {
        if a.is_nan() || b.is_nan() {
            return Ok(f64::NAN);
        }
        largest = largest.max(a.abs());
        difference = difference.max((a - b).abs());
    }
    Ok(f64::from(difference) / f64::from(largest.max(f32::MIN_POSITIVE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_largest_element() {
        assert_eq!(relative_error(&[4.0, 0.0], &[4.0, 1.0]).unwrap(), 0.25);
        assert_eq!(relative_error(&[0.0], &[0.0]).unwrap(), 0.0);
        assert!(relative_error(&[1.0], &[f32::NAN]).unwrap().is_nan());
        assert!(relative_error(&[1.0], &[]).is_err());
    }

    #[test]
    fn shorter_noise_begins_longer_noise() {
        assert_eq!(buffer(3, 5)[..], buffer(3, 9)[..5]);
        assert!(buffer(4, 1000).iter().all(|x| (-1.0..1.0).contains(x)));
    }
}
