//! Memory and multiplex decoder of a small random tracker of SAM 3.1 with buckets of four objects.

use cutout_graph::Named;
use cutout_tensor::Tensor;
use cutout_testing::StageFile;

use super::sam2::{bank, graph};
use super::sam3_memory::read;
use super::{check, check_stages};
use crate::components::memory::MaskSource;
use crate::components::multiplex_decoder::SlotInputs;
use crate::model::config::{MemoryForm, ModelConfig};
use crate::parts::memory::attention;
use crate::parts::multiplex::followed;
use crate::parts::{FrameMemory, RememberBuckets};

fn load() -> (StageFile, ModelConfig) {
    let (file, config) = read("sam3/multiplex_clip.safetensors");
    let memory = config.memory().unwrap();
    assert_eq!((memory.form, memory.heads), (MemoryForm::Sam3_1, 8));
    let multiplex = memory.multiplex.as_ref().unwrap();
    assert_eq!((multiplex.slots, multiplex.decoder.mask_tokens), (4, 3));
    (file, config)
}

/// Buckets with an object that was removed, with slots that were never used, with hidden and with given objects.
#[test]
fn memories_of_buckets_match_meta_at_every_stage() {
    let (file, config) = load();
    for (run, source) in
        [("memory_predicted", MaskSource::Predicted), ("memory_prompted", MaskSource::Prompted)]
    {
        let part = RememberBuckets { source, buckets: 2 };
        check(&part, &config, &file.weights(), &file.inputs(run), &file.stages(run));
    }
}

#[test]
fn decoupled_memory_attention_matches_meta_at_every_stage() {
    let (file, config) = load();
    let attention = attention(&config).unwrap();
    let inputs = file.inputs("attention");
    for kept in [true, false] {
        let graph = graph(&inputs, |builder, input| {
            let w = &MemoryForm::Sam3_1.weights(&builder.weights());
            let keys = |memory, image| match kept {
                true => attention.project(memory, image, w),
                false => FrameMemory::plain(memory, image),
            };
            let bank = bank(input, &inputs, keys, MemoryForm::Sam3_1);
            vec![("embedding", attention.attend(input("level2"), &bank, w))]
        });
        let what = format!("keys kept: {kept}");
        check_stages(&graph, &file.weights(), &inputs, &file.stages("attention"), &what);
    }
}

/// The shape of a stage of ours, in which slots follow each other through all buckets.
fn flat(stages: Vec<Named>) -> Vec<Named> {
    let flat = |tensor: Tensor| {
        let mut shape = tensor.shape()[1..].to_vec();
        shape[0] *= tensor.shape()[0];
        tensor.reshape(&shape[..]).unwrap()
    };
    let shaped = |(name, tensor): Named| match name.starts_with("multiplex.") {
        true => (name, flat(tensor)),
        false => (name, tensor),
    };
    stages.into_iter().map(shaped).collect()
}

#[test]
fn the_multiplex_decoder_matches_meta_at_every_stage() {
    let (file, config) = load();
    let inputs = file.inputs("propagation");
    let graph = graph(&inputs, |builder, input| {
        let w = &MemoryForm::Sam3_1.weights(&builder.weights());
        let (valid, fine) = (input("valid"), [input("level0"), input("level1")]);
        let slots = SlotInputs { embedding: input("embedding"), valid, fine };
        let found = followed(slots, w, &config).unwrap();
        let [buckets, slots] = valid.dims();
        let [all, side, _] = found.logits.dims();
        let width = found.pointers.shape().last_axis() / slots;
        // Numbers of empty slots mean nothing.
        let used = input("used");
        let [count] = used.dims();
        let logits = found.logits.reshape([all, side * side]).gather(used);
        let score = found.object_score.reshape([all, 1]).gather(used).reshape([count]);
        let pointers = found.pointers.reshape([buckets, slots, width]);
        let logits = logits.reshape([count, side, side]);
        vec![("logits", logits), ("object_score", score), ("pointers", pointers)]
    });
    let expected = flat(file.stages("propagation"));
    check_stages(&graph, &file.weights(), &inputs, &expected, "propagation");
}
