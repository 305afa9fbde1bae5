//! Pictures. JPEG files have a target of their own.

use std::io::Cursor;

use cutout_imaging::{DecodeLimits, decode};
use image::{DynamicImage, ImageFormat, Rgba, RgbaImage};

use super::Target;
use super::checkpoints::fixtures_in;

pub(super) const PICTURES: Target = Target {
    name: "pictures",
    about: "PNG, WebP, BMP, TIFF and GIF pictures",
    seeds,
    words: &[
        "IHDR", "IDAT", "PLTE", "tRNS", "eXIf", "IEND", "VP8 ", "VP8L", "VP8X", "ALPH", "GIF89a",
        "BM",
    ],
    read,
    // The TIFF decoder's own limits, which hold until it is given ours: 256 MiB of pixels and 128 MiB of strips.
    memory: 400 << 20,
};

pub(super) const JPEG: Target = Target {
    name: "jpeg",
    about: "JPEG pictures: baseline, progressive, arithmetic, cut and damaged ones",
    seeds: || fixtures_in("jpeg", "jpg"),
    words: &["\u{ff}", "JFIF", "Adobe", "Exif"],
    read: jpeg,
    memory: 96 << 20,
};

/// Reads a JPEG file. Returns whether it was accepted.
pub fn jpeg(bytes: &[u8]) -> bool {
    read(bytes)
}

/// Most pixels and bytes of a fuzzed picture: small, so that a million are read in minutes.
pub(super) const LIMITS: DecodeLimits = DecodeLimits { pixels: 1 << 16, file_bytes: 1 << 20 };

fn read(bytes: &[u8]) -> bool {
    match decode(bytes, "fuzzed", &LIMITS) {
        Ok(image) => {
            assert_eq!(image.as_rgb().len(), 3 * image.width() * image.height());
            assert!((image.width() * image.height()) as u64 <= LIMITS.pixels);
            true
        }
        Err(error) => {
            assert!(error.to_string().starts_with("fuzzed: "), "{error}");
            false
        }
    }
}

/// A picture with all colours and some transparency.
pub(super) fn pattern(width: u32, height: u32) -> RgbaImage {
    RgbaImage::from_fn(width, height, |x, y| {
        Rgba([(x * 37) as u8, (y * 53) as u8, (x * y) as u8, if x == y { 0 } else { 255 }])
    })
}

fn seeds() -> Vec<Vec<u8>> {
    let rgba = DynamicImage::ImageRgba8(pattern(13, 9));
    let rgb = DynamicImage::ImageRgb8(rgba.to_rgb8());
    let forms = [
        rgba.clone(),
        rgb.clone(),
        DynamicImage::ImageLuma8(rgb.to_luma8()),
        DynamicImage::ImageRgb16(rgb.to_rgb16()),
        DynamicImage::ImageLumaA16(rgba.to_luma_alpha16()),
    ];
    let formats = [
        ImageFormat::Png,
        ImageFormat::WebP,
        ImageFormat::Bmp,
        ImageFormat::Tiff,
        ImageFormat::Gif,
    ];
    let mut files = Vec::new();
    for format in formats {
        for form in &forms {
            let mut file = Cursor::new(Vec::new());
            // Not every format has every form.
            if form.write_to(&mut file, format).is_ok() {
                files.push(file.into_inner());
            }
        }
    }
    files.push(indexed());
    files.push(include_bytes!("../../../../fixtures/video/lossy.webp").to_vec());
    files
}

/// A PNG with a palette and two bits per pixel.
fn indexed() -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 8, 4);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Two);
    encoder.set_palette(&[0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255][..]);
    encoder.set_trns(&[0, 128][..]);
    let mut writer = encoder.write_header().expect("a vector takes every byte");
    writer.write_image_data(&[0x1b; 8]).expect("the pixels fit the header");
    writer.finish().expect("a vector takes every byte");
    file
}
