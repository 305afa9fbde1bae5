//! The small SAM 3 of `fixtures/make_sam3_predictor.py`, and the results of Meta's code with it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use cutout_sam::imaging::Image;
use cutout_sam::{Masks, Precision, Profile, Prompt, Sam};
use cutout_tensor::Tensor;
use cutout_testing::SmallSam3;
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};

use crate::answers;

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
        // In single precision on every device: the numbers are compared with Meta's.
        let profile = Profile { precision: Precision::F32, ..Profile::default() };
        Sam::open_with(self.write("model.safetensors", &self.weights()), profile).unwrap()
    }

    pub(crate) fn picture(&self, title: &str) -> Image {
        answers::picture(self.get(&format!("{title}/pixels")))
    }

    /// A click, box or mask in pixels of its picture.
    pub(crate) fn prompt(&self, run: &str) -> Prompt {
        answers::prompt(&self.part(run))
    }

    /// Compares the answer to a click with the predictor's.
    pub(crate) fn check(&self, run: &str, masks: &Masks) {
        assert!(self.part(run)("masks").is_some(), "{run}");
        answers::check(run, &self.part(run), masks);
    }

    /// The tensors of a run.
    fn part(&self, run: &str) -> impl Fn(&str) -> Option<Tensor> {
        move |part| self.fixture.tensors.get(&format!("{run}/{part}")).cloned()
    }
}

/// Compares two tensors number by number.
pub(crate) fn assert_near(found: &Tensor, expected: &Tensor, most: f64, what: &str) {
    assert_eq!(found.shape(), expected.shape(), "{what}");
    let pairs = found.to_f64_vec().unwrap().into_iter().zip(expected.to_f64_vec().unwrap());
    let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst <= most, "{what}: {worst} apart");
}
