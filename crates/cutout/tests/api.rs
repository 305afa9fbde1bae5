//! The public API end to end with the built-in model, by paths of `cutout` alone. Masks are compared with what was drawn.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::error::Error;

use cutout::imaging::{
    DecodeLimits, Image, Mask, MaskDepth, Rle, Size, encode_image, encode_mask, open, write,
};
use cutout::{Candidates, Everything, Masks, Prompt, Sam, TrackOptions};

const SIZE: Size = Size::new(240, 180);
const RADIUS: f64 = 40.0;

/// A disc around (`x`, `y`).
fn disc(x: f64, y: f64) -> Mask {
    let inside = |pixel: usize| {
        let (column, row) = ((pixel % SIZE.width) as f64 + 0.5, (pixel / SIZE.width) as f64 + 0.5);
        (column - x).hypot(row - y) <= RADIUS
    };
    Mask::from_pixels(SIZE, (0..SIZE.width * SIZE.height).map(inside).collect()).unwrap()
}

/// A red disc on a grey ground that becomes lighter to the right.
fn picture(disc: &Mask) -> Image {
    let colour = |(pixel, inside): (usize, &bool)| {
        let grey = 90 + (pixel % SIZE.width / 4) as u8;
        if *inside { [200, 40, 30] } else { [grey, grey, grey] }
    };
    let pixels = disc.pixels().iter().enumerate().flat_map(colour).collect();
    Image::from_rgb(SIZE, pixels).unwrap()
}

#[track_caller]
fn assert_fits(found: &Rle, drawn: &Mask) {
    let iou = found.iou(&drawn.to_rle().unwrap()).unwrap();
    assert!(iou > 0.95, "IoU {iou} with the disc that was drawn");
}

#[track_caller]
fn best(masks: &Masks) -> Rle {
    assert!((0.5..=1.1).contains(&masks.best().iou()), "predicted IoU {}", masks.best().iou());
    masks.best().rle().unwrap()
}

#[test]
fn a_picture_from_file_to_mask_to_file() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("cutout-api-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let drawn = disc(90.0, 100.0);
    let path = folder.join("disc.png");
    write(&path, &encode_image(&picture(&drawn))?)?;
    let image = open(&path, &DecodeLimits::default())?;
    assert_eq!(image, picture(&drawn));

    let sam = Sam::builtin()?;
    let scene = sam.embed(&image)?;
    let click = Prompt::point(80, 95);
    let first = scene.segment(&click)?;
    assert_eq!(first.len(), 3);
    assert_fits(&best(&first), &drawn);
    let boxed = scene.segment(&Prompt::rect(48.0, 58.0, 132.0, 142.0))?;
    assert_eq!(boxed.len(), 1);
    assert_fits(&best(&boxed), &drawn);

    let again = click.clone().not(200, 30).with_logits(first.best().logits().clone());
    let refined = scene.segment(&again.candidates(Candidates::One))?;
    assert_eq!(refined.len(), 1);
    assert_fits(&best(&refined), &drawn);

    let saved = folder.join("disc.scene");
    scene.save(&saved)?;
    let loaded = sam.load_scene(&saved)?;
    assert_eq!(best(&loaded.segment(&click)?), best(&first));

    let mask = folder.join("disc.mask.png");
    write(&mask, &encode_mask(&first.best().mask().unwrap(), MaskDepth::Byte)?)?;
    let white = open(&mask, &DecodeLimits::default())?;
    let white = white.as_rgb().chunks_exact(3).filter(|pixel| *pixel == [255; 3]).count();
    assert_eq!(white, best(&first).area());
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

#[test]
fn everything_has_the_disc() -> Result<(), Box<dyn Error>> {
    let drawn = disc(150.0, 80.0);
    let sam = Sam::builtin()?;
    let options = Everything { points_per_side: 4, ..sam.everything_options() };
    let masks = sam.embed(&picture(&drawn))?.everything(&options)?;
    let overlap = |rle: &Rle| rle.iou(&drawn.to_rle().unwrap()).unwrap_or(0.0);
    let nearest = masks.iter().max_by(|a, b| overlap(&a.rle).total_cmp(&overlap(&b.rle)));
    let nearest = nearest.ok_or("no masks")?;
    assert_fits(&nearest.rle, &drawn);
    assert_eq!(nearest.area, nearest.rle.area());
    Ok(())
}

#[test]
fn a_disc_is_tracked_through_three_frames() -> Result<(), Box<dyn Error>> {
    let discs = [disc(70.0, 90.0), disc(82.0, 92.0), disc(94.0, 94.0)];
    let mut tracker = Sam::builtin()?.track(TrackOptions::default())?;
    assert!(tracker.push(&picture(&discs[0]))?.objects.is_empty());
    let shown = tracker.prompt(0, 7, &Prompt::point(70, 90))?;
    assert_fits(&shown.segment.rle().unwrap(), &discs[0]);
    for (number, drawn) in discs.iter().enumerate().skip(1) {
        let tracked = tracker.push(&picture(drawn))?;
        assert_eq!((tracked.frame, tracked.objects.len()), (number, 1));
        assert_eq!(tracked.objects[0].id, 7);
        assert_fits(&tracked.objects[0].segment.rle().unwrap(), drawn);
    }
    Ok(())
}
