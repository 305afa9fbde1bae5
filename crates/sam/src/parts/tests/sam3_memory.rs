//! Memory of a small random tracker of SAM 3.

use std::collections::HashMap;

use cutout_tensor::Shape;
use cutout_testing::{StageFile, rotation_tables};
use cutout_weights::Metadata;
use cutout_weights::layout::identify;

use super::sam2::{bank, graph};
use super::{check, check_stages};
use crate::components::memory::MaskSource;
use crate::model::config::{MemoryForm, ModelConfig};
use crate::parts::memory::attention;
use crate::parts::{FrameMemory, Remember};

/// A fixture, and its configuration as it is read from the shapes of its weights.
pub(super) fn read(fixture: &str) -> (StageFile, ModelConfig) {
    let file = StageFile::load(fixture).unwrap();
    let weights = file.weights();
    let shape = |path: &str| weights.get(path).unwrap().tensor().unwrap().shape().clone();
    let mut shapes: HashMap<String, Shape> =
        weights.paths().map(|path| (path.to_owned(), shape(path))).collect();
    let tables = rotation_tables(&file.metadata["config"]).unwrap();
    shapes.extend(tables.into_iter().map(|(name, table)| (name, table.shape().clone())));
    let identity = identify(shapes.iter().map(|(name, shape)| (name.as_str(), &shape[..])));
    let config = ModelConfig::read(&shapes, identity.unwrap(), &Metadata::new()).unwrap();
    (file, config)
}

fn load() -> (StageFile, ModelConfig) {
    let (file, config) = read("sam3/clip.safetensors");
    assert_eq!(config.memory().unwrap().form, MemoryForm::Sam3);
    (file, config)
}

#[test]
fn memories_match_meta_at_every_stage() {
    let (file, config) = load();
    for (run, source) in
        [("memory_predicted", MaskSource::Predicted), ("memory_prompted", MaskSource::Prompted)]
    {
        let part = Remember { source, objects: 2 };
        check(&part, &config, &file.weights(), &file.inputs(run), &file.stages(run));
    }
}

#[test]
fn memory_attention_matches_meta_at_every_stage() {
    let (file, config) = load();
    let attention = attention(&config).unwrap();
    let inputs = file.inputs("attention");
    for kept in [true, false] {
        let graph = graph(&inputs, |builder, input| {
            let w = &MemoryForm::Sam3.weights(&builder.weights());
            let keys = |memory, image| match kept {
                true => attention.project(memory, image, w),
                false => FrameMemory::plain(memory, image),
            };
            let bank = bank(input, &inputs, keys, MemoryForm::Sam3);
            vec![("embedding", attention.attend(input("level2"), &bank, w))]
        });
        let what = format!("keys kept: {kept}");
        check_stages(&graph, &file.weights(), &inputs, &file.stages("attention"), &what);
    }
}
