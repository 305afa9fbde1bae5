//! Image decoding. The format is detected from the content; sizes are checked before memory is allocated.

use std::fs::{File, Metadata};
use std::io::{Cursor, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use cutout_jpeg::JpegError;
use cutout_tensor::memory;
use image::error::LimitErrorKind;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use crate::{DecodeError, Image, Size, webp_frame_size};

/// Extensions by which pictures are found in folders and archives. Their format is detected from the content.
pub const EXTENSIONS: [&str; 8] = ["jpg", "jpeg", "png", "webp", "bmp", "tif", "tiff", "gif"];

/// Whether a file counts as a picture of its folder: by its extension, and not hidden as `._photo.jpg` is.
pub fn is_picture_name(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let known = path.extension().is_some_and(|extension| {
        EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
    });
    known && !hidden
}

/// Limits of a file, checked before it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Most pixels of an image.
    pub pixels: u64,
    /// Most bytes of a file.
    pub file_bytes: u64,
}

impl Default for DecodeLimits {
    /// 400 megapixels, 2 GiB.
    fn default() -> Self {
        DecodeLimits { pixels: 400_000_000, file_bytes: 2 << 30 }
    }
}

/// Memory a decoder may use besides the image itself, in bytes: tables, one strip, one row.
const SPARE_BYTES: u64 = 64 << 20;

/// Memory of a decoder for tables and rows, in bytes.
const DECODER_BYTES: u64 = 1 << 20;

/// Bytes from which the format of a file is recognised.
const FIRST_BYTES: u64 = 64;

/// Reads and decodes a file; see [`decode`].
pub fn open(path: impl AsRef<Path>, limits: &DecodeLimits) -> Result<Image, DecodeError> {
    let path = path.as_ref();
    let unreadable = |source| DecodeError::Read { path: path.to_owned(), source };
    let origin = path.display().to_string();
    let mut file = File::open(path).map_err(unreadable)?;
    let length = file.metadata().ok().filter(Metadata::is_file).map(|found| found.len());
    if let Some(found) = length.filter(|length| *length > limits.file_bytes) {
        return Err(DecodeError::TooManyBytes { origin, found, limit: limits.file_bytes });
    }
    let mut bytes = Vec::new();
    file.by_ref().take(FIRST_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    if !bytes.is_empty() {
        // What is no picture is not read to its end.
        detect(&bytes, &origin)?;
    }
    // Reads one byte beyond the limit to detect a file that is too long: pipes and growing files have no known length.
    let most = limits.file_bytes.saturating_add(1).saturating_sub(bytes.len() as u64);
    file.take(most).read_to_end(&mut bytes).map_err(unreadable)?;
    decode(&bytes, &origin, limits)
}

/// Decodes PNG, JPEG, WebP, BMP, TIFF, or the first frame of a GIF. `origin` is the name in errors.
///
/// The EXIF orientation is applied. Alpha is dropped, not blended, as by Pillow's `convert("RGB")`. Palettes and grey become
/// RGB. Of 16-bit samples the high byte is kept (Pillow does the same for colour, but clips grey).
///
/// JPEG files have the bytes that libjpeg-turbo and Pillow give. Damaged and cut JPEG files are shown as far as
/// libjpeg-turbo shows them; [`Image::warning`] says so.
pub fn decode(bytes: &[u8], origin: &str, limits: &DecodeLimits) -> Result<Image, DecodeError> {
    let found = bytes.len() as u64;
    if found > limits.file_bytes {
        let limit = limits.file_bytes;
        return Err(DecodeError::TooManyBytes { origin: origin.into(), found, limit });
    }
    if bytes.is_empty() {
        return Err(DecodeError::Empty { origin: origin.into() });
    }
    let source = Source { bytes, origin, format: detect(bytes, origin)? };
    // A panic of a third-party decoder on a malicious file is reported as a damaged file.
    catch_unwind(AssertUnwindSafe(|| source.decode(limits)))
        .unwrap_or_else(|_| Err(source.damaged("the decoder panicked")))
}

/// The format, detected from the first bytes.
fn detect(bytes: &[u8], origin: &str) -> Result<Format, DecodeError> {
    let format = match image::guess_format(bytes) {
        Ok(ImageFormat::Png) => Some(("PNG", ImageFormat::Png)),
        Ok(ImageFormat::Jpeg) => Some(("JPEG", ImageFormat::Jpeg)),
        Ok(ImageFormat::WebP) => Some(("WebP", ImageFormat::WebP)),
        Ok(ImageFormat::Bmp) => Some(("BMP", ImageFormat::Bmp)),
        Ok(ImageFormat::Tiff) => Some(("TIFF", ImageFormat::Tiff)),
        Ok(ImageFormat::Gif) => Some(("GIF", ImageFormat::Gif)),
        Ok(_) | Err(_) => None,
    };
    match format {
        Some((name, kind)) => Ok(Format { name, kind }),
        None => {
            let found = describe(bytes).to_string();
            Err(DecodeError::NotAnImage { origin: origin.into(), found })
        }
    }
}

/// Description of an unsupported file, for the error.
fn describe(bytes: &[u8]) -> &'static str {
    const KNOWN: &[(&[u8], &str)] = &[
        (b"%PDF", "a PDF document"),
        (b"PK\x03\x04", "a zip archive, for instance a .pt checkpoint or an office document"),
        (b"\x1f\x8b", "a gzip archive"),
        (b"GGUF", "a GGUF file"),
        (b"<svg", "an SVG drawing"),
        (b"<?xml", "an XML document"),
        (b"<!DOCTYPE", "an HTML page"),
        (b"<html", "an HTML page"),
        (b"qoif", "a QOI picture"),
        (b"DDS ", "a DDS texture"),
        (b"8BPS", "a Photoshop document"),
        (b"\x1aE\xdf\xa3", "a Matroska video"),
    ];
    if let Some((_, name)) = KNOWN.iter().find(|(start, _)| bytes.starts_with(start)) {
        return name;
    }
    match bytes.get(4..12) {
        Some(b"ftypheic" | b"ftypheix" | b"ftypmif1") => return "a HEIC picture",
        Some(b"ftypavif") => return "an AVIF picture",
        Some(brand) if brand.starts_with(b"ftyp") => return "a video",
        Some(_) | None => {}
    }
    let start = &bytes[..bytes.len().min(64)];
    if start.iter().all(|&byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        "it looks like text"
    } else {
        "its first bytes match no known format"
    }
}

#[derive(Clone, Copy)]
struct Format {
    name: &'static str,
    kind: ImageFormat,
}

/// A file being decoded.
struct Source<'a> {
    bytes: &'a [u8],
    origin: &'a str,
    format: Format,
}

impl Source<'_> {
    fn decode(&self, limits: &DecodeLimits) -> Result<Image, DecodeError> {
        if self.format.kind == ImageFormat::Jpeg {
            return self.decode_jpeg(limits);
        }
        let mut reader = ImageReader::with_format(Cursor::new(self.bytes), self.format.kind);
        let mut memory = Limits::default();
        memory.max_alloc = Some(limits.pixels.saturating_mul(8).saturating_add(SPARE_BYTES));
        reader.limits(memory);
        let mut decoder = reader.into_decoder().map_err(|error| self.refuse(error))?;
        let (width, height) = decoder.dimensions();
        let found = Size::new(width as usize, height as usize);
        self.check_size(found, limits)?;
        let mut memory = Limits::default();
        memory.max_alloc = Some(decoder.total_bytes().saturating_mul(2) + SPARE_BYTES);
        decoder.set_limits(memory).map_err(|error| self.refuse(error))?;
        if self.format.kind == ImageFormat::WebP
            && let Some(frame) = self.bytes.get(12..).and_then(webp_frame_size)
            && (frame.width > found.width || frame.height > found.height)
        {
            return Err(self.damaged(&format!("a frame of {frame} exceeds the canvas of {found}")));
        }
        let orientation = decoder.orientation().map_err(|error| self.refuse(error))?;
        self.probe(found, decoder.total_bytes())?;
        let picture = DynamicImage::from_decoder(decoder).map_err(|error| self.refuse(error))?;
        self.upright(width, height, to_rgb(picture), orientation)
    }

    fn decode_jpeg(&self, limits: &DecodeLimits) -> Result<Image, DecodeError> {
        let unknown = Size::new(0, 0);
        let decoder = cutout_jpeg::Decoder::new(self.bytes);
        let decoder = decoder.map_err(|error| self.jpeg(unknown, error))?;
        let found = Size::new(decoder.width(), decoder.height());
        self.check_size(found, limits)?;
        self.probe(found, 0)?;
        let orientation = decoder.exif().and_then(Orientation::from_exif_chunk);
        let picture = decoder.decode().map_err(|error| self.jpeg(found, error))?;
        // A JPEG has at most 65535 pixels per side.
        let (width, height) = (picture.width as u32, picture.height as u32);
        let orientation = orientation.unwrap_or(Orientation::NoTransforms);
        let image = self.upright(width, height, picture.rgb, orientation)?;
        Ok(match picture.damage {
            Some(damage) => {
                image.with_warning(format!("{}: damaged JPEG file: {damage}", self.origin))
            }
            None => image,
        })
    }

    fn check_size(&self, found: Size, limits: &DecodeLimits) -> Result<(), DecodeError> {
        if found.width as u64 * found.height as u64 <= limits.pixels {
            return Ok(());
        }
        let (origin, limit) = (self.origin.into(), limits.pixels);
        Err(DecodeError::TooManyPixels { origin, found, limit })
    }

    /// The image of `pixels`, u8 `[height, width, 3]`, with its orientation applied.
    fn upright(
        &self,
        width: u32,
        height: u32,
        pixels: Vec<u8>,
        orientation: Orientation,
    ) -> Result<Image, DecodeError> {
        let picture = image::RgbImage::from_raw(width, height, pixels);
        let picture = picture.ok_or_else(|| self.damaged("its rows are incomplete"))?;
        let mut picture = DynamicImage::ImageRgb8(picture);
        picture.apply_orientation(orientation);
        let size = Size::new(picture.width() as usize, picture.height() as usize);
        Image::from_rgb(size, picture.into_bytes())
            .map_err(|error| self.damaged(&error.to_string()))
    }

    fn jpeg(&self, size: Size, error: JpegError) -> DecodeError {
        let (origin, format) = (self.origin.to_string(), self.format.name);
        match error {
            JpegError::Damaged(reason) => DecodeError::Damaged { origin, format, reason },
            JpegError::Unsupported(reason) => DecodeError::Unsupported { origin, format, reason },
            JpegError::Memory { bytes } => {
                DecodeError::OutOfMemory { origin, size, bytes: bytes as u64 }
            }
        }
    }

    /// Fails if there is no memory for an image whose decoder returns `decoded` bytes: that crate aborts where it cannot
    /// allocate. The image is held up to three times: as decoded, as RGB, and turned upright.
    fn probe(&self, size: Size, decoded: u64) -> Result<(), DecodeError> {
        let rgb = (size.width as u64).saturating_mul(size.height as u64).saturating_mul(3);
        let whole = decoded.saturating_mul(2).saturating_add(rgb.saturating_mul(2));
        let bytes = whole.saturating_add(DECODER_BYTES);
        let missing = |_| DecodeError::OutOfMemory { origin: self.origin.into(), size, bytes };
        memory::probe(bytes).map_err(missing)
    }

    fn damaged(&self, reason: &str) -> DecodeError {
        let (origin, format) = (self.origin.to_string(), self.format.name);
        DecodeError::Damaged { origin, format, reason: reason.to_string() }
    }

    fn refuse(&self, error: image::ImageError) -> DecodeError {
        let (origin, format) = (self.origin.to_string(), self.format.name);
        match error {
            image::ImageError::Limits(limit)
                if limit.kind() == LimitErrorKind::InsufficientMemory =>
            {
                DecodeError::Memory { origin, format }
            }
            image::ImageError::Unsupported(reason) => {
                DecodeError::Unsupported { origin, format, reason: reason.to_string() }
            }
            image::ImageError::Decoding(_)
            | image::ImageError::Encoding(_)
            | image::ImageError::Parameter(_)
            | image::ImageError::Limits(_)
            | image::ImageError::IoError(_) => {
                DecodeError::Damaged { origin, format, reason: error.to_string() }
            }
        }
    }
}

/// Converts any decoded image to u8 `[height, width, 3]`.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the crate's enum has no closed list of variants"
)]
fn to_rgb(picture: DynamicImage) -> Vec<u8> {
    fn high_bytes<const CHANNELS: usize>(samples: &[u16]) -> Vec<u8> {
        let pixels = samples.chunks_exact(CHANNELS);
        let rgb = |pixel: &[u16]| match CHANNELS {
            1 | 2 => [pixel[0]; 3],
            _ => [pixel[0], pixel[1], pixel[2]],
        };
        pixels.flat_map(|pixel| rgb(pixel).map(|sample| (sample >> 8) as u8)).collect()
    }
    match picture {
        DynamicImage::ImageRgb8(pixels) => pixels.into_raw(),
        DynamicImage::ImageLuma16(pixels) => high_bytes::<1>(&pixels),
        DynamicImage::ImageLumaA16(pixels) => high_bytes::<2>(&pixels),
        DynamicImage::ImageRgb16(pixels) => high_bytes::<3>(&pixels),
        DynamicImage::ImageRgba16(pixels) => high_bytes::<4>(&pixels),
        // The conversion of `image` copies colours, repeats grey and drops alpha.
        other => other.into_rgb8().into_raw(),
    }
}
