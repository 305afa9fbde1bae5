//! Small random SAM 2 and 2.1 models.

use cutout_graph::{Builder, Graph, Value, Weights};
use cutout_tensor::{DType, Tensor, TensorType, Tolerance, compare};
use cutout_testing::StageFile;

use super::{Sizes, check, check_stages, decoder_stages, named, take};
use crate::components::memory::{
    MaskSource, MemoryEncoderInputs, Pointed, memory_encoder, pointer,
};
use crate::model::config::{
    DecoderConfig, DecoderForm, EncoderConfig, HieraConfig, MemoryConfig, MemoryForm, ModelConfig,
};
use crate::parts::memory::attention;
use crate::parts::object_prompt::{mask_logits, mask_prompt};
use crate::parts::{AnswerPrompt, Bank, Decode, Encode, FrameMemory, ObjectBank, PrepareImage};
use crate::prompt::Candidates;

const MODELS: [&str; 2] = ["2.0", "2.1"];

fn load(model: &str, part: &str) -> StageFile {
    StageFile::load(&format!("sam2/{model}_{part}.safetensors")).unwrap()
}

/// The configuration that the fixture's model was built with.
fn config(file: &StageFile) -> ModelConfig {
    let sizes = Sizes::of(file);
    let number = |key: &str| sizes.number(key);
    ModelConfig {
        encoder: EncoderConfig::Hiera(HieraConfig {
            image_size: number("image_size"),
            width: number("width"),
            heads: number("heads"),
            stages: sizes.list("stages").try_into().unwrap(),
            windows: sizes.list("windows").try_into().unwrap(),
            global_blocks: sizes.list("global_blocks"),
            position_grid: number("position_grid"),
            norm_epsilon: 1e-6,
            embedding: number("embedding"),
        }),
        decoder: Some(DecoderConfig {
            form: DecoderForm::Sam2,
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
        memory: Some(MemoryConfig {
            form: match sizes.0["version"].as_str().unwrap() {
                "2.0" => MemoryForm::Sam2,
                "2.1" => MemoryForm::Sam2_1,
                other => panic!("version {other}"),
            },
            width: number("memory_width"),
            frames: number("memory_frames"),
            pointer_frames: 16,
            layers: number("memory_layers"),
            heads: number("memory_heads"),
            mlp_width: number("memory_mlp"),
            fuser_layers: 2,
            fuser_width: 4 * number("embedding"),
            multiplex: None,
        }),
        finder: None,
    }
}

#[test]
fn image_encoder_matches_meta_at_every_stage() {
    for model in MODELS {
        let file = load(model, "image");
        let mut expected = file.stages("encoder");
        for (name, _) in &mut expected {
            if ["level0", "level1", "level2", "embedding"].contains(&name.as_str()) {
                *name = format!("pictures.0.{name}");
            }
        }
        let inputs = file.inputs("encoder");
        check(&Encode { pictures: 1 }, &config(&file), &file.weights(), &inputs, &expected);
    }
}

/// The inputs of a run with the fine levels of its picture.
fn with_levels(file: &StageFile, run: &str) -> Vec<(String, Tensor)> {
    let mut inputs = file.inputs(run);
    for level in ["level0", "level1"] {
        inputs.push((level.to_owned(), file.stage("encoder", level).unwrap()));
    }
    inputs
}

#[test]
fn prompts_and_masks_match_meta_at_every_stage() {
    for model in MODELS {
        let file = load(model, "image");
        let (config, weights) = (config(&file), file.weights());
        for run in ["point", "points", "box", "points_box", "points_mask"] {
            let mut inputs = with_levels(&file, run);
            let kinds = named(&inputs, "kinds").unwrap().shape().clone();
            let masks = named(&inputs, "masks").is_some();
            let wanted = Candidates::Three;
            let part = Decode { prompts: kinds[0], points: kinds[1], masks, wanted };
            let mut expected = decoder_stages(file.stages(run));
            if !masks {
                let found = expected.iter().position(|(name, _)| name.ends_with(".positions"));
                let (_, positions) = expected.remove(found.unwrap());
                let positions = [("positions".to_owned(), positions)];
                inputs.extend(check(&PrepareImage, &config, &weights, &inputs, &positions));
            }
            check(&part, &config, &weights, &inputs, &expected);
        }
    }
}

#[test]
fn objects_on_images_of_their_own_match_meta_at_every_stage() {
    for model in MODELS {
        let file = load(model, "image");
        // The picture's file lacks the weights of object pointers.
        let all = [load(model, "memory").weights(), file.weights()];
        let all = all.iter().flat_map(|weights| {
            weights.paths().map(|path| (path.to_owned(), weights.get(path).unwrap().clone()))
        });
        let weights = Weights::lazy(all.collect());
        for run in ["objects", "objects_mask"] {
            let inputs = with_levels(&file, run);
            let kinds = named(&inputs, "kinds").unwrap().shape().clone();
            let masks = named(&inputs, "masks").is_some();
            let wanted = Candidates::Three;
            let part = AnswerPrompt { objects: kinds[0], points: kinds[1], masks, wanted };
            let expected = decoder_stages(file.stages(run));
            check(&part, &config(&file), &weights, &inputs, &expected);
        }
    }
}

/// A graph of components whose inputs are those of a run.
pub(super) fn graph(
    inputs: &[(String, Tensor)],
    build: impl for<'g> FnOnce(
        &'g Builder,
        &dyn Fn(&str) -> Value<'g>,
    ) -> Vec<(&'static str, Value<'g>)>,
) -> Graph {
    let builder = Builder::new();
    let values: Vec<(&str, Value<'_>)> = inputs
        .iter()
        .map(|(name, tensor)| {
            let TensorType { dtype, shape } = tensor.ty().clone();
            (name.as_str(), builder.input(name, dtype, shape))
        })
        .collect();
    let find = |name: &str| values.iter().find(|(other, _)| *other == name).unwrap().1;
    for (name, value) in build(&builder, &find) {
        builder.output(name, value);
    }
    builder.finish_with_stages().unwrap()
}

#[test]
fn memories_match_meta_at_every_stage() {
    for model in MODELS {
        let file = load(model, "memory");
        let config = config(&file);
        let memory = config.memory().unwrap();
        for (run, source) in
            [("memory_predicted", MaskSource::Predicted), ("memory_prompted", MaskSource::Prompted)]
        {
            let inputs = file.inputs(run);
            let graph = graph(&inputs, |builder, input| {
                let marked = memory.form.has_pointer_positions();
                let score = marked.then(|| input("object_score"));
                let (image, logits) = (input("level2"), input("logits"));
                let side = config.encoder.image_size();
                let remembered = MemoryEncoderInputs { image, logits, score, side };
                vec![("memory", memory_encoder(remembered, source, &builder.weights(), memory))]
            });
            let what = format!("{model}, {run}");
            check_stages(&graph, &file.weights(), &inputs, &file.stages(run), &what);
        }
    }
}

#[test]
fn pointers_and_mask_prompts_match_meta() {
    for model in MODELS {
        let file = load(model, "memory");
        let side = config(&file).mask_side();
        let inputs = file.inputs("pointer");
        let pointers = graph(&inputs, |builder, input| {
            let (token, score) = (input("token"), input("object_score"));
            let form = config(&file).memory().unwrap().form;
            vec![("pointer", pointer(token, score, Pointed::ByTracker, &builder.weights(), form))]
        });
        check_stages(&pointers, &file.weights(), &inputs, &file.stages("pointer"), model);
        let inputs = file.inputs("mask_prompt");
        let masks = graph(&inputs, |builder, input| {
            let mask = input("mask");
            let masks = mask_prompt(mask, &builder.weights(), MemoryForm::Sam2_1);
            vec![("logits", mask_logits(mask, side)), ("masks", masks)]
        });
        check_stages(&masks, &file.weights(), &inputs, &file.stages("mask_prompt"), model);
    }
}

const BANKS: [&str; 6] = [
    "attention_first",
    "attention_future",
    "attention_gap",
    "attention_full",
    "attention_beyond",
    "attention_reverse",
];

/// The bank of two objects in a run of the fixture, whose values have both objects in one batch. Keys are computed from the
/// memories first where they are kept.
pub(super) fn bank<'g>(
    input: &dyn Fn(&str) -> Value<'g>,
    inputs: &[(String, Tensor)],
    keys: impl Fn(Value<'g>, Option<Value<'g>>) -> FrameMemory<Value<'g>>,
    form: MemoryForm,
) -> Bank<Value<'g>> {
    let frames = inputs.iter().filter(|(name, _)| name.ends_with(".memory")).count();
    let pointers = named(inputs, "pointers").map_or(0, |pointers| pointers.shape()[1]);
    let object = |object: usize| {
        let own = |value: Value<'g>| value.slice(0, object..object + 1);
        let frame = |frame: usize| {
            let image =
                (form == MemoryForm::Sam3_1).then(|| input(&format!("frames.{frame}.image")));
            keys(own(input(&format!("frames.{frame}.memory"))), image)
        };
        let pointer = |index: usize| {
            let pointer = own(input("pointers")).slice(1, index..index + 1);
            let width = pointer.shape().last_axis();
            pointer.reshape([1, width])
        };
        ObjectBank {
            frames: (0..frames).map(frame).collect(),
            pointers: (0..pointers).map(pointer).collect(),
        }
    };
    Bank {
        ages: input("ages"),
        distances: (pointers > 0 && form.has_pointer_positions()).then(|| input("distances")),
        objects: vec![object(0), object(1)],
    }
}

#[test]
fn memory_attention_matches_meta_at_every_stage() {
    for model in MODELS {
        let file = load(model, "memory");
        let config = config(&file);
        let form = config.memory().unwrap().form;
        let attention = attention(&config).unwrap();
        for run in BANKS {
            let inputs = file.inputs(run);
            for kept in [true, false] {
                let graph = graph(&inputs, |builder, input| {
                    let w = &builder.weights();
                    let keys = |memory, image| match kept {
                        true => attention.project(memory, image, w),
                        false => FrameMemory::plain(memory, image),
                    };
                    let bank = bank(input, &inputs, keys, form);
                    vec![("embedding", attention.attend(input("level2"), &bank, w))]
                });
                let what = format!("{model}, {run}, keys kept: {kept}");
                check_stages(&graph, &file.weights(), &inputs, &file.stages(run), &what);
            }
        }
    }
}

/// The graph rounds memories to bf16, as in Meta's code.
#[test]
fn memories_are_stored_as_bf16() {
    use crate::parts::Remember;
    let file = load("2.1", "memory");
    let config = config(&file);
    let mut inputs = file.inputs("memory_prompted");
    let first = |tensor: Tensor| tensor.slice(0, 0..1).unwrap();
    let logits = first(take(&mut inputs, "logits").unwrap());
    let side = config.mask_side();
    inputs.push(("logits".to_owned(), logits.reshape([1, side, side]).unwrap()));
    let score = first(take(&mut inputs, "object_score").unwrap());
    inputs.push(("object_score".to_owned(), score));
    let expected = first(file.stage("memory_prompted", "memory").unwrap());
    let part = Remember { source: MaskSource::Prompted, objects: 1 };
    let stages = [("encoded_memory".to_owned(), expected.clone())];
    let outputs = check(&part, &config, &file.weights(), &inputs, &stages);
    let (_, stored) = outputs.last().unwrap();
    assert_eq!(stored.dtype(), DType::BF16);
    let rounded = expected.cast(DType::BF16).unwrap().cast(DType::F32).unwrap();
    let stored = stored.cast(DType::F32).unwrap();
    let difference = compare(&stored, &rounded, Tolerance::HalfPrecision).unwrap();
    assert!(difference.within, "{difference}");
}
