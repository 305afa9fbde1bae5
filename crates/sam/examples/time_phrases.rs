//! Times frames of a clip that are searched for phrases, with a fixed number of objects:
//! `cargo run --release -p cutout-sam --example time_phrases -- sam3.pt FOLDER OBJECTS PHRASE...`.
//!
//! The best detections of the first frame are followed, whatever their probability, and no others: random weights find nothing
//! otherwise. All 200 queries of the detector then count on every frame; with `--few` before the model only about as many as there
//! are objects, as with trained weights: those with a score above that of the others on the first frame. With `--ahead` each next
//! frame is encoded ahead of time. All pictures are read before the first is followed. Prints the seconds of each frame and the number of
//! objects, one per line; `time_objects` does so for objects that are pointed at. Run by fixtures/bench_sam3_video.py.

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
    let mut flag = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name);
        place.map(|index| arguments.remove(index)).is_some()
    };
    let (few, ahead) = (flag("--few"), flag("--ahead"));
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
    let limits = DecodeLimits::default();
    let images = files.iter().map(|file| open(file, &limits)).collect::<Result<Vec<_>, _>>()?;
    for (number, image) in images.iter().enumerate() {
        let start = Instant::now();
        if let Some(next) = images.get(number + 1).filter(|_| ahead) {
            tracker.look_ahead(number, image, next)?;
        }
        tracker.push(image)?;
        println!("{:.4} {}", start.elapsed().as_secs_f64(), tracker.objects().count());
    }
    Ok(())
}
