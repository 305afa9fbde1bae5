//! Times frames of a clip on which many objects are followed:
//! `cargo run --release -p cutout-sam --example time_objects -- sam3.1_multiplex.pt FOLDER OBJECTS`.
//!
//! The objects are points in a grid on the first frame. With `--ahead` each next frame is encoded ahead of time. All pictures are read
//! before the first is followed. Prints the seconds of each later frame and the objects on it, one frame per line: SAM 3 follows each object by itself, SAM 3.1 up to 16 in one pass.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::time::Instant;

use cutout_sam::imaging::{DecodeLimits, open};
use cutout_sam::{Direction, ObjectId, Prompt, Sam, TrackOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let place = arguments.iter().position(|argument| argument == "--ahead");
    let ahead = place.map(|index| arguments.remove(index)).is_some();
    let [model, folder, objects] = &arguments[..] else {
        return Err("expected a model, a folder of pictures and a number of objects".into());
    };
    let objects: ObjectId = objects.parse()?;
    let mut files: Vec<_> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    let limits = DecodeLimits::default();
    let images = files.iter().map(|file| open(file, &limits)).collect::<Result<Vec<_>, _>>()?;
    let first = images.first().ok_or("the folder is empty")?;
    let mut tracker = Sam::open(model)?.track(TrackOptions::default())?;
    tracker.push(first)?;
    let columns = f64::from(objects).sqrt().ceil();
    let (width, height) = (first.size().width as f64, first.size().height as f64);
    for id in 0..objects {
        let place = |number: f64, length: f64| (number + 0.5) / columns * length;
        let (column, row) = (f64::from(id) % columns, (f64::from(id) / columns).floor());
        tracker.prompt(0, id + 1, &Prompt::point(place(column, width), place(row, height)))?;
    }
    for (number, image) in images.iter().enumerate().skip(1) {
        let start = Instant::now();
        if let Some(next) = images.get(number + 1).filter(|_| ahead) {
            tracker.visit(number, image)?;
            tracker.look_ahead(next);
        }
        let found = tracker.push_at(number, image, Direction::Forward)?;
        println!("{:.4} {}", start.elapsed().as_secs_f64(), found.objects.len());
    }
    Ok(())
}
