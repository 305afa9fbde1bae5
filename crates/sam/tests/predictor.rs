//! Pictures and prompts against Meta's SamPredictor: embedding, low-resolution logits, scores, and masks at full size.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;
use std::path::Path;

use cutout_sam::imaging::{Image, Size};
use cutout_sam::{Candidates, Label, Masks, Point, Prompt, Rect, Sam};
use cutout_tensor::{Tensor, Tolerance, compare};
use cutout_testing::fixtures::read_tensors;
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};

const PICTURES: [&str; 2] = ["landscape", "portrait"];
const PROMPTS: [&str; 6] = ["point", "points", "box", "box_point", "point_logits", "logits"];

/// Pixels of all masks of an answer that may differ: resizing and adding in another order moves a logit across the threshold
/// now and then.
const DIFFERENT: f64 = 0.001;

/// What `fixtures/make_sam1_predictor.py` stored.
struct Fixture(HashMap<String, Tensor>);

impl Fixture {
    fn load() -> Self {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sam1/predictor.safetensors");
        Fixture(read_tensors(&path).unwrap().0)
    }

    fn get(&self, name: &str) -> &Tensor {
        self.0.get(name).unwrap_or_else(|| panic!("the fixture has no {name}"))
    }

    /// The model, opened from a file with the fixture's weights.
    fn sam(&self, test: &str) -> Sam {
        let name = format!("cutout-predictor-{test}-{}.safetensors", std::process::id());
        let path = std::env::temp_dir().join(name);
        let weights: Vec<OutgoingTensor<'_>> = self
            .0
            .iter()
            .filter_map(|(name, tensor)| Some((name.strip_prefix("weight/")?, tensor)))
            .map(|(name, tensor)| OutgoingTensor::new(name, tensor.clone()))
            .collect();
        write_safetensors(&path, &weights, &Metadata::new()).unwrap();
        let sam = Sam::open(&path);
        let _ = std::fs::remove_file(&path);
        sam.unwrap()
    }

    fn picture(&self, title: &str) -> Image {
        let pixels = self.get(&format!("{title}/pixels"));
        let size = Size::new(pixels.shape()[1], pixels.shape()[0]);
        Image::from_rgb(size, pixels.to_vec::<u8>().unwrap()).unwrap()
    }

    /// A prompt in pixels of its picture.
    fn prompt(&self, run: &str) -> Prompt {
        let numbers = |part: &str| {
            let tensor = self.0.get(&format!("{run}/{part}"))?;
            Some(tensor.to_f64_vec().unwrap())
        };
        let mut prompt = Prompt::default();
        if let (Some(points), Some(labels)) = (numbers("points"), numbers("labels")) {
            for (place, label) in points.chunks(2).zip(labels) {
                let label = if label == 1.0 { Label::Positive } else { Label::Negative };
                prompt = prompt.with_point(Point { x: place[0], y: place[1] }, label);
            }
        }
        if let Some(corners) = numbers("box") {
            let [x0, y0, x1, y1] = corners[..] else { panic!("{run}: a box has four numbers") };
            prompt = prompt.with_rect(Rect { x0, y0, x1, y1 });
        }
        match self.0.get(&format!("{run}/logits")) {
            Some(logits) => prompt.with_logits(logits.clone()),
            None => prompt,
        }
    }
}

/// Compares an answer with the predictor's.
fn check(fixture: &Fixture, run: &str, masks: &Masks) {
    let [low_res, iou, expected] =
        ["low_res", "iou", "masks"].map(|part| fixture.get(&format!("{run}/{part}")));
    assert_eq!(masks.len(), low_res.shape()[0], "{run}");
    let side = low_res.shape()[1];
    let (mut different, mut pixels) = (0, 0);
    for (index, segment) in masks.iter().enumerate() {
        let row = |tensor: &Tensor| tensor.slice(0, index..index + 1).unwrap();
        let logits = row(low_res).reshape([side, side]).unwrap();
        let difference = compare(segment.logits(), &logits, Tolerance::Stage).unwrap();
        assert!(difference.within, "{run}, logits of mask {index}: {difference}");
        let score = f64::from(segment.iou());
        let wanted = row(iou).to_f64_vec().unwrap()[0];
        assert!((score - wanted).abs() < 1e-4, "{run}, mask {index}: {score}, not {wanted}");
        let mask = segment.mask();
        let wanted = row(expected).to_vec::<u8>().unwrap();
        assert_eq!(mask.pixels().len(), wanted.len(), "{run}");
        different += mask.pixels().iter().zip(&wanted).filter(|(a, b)| **a != (**b == 1)).count();
        pixels += wanted.len();
    }
    let share = different as f64 / pixels as f64;
    assert!(share <= DIFFERENT, "{run}: {different} of {pixels} pixels differ");
}

#[test]
fn embeddings_match_the_predictor() {
    let fixture = Fixture::load();
    let sam = fixture.sam("embedding");
    for title in PICTURES {
        let scene = sam.embed(&fixture.picture(title)).unwrap();
        let expected = fixture.get(&format!("{title}/embedding"));
        let difference =
            compare(&scene.image_embedding().unwrap(), expected, Tolerance::Stage).unwrap();
        assert!(difference.within, "{title}: {difference}");
    }
}

#[test]
fn masks_match_the_predictor() {
    let fixture = Fixture::load();
    let sam = fixture.sam("masks");
    for title in PICTURES {
        let scene = sam.embed(&fixture.picture(title)).unwrap();
        for name in PROMPTS {
            let run = format!("{title}/{name}");
            let prompt = fixture.prompt(&run);
            for (answer, candidates) in [("one", Candidates::One), ("three", Candidates::Three)] {
                let masks = scene.segment(&prompt.clone().candidates(candidates)).unwrap();
                check(&fixture, &format!("{run}/{answer}"), &masks);
            }
        }
    }
}

/// A mask that is fed back is this model's own here, and not the predictor's.
#[test]
fn logits_can_be_fed_back() {
    let fixture = Fixture::load();
    let sam = fixture.sam("feedback");
    for title in PICTURES {
        let scene = sam.embed(&fixture.picture(title)).unwrap();
        let first = scene.segment(&fixture.prompt(&format!("{title}/point"))).unwrap();
        let run = format!("{title}/point_logits");
        let prompt = fixture.prompt(&run).with_logits(first.best().logits().clone());
        check(&fixture, &format!("{run}/three"), &scene.segment(&prompt).unwrap());
    }
}
