//! Times frames of a clip that are searched for phrases, with a fixed number of objects:
//! `cargo run --release -p cutout-sam --example time_phrases -- sam3.pt FOLDER OBJECTS PHRASE...`.
//!
//! The best detections of the first frame are followed, whatever their probability, and no others: random weights find nothing
//! otherwise. All 200 queries of the detector then count on every frame; with `--few` before the model only about as many as there
//! are objects, as with trained weights: those with a score above that of the others on the first frame. Prints the seconds of
//! each frame, one per line. Run by fixtures/bench_sam3_video.py.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use cutout_sam::imaging::{DecodeLimits, open};
use cutout_sam::{Find, PhraseOptions, Sam};

/// The score that `count` detections of a picture are above.
fn threshold(sam: &Sam, picture: &Path, phrase: &str, count: usize) -> Result<f32, Box<dyn Error>> {
    let scene = sam.embed(&open(picture, &DecodeLimits::default())?)?;
    let found = scene.find(Find::phrase(phrase).threshold(0.0))?;
    let mut scores: Vec<f32> = found.iter().map(cutout_sam::Detection::score).collect();
    scores.sort_by(|a, b| b.total_cmp(a));
    Ok(scores.get(count).copied().unwrap_or(0.0))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let few = arguments.first().is_some_and(|first| first == "--few");
    arguments.drain(..usize::from(few));
    let [model, folder, objects, phrases @ ..] = &arguments[..] else {
        return Err(
            "expected a model, a folder of pictures, a number of objects and phrases".into()
        );
    };
    let mut files: Vec<_> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    let (sam, count) = (Sam::open(model)?, objects.parse()?);
    let detection_threshold = match (few, files.first(), phrases.first()) {
        (true, Some(first), Some(phrase)) => threshold(&sam, first, phrase, count)?,
        _ => 0.0,
    };
    let options = PhraseOptions {
        length: Some(files.len()),
        detection_threshold,
        duplicate_iou: 1.0,
        new_object_threshold: 1.0,
        recondition_every: 0,
        max_objects: count,
        ..PhraseOptions::instant()
    };
    let phrases: Vec<&str> = phrases.iter().map(String::as_str).collect();
    let mut tracker = sam.track_phrases(&phrases, options)?;
    for file in files {
        let image = open(&file, &DecodeLimits::default())?;
        let start = Instant::now();
        tracker.push(&image)?;
        println!("{:.3} {}", start.elapsed().as_secs_f64(), tracker.objects().count());
    }
    Ok(())
}
