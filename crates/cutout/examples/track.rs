//! Two objects through a clip, frame by frame, to an overlay GIF. From the root of the repository:
//! `cargo run --release -p cutout --example track`.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;

use cutout::imaging::ImageError;
use cutout::video::{self, FrameResult, ObjectMask, OverlayOptions};
use cutout::{Prompt, Sam, TrackOptions, TrackedObject};

fn main() -> Result<(), Box<dyn Error>> {
    let clip = video::open("examples/ball.gif", &video::OpenOptions::default())?;
    let path = std::env::temp_dir().join("track.gif");
    let frame_rate = clip.frame_rate().unwrap_or(25.0);
    let options = OverlayOptions { frame_rate, tools: video::Tools::default() };
    let mut overlay = video::open_overlay(&path, &options)?;

    let track = TrackOptions { length: clip.length(), ..TrackOptions::default() };
    let mut tracker = Sam::builtin()?.track(track)?;
    for frame in clip {
        let image = frame?;
        let mut tracked = tracker.push(&image)?;
        if tracked.frame == 0 {
            tracker.prompt(0, 1, &Prompt::point(45, 160))?;
            tracker.prompt(0, 2, &Prompt::rect(230.0, 120.0, 286.0, 164.0))?;
            tracked = tracker.masks()?;
        }
        let objects = tracked.objects.iter().map(object_mask).collect::<Result<Vec<_>, _>>()?;
        let area = |object: &ObjectMask| format!("object {}: {}", object.id, object.mask.area());
        let areas: Vec<String> = objects.iter().map(area).collect();
        println!("frame {}, pixels of {}", tracked.frame, areas.join(", "));
        overlay.write(&FrameResult { index: tracked.frame, image: &image, objects: &objects })?;
    }
    overlay.finish()?;
    println!("wrote {}", path.display());
    Ok(())
}

fn object_mask(object: &TrackedObject) -> Result<ObjectMask, ImageError> {
    let score = object.segment.object_score().unwrap_or(0.0);
    Ok(ObjectMask { id: object.id, mask: object.segment.rle()?, score, found: None })
}
