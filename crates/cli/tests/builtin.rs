//! The built-in model on a generated picture whose masks are known exactly.
//! Clips are in `track.rs`.

use cutout_imaging::{DecodeLimits, Image, Mask, Rle, Size, encode_image, open};
use serde_json::Value;

use crate::support::{Folder, folder};

const SIZE: Size = Size::new(240, 180);

/// Two objects: a disc and a slanted bar.
const THINGS: [fn(f64, f64) -> bool; 2] = [
    |x, y| (x - 70.0).hypot(y - 80.0) < 38.0,
    |x, y| {
        let (along, across) = (x - 170.0 + 0.5 * (y - 100.0), y - 100.0 - 0.5 * (x - 170.0));
        along.abs() < 50.0 && across.abs() < 26.0
    },
];

fn expected(thing: usize) -> Rle {
    let inside =
        |i: usize| THINGS[thing]((i % SIZE.width) as f64 + 0.5, (i / SIZE.width) as f64 + 0.5);
    let pixels = (0..SIZE.width * SIZE.height).map(inside).collect();
    Mask::from_pixels(SIZE, pixels).unwrap().to_rle().unwrap()
}

/// A folder with the picture: the objects on a noisy gradient.
fn drawn() -> Folder {
    let masks = [0, 1].map(|thing| expected(thing).to_mask().unwrap());
    let colour = |i: usize| {
        let (x, y) = (i % SIZE.width, i / SIZE.width);
        let grain = (i.wrapping_mul(2_654_435_761) >> 9) % 13;
        let base = match masks.each_ref().map(|mask| mask.get(x, y)) {
            [true, _] => [200, 150, 40],
            [_, true] => [60, 90, 180],
            [false, false] => [110 + x / 6, 150 - y / 6, 120],
        };
        base.map(|value| (value + grain) as u8)
    };
    let pixels = (0..SIZE.width * SIZE.height).flat_map(colour).collect();
    let folder = folder();
    folder.write("picture.png", encode_image(&Image::from_rgb(SIZE, pixels).unwrap()).unwrap());
    folder
}

/// Intersection over union of the mask in a file and the expected one.
fn fit(folder: &Folder, name: &str, thing: usize) -> f64 {
    let image = open(folder.path(name), &DecodeLimits::default()).unwrap();
    let pixels = image.as_rgb().chunks_exact(3).map(|pixel| pixel != [0, 0, 0]).collect();
    let found = Mask::from_pixels(image.size(), pixels).unwrap();
    found.to_rle().unwrap().iou(&expected(thing)).unwrap()
}

#[test]
fn clicks_boxes_and_refinement() {
    let folder = drawn();
    let prompts: [(usize, &[&str]); 4] = [
        (0, &["--point", "70,80"]),
        (0, &["--box", "32,42,108,118"]),
        (1, &["--point", "170,100", "--raw", "first.safetensors"]),
        (1, &["--point", "170,100", "--point", "200,112", "--mask-input", "first.safetensors"]),
    ];
    for (thing, prompt) in prompts {
        let ended =
            folder.cutout(&[&["segment", "picture.png", "-o", "mask.png"], prompt].concat());
        assert!(ended.stderr.contains("built-in model"), "{}", ended.stderr);
        ended.succeeds();
        let fit = fit(&folder, "mask.png", thing);
        assert!(fit > 0.9, "{prompt:?}: {fit}");
    }
}

#[test]
fn automatic_masks() {
    let folder = drawn();
    let masks =
        folder.cutout(&["everything", "picture.png", "--points-per-side", "8", "--json"]).json();
    let run_lengths = |mask: &Value| {
        Rle::from_coco_string(SIZE, mask["segmentation"]["counts"].as_str().unwrap()).unwrap()
    };
    let found: Vec<Rle> = masks.as_array().unwrap().iter().map(run_lengths).collect();
    for thing in [0, 1] {
        let fits = found.iter().map(|rle| rle.iou(&expected(thing)).unwrap());
        let best = fits.fold(0.0, f64::max);
        assert!(best > 0.9, "thing {thing}: {best} among {} masks", found.len());
    }
}
