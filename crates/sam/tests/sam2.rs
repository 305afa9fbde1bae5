//! Small random SAM 2 and 2.1 models, stage by stage, against Meta's own modules.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cutout_cpu::Cpu;
use cutout_graph::{Backend, Graph, Named, Profile, Program, Weights, interpret};
use cutout_sam::config::{
    DecoderConfig, DecoderForm, HieraConfig, MemoryConfig, MemoryForm, Sam2Config,
};
use cutout_sam::decoder::{DecoderImage, PromptShape};
use cutout_sam::mask_choice::single_mask;
use cutout_sam::memory::MaskSource;
use cutout_sam::sam2::{
    MemoryShape, decoder_stages, encoder_stages, image_side_graph, mask_prompt_graph,
    memory_attention_stages, memory_encoder_stages, memory_projection_graph, pointer_graph,
};
use cutout_tensor::{Tensor, Tolerance, compare};
use cutout_testing::{StageFile, compare_stages};

const MODELS: [&str; 2] = ["2.0", "2.1"];

fn load(model: &str, part: &str) -> StageFile {
    StageFile::load(&format!("sam2/{model}_{part}.safetensors")).unwrap()
}

/// The configuration that the fixture's model was built with.
fn config(file: &StageFile) -> Sam2Config {
    let json: serde_json::Value = serde_json::from_str(&file.metadata["config"]).unwrap();
    let number = |key: &str| json[key].as_u64().unwrap() as usize;
    let list = |key: &str| -> Vec<usize> {
        json[key].as_array().unwrap().iter().map(|item| item.as_u64().unwrap() as usize).collect()
    };
    Sam2Config {
        encoder: HieraConfig {
            image_size: number("image_size"),
            width: number("width"),
            heads: number("heads"),
            stages: list("stages").try_into().unwrap(),
            windows: list("windows").try_into().unwrap(),
            global_blocks: list("global_blocks"),
            position_grid: number("position_grid"),
            norm_epsilon: 1e-6,
            embedding: number("embedding"),
        },
        decoder: DecoderConfig {
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
        },
        memory: Some(MemoryConfig {
            form: match json["version"].as_str().unwrap() {
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
        }),
    }
}

/// Runs by the interpreter and by the CPU's kernels, and compares both with the expected stages.
fn check(graph: &Graph, weights: &Weights, inputs: &[Named], expected: &[Named], what: &str) {
    let inputs: Vec<(&str, &Tensor)> =
        inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let interpreted = interpret(graph, weights, &inputs).unwrap();
    compare_stages(&interpreted, expected, Tolerance::Stage)
        .unwrap_or_else(|report| panic!("{what}, interpreted: {report}"));
    let program = Cpu::new(2).compile(graph, weights, &Profile::default()).unwrap();
    let compiled = program.run(&inputs).unwrap();
    compare_stages(&compiled, expected, Tolerance::Stage)
        .unwrap_or_else(|report| panic!("{what}, compiled: {report}"));
}

fn named<'a>(tensors: &'a [Named], name: &str) -> Option<&'a Tensor> {
    tensors.iter().find(|(other, _)| other == name).map(|(_, tensor)| tensor)
}

#[test]
fn image_encoder_matches_meta_at_every_stage() {
    for model in MODELS {
        let file = load(model, "image");
        let graph = encoder_stages(&config(&file)).unwrap();
        let expected = file.stages("encoder");
        check(&graph, &file.weights(), &file.inputs("encoder"), &expected, model);
    }
}

/// The image's tensors that a decoder takes for prompts without masks.
fn image_side(config: &Sam2Config, weights: &Weights, embedding: &Tensor) -> Vec<Named> {
    let graph = image_side_graph(config).unwrap();
    let program = Cpu::new(2).compile(&graph, weights, &Profile::default()).unwrap();
    program.run(&[("embedding", embedding)]).unwrap()
}

/// Runs a decoder over the prompts of a run of the fixture.
fn check_decoder(file: &StageFile, run: &str, image: DecoderImage, what: &str) {
    let (config, weights) = (config(file), file.weights());
    let mut inputs = file.inputs(run);
    let points = named(&inputs, "points").unwrap();
    let masks = named(&inputs, "masks").is_some();
    let shape = PromptShape { prompts: points.shape()[0], points: points.shape()[1], masks };
    let mut expected = file.stages(run);
    if image == DecoderImage::Shared && !masks {
        let place = inputs.iter().position(|(name, _)| name == "embedding").unwrap();
        let (_, embedding) = inputs.remove(place);
        let side = image_side(&config, &weights, &embedding);
        // They come from the image's side here.
        let place = expected.iter().position(|(name, _)| name.ends_with(".positions")).unwrap();
        let (_, positions) = expected.remove(place);
        let found = named(&side, "positions").unwrap();
        let difference = compare(found, &positions, Tolerance::Stage).unwrap();
        assert!(difference.within, "{what}, positions: {difference}");
        inputs.extend(side);
    }
    for level in ["level0", "level1"] {
        inputs.push((level.to_owned(), file.stage("encoder", level).unwrap()));
    }
    let graph = decoder_stages(&config, shape, image).unwrap();
    check(&graph, &weights, &inputs, &expected, what);
}

#[test]
fn prompts_and_masks_match_meta_at_every_stage() {
    for model in MODELS {
        let file = load(model, "image");
        for run in ["point", "points", "box", "points_box", "points_mask"] {
            check_decoder(&file, run, DecoderImage::Shared, &format!("{model}, {run}"));
        }
    }
}

#[test]
fn objects_on_images_of_their_own_match_meta_at_every_stage() {
    for model in MODELS {
        let file = load(model, "image");
        for run in ["objects", "objects_mask"] {
            check_decoder(&file, run, DecoderImage::PerPrompt, &format!("{model}, {run}"));
        }
    }
}

#[test]
fn one_mask_is_chosen_as_meta_does() {
    for model in MODELS {
        let file = load(model, "image");
        let inputs = file.inputs("stability");
        let numbers = |tensor: &Tensor| tensor.to_vec::<f32>().unwrap();
        let (logits, iou) = (named(&inputs, "logits").unwrap(), named(&inputs, "iou").unwrap());
        let [prompts, tokens] = iou.shape()[..] else { panic!("iou of another rank") };
        let pixels = logits.shape().elements() / (prompts * tokens);
        let (logits, iou) = (numbers(logits), numbers(iou));
        let mut chosen = Vec::new();
        for prompt in 0..prompts {
            let own = &logits[prompt * tokens * pixels..][..tokens * pixels];
            let own_iou = &iou[prompt * tokens..][..tokens];
            let mask = single_mask(own, own_iou);
            let expected = numbers(&file.stage("stability", "logits").unwrap());
            assert_eq!(own[mask * pixels..][..pixels], expected[prompt * pixels..][..pixels]);
            assert_eq!(own_iou[mask], numbers(&file.stage("stability", "iou").unwrap())[prompt]);
            chosen.push(mask);
        }
        assert!(chosen.contains(&0) && chosen.iter().any(|mask| *mask > 0), "{chosen:?}");
    }
}

fn is_later(config: &Sam2Config) -> bool {
    config.memory.as_ref().unwrap().form == MemoryForm::Sam2_1
}

#[test]
fn memories_match_meta_at_every_stage() {
    for model in MODELS {
        let file = load(model, "memory");
        let config = config(&file);
        for (run, source) in
            [("memory_predicted", MaskSource::Predicted), ("memory_prompted", MaskSource::Prompted)]
        {
            let mut inputs = file.inputs(run);
            inputs.retain(|(name, _)| name != "object_score" || is_later(&config));
            let graph = memory_encoder_stages(&config, 2, source).unwrap();
            let what = format!("{model}, {run}");
            check(&graph, &file.weights(), &inputs, &file.stages(run), &what);
        }
    }
}

#[test]
fn pointers_and_mask_prompts_match_meta() {
    for model in MODELS {
        let file = load(model, "memory");
        let (config, weights) = (config(&file), file.weights());
        let runs = [
            ("pointer", pointer_graph(&config, 5).unwrap()),
            ("mask_prompt", mask_prompt_graph(&config, 2).unwrap()),
        ];
        for (run, graph) in runs {
            check(
                &graph,
                &weights,
                &file.inputs(run),
                &file.stages(run),
                &format!("{model}, {run}"),
            );
        }
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

/// The inputs of memory attention for a state of the bank, every memory projected, and their shape.
fn bank(file: &StageFile, run: &str, project: &dyn Program) -> (Vec<Named>, MemoryShape) {
    let config = config(file);
    let heads = config.memory.as_ref().unwrap().heads;
    let mut inputs = file.inputs(run);
    inputs.retain(|(name, _)| name != "distances" || is_later(&config));
    let memories: Vec<Named> =
        inputs.extract_if(.., |(name, _)| name.ends_with(".memory")).collect();
    let pointers = named(&inputs, "pointers").map_or(0, |pointers| pointers.shape()[1]);
    let shape = MemoryShape { objects: 2, frames: memories.len(), pointers };
    for (name, memory) in memories {
        let frame = name.strip_suffix(".memory").unwrap();
        let kept = project.run(&[("memory", &memory)]).unwrap().into_iter();
        inputs.extend(kept.map(|(part, tensor)| (format!("{frame}.{part}"), tensor)));
        if heads == 1 {
            inputs.push((name, memory));
        }
    }
    (inputs, shape)
}

#[test]
fn memory_attention_matches_meta_at_every_stage() {
    for model in MODELS {
        let file = load(model, "memory");
        let (config, weights) = (config(&file), file.weights());
        let project = memory_projection_graph(&config, 2).unwrap();
        let project = Cpu::new(2).compile(&project, &weights, &Profile::default()).unwrap();
        for run in BANKS {
            let (inputs, shape) = bank(&file, run, &*project);
            let graph = memory_attention_stages(&config, shape).unwrap();
            check(&graph, &weights, &inputs, &file.stages(run), &format!("{model}, {run}"));
        }
    }
}
