//! Masks as grids of pixels.

use std::fmt;

use cutout_tensor::memory;

use crate::{ImageError, Rle, Size};

/// A binary mask, bool `[height, width]`. Has at least one pixel.
#[derive(Clone, PartialEq, Eq)]
pub struct Mask {
    size: Size,
    pixels: Vec<bool>,
}

impl Mask {
    /// A mask of `pixels`, `[height, width]`.
    pub fn from_pixels(size: Size, pixels: Vec<bool>) -> Result<Self, ImageError> {
        size.expect_values(1, pixels.len())?;
        Ok(Mask { size, pixels })
    }

    /// A mask with all pixels unset.
    pub fn empty(size: Size) -> Result<Self, ImageError> {
        Ok(Mask { size, pixels: memory::zeroed(size.pixels(1)?)? })
    }

    /// Sets the pixels whose `logits`, f32 `[height, width]`, are above `threshold`.
    pub fn from_logits(size: Size, logits: &[f32], threshold: f32) -> Result<Self, ImageError> {
        let pixels = logits.iter().map(|value| *value > threshold);
        Mask::from_pixels(size, memory::collected(logits.len(), pixels)?)
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        self.size
    }

    /// `[height, width]`.
    pub fn pixels(&self) -> &[bool] {
        &self.pixels
    }

    /// `[height, width]`.
    pub fn pixels_mut(&mut self) -> &mut [bool] {
        &mut self.pixels
    }

    /// The rows from top to bottom.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[bool]> {
        self.pixels.chunks_exact(self.size.width)
    }

    /// Whether the pixel at (`x`, `y`) is set; `false` outside the mask.
    pub fn get(&self, x: usize, y: usize) -> bool {
        x < self.size.width && y < self.size.height && self.pixels[y * self.size.width + x]
    }

    /// Number of set pixels.
    pub fn area(&self) -> usize {
        self.pixels.iter().filter(|pixel| **pixel).count()
    }

    /// The mask as run lengths.
    pub fn to_rle(&self) -> Result<Rle, ImageError> {
        Rle::from_mask(self)
    }
}

impl fmt::Debug for Mask {
    /// Draws small masks as text, so that a failing test shows them.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Mask({}, {} set)", self.size, self.area())?;
        if self.size.width <= 64 && self.size.height <= 64 {
            for row in self.rows() {
                let line: String = row.iter().map(|set| if *set { '#' } else { '.' }).collect();
                write!(formatter, "\n{line}")?;
            }
        }
        Ok(())
    }
}
