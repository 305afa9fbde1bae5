//! Scenes: embeddings written to a file.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use cutout_imaging::{Image, Size};
use cutout_sam::{Prompt, Sam};
use cutout_testing::StageFile;
use cutout_weights::{Checkpoint, Metadata, OutgoingTensor, write_safetensors};

use super::Target;

pub(super) const SCENES: Target = Target {
    name: "scenes",
    about: "embeddings that --save-scene wrote",
    seeds: || vec![fixture().scene.clone()],
    words: &[
        "cutout.scene.width",
        "cutout.scene.height",
        "cutout.scene.pixels",
        "embedding",
        "F16",
        "I64",
    ],
    read,
    memory: 16 << 20,
};

/// Of how many accepted scenes one is asked for a mask, which takes milliseconds.
const ASKED: u64 = 64;

struct Fixture {
    sam: Sam,
    scene: Vec<u8>,
}

/// A small model, and a scene that it made.
fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let weights = StageFile::load("sam1/wide.safetensors").expect("a fixture").weights();
        let tensors: Vec<OutgoingTensor<'_>> = weights
            .paths()
            .map(|path| {
                let tensor = weights.get(path).and_then(|weight| weight.tensor().ok());
                OutgoingTensor::new(path, tensor.expect("the weights of a fixture can be read"))
            })
            .collect();
        let model = written(|path| {
            write_safetensors(path, &tensors, &Metadata::new()).expect("temporary files work");
        });
        let checkpoint = Checkpoint::from_bytes("model", Arc::new(model)).expect("just written");
        let profile = cutout_graph::Profile {
            threads: std::num::NonZeroUsize::new(1),
            ..cutout_graph::Profile::default()
        };
        let sam = Sam::from_checkpoint(&checkpoint, profile).expect("a small SAM 1");
        let image = Image::filled(Size::new(50, 31), [90, 120, 30]).expect("a small picture");
        let scene = sam.embed(&image).expect("the model runs");
        // Compiles what later questions need, so that its memory does not count as that of an input.
        scene.segment(&Prompt::point(0, 0)).expect("the model runs");
        let scene = written(|path| scene.save(path).expect("temporary files work"));
        Fixture { sam, scene }
    })
}

/// The bytes that `write` puts into a file.
fn written(write: impl FnOnce(&PathBuf)) -> Vec<u8> {
    let name = format!("cutout-fuzz-{}.safetensors", std::process::id());
    let path = std::env::temp_dir().join(name);
    write(&path);
    let bytes = std::fs::read(&path).expect("it was just written");
    let _ = std::fs::remove_file(&path);
    bytes
}

fn read(bytes: &[u8]) -> bool {
    let Ok(checkpoint) = Checkpoint::from_bytes("fuzzed", Arc::new(bytes.to_vec())) else {
        return false;
    };
    let scene = match fixture().sam.scene_in(&checkpoint) {
        Ok(scene) => scene,
        Err(error) => return error.to_string().is_empty(),
    };
    let sum = bytes.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
    if sum.is_multiple_of(ASKED) {
        // Features of another shape are an error.
        let _ = scene.segment(&Prompt::point(0, 0));
    }
    true
}
