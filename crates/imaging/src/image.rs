//! Images in memory.

use std::fmt;
use std::sync::Arc;

use cutout_tensor::memory;

use crate::ImageError;

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    /// Pixels from left to right.
    pub width: usize,
    /// Pixels from top to bottom.
    pub height: usize,
}

impl Size {
    /// A size from width and height.
    pub const fn new(width: usize, height: usize) -> Self {
        Size { width, height }
    }

    /// A square of `side` × `side` pixels.
    pub const fn square(side: usize) -> Self {
        Size { width: side, height: side }
    }

    /// Number of pixels; an error if it is 0, or if `channels` values per pixel overflow the address space.
    pub fn pixels(self, channels: usize) -> Result<usize, ImageError> {
        if self.width == 0 || self.height == 0 {
            return Err(ImageError::Empty(self));
        }
        let pixels = self.width.checked_mul(self.height).ok_or(ImageError::TooLarge(self))?;
        let bytes = pixels.checked_mul(channels).ok_or(ImageError::TooLarge(self))?;
        if isize::try_from(bytes).is_err() { Err(ImageError::TooLarge(self)) } else { Ok(pixels) }
    }

    /// Returns an error unless `found` is `channels` values per pixel.
    pub(crate) fn expect_values(self, channels: usize, found: usize) -> Result<(), ImageError> {
        let expected = self.pixels(channels)? * channels;
        if found == expected {
            return Ok(());
        }
        Err(ImageError::Length { size: self, expected, found })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}×{} pixels", self.width, self.height)
    }
}

/// A colour image: u8 `[height, width, 3]` in the order red, green, blue. Has at least one pixel. Images are equal if their
/// pixels are.
#[derive(Clone)]
pub struct Image {
    size: Size,
    pixels: Vec<u8>,
    warning: Option<Arc<str>>,
}

impl PartialEq for Image {
    fn eq(&self, other: &Image) -> bool {
        self.size == other.size && self.pixels == other.pixels
    }
}

impl Eq for Image {}

impl Image {
    /// An image of `pixels`, u8 `[height, width, 3]`.
    pub fn from_rgb(size: Size, pixels: Vec<u8>) -> Result<Self, ImageError> {
        size.expect_values(3, pixels.len())?;
        Ok(Image { size, pixels, warning: None })
    }

    /// An image of one colour.
    pub fn filled(size: Size, colour: [u8; 3]) -> Result<Self, ImageError> {
        let values = 3 * size.pixels(3)?;
        Image::from_rgb(size, memory::collected(values, colour.into_iter().cycle())?)
    }

    /// The image with a warning about the file that it was decoded from.
    pub fn with_warning(self, warning: String) -> Self {
        Image { warning: Some(warning.into()), ..self }
    }

    /// What is wrong with the file that the image was decoded from, with its name. Decoding is an error if nothing of the
    /// image could be shown.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Pixels from left to right.
    pub fn width(&self) -> usize {
        self.size.width
    }

    /// Pixels from top to bottom.
    pub fn height(&self) -> usize {
        self.size.height
    }

    /// The pixels, u8 `[height, width, 3]`.
    pub fn as_rgb(&self) -> &[u8] {
        &self.pixels
    }

    /// The pixels, u8 `[height, width, 3]`, without a copy.
    pub fn into_rgb(self) -> Vec<u8> {
        self.pixels
    }

    /// Hash of size and pixels, the same on every machine: tells pictures apart, but not against an adversary.
    pub fn fingerprint(&self) -> u64 {
        // Odd constants of SplitMix64, one for each of four sums that do not wait for each other.
        const FACTORS: [u64; 4] = [
            0x9e37_79b9_7f4a_7c15,
            0xbf58_476d_1ce4_e5b9,
            0x94d0_49bb_1331_11eb,
            0xd6e8_feb8_6659_fd93,
        ];
        let mix = |sum: u64, word: u64, factor: u64| {
            let mixed = (sum ^ word).wrapping_mul(factor);
            mixed ^ (mixed >> 32)
        };
        let word = |bytes: &[u8]| {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(padded)
        };
        let mut sums = FACTORS;
        for block in self.pixels.chunks(32) {
            let words = block.chunks(8).map(word);
            for ((sum, word), factor) in sums.iter_mut().zip(words).zip(FACTORS) {
                *sum = mix(*sum, word, factor);
            }
        }
        let rest = [self.size.width as u64, self.size.height as u64];
        sums.into_iter().chain(rest).fold(0, |hash, word| mix(hash, word, FACTORS[0]))
    }

    /// Colour at (`x`, `y`); `None` outside the image.
    pub fn pixel(&self, x: usize, y: usize) -> Option<[u8; 3]> {
        if x >= self.size.width {
            return None;
        }
        let start = y.checked_mul(self.size.width)?.checked_add(x)?.checked_mul(3)?;
        let pixel = self.pixels.get(start..start.checked_add(3)?)?;
        Some([pixel[0], pixel[1], pixel[2]])
    }

    /// The rectangle of `size` at (`x`, `y`); an error if it exceeds the image.
    pub fn crop(&self, x: usize, y: usize, size: Size) -> Result<Self, ImageError> {
        size.pixels(3)?;
        let inside = |start: usize, length: usize, end: usize| {
            start.checked_add(length).is_some_and(|reached| reached <= end)
        };
        if !inside(x, size.width, self.width()) || !inside(y, size.height, self.height()) {
            return Err(ImageError::Mismatch { expected: self.size, found: size });
        }
        let rows = self.pixels.chunks_exact(3 * self.width()).skip(y).take(size.height);
        let rows = rows.flat_map(|row| &row[3 * x..][..3 * size.width]).copied();
        Image::from_rgb(size, memory::collected(3 * size.width * size.height, rows)?)
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Image({})", self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_differ_by_pixel_and_size() {
        let size = Size::new(7, 5);
        let image = |changed: Option<usize>| {
            let mut pixels: Vec<u8> = (0..105).collect();
            changed.into_iter().for_each(|at| pixels[at] ^= 1);
            Image::from_rgb(size, pixels).unwrap().fingerprint()
        };
        let mut found: Vec<u64> = (0..105).map(Some).chain([None]).map(image).collect();
        found.push(Image::from_rgb(Size::new(5, 7), (0..105).collect()).unwrap().fingerprint());
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), 107);
        assert_eq!(image(None), image(None));
    }

    #[test]
    fn wrong_lengths_and_sizes_are_errors() {
        let found = Image::from_rgb(Size::new(2, 2), vec![0; 11]);
        let size = Size::new(2, 2);
        assert_eq!(found, Err(ImageError::Length { size, expected: 12, found: 11 }));
        let none = Size::new(0, 5);
        assert_eq!(Image::from_rgb(none, vec![]), Err(ImageError::Empty(none)));
        let huge = Size::new(usize::MAX, 2);
        assert_eq!(Image::filled(huge, [0; 3]), Err(ImageError::TooLarge(huge)));
        let large = Size::square(usize::MAX.isqrt());
        assert_eq!(Image::filled(large, [0; 3]), Err(ImageError::TooLarge(large)));
    }

    #[test]
    fn crops_and_pixels() {
        let image = Image::from_rgb(Size::new(3, 2), (0..18).collect()).unwrap();
        assert_eq!(image.pixel(2, 1), Some([15, 16, 17]));
        assert_eq!(image.pixel(3, 0), None);
        assert_eq!(image.pixel(0, 2), None);
        assert_eq!(image.pixel(0, usize::MAX), None);
        let crop = image.crop(1, 0, Size::new(2, 2)).unwrap();
        assert_eq!(crop.as_rgb(), [3, 4, 5, 6, 7, 8, 12, 13, 14, 15, 16, 17]);
        assert!(image.crop(2, 0, Size::new(2, 2)).is_err());
        assert!(image.crop(usize::MAX, 0, Size::new(2, 2)).is_err());
    }
}
