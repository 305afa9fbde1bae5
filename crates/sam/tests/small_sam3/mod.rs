//! The small SAM 3 of `fixtures/make_sam3_predictor.py`, and what Meta's code answers with it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use cutout_sam::imaging::{Image, Size};
use cutout_sam::{Label, Masks, Point, Prompt, Rect, Sam};
use cutout_tensor::{Tensor, Tolerance, compare};
use cutout_testing::SmallSam3;
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};

pub(crate) const PICTURES: [&str; 2] = ["landscape", "portrait"];

/// Pixels of all masks of an answer that may differ: resizing and adding in another order moves a logit across the threshold
/// now and then.
const DIFFERENT: f64 = 0.001;

/// The fixture, and a folder that is removed when the test ends.
pub(crate) struct Small {
    fixture: SmallSam3,
    pub(crate) folder: PathBuf,
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Small {
    pub(crate) fn new(test: &str) -> Self {
        let fixture = SmallSam3::load().unwrap();
        let name = format!("cutout-small-sam3-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Small { fixture, folder }
    }

    pub(crate) fn get(&self, name: &str) -> &Tensor {
        self.fixture.tensors.get(name).unwrap_or_else(|| panic!("the fixture has no {name}"))
    }

    pub(crate) fn numbers(&self, name: &str) -> Option<Vec<f64>> {
        Some(self.fixture.tensors.get(name)?.to_f64_vec().unwrap())
    }

    /// The phrase of a run, if it has one.
    pub(crate) fn phrase(&self, run: &str) -> Option<String> {
        let phrases: serde_json::Value =
            serde_json::from_str(&self.fixture.metadata["phrases"]).unwrap();
        phrases[run].as_str().map(str::to_owned)
    }

    /// All weights under Meta's names.
    pub(crate) fn weights(&self) -> BTreeMap<String, Tensor> {
        self.fixture.weights().unwrap()
    }

    /// A file with these weights.
    pub(crate) fn write(&self, name: &str, weights: &BTreeMap<String, Tensor>) -> PathBuf {
        let path = self.folder.join(name);
        let tensors: Vec<OutgoingTensor<'_>> = weights
            .iter()
            .map(|(name, tensor)| OutgoingTensor::new(name, tensor.clone()))
            .collect();
        write_safetensors(&path, &tensors, &Metadata::new()).unwrap();
        path
    }

    /// The model, opened from a file.
    pub(crate) fn open(&self) -> Sam {
        Sam::open(self.write("model.safetensors", &self.weights())).unwrap()
    }

    pub(crate) fn picture(&self, title: &str) -> Image {
        let pixels = self.get(&format!("{title}/pixels"));
        let size = Size::new(pixels.shape()[1], pixels.shape()[0]);
        Image::from_rgb(size, pixels.to_vec::<u8>().unwrap()).unwrap()
    }

    /// A click, box or mask in pixels of its picture.
    pub(crate) fn prompt(&self, run: &str) -> Prompt {
        let numbers = |part: &str| self.numbers(&format!("{run}/{part}"));
        let mut prompt = Prompt::default();
        if let (Some(points), Some(labels)) = (numbers("points"), numbers("labels")) {
            for (place, label) in points.chunks(2).zip(labels) {
                let label = if label == 1.0 { Label::Positive } else { Label::Negative };
                prompt = prompt.with_point(Point { x: place[0], y: place[1] }, label);
            }
        }
        if let Some(corners) = numbers("box") {
            prompt = prompt.with_rect(rect(&corners));
        }
        match self.fixture.tensors.get(&format!("{run}/logits")) {
            Some(logits) => prompt.with_logits(logits.clone()),
            None => prompt,
        }
    }

    /// Compares the answer to a click with the predictor's.
    pub(crate) fn check(&self, run: &str, masks: &Masks) {
        let [low_res, iou, expected] =
            ["low_res", "iou", "masks"].map(|part| self.get(&format!("{run}/{part}")));
        assert_eq!(masks.len(), low_res.shape()[0], "{run}");
        let side = low_res.shape()[1];
        let (mut different, mut pixels) = (0, 0);
        for (index, segment) in masks.iter().enumerate() {
            let row = |tensor: &Tensor| tensor.slice(0, index..index + 1).unwrap();
            let logits = row(low_res).reshape([side, side]).unwrap();
            let difference = compare(segment.logits(), &logits, Tolerance::Stage).unwrap();
            assert!(difference.within, "{run}, logits of mask {index}: {difference}");
            let (score, wanted) = (f64::from(segment.iou()), row(iou).to_f64_vec().unwrap()[0]);
            assert!((score - wanted).abs() < 1e-4, "{run}, mask {index}: {score}, not {wanted}");
            let (mask, wanted) = (segment.mask(), row(expected).to_vec::<u8>().unwrap());
            assert_eq!(mask.pixels().len(), wanted.len(), "{run}");
            different +=
                mask.pixels().iter().zip(&wanted).filter(|(a, b)| **a != (**b == 1)).count();
            pixels += wanted.len();
        }
        let share = different as f64 / pixels as f64;
        assert!(share <= DIFFERENT, "{run}: {different} of {pixels} pixels differ");
    }
}

pub(crate) fn rect(corners: &[f64]) -> Rect {
    let [x0, y0, x1, y1] = corners[..] else { panic!("a box has four numbers") };
    Rect { x0, y0, x1, y1 }
}

/// Compares two tensors number by number.
pub(crate) fn assert_near(found: &Tensor, expected: &Tensor, most: f64, what: &str) {
    assert_eq!(found.shape(), expected.shape(), "{what}");
    let pairs = found.to_f64_vec().unwrap().into_iter().zip(expected.to_f64_vec().unwrap());
    let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst <= most, "{what}: {worst} apart");
}
