//! Encoders: PNG, and JPEG for people to look at.

use cutout_tensor::memory;
use png::{BitDepth, ColorType, Encoder, EncodingError};

use crate::{Image, ImageError, Mask, Size};

/// Bit depth of a mask in a PNG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskDepth {
    /// Eight bits per pixel, 0 or 255; readable by every program.
    Byte,
    /// One bit per pixel; the smallest files.
    Bit,
}

/// Memory of the encoder for tables and buffers, in bytes.
const ENCODER_BYTES: u64 = 1 << 20;

/// Why an image could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The number of pixels does not match the size.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The PNG encoder failed, for instance because the size is too large for the format.
    #[error("cannot encode the PNG: {0}")]
    Png(#[from] EncodingError),
    /// A side is too long for the format.
    #[error("a JPEG has sides of at most 65535 pixels")]
    JpegSide,
    /// The JPEG encoder failed.
    #[error("cannot encode the JPEG: {0}")]
    Jpeg(String),
}

/// Encodes an image as PNG.
pub fn encode_image(image: &Image) -> Result<Vec<u8>, EncodeError> {
    encode(image.size(), ColorType::Rgb, BitDepth::Eight, image.as_rgb())
}

/// Encodes an image as JPEG, for people to look at: models see other pixels in it. `quality` goes from 1 to 100.
pub fn encode_jpeg(image: &Image, quality: u8) -> Result<Vec<u8>, EncodeError> {
    let Size { width, height } = image.size();
    let side = |side: usize| u16::try_from(side).map(u32::from).map_err(|_| EncodeError::JpegSide);
    let (width, height) = (side(width)?, side(height)?);
    let mut bytes = Vec::new();
    let mut encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, quality);
    encoder
        .encode(image.as_rgb(), width, height, image::ExtendedColorType::Rgb8)
        .map_err(|error| EncodeError::Jpeg(error.to_string()))?;
    Ok(bytes)
}

/// Encodes u8 `[height, width, 4]` as PNG with transparency.
pub fn encode_rgba(size: Size, pixels: &[u8]) -> Result<Vec<u8>, EncodeError> {
    size.expect_values(4, pixels.len())?;
    encode(size, ColorType::Rgba, BitDepth::Eight, pixels)
}

/// Encodes a mask as PNG, white on black.
pub fn encode_mask(mask: &Mask, depth: MaskDepth) -> Result<Vec<u8>, EncodeError> {
    match depth {
        MaskDepth::Byte => {
            let pixels = mask.pixels().iter().map(|set| if *set { 255 } else { 0 });
            let pixels =
                memory::collected(mask.pixels().len(), pixels).map_err(ImageError::from)?;
            encode(mask.size(), ColorType::Grayscale, BitDepth::Eight, &pixels)
        }
        MaskDepth::Bit => {
            let byte = |bits: &[bool]| {
                bits.iter().enumerate().fold(0, |byte, (i, set)| byte | u8::from(*set) << (7 - i))
            };
            // Rows start at byte boundaries.
            let rows = mask.rows().flat_map(|row| row.chunks(8).map(byte));
            let length = mask.size().width.div_ceil(8) * mask.size().height;
            let packed: Vec<u8> = memory::collected(length, rows).map_err(ImageError::from)?;
            encode(mask.size(), ColorType::Grayscale, BitDepth::One, &packed)
        }
    }
}

/// Encodes labels, u8 `[height, width]`, as PNG with the palette of PASCAL VOC and DAVIS; label 0 is black.
pub fn encode_labels(size: Size, labels: &[u8]) -> Result<Vec<u8>, EncodeError> {
    size.expect_values(1, labels.len())?;
    encode(size, ColorType::Indexed, BitDepth::Eight, labels)
}

fn encode(
    size: Size,
    color: ColorType,
    depth: BitDepth,
    pixels: &[u8],
) -> Result<Vec<u8>, EncodeError> {
    let side = |length: usize| u32::try_from(length).map_err(|_| ImageError::TooLarge(size));
    // The encoder holds the filtered and the compressed rows, and aborts where it cannot allocate them.
    memory::probe(2 * pixels.len() as u64 + ENCODER_BYTES).map_err(ImageError::from)?;
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, side(size.width)?, side(size.height)?);
    encoder.set_color(color);
    encoder.set_depth(depth);
    encoder.add_text_chunk("Software".to_owned(), cutout_files::SOFTWARE.to_owned())?;
    if color == ColorType::Indexed {
        encoder.set_palette((0..=255u8).flat_map(voc_colour).collect::<Vec<u8>>());
    }
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}

/// Colour of a label in the PASCAL VOC palette: every third bit of the label fills one channel from its highest bit down.
fn voc_colour(label: u8) -> [u8; 3] {
    let spread = |offset: u8| {
        let bit = |i: u8| if 3 * i + offset < 8 { label >> (3 * i + offset) & 1 } else { 0 };
        (0..3).fold(0, |colour, i| colour | bit(i) << (7 - i))
    };
    [spread(0), spread(1), spread(2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jpeg_looks_like_its_image() {
        let pixels = (0..40 * 30 * 3).map(|value| (value % 120 + value / 40) as u8).collect();
        let image = Image::from_rgb(Size::new(40, 30), pixels).expect("the size fits");
        let bytes = encode_jpeg(&image, 95).expect("it is encoded");
        let shown = crate::decode(&bytes, "", &crate::DecodeLimits::default()).expect("a JPEG");
        assert_eq!(shown.size(), image.size());
        let differences = shown.as_rgb().iter().zip(image.as_rgb()).map(|(a, b)| a.abs_diff(*b));
        let mean = differences.map(f64::from).sum::<f64>() / 3600.0;
        assert!(mean < 12.0, "{mean}");
        let long = Image::filled(Size::new(70_000, 1), [0; 3]).expect("the size fits");
        assert!(matches!(encode_jpeg(&long, 90), Err(EncodeError::JpegSide)));
    }

    #[test]
    fn labels_have_the_voc_colours() {
        assert_eq!(voc_colour(0), [0, 0, 0]);
        assert_eq!(voc_colour(1), [128, 0, 0]);
        assert_eq!(voc_colour(2), [0, 128, 0]);
        assert_eq!(voc_colour(7), [128, 128, 128]);
        assert_eq!(voc_colour(8), [64, 0, 0]);
        assert_eq!(voc_colour(255), [224, 224, 192]);
    }
}
