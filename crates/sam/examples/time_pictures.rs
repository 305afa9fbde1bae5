//! Times what happens to a picture before a model can be asked about it, and the first answers:
//! `cargo run --release -p cutout-sam --example time_pictures -- MODEL [PHRASE]`.
//!
//! Pictures of several sizes are resized and normalised on the host, are encoded from bytes to features, and (SAM 3) searched for a phrase.
//! Prints medians in milliseconds.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::time::Instant;

use cutout_sam::imaging::{Image, Size};
use cutout_sam::{Find, Sam};

/// Width and height of the pictures.
const SIZES: [[usize; 2]; 3] = [[640, 480], [1920, 1080], [4000, 3000]];

/// Runs of each.
const RUNS: usize = 15;

fn picture([width, height]: [usize; 2], number: usize) -> Result<Image, Box<dyn Error>> {
    let byte = |i: usize| ((i / 3 % width) * (i / 3 / width + number) / 97 + 85 * (i % 3)) as u8;
    let bytes = (0..3 * width * height).map(byte).collect();
    Ok(Image::from_rgb(Size::new(width, height), bytes)?)
}

/// Median milliseconds of a piece of work, for pictures in turn; the first runs, which compile, are left out.
fn median(
    images: &[Image],
    mut work: impl FnMut(&Image) -> Result<(), Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    let mut times = Vec::new();
    for run in 0..RUNS + 2 {
        let start = Instant::now();
        work(&images[run % images.len()])?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let mut times = times.split_off(2);
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (model, phrase) = match &arguments[..] {
        [model] => (model, None),
        [model, phrase] => (model, Some(&phrase[..])),
        _ => return Err("expected a model, and maybe a phrase".into()),
    };
    let sam = Sam::open(model)?;
    println!("{} on {}", sam.description(), sam.device());
    for size in SIZES {
        let images = (0..3).map(|number| picture(size, number)).collect::<Result<Vec<_>, _>>()?;
        let host = median(&images, |image| Ok(sam.preprocess(image).map(drop)?))?;
        let embed = median(&images, |image| {
            drop(sam.embed(image)?);
            Ok(sam.synchronize()?)
        })?;
        let encoder = sam.time_encoder(&images[0], RUNS as u32)?;
        let mut encoder: Vec<f64> = encoder.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        encoder.sort_by(f64::total_cmp);
        let [width, height] = size;
        print!(
            "{width}x{height}: resize on the host {host:.2} ms, bytes to features {embed:.2} ms"
        );
        print!(", of which the encoder {:.2} ms", encoder[RUNS / 2]);
        if let Some(phrase) = phrase {
            // Random weights find anything everywhere: no mask is asked for.
            let find = |phrase: &str| Find::phrase(phrase).threshold(1.0);
            let known =
                median(&images, |image| Ok(sam.embed(image)?.find(find(phrase)).map(drop)?))?;
            let mut number = 0;
            let new = median(&images, |image| {
                number += 1;
                Ok(sam.embed(image)?.find(find(&format!("{phrase} {number}"))).map(drop)?)
            })?;
            print!(
                ", bytes to scores and boxes of a phrase {known:.2} ms, of a new phrase {new:.2} ms"
            );
        }
        println!();
    }
    Ok(())
}
