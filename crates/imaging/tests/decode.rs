//! Files of every format are decoded; damaged files are errors and cause no panic.

use std::io::Cursor;

use cutout_imaging::{DecodeError, DecodeLimits, Image, Size, decode, open};
use image::{DynamicImage, ExtendedColorType, ImageEncoder, ImageFormat, RgbImage};

const FORMATS: [ImageFormat; 6] = [
    ImageFormat::Png,
    ImageFormat::Jpeg,
    ImageFormat::Gif,
    ImageFormat::Bmp,
    ImageFormat::Tiff,
    ImageFormat::WebP,
];

/// An image with a gradient and an edge, 13×9.
fn sample() -> RgbImage {
    RgbImage::from_fn(13, 9, |x, y| {
        let edge = if x + y > 10 { 200 } else { 20 };
        image::Rgb([(x * 18) as u8, (y * 25) as u8, edge])
    })
}

fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn read(bytes: &[u8]) -> Result<Image, DecodeError> {
    decode(bytes, "test", &DecodeLimits::default())
}

/// A seeded xorshift generator, so that failures are reproducible.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

#[test]
fn every_format_is_read_by_content() {
    let picture = sample();
    for format in FORMATS {
        let image = read(&encoded(&picture.clone().into(), format)).unwrap();
        assert_eq!(image.size(), Size::new(13, 9), "{format:?}");
        // JPEG is lossy and GIF has a palette; the other formats are exact.
        let allowed =
            if format == ImageFormat::Jpeg || format == ImageFormat::Gif { 12.0 } else { 0.0 };
        let pairs = image.as_rgb().iter().zip(picture.as_raw());
        let total: f64 = pairs.map(|(a, b)| f64::from(a.abs_diff(*b))).sum();
        let mean = total / picture.as_raw().len() as f64;
        assert!(mean <= allowed, "{format:?}: off by {mean} on average");
    }
}

#[test]
fn alpha_is_dropped_and_grey_becomes_colour() {
    let clear = image::RgbaImage::from_pixel(2, 1, image::Rgba([10, 20, 30, 0]));
    let image = read(&encoded(&clear.into(), ImageFormat::Png)).unwrap();
    assert_eq!(image.as_rgb(), [10, 20, 30, 10, 20, 30]);
    let grey = image::GrayImage::from_pixel(1, 1, image::Luma([77]));
    assert_eq!(read(&encoded(&grey.into(), ImageFormat::Png)).unwrap().as_rgb(), [77; 3]);
    let deep = image::ImageBuffer::from_pixel(1, 1, image::Rgb([0x12ffu16, 0x3400, 0xffff]));
    let image = read(&encoded(&deep.into(), ImageFormat::Png)).unwrap();
    assert_eq!(image.as_rgb(), [0x12, 0x34, 0xff]);
    let deep = image::ImageBuffer::from_pixel(1, 1, image::LumaA([0x80ffu16, 0]));
    assert_eq!(read(&encoded(&deep.into(), ImageFormat::Png)).unwrap().as_rgb(), [0x80; 3]);
}

/// A minimal EXIF block with the orientation only.
fn exif(orientation: u8) -> Vec<u8> {
    let mut block = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    block.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    block
}

#[test]
fn exif_orientation_is_applied() {
    // Left half dark, right half bright, 32×16.
    let picture = RgbImage::from_fn(32, 16, |x, _| image::Rgb([if x < 16 { 0 } else { 255 }; 3]));
    for (orientation, size, bright) in [
        (1, Size::new(32, 16), (30, 8)),
        (3, Size::new(32, 16), (2, 8)),
        (6, Size::new(16, 32), (8, 30)),
        (8, Size::new(16, 32), (8, 2)),
    ] {
        let mut bytes = Vec::new();
        let mut encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, 95);
        encoder.set_exif_metadata(exif(orientation)).unwrap();
        encoder.write_image(picture.as_raw(), 32, 16, ExtendedColorType::Rgb8).unwrap();
        let image = read(&bytes).unwrap();
        assert_eq!(image.size(), size, "orientation {orientation}");
        assert!(image.pixel(bright.0, bright.1).unwrap()[0] > 200, "orientation {orientation}");
        let dark = (size.width - 1 - bright.0, size.height - 1 - bright.1);
        assert!(image.pixel(dark.0, dark.1).unwrap()[0] < 50, "orientation {orientation}");
    }
}

/// CRC-32 as in zlib.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1))
        })
    })
}

#[test]
fn every_orientation_has_the_pixels_of_pillow() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/jpeg");
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    for orientation in 1..=8 {
        let name = format!("orientation_{orientation}");
        let image = read(&std::fs::read(folder.join(format!("{name}.jpg"))).unwrap()).unwrap();
        let found = serde_json::json!([image.width(), image.height()]);
        assert_eq!(found, expected["files"][&name]["size"], "{name}");
        assert_eq!(crc32(image.as_rgb()), expected["files"][&name]["crc"], "{name}");
    }
}

#[test]
fn errors_describe_files_that_are_not_pictures() {
    assert!(matches!(read(b""), Err(DecodeError::Empty { .. })));
    for (bytes, name) in [
        (&b"PK\x03\x04rest of a checkpoint"[..], "zip"),
        (b"hello, I am a note", "text"),
        (b"\x00\x01\x02\x03", "no known format"),
        (b"\x00\x00\x00\x18ftypheic\x00\x00", "HEIC"),
    ] {
        let message = read(bytes).unwrap_err().to_string();
        assert!(message.starts_with("test: not a picture"), "{message}");
        assert!(message.contains(name), "{message}");
    }
    let error = open("/no/such/picture.png", &DecodeLimits::default()).unwrap_err();
    assert!(matches!(error, DecodeError::Read { .. }));
    assert!(error.to_string().starts_with("/no/such/picture.png"), "{error}");
}

#[test]
fn limits_are_checked_before_decoding() {
    let bytes = encoded(&sample().into(), ImageFormat::Png);
    let few = DecodeLimits { pixels: 116, ..DecodeLimits::default() };
    assert!(matches!(decode(&bytes, "x", &few), Err(DecodeError::TooManyPixels { .. })));
    let enough = DecodeLimits { pixels: 117, ..few };
    assert!(decode(&bytes, "x", &enough).is_ok());
    let short = DecodeLimits { file_bytes: 10, ..enough };
    assert!(matches!(decode(&bytes, "x", &short), Err(DecodeError::TooManyBytes { .. })));
    // A bitmap header that declares 65535×65535 pixels, without any data.
    let mut header = encoded(&sample().into(), ImageFormat::Bmp);
    header[18..26].copy_from_slice(&[0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0]);
    assert!(matches!(read(&header), Err(DecodeError::TooManyPixels { .. })));
}

#[test]
fn truncated_files_are_errors() {
    for format in FORMATS {
        let bytes = encoded(&sample().into(), format);
        for length in 1..bytes.len() {
            let found = read(&bytes[..length]);
            // The last bytes of a PNG, GIF or TIFF hold no pixels, so they may be missing. A cut JPEG is shown.
            let header = if format == ImageFormat::Jpeg { scan(&bytes) } else { bytes.len() / 2 };
            if length < header {
                assert!(found.is_err(), "{format:?} of {length} bytes was read");
            }
        }
    }
}

/// Where the compressed data of a JPEG begins.
fn scan(bytes: &[u8]) -> usize {
    let marker = bytes.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
    marker + 2 + usize::from(bytes[marker + 3])
}

#[test]
fn cut_jpegs_are_shown_with_a_warning() {
    let bytes = encoded(&sample().into(), ImageFormat::Jpeg);
    let whole = read(&bytes).unwrap();
    assert_eq!(whole.warning(), None);
    // Without the end-of-image marker nothing is missing.
    let unmarked = read(&bytes[..bytes.len() - 2]).unwrap();
    assert_eq!((unmarked.warning(), &unmarked), (None, &whole));
    for length in scan(&bytes)..bytes.len() - 6 {
        let cut = read(&bytes[..length]).unwrap();
        assert_eq!(cut.size(), whole.size());
        let warning = cut.warning().unwrap();
        assert!(warning.starts_with("test: damaged JPEG file: the file ends early"), "{warning}");
    }
}

#[test]
fn mutated_files_never_panic() {
    let mut random = Seeded(0x5eed);
    for format in FORMATS {
        let bytes = encoded(&sample().into(), format);
        for _ in 0..1500 {
            let mut mutant = bytes.clone();
            for _ in 0..1 + random.below(4) {
                let place = random.below(mutant.len());
                match random.below(5) {
                    0 => mutant[place] ^= 1 << random.below(8),
                    1 => mutant[place] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
                    2 => mutant.truncate(place.max(1)),
                    3 => {
                        let other = random.below(mutant.len());
                        mutant.swap(place, other);
                    }
                    _ => mutant.insert(place, random.below(256) as u8),
                }
            }
            let limits = DecodeLimits { pixels: 1_000_000, ..DecodeLimits::default() };
            if let Ok(image) = decode(&mutant, "mutant", &limits) {
                assert_eq!(image.as_rgb().len(), image.width() * image.height() * 3);
            }
        }
    }
}
