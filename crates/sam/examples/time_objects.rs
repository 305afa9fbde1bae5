//! Times frames of a clip on which many objects are followed:
//! `cargo run --release -p cutout-sam --example time_objects -- sam3.1_multiplex.pt FOLDER OBJECTS`.
//!
//! The objects are points in a grid on the first frame. Prints the seconds of each later frame and the objects on it, one frame
//! per line: SAM 3 follows each object by itself, SAM 3.1 up to 16 in one pass.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::time::Instant;

use cutout_sam::imaging::{DecodeLimits, open};
use cutout_sam::{ObjectId, Prompt, Sam, TrackOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, folder, objects] = &arguments[..] else {
        return Err("expected a model, a folder of pictures and a number of objects".into());
    };
    let objects: ObjectId = objects.parse()?;
    let mut files: Vec<_> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    let mut frames = files.iter().map(|file| open(file, &DecodeLimits::default()));
    let first = frames.next().ok_or("the folder is empty")??;
    let mut tracker = Sam::open(model)?.track(TrackOptions::default())?;
    tracker.push(&first)?;
    let columns = f64::from(objects).sqrt().ceil();
    let (width, height) = (first.size().width as f64, first.size().height as f64);
    for id in 0..objects {
        let place = |number: f64, length: f64| (number + 0.5) / columns * length;
        let (column, row) = (f64::from(id) % columns, (f64::from(id) / columns).floor());
        tracker.prompt(0, id + 1, &Prompt::point(place(column, width), place(row, height)))?;
    }
    for frame in frames {
        let frame = frame?;
        let start = Instant::now();
        let found = tracker.push(&frame)?;
        println!("{:.3} {}", start.elapsed().as_secs_f64(), found.objects.len());
    }
    Ok(())
}
