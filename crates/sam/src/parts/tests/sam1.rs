//! Small random SAM 1 models.

use cutout_tensor::{Tolerance, compare};
use cutout_testing::StageFile;

use super::{Sizes, check, decoder_stages, named};
use crate::model::config::{DecoderConfig, DecoderForm, EncoderConfig, ModelConfig, VitConfig};
use crate::parts::{Decode, Encode, PrepareImage};
use crate::prompt::Candidates;

const MODELS: [&str; 2] = ["sam1/tiny.safetensors", "sam1/wide.safetensors"];
const PROMPTS: [&str; 5] = ["point", "points", "box", "points_box", "points_mask"];

/// The configuration that the fixture's model was built with.
fn config(file: &StageFile) -> ModelConfig {
    let sizes = Sizes::of(file);
    let number = |key: &str| sizes.number(key);
    let trunk = VitConfig {
        image_size: number("image_size"),
        patch: number("patch"),
        width: number("width"),
        depth: number("depth"),
        heads: number("heads"),
        mlp_width: 4 * number("width"),
        window: number("window"),
        global_blocks: sizes.list("global_blocks"),
        norm_epsilon: 1e-6,
    };
    ModelConfig {
        encoder: EncoderConfig::Vit { trunk, embedding: number("embedding") },
        decoder: Some(DecoderConfig {
            form: DecoderForm::Sam1,
            width: number("embedding"),
            depth: 2,
            heads: number("decoder_heads"),
            mlp_width: number("mlp"),
            downsample: 2,
            mask_tokens: 4,
            iou_width: number("iou_width"),
            iou_depth: 3,
            mask_channels: number("mask_channels") / 4,
        }),
        memory: None,
        finder: None,
    }
}

#[test]
fn image_encoder_matches_meta_at_every_stage() {
    for model in MODELS {
        let file = StageFile::load(model).unwrap();
        let mut expected = file.stages("encoder");
        let output = expected.last_mut().unwrap();
        assert_eq!(output.0, "embedding");
        output.0 = "pictures.0.embedding".to_owned();
        let inputs = file.inputs("encoder");
        check(&Encode { pictures: 1 }, &config(&file), &file.weights(), &inputs, &expected);
    }
}

#[test]
fn prompts_and_masks_match_meta_at_every_stage() {
    for model in MODELS {
        let file = StageFile::load(model).unwrap();
        let (config, weights) = (config(&file), file.weights());
        let embedding = ("embedding".to_owned(), file.stage("encoder", "embedding").unwrap());
        let positions = file.stage("point", "prompt_encoder.positions").unwrap();
        let expected = [("positions".to_owned(), positions)];
        let image = check(&PrepareImage, &config, &weights, &[embedding], &expected);
        for run in PROMPTS {
            let mut inputs = file.inputs(run);
            let kinds = named(&inputs, "kinds").unwrap().shape().clone();
            let masks = named(&inputs, "masks").is_some();
            let wanted = Candidates::Three;
            let part = Decode { prompts: kinds[0], points: kinds[1], masks, wanted };
            let mut expected = decoder_stages(file.stages(run));
            if !masks {
                // They were compared as an output of `PrepareImage`.
                expected.retain(|(name, _)| name != "prompt_encoder.positions");
            }
            inputs.extend(image.clone());
            check(&part, &config, &weights, &inputs, &expected);
        }
    }
}

/// A batch of pictures gives the same features as each picture alone.
#[test]
fn pictures_are_encoded_together_as_alone() {
    let file = StageFile::load(MODELS[0]).unwrap();
    let (config, weights) = (config(&file), file.weights());
    let pixels = file.inputs("encoder").remove(0).1;
    let mut values = pixels.to_vec::<f32>().unwrap();
    values.extend(values.clone().iter().rev());
    let mut shape = pixels.shape().clone();
    shape[0] = 2;
    let both = cutout_tensor::Tensor::from_vec(shape, values).unwrap();
    let expected = file.stage("encoder", "embedding").unwrap();
    let first = ("pictures.0.embedding".to_owned(), expected.clone());
    let inputs = [("pixels".to_owned(), both)];
    let outputs = check(&Encode { pictures: 2 }, &config, &weights, &inputs, &[first]);
    let second = named(&outputs, "pictures.1.embedding").unwrap();
    assert!(!compare(second, &expected, Tolerance::Stage).unwrap().within, "the same picture");
}
