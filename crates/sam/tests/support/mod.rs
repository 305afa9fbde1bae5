//! Small models of the fixtures as checkpoint files.
#![allow(dead_code, reason = "no test file needs all of it")]
#![allow(unreachable_pub, reason = "it is a module of every test file")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use cutout_graph::{Precision, Profile};
use cutout_sam::model::Model;
use cutout_sam::{OpenError, Sam, device, load};
use cutout_tensor::Tensor;
use cutout_testing::StageFile;
use cutout_weights::{Checkpoint, Metadata, OutgoingTensor, write_safetensors};

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

/// The weights of fixtures; of two with the same name, the later one.
pub fn tensors<'a>(files: impl IntoIterator<Item = &'a StageFile>) -> Tensors {
    let mut tensors = Tensors::new();
    for file in files {
        let weights = file.weights();
        for path in weights.paths() {
            tensors.insert(path.to_owned(), weights.get(path).unwrap().tensor().unwrap());
        }
    }
    tensors
}

/// Tensors as they are written.
pub fn outgoing(tensors: &Tensors) -> Vec<OutgoingTensor<'_>> {
    tensors.iter().map(|(name, tensor)| OutgoingTensor::new(name, tensor.clone())).collect()
}

/// Metadata of a small SAM 2: values of the fixture's configuration that no shape determines.
pub fn sam2_metadata(file: &StageFile) -> Metadata {
    let json: serde_json::Value = serde_json::from_str(&file.metadata["config"]).unwrap();
    let keys = ["image_size", "heads", "windows", "global_blocks", "decoder_heads", "memory_heads"];
    let text = |key: &str| json[key].to_string().replace(['[', ']'], "");
    keys.map(|key| (format!("sam2.{key}"), text(key).as_str().into())).into()
}

/// A checkpoint that is removed when the test ends.
pub struct ModelFile(pub PathBuf);

impl ModelFile {
    /// `test` makes the file name unique among concurrent tests.
    pub fn write(tensors: &Tensors, metadata: &Metadata, test: &str) -> Self {
        let name = format!("cutout-{test}-{}.safetensors", std::process::id());
        let file = ModelFile(std::env::temp_dir().join(name));
        write_safetensors(&file.0, &outgoing(tensors), metadata).unwrap();
        file
    }

    pub fn open(&self) -> Sam {
        // In single precision on every device: the numbers are compared with Meta's.
        let profile = Profile { precision: Precision::F32, ..Profile::default() };
        Sam::open_with(&self.0, profile).unwrap()
    }
}

impl Drop for ModelFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A folder that is removed when the test ends.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cutout-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A model whose parts are run one by one, on the first backend there is.
pub struct SmallModel(pub Model);

impl SmallModel {
    pub fn open(checkpoint: &Checkpoint) -> Result<Self, OpenError> {
        let (config, weights) = load(checkpoint)?;
        let backend = device::backends(2).remove(0);
        Ok(SmallModel(Model::new(config, weights, backend, Profile::default())))
    }
}
