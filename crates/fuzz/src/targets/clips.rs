//! Clips: animations, streams of PPM pictures, raw frames.

use std::io::Cursor;

use cutout_imaging::Size;
use cutout_video::{OpenOptions, VideoLimits, from_reader};

use super::Target;
use super::pictures::{LIMITS, pattern};

pub(super) const CLIPS: Target = Target {
    name: "clips",
    about: "GIF, APNG and WebP animations, zip archives of pictures, PPM streams",
    seeds,
    words: &[
        "fcTL",
        "fdAT",
        "acTL",
        "ANMF",
        "ANIM",
        "NETSCAPE2.0",
        "P6\n",
        "GIF89a",
        "PK\x01\x02",
        "PK\x05\x06",
    ],
    read: |bytes| read(bytes, None),
    memory: 144 << 20,
};

pub(super) const RAW_FRAMES: Target = Target {
    name: "raw_frames",
    about: "raw frames, three bytes per pixel",
    seeds: || vec![vec![7; 3 * 4 * 5 * 3]],
    words: &[],
    read: |bytes| read(bytes, Some(Size::new(4, 5))),
    memory: 1 << 20,
};

/// Most frames that are read of a clip; an animation may have a million.
const FRAMES: usize = 32;

fn read(bytes: &[u8], raw: Option<Size>) -> bool {
    let limits = VideoLimits { picture: LIMITS, animation_frames: 1000 };
    let options = OpenOptions { limits, raw, ..OpenOptions::default() };
    match from_reader(Cursor::new(bytes.to_vec()), "fuzzed", &options) {
        // Video files need another program.
        Err(_) => false,
        Ok(frames) => frames.take(FRAMES).all(|frame| match frame {
            Ok(image) => image.width() > 0 && image.height() > 0,
            Err(error) => error.to_string().is_empty(),
        }),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let lossy = include_bytes!("../../../../fixtures/video/lossy.webp").to_vec();
    vec![
        gif(),
        apng(),
        lossy,
        archive(),
        b"P6\n3 2\n255\n012345678901234567P6 1 1 255 abc".to_vec(),
    ]
}

fn archive() -> Vec<u8> {
    let mut writer = cutout_video::ArchiveWriter::new(Vec::new());
    for name in ["1.png", "2.png"] {
        writer.add(name, &apng()).expect("a vector takes every byte");
    }
    writer.finish().expect("a vector takes every byte")
}

fn gif() -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = gif::Encoder::new(&mut file, 8, 6, &[]).expect("a vector takes every byte");
    for (index, disposal) in
        [gif::DisposalMethod::Keep, gif::DisposalMethod::Background, gif::DisposalMethod::Previous]
            .into_iter()
            .enumerate()
    {
        let mut pixels = pattern(5, 4).into_raw();
        let mut frame = gif::Frame::from_rgba(5, 4, &mut pixels);
        (frame.left, frame.top, frame.dispose) = (index as u16, index as u16, disposal);
        encoder.write_frame(&frame).expect("a vector takes every byte");
    }
    drop(encoder);
    file
}

fn apng() -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 5, 4);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_animated(3, 0).expect("three frames are allowed");
    let mut writer = encoder.write_header().expect("a vector takes every byte");
    for _ in 0..3 {
        writer.write_image_data(&pattern(5, 4).into_raw()).expect("the pixels fit the header");
    }
    writer.finish().expect("a vector takes every byte");
    file
}
