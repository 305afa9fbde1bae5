//! Every object that a phrase describes. Needs a checkpoint of SAM 3:
//! `cargo run --release -p cutout --example phrase -- sam3.pt PICTURE PHRASE [THRESHOLD]`.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;

use cutout::{Detection, Find, Sam, imaging};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [checkpoint, picture, phrase, threshold @ ..] = &arguments[..] else {
        return Err("usage: phrase CHECKPOINT PICTURE PHRASE [THRESHOLD]".into());
    };
    let threshold: f32 = threshold.first().map_or(Ok(0.5), |text| text.parse())?;

    let sam = Sam::open(checkpoint)?;
    let image = imaging::open(picture, &imaging::DecodeLimits::default())?;
    let scene = sam.embed(&image)?;
    let found = scene.find(Find::phrase(phrase).threshold(threshold))?;
    for object in found.iter() {
        println!("{:.2} at {}, {} pixels", object.score(), object.rect(), object.rle()?.area());
    }
    println!("{} objects of {phrase:?}", found.len());

    let masks = found.iter().map(Detection::rle).collect::<Result<Vec<_>, _>>()?;
    let path = std::env::temp_dir().join("phrase.png");
    imaging::write(&path, &imaging::encode_image(&imaging::overlay(&image, &masks)?)?)?;
    println!("wrote {}", path.display());
    Ok(())
}
