//! Animations are composed as a viewer shows them; damaged ones end with an error.

use std::io::Cursor;
use std::path::Path;

use crate::support::{Folder, greys};
use cutout_imaging::{DecodeLimits, Image, Size};
use cutout_video::{
    FrameSource, OpenOptions, Prefetch, VideoError, VideoLimits, from_reader, open,
};
use gif::{DisposalMethod, Repeat};
use image::{ExtendedColorType, ImageEncoder};
use png::{BlendOp, DisposeOp};

/// A frame of a test animation on a canvas of 4×2 pixels: some columns, all rows, one colour.
#[derive(Clone, Copy)]
struct Frame {
    left: usize,
    width: usize,
    /// Red and alpha.
    colour: [u8; 2],
    dispose: Dispose,
}

#[derive(Clone, Copy)]
enum Dispose {
    Keep,
    Clear,
    Restore,
}

const WIDTH: usize = 4;
const HEIGHT: usize = 2;

const fn frame(left: usize, width: usize, colour: [u8; 2], dispose: Dispose) -> Frame {
    Frame { left, width, colour, dispose }
}

/// The frames, and the red values of the first row as a viewer shows them.
const CLIP: [(Frame, [u8; 4]); 6] = [
    (frame(0, 4, [10, 255], Dispose::Keep), [10, 10, 10, 10]),
    (frame(2, 2, [20, 255], Dispose::Clear), [10, 10, 20, 20]),
    // The next frame restores the cleared area.
    (frame(2, 1, [30, 255], Dispose::Restore), [10, 10, 30, 0]),
    // A transparent frame leaves the canvas unchanged.
    (frame(0, 2, [99, 0], Dispose::Keep), [10, 10, 0, 0]),
    (frame(0, 4, [50, 255], Dispose::Restore), [50, 50, 50, 50]),
    (frame(0, 1, [60, 255], Dispose::Keep), [60, 10, 0, 0]),
];

impl Frame {
    fn rgba(self) -> Vec<u8> {
        [self.colour[0], 0, 0, self.colour[1]].repeat(self.width * HEIGHT)
    }
}

fn gif_of(frames: &[Frame], delays: &[u16]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = gif::Encoder::new(&mut bytes, WIDTH as u16, HEIGHT as u16, &[]).unwrap();
    encoder.set_repeat(Repeat::Infinite).unwrap();
    for (frame, delay) in frames.iter().zip(delays.iter().cycle()) {
        let size = (frame.width as u16, HEIGHT as u16);
        let mut picture = gif::Frame::from_rgba(size.0, size.1, &mut frame.rgba());
        picture.left = frame.left as u16;
        picture.delay = *delay;
        picture.dispose = match frame.dispose {
            Dispose::Keep => DisposalMethod::Keep,
            Dispose::Clear => DisposalMethod::Background,
            Dispose::Restore => DisposalMethod::Previous,
        };
        encoder.write_frame(&picture).unwrap();
    }
    drop(encoder);
    bytes
}

fn apng_of(frames: &[Frame], blend: BlendOp) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, WIDTH as u32, HEIGHT as u32);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_animated(frames.len() as u32, 0).unwrap();
    let mut writer = encoder.write_header().unwrap();
    for frame in frames {
        writer.set_frame_delay(1, 25).unwrap();
        writer.set_blend_op(blend).unwrap();
        writer
            .set_dispose_op(match frame.dispose {
                Dispose::Keep => DisposeOp::None,
                Dispose::Clear => DisposeOp::Background,
                Dispose::Restore => DisposeOp::Previous,
            })
            .unwrap();
        // The format requires the first frame to have the size of the canvas.
        if (frame.left, frame.width) != (0, WIDTH) {
            writer.set_frame_position(0, 0).unwrap();
            writer.set_frame_dimension(frame.width as u32, HEIGHT as u32).unwrap();
            writer.set_frame_position(frame.left as u32, 0).unwrap();
        } else {
            writer.reset_frame_position().unwrap();
            writer.reset_frame_dimension().unwrap();
        }
        writer.write_image_data(&frame.rgba()).unwrap();
    }
    writer.finish().unwrap();
    bytes
}

fn chunk(name: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let mut chunk = name.to_vec();
    chunk.extend((data.len() as u32).to_le_bytes());
    chunk.extend(data);
    chunk.resize(chunk.len().next_multiple_of(2), 0);
    chunk
}

fn short(number: usize) -> [u8; 3] {
    let bytes = (number as u32).to_le_bytes();
    [bytes[0], bytes[1], bytes[2]]
}

/// WebP cannot store frames with an odd left edge, nor the disposal `Restore`.
fn webp_of(frames: &[Frame], milliseconds: usize) -> Vec<u8> {
    let mut chunks = Vec::new();
    let canvas = [&[0x12, 0, 0, 0][..], &short(WIDTH - 1), &short(HEIGHT - 1)].concat();
    chunks.extend(chunk(b"VP8X", &canvas));
    chunks.extend(chunk(b"ANIM", &[0; 6]));
    for frame in frames {
        let mut still = Vec::new();
        let encoder = image::codecs::webp::WebPEncoder::new_lossless(&mut still);
        let size = (frame.width as u32, HEIGHT as u32);
        encoder.write_image(&frame.rgba(), size.0, size.1, ExtendedColorType::Rgba8).unwrap();
        let mut data = Vec::new();
        for number in [frame.left / 2, 0, frame.width - 1, HEIGHT - 1, milliseconds] {
            data.extend(short(number));
        }
        data.push(u8::from(matches!(frame.dispose, Dispose::Clear)));
        data.extend(&still[12..]);
        chunks.extend(chunk(b"ANMF", &data));
    }
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((chunks.len() as u32 + 4).to_le_bytes());
    bytes.extend(b"WEBP");
    bytes.extend(chunks);
    bytes
}

fn read(bytes: &[u8]) -> Result<Box<dyn FrameSource>, VideoError> {
    from_reader(Cursor::new(bytes.to_vec()), "test", &OpenOptions::default())
}

fn reds(image: &Image) -> Vec<u8> {
    image.as_rgb()[..3 * WIDTH].iter().step_by(3).copied().collect()
}

fn expect(bytes: &[u8], expected: &[[u8; 4]]) {
    let source = read(bytes).unwrap();
    assert_eq!(source.length(), Some(expected.len()));
    let frames: Vec<Image> = source.map(Result::unwrap).collect();
    assert_eq!(frames.len(), expected.len());
    for (index, (frame, expected)) in frames.iter().zip(expected).enumerate() {
        assert_eq!(frame.size(), Size::new(WIDTH, HEIGHT));
        assert_eq!(reds(frame), expected, "frame {index}");
        assert_eq!(frame.as_rgb()[..3 * WIDTH], frame.as_rgb()[3 * WIDTH..], "rows differ");
    }
}

fn frames() -> Vec<Frame> {
    CLIP.iter().map(|(frame, _)| *frame).collect()
}

fn shown() -> Vec<[u8; 4]> {
    CLIP.iter().map(|(_, shown)| *shown).collect()
}

#[test]
fn gif_frames_are_composed() {
    expect(&gif_of(&frames(), &[4]), &shown());
}

#[test]
fn apng_frames_are_composed() {
    expect(&apng_of(&frames(), BlendOp::Over), &shown());
    // Without blending, the transparent frame replaces the canvas with its own colour.
    let mut replaced = shown();
    replaced[3] = [99, 99, 0, 0];
    replaced[5] = [60, 99, 0, 0];
    expect(&apng_of(&frames(), BlendOp::Source), &replaced);
}

#[test]
fn webp_frames_are_composed() {
    let frames = [CLIP[0].0, CLIP[1].0, frame(2, 1, [30, 255], Dispose::Clear), CLIP[3].0];
    let shown = [CLIP[0].1, CLIP[1].1, [10, 10, 30, 0], [10, 10, 0, 0]];
    expect(&webp_of(&frames, 40), &shown);
}

#[test]
fn half_transparent_frames_are_blended() {
    let frames = [frame(0, 4, [200, 255], Dispose::Keep), frame(0, 2, [100, 51], Dispose::Keep)];
    let shown = [[200; 4], [180, 180, 200, 200]];
    expect(&apng_of(&frames, BlendOp::Over), &shown);
    expect(&webp_of(&frames, 40), &shown);
}

#[test]
fn frame_rates_are_averages() {
    let rate = |bytes: &[u8]| read(bytes).unwrap().frame_rate().unwrap();
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    close(rate(&gif_of(&frames(), &[4])), 25.0);
    close(rate(&gif_of(&frames(), &[3, 5])), 25.0);
    // Viewers show frames without delay for a tenth of a second.
    close(rate(&gif_of(&frames(), &[0])), 10.0);
    close(rate(&apng_of(&frames(), BlendOp::Over)), 25.0);
    close(rate(&webp_of(&frames()[..2], 50)), 20.0);
    assert_eq!(read(&webp_of(&frames()[..2], 0)).unwrap().frame_rate(), None);
}

#[test]
fn files_and_prefetching_give_the_same_frames() {
    let folder = Folder::new("animation-file");
    for bytes in [gif_of(&frames(), &[4]), apng_of(&frames(), BlendOp::Over)] {
        let path = folder.put("no extension", &bytes);
        let source = open(&path, &OpenOptions::default()).unwrap();
        assert_eq!(source.name(), path.display().to_string());
        let source = Prefetch::new(source).unwrap();
        assert_eq!((source.length(), source.frame_rate().map(f64::round)), (Some(6), Some(25.0)));
        let found: Vec<Vec<u8>> = source.map(|frame| reds(&frame.unwrap())).collect();
        assert_eq!(found, shown());
    }
}

#[test]
fn still_images_of_animation_formats_have_one_frame() {
    let mut bytes = Vec::new();
    let encoder = image::codecs::webp::WebPEncoder::new_lossless(&mut bytes);
    encoder.write_image(&[7; 12], 2, 2, ExtendedColorType::Rgb8).unwrap();
    for bytes in [
        bytes,
        gif_of(&[frame(0, 4, [7, 255], Dispose::Clear)], &[4]),
        crate::support::png(2, 2, 7),
    ] {
        let source = read(&bytes).unwrap();
        assert_eq!(source.length(), Some(1));
        assert!(matches!(greys(source), (found, None) if found == [7]));
    }
}

#[test]
fn lossy_webp_frames_with_transparency_are_composed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/video/lossy.webp");
    let source = open(path, &OpenOptions::default()).unwrap();
    assert_eq!((source.length(), source.frame_rate().map(f64::round)), (Some(5), Some(10.0)));
    for (index, frame) in source.enumerate() {
        let frame = frame.unwrap();
        assert_eq!(frame.size(), Size::new(64, 48));
        // A yellow square that moves 8 pixels to the right in each frame, over blue.
        for x in [2, 10, 18, 26, 34, 42, 50, 58] {
            let inside = (8 * index..8 * index + 16).contains(&x);
            let [red, green, blue] = frame.pixel(x, 24).unwrap();
            let close =
                if inside { red > 200 && green > 180 && blue < 60 } else { red < 50 && blue > 150 };
            assert!(close, "frame {index}, column {x}: {red} {green} {blue}");
        }
    }
}

#[test]
fn animations_beyond_the_limits_are_errors() {
    let limits = |pixels, frames| {
        let picture = DecodeLimits { pixels, ..DecodeLimits::default() };
        let limits = VideoLimits { picture, animation_frames: frames };
        OpenOptions { limits, ..OpenOptions::default() }
    };
    for bytes in
        [gif_of(&frames(), &[4]), apng_of(&frames(), BlendOp::Over), webp_of(&frames()[..4], 4)]
    {
        let read = |options| from_reader(Cursor::new(bytes.clone()), "test", &options);
        assert!(read(limits(8, 6)).is_ok());
        assert!(matches!(read(limits(7, 6)), Err(VideoError::TooManyPixels { .. })));
        assert!(matches!(read(limits(8, 3)), Err(VideoError::TooManyFrames { limit: 3, .. })));
    }
    // A few bytes that declare a canvas of gigabytes.
    let mut huge = gif_of(&frames(), &[4]);
    huge[6..10].fill(0xff);
    assert!(matches!(read(&huge), Err(VideoError::TooManyPixels { .. })));
    let mut huge = webp_of(&frames()[..1], 4);
    huge[24..30].fill(0xff);
    assert!(matches!(read(&huge), Err(VideoError::TooManyPixels { .. })));
}

/// Number of frames that can be read, and whether an error, or a warning about the last frame, ended the clip.
fn count(bytes: &[u8]) -> (usize, bool) {
    match read(bytes) {
        Ok(source) => {
            let mut has_warning = false;
            let observed = source.inspect(|frame| {
                has_warning = frame.as_ref().is_ok_and(|image| image.warning().is_some());
            });
            let (found, error) = greys(observed);
            (found.len(), error.is_some() || has_warning)
        }
        Err(_) => (0, true),
    }
}

#[test]
fn a_gif_without_its_last_byte_has_all_frames_and_a_warning() {
    let whole = gif_of(&frames(), &[4]);
    let cut = &whole[..whole.len() - 1];
    let images: Vec<Image> = read(cut).unwrap().collect::<Result<_, _>>().unwrap();
    let expected: Vec<Image> = read(&whole).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(images, expected);
    let (last, others) = images.split_last().unwrap();
    assert!(others.iter().all(|image| image.warning().is_none()));
    let warning = last.warning().unwrap();
    assert!(warning.ends_with(&format!("may be cut after frame {}", others.len())), "{warning}");
    assert!(expected.iter().all(|image| image.warning().is_none()));
}

#[test]
fn truncated_animations_end_with_an_error() {
    for (name, bytes, tail) in [
        // The last chunk of a PNG holds no pixels.
        ("GIF", gif_of(&frames(), &[4]), 0),
        ("APNG", apng_of(&frames(), BlendOp::Over), 12),
        ("WebP", webp_of(&frames()[..4], 40), 0),
    ] {
        let whole = count(&bytes).0;
        let mut most = 0;
        for length in 1..bytes.len() - tail {
            let (frames, failed) = count(&bytes[..length]);
            assert!(
                failed,
                "{name} of {length} bytes ended without an error after {frames} frames"
            );
            assert!(frames >= most, "{name}: fewer frames from more bytes");
            most = frames;
        }
        assert!(most + 1 >= whole, "{name}: {most} of {whole} frames");
    }
}

#[test]
fn mutated_animations_never_panic() {
    let mut state = 0x5eed_u64;
    let mut below = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % limit.max(1) as u64) as usize
    };
    let picture = DecodeLimits { pixels: 1_000_000, ..DecodeLimits::default() };
    let limits = VideoLimits { picture, animation_frames: 100 };
    let options = OpenOptions { limits, ..OpenOptions::default() };
    for bytes in
        [gif_of(&frames(), &[4]), apng_of(&frames(), BlendOp::Over), webp_of(&frames()[..4], 40)]
    {
        for _ in 0..1500 {
            let mut mutant = bytes.clone();
            for _ in 0..1 + below(4) {
                let place = below(mutant.len());
                match below(4) {
                    0 => mutant[place] ^= 1 << below(8),
                    1 => mutant[place] = [0, 1, 0x7f, 0x80, 0xff][below(5)],
                    2 => mutant.truncate(place.max(1)),
                    _ => mutant.insert(place, below(256) as u8),
                }
            }
            if let Ok(source) = from_reader(Cursor::new(mutant), "mutant", &options) {
                assert!(source.count() <= 101);
            }
        }
    }
}
