//! The object at a point, as a mask and as an overlay. From the root of the repository:
//! `cargo run --release -p cutout --example click [PICTURE X Y]`.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;

use cutout::{Prompt, Sam, imaging};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let picture = arguments.next().unwrap_or_else(|| "examples/still-life.jpg".to_owned());
    let x: f64 = arguments.next().map_or(Ok(200.0), |text| text.parse())?;
    let y: f64 = arguments.next().map_or(Ok(280.0), |text| text.parse())?;

    let sam = Sam::builtin()?;
    let image = imaging::open(picture, &imaging::DecodeLimits::default())?;
    let scene = sam.embed(&image)?;
    // One click can mean a part or the whole: the model answers with three masks.
    let masks = scene.segment(&Prompt::point(x, y))?;
    for candidate in masks.iter() {
        println!("{} pixels, predicted IoU {:.2}", candidate.rle()?.area(), candidate.iou());
    }

    let best = masks.best();
    let folder = std::env::temp_dir();
    let (mask, overlay) = (folder.join("click.mask.png"), folder.join("click.overlay.png"));
    imaging::write(&mask, &imaging::encode_mask(&best.mask()?, imaging::MaskDepth::Byte)?)?;
    let picture = imaging::overlay(&image, &[best.rle()?])?;
    imaging::write(&overlay, &imaging::encode_image(&picture)?)?;
    println!("wrote {} and {}", mask.display(), overlay.display());
    Ok(())
}
