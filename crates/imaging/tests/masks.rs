//! Masks compared with results of PyTorch, pycocotools and torchvision (fixtures/make_imaging.py).

use cutout_imaging::{
    Candidate, Fit, Image, Mapping, Placement, Preprocess, Rect, Rle, Size, Threshold, Upsampler,
    non_maximum_suppression, runs_above_zero, summarize, summarize_bits,
};
use cutout_parallel::Pool;
use safetensors::SafeTensors;
use serde_json::Value;

const RESIZE: &[u8] = include_bytes!("../../../fixtures/imaging/resize.safetensors");
const UPSAMPLED: &[u8] = include_bytes!("../../../fixtures/imaging/masks.safetensors");
const ANSWERS: &str = include_str!("../../../fixtures/imaging/masks.json");

fn answers() -> Value {
    serde_json::from_str(ANSWERS).unwrap()
}

fn integers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|item| item.as_u64().unwrap() as usize).collect()
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|item| item.as_f64().unwrap()).collect()
}

/// Sizes are [height, width] in the fixture.
fn size(value: &Value) -> Size {
    let sides = integers(value);
    Size::new(sides[1], sides[0])
}

fn rle(size: Size, string: &Value) -> Rle {
    Rle::from_coco_string(size, string.as_str().unwrap()).unwrap()
}

fn f32s(tensors: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let bytes = tensors.tensor(name).unwrap().data().chunks_exact(4);
    bytes.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

fn worst(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn preprocessing_matches_meta() {
    let tensors = SafeTensors::deserialize(RESIZE).unwrap();
    for key in ["a", "b"] {
        let input = tensors.tensor(&format!("input.{key}")).unwrap();
        let size = Size::new(input.shape()[1], input.shape()[0]);
        let image = Image::from_rgb(size, input.data().to_vec()).unwrap();
        let preprocess = Preprocess {
            side: 32,
            mean: [123.675, 116.28, 103.53],
            std: [58.395, 57.12, 57.375],
            fit: Fit::LongSide,
        };
        let (found, _) = preprocess.run(&image, &Pool::new(2)).unwrap();
        let expected = f32s(&tensors, &format!("sam1.{key}.32"));
        assert!(worst(&found.to_vec::<f32>().unwrap(), &expected) == 0.0, "{key}");
    }
}

#[test]
fn upsampling_matches_pytorch() {
    let tensors = SafeTensors::deserialize(UPSAMPLED).unwrap();
    let logits = f32s(&tensors, "low");
    let low = Size::square(16);
    let mut checked = 0;
    for name in tensors.names().into_iter().filter(|name| *name != "low") {
        let parts: Vec<&str> = name.split('.').collect();
        let upsampler = match parts[..] {
            ["one", size] => {
                let (width, height) = size.split_once('x').unwrap();
                let size = Size::new(width.parse().unwrap(), height.parse().unwrap());
                Upsampler::direct(low, size).unwrap()
            }
            ["two", _] => {
                let sizes = tensors.tensor(&format!("{name}.sizes")).unwrap();
                let sides = sizes.data().chunks_exact(8);
                let sides: Vec<usize> = sides
                    .map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()) as usize)
                    .collect();
                let mapping = Mapping {
                    model: Size::new(sides[1], sides[0]),
                    content: Size::new(sides[3], sides[2]),
                    original: Size::new(sides[5], sides[4]),
                };
                Upsampler::through_model(low, &mapping).unwrap()
            }
            _ => continue,
        };
        let mut found = Vec::new();
        upsampler.for_each_row(&logits, |_, row| found.extend_from_slice(row)).unwrap();
        let difference = worst(&found, &f32s(&tensors, name));
        assert!(difference < 1e-5, "{name}: {difference}");
        checked += 1;
    }
    assert_eq!(checked, 8);
}

#[test]
fn a_summary_matches_the_full_size_mask() {
    let answers = &answers()["statistics"];
    let logits: Vec<f32> = floats(&answers["low"]).into_iter().map(|value| value as f32).collect();
    let mapping = Mapping {
        original: Size::new(1501, 1001),
        content: Size::new(1024, 683),
        model: Size::square(1024),
    };
    let upsampler = Upsampler::through_model(Size::square(24), &mapping).unwrap();
    let summary = summarize(&upsampler, &logits, Threshold::default(), None).unwrap();
    let expected = rle(mapping.original, &answers["string"]);
    // Logits within rounding of the threshold may be set or unset.
    let close = |found: usize, name: &str| {
        let expected = answers[name].as_u64().unwrap() as usize;
        assert!(found.abs_diff(expected) <= 3, "{name}: {found}, expected {expected}");
    };
    close(summary.area, "area");
    close(summary.surely, "above");
    close(summary.possibly, "below");
    assert!(summary.rle.iou(&expected).unwrap() > 0.99999);
    assert_eq!(summary.bounds, expected.bounds());
    assert_eq!(runs_above_zero(&upsampler, &logits).unwrap(), summary.rle);
    let ratio = summary.surely as f32 / summary.possibly as f32;
    assert_eq!(summary.stability(), ratio);
}

#[test]
fn run_lengths_match_pycocotools() {
    for entry in answers()["run_lengths"].as_array().unwrap() {
        let size = size(&entry["size"]);
        let counts: Vec<u32> = integers(&entry["counts"]).iter().map(|n| *n as u32).collect();
        let runs = rle(size, &entry["string"]);
        assert_eq!(runs.counts(), counts);
        assert_eq!(runs.to_coco_string(), entry["string"].as_str().unwrap());
        assert_eq!(runs.area(), entry["area"].as_u64().unwrap() as usize);
        assert_eq!(runs.coco_box().to_vec(), floats(&entry["box"]));
        assert_eq!(runs.to_mask().unwrap().to_rle().unwrap(), runs);
        assert_eq!(Rle::from_counts(size, counts).unwrap(), runs);
    }
}

#[test]
fn iou_matches_pycocotools() {
    let answers = &answers()["overlaps"];
    let size = size(&answers["size"]);
    let strings = answers["strings"].as_array().unwrap();
    let masks: Vec<Rle> = strings.iter().map(|string| rle(size, string)).collect();
    for (a, row) in masks.iter().zip(answers["iou"].as_array().unwrap()) {
        for (b, expected) in masks.iter().zip(floats(row)) {
            assert!((a.iou(b).unwrap() - expected).abs() < 1e-12);
        }
    }
}

#[test]
fn non_maximum_suppression_matches_torchvision() {
    for case in answers()["suppression"].as_array().unwrap() {
        let scores = floats(&case["scores"]);
        let categories = integers(&case["categories"]);
        let corners = case["boxes"].as_array().unwrap().iter().map(floats);
        let candidates: Vec<Candidate> = corners
            .zip(scores.iter().zip(categories))
            .map(|(c, (score, category))| Candidate {
                rect: Rect::new(c[0] as f32, c[1] as f32, c[2] as f32, c[3] as f32),
                score: *score as f32,
                category: category as u32,
            })
            .collect();
        let threshold = case["threshold"].as_f64().unwrap();
        let kept = non_maximum_suppression(&candidates, threshold);
        assert_eq!(kept, integers(&case["kept"]));
        // Suppressing the kept boxes again removes none.
        let again: Vec<Candidate> = kept.iter().map(|index| candidates[*index]).collect();
        assert_eq!(non_maximum_suppression(&again, threshold).len(), again.len());
    }
}

/// Normal-like noise from a small generator of its own.
fn noise(length: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32
    };
    (0..length).map(|_| next() + next() + next() - 1.5).collect()
}

/// Counts and bits of upsampled logits, pixel by pixel.
fn bits(upsampler: &Upsampler, logits: &[f32], threshold: Threshold) -> Vec<i32> {
    let Size { width, height } = upsampler.size();
    let words = height.div_ceil(32);
    let mut row = vec![0; 2 + width * words];
    let limits = [threshold.value + threshold.offset, threshold.value - threshold.offset];
    upsampler
        .for_each_row(logits, |y, values| {
            for (x, value) in values.iter().enumerate() {
                for (count, limit) in row.iter_mut().zip(limits) {
                    *count += i32::from(*value > limit);
                }
                let bit = i32::from(*value > threshold.value) << (y % 32);
                row[2 + x * words + y / 32] |= bit;
            }
        })
        .unwrap();
    row
}

#[test]
fn bits_and_rows_give_the_same_summary() {
    let threshold = Threshold { value: 0.0, offset: 0.25 };
    let low = Size::new(9, 8);
    let sizes = [(1, 1), (1, 32), (5, 31), (40, 33), (33, 64), (7, 96), (64, 5), (50, 77)];
    for (seed, (width, height)) in sizes.into_iter().enumerate() {
        let upsampler = Upsampler::direct(low, Size::new(width, height)).unwrap();
        let logits = noise(72, seed as u32);
        let row = bits(&upsampler, &logits, threshold);
        let canvas = Size::new(width + 3, height + 2);
        let places = [None, Some(Placement { canvas, x: 2, y: 1 })];
        for place in places {
            let expected = summarize(&upsampler, &logits, threshold, place).unwrap();
            let found = summarize_bits(upsampler.size(), &row, place).unwrap();
            assert_eq!(found, expected, "{width} by {height}, {place:?}");
        }
        assert!(summarize_bits(upsampler.size(), &row[1..], None).is_err());
    }
}
