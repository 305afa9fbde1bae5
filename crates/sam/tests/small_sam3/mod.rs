//! The small SAM 3 of `fixtures/make_sam3_predictor.py`, and what Meta's code answers with it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use cutout_sam::imaging::{Image, Size};
use cutout_sam::{Label, Masks, Point, Prompt, Rect, Sam};
use cutout_tensor::{Tensor, TensorType, Tolerance, compare};
use cutout_testing::fixtures::read_tensors;
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};

pub(crate) const PICTURES: [&str; 2] = ["landscape", "portrait"];

/// Pixels of all masks of an answer that may differ: resizing and adding in another order moves a logit across the threshold
/// now and then.
const DIFFERENT: f64 = 0.001;

/// Tokens there are.
const VOCABULARY: usize = 49408;

/// The fixture, and a folder that is removed when the test ends.
pub(crate) struct Small {
    tensors: HashMap<String, Tensor>,
    metadata: HashMap<String, String>,
    pub(crate) folder: PathBuf,
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Small {
    pub(crate) fn new(test: &str) -> Self {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sam3/predictor.safetensors");
        let (tensors, metadata) = read_tensors(&path).unwrap();
        let name = format!("cutout-small-sam3-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Small { tensors, metadata, folder }
    }

    pub(crate) fn get(&self, name: &str) -> &Tensor {
        self.tensors.get(name).unwrap_or_else(|| panic!("the fixture has no {name}"))
    }

    pub(crate) fn numbers(&self, name: &str) -> Option<Vec<f64>> {
        Some(self.tensors.get(name)?.to_f64_vec().unwrap())
    }

    /// The phrase of a run, if it has one.
    pub(crate) fn phrase(&self, run: &str) -> Option<String> {
        let phrases: serde_json::Value = serde_json::from_str(&self.metadata["phrases"]).unwrap();
        phrases[run].as_str().map(str::to_owned)
    }

    /// All weights under Meta's names, with tables of rotation, of which only the shapes are read.
    pub(crate) fn weights(&self) -> BTreeMap<String, Tensor> {
        let named = self.tensors.iter();
        let weights =
            named.filter_map(|(name, tensor)| Some((name.strip_prefix("weight/")?, tensor)));
        let mut weights: BTreeMap<String, Tensor> =
            weights.map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect();
        let config: serde_json::Value = serde_json::from_str(&self.metadata["config"]).unwrap();
        let number = |key: &str| config[key].as_u64().unwrap() as usize;
        let global = config["global_blocks"].as_array().unwrap();
        for block in 0..number("depth") {
            let is_global = global.iter().any(|one| one.as_u64() == Some(block as u64));
            let side = number(if is_global { "grid" } else { "window" });
            let ty = TensorType::f32([side * side, number("width") / number("heads") / 2]);
            let name =
                format!("detector.backbone.vision_backbone.trunk.blocks.{block}.attn.freqs_cis");
            weights.insert(name, Tensor::zeros(&ty).unwrap());
        }
        let table = "detector.backbone.language_backbone.encoder.token_embedding.weight";
        weights.insert(table.to_owned(), self.token_table());
        weights
    }

    /// The rows of the token table that the phrases use, in a table of full height.
    fn token_table(&self) -> Tensor {
        let rows = self.get("rows");
        let width = rows.shape()[1];
        let used = self.get("used").to_vec::<i64>().unwrap();
        let mut table = vec![0f32; VOCABULARY * width];
        for (row, token) in rows.to_vec::<f32>().unwrap().chunks(width).zip(used) {
            table[token as usize * width..][..width].copy_from_slice(row);
        }
        Tensor::from_vec([VOCABULARY, width], table).unwrap()
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
        match self.tensors.get(&format!("{run}/logits")) {
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
