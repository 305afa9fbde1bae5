//! A second click that corrects the mask of the first. From the root of the repository:
//! `cargo run --release -p cutout --example refine`.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;

use cutout::{Candidates, Masks, Prompt, Sam, imaging};

fn main() -> Result<(), Box<dyn Error>> {
    let sam = Sam::builtin()?;
    let image = imaging::open("examples/still-life.jpg", &imaging::DecodeLimits::default())?;
    let scene = sam.embed(&image)?;

    let click = Prompt::point(420, 320);
    let first = scene.segment(&click)?;
    print("first click", &first)?;

    // The first mask is the book with the apple on it; the second click takes the apple away. Its prompt has all points so
    // far, and the logits of the mask that it corrects.
    let corrected = click.not(500, 270).with_logits(first.best().logits().clone());
    let second = scene.segment(&corrected.candidates(Candidates::One))?;
    print("second click", &second)?;

    let overlap = first.best().rle()?.iou(&second.best().rle()?)?;
    println!("IoU of the two masks: {overlap:.2}");
    let path = std::env::temp_dir().join("refine.png");
    let overlay = imaging::overlay(&image, &[first.best().rle()?, second.best().rle()?])?;
    imaging::write(&path, &imaging::encode_image(&overlay)?)?;
    println!("wrote {}", path.display());
    Ok(())
}

fn print(what: &str, masks: &Masks) -> Result<(), imaging::ImageError> {
    let best = masks.best();
    println!("{what}: {} pixels, predicted IoU {:.2}", best.rle()?.area(), best.iou());
    Ok(())
}
