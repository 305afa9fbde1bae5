//! Times frames of a clip that are searched for phrases, with a fixed number of objects:
//! `cargo run --release -p cutout-sam --example time_phrases -- sam3.pt FOLDER OBJECTS PHRASE...`.
//!
//! The best detections of the first frame are followed, whatever their probability, and no others: random weights find nothing
//! otherwise. Prints the seconds of each frame, one per line. Run by fixtures/bench_sam3_video.py.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::time::Instant;

use cutout_sam::imaging::{DecodeLimits, open};
use cutout_sam::{PhraseOptions, Sam};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, folder, objects, phrases @ ..] = &arguments[..] else {
        return Err(
            "expected a model, a folder of pictures, a number of objects and phrases".into()
        );
    };
    let mut files: Vec<_> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    let options = PhraseOptions {
        length: Some(files.len()),
        detection_threshold: 0.0,
        duplicate_iou: 1.0,
        new_object_threshold: 1.0,
        recondition_every: 0,
        max_objects: objects.parse()?,
        ..PhraseOptions::instant()
    };
    let phrases: Vec<&str> = phrases.iter().map(String::as_str).collect();
    let mut tracker = Sam::open(model)?.track_phrases(&phrases, options)?;
    for file in files {
        let image = open(&file, &DecodeLimits::default())?;
        let start = Instant::now();
        tracker.push(&image)?;
        println!("{:.3} {}", start.elapsed().as_secs_f64(), tracker.objects().count());
    }
    Ok(())
}
