//! Reads a clip, prints its length and frame rate, and writes the results of a moving square:
//! `cargo run --release -p cutout-video --example clip -- CLIP [overlay.gif|.mp4|.mov|.mkv|.webm] [masks.jsonl] [FOLDER]`.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use cutout_imaging::{Mask, Size};
use cutout_video::{
    FrameResult, FrameSource, JsonLines, LabelPictures, ObjectMask, OpenOptions, OverlayOptions,
    Prefetch, Sink, Tools, open, open_overlay,
};

#[allow(clippy::disallowed_methods, reason = "a program may look at its environment")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let clip = arguments.next().ok_or("usage: clip CLIP [OUTPUT …]")?;
    let tools = Tools::find(&std::env::var_os("PATH").unwrap_or_default());
    let options = OpenOptions { tools: tools.clone(), ..OpenOptions::default() };
    let source = Prefetch::new(open(clip, &options)?)?;
    println!(
        "{}: {:?} frames, {:?} per second",
        source.name(),
        source.length(),
        source.frame_rate()
    );
    let frame_rate = source.frame_rate().unwrap_or(30.0);
    let options = OverlayOptions { frame_rate, tools };
    let mut sinks = Vec::new();
    for path in arguments {
        sinks.push(sink(Path::new(&path), &options)?);
    }
    let start = Instant::now();
    let mut count = 0;
    let result = run(source, &mut sinks, &mut count);
    for sink in sinks {
        sink.finish()?;
    }
    println!("{count} frames in {:.2} s", start.elapsed().as_secs_f64());
    result
}

fn sink(path: &Path, options: &OverlayOptions) -> Result<Box<dyn Sink>, Box<dyn Error>> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("jsonl") => Ok(Box::new(JsonLines::create(path)?)),
        None => Ok(Box::new(LabelPictures::create(path)?)),
        Some(_) => Ok(open_overlay(path, options)?),
    }
}

fn run(
    source: impl FrameSource,
    sinks: &mut [Box<dyn Sink>],
    count: &mut usize,
) -> Result<(), Box<dyn Error>> {
    for frame in source {
        let image = frame?;
        let mask = square(image.size(), *count)?.to_rle()?;
        let objects = [ObjectMask { id: 1, mask, score: 1.0, found: None }];
        for sink in &mut *sinks {
            sink.write(&FrameResult { index: *count, image: &image, objects: &objects })?;
        }
        *count += 1;
    }
    Ok(())
}

/// A square of a third of the height that moves from left to right.
fn square(size: Size, index: usize) -> Result<Mask, Box<dyn Error>> {
    let side = size.height / 3 + 1;
    let left = 4 * index % size.width;
    let inside = |i: usize| {
        let (x, y) = (i % size.width, i / size.width);
        (left..left + side).contains(&x) && (side..2 * side).contains(&y)
    };
    Ok(Mask::from_pixels(size, (0..size.width * size.height).map(inside).collect())?)
}
