//! The masks of all objects in a picture. From the root of the repository:
//! `cargo run --release -p cutout --example everything [PICTURE]`.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;

use cutout::{Everything, Sam, imaging};

fn main() -> Result<(), Box<dyn Error>> {
    let picture = std::env::args().nth(1).unwrap_or_else(|| "examples/still-life.jpg".to_owned());
    let sam = Sam::builtin()?;
    let image = imaging::open(picture, &imaging::DecodeLimits::default())?;

    // A grid of 12 × 12 points; the other options are Meta's for this family.
    let options = Everything { points_per_side: 12, ..sam.everything_options() };
    let masks = sam.embed(&image)?.everything(&options)?;
    for (number, mask) in masks.iter().enumerate() {
        let [x, y, width, height] = mask.bbox.xywh();
        println!(
            "{number}: {} pixels in {width} × {height} at ({x}, {y}), predicted IoU {:.2}",
            mask.area, mask.predicted_iou
        );
    }

    let masks: Vec<imaging::Rle> = masks.into_iter().map(|mask| mask.rle).collect();
    let path = std::env::temp_dir().join("everything.png");
    imaging::write(&path, &imaging::encode_image(&imaging::overlay(&image, &masks)?)?)?;
    println!("wrote {}", path.display());
    Ok(())
}
