//! SAM 3 from files: Hugging Face's names against `transformers`, Meta's against Meta's modules.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutout_graph::{Named, Profile, WeightMemory, Weights};
use cutout_sam::model::config::{
    DecoderForm, EncoderConfig, Exemplars, ModelConfig, PositionRows, PositionTable, VitConfig,
};
use cutout_sam::model::part::{Part, Stages, graph_of};
use cutout_sam::parts::{Detect, Encode, EncodeExemplars, EncodeText, FindFeatures};
use cutout_sam::{device, inspect, load};
use cutout_tensor::{DType, SharedBytes, Tensor, TensorType, Tolerance};
use cutout_testing::{StageFile, compare_stages};
use cutout_weights::{Checkpoint, Metadata, OutgoingTensor, write_safetensors};

/// A file that is removed on drop.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

/// A configuration with its weights.
struct Loaded {
    config: ModelConfig,
    weights: Weights,
}

/// Writes weights to a file with new names and element type, and opens it.
fn through_a_file(
    name: &str,
    weights: &Weights,
    rename: impl Fn(&str) -> String,
    dtype: DType,
) -> Loaded {
    let path = std::env::temp_dir().join(format!("cutout-{}-{name}", std::process::id()));
    let file = Temporary(path);
    let tensors: Vec<OutgoingTensor<'_>> = weights
        .paths()
        .map(|path| {
            let tensor = weights.get(path).unwrap().tensor().unwrap().cast(dtype).unwrap();
            OutgoingTensor::new(rename(path), tensor)
        })
        .collect();
    write_safetensors(&file.0, &tensors, &Metadata::new()).unwrap();
    let (config, weights) = load(&Checkpoint::open(&file.0).unwrap()).unwrap();
    Loaded { config, weights }
}

/// Runs a part on the values named like its inputs, and appends its outputs.
fn run<P: Part>(part: P, loaded: &Loaded, values: &mut Vec<Named>) {
    let (graph, _) = graph_of(&part, &loaded.config, Stages::Hidden).unwrap();
    let backend = device::backends(2).remove(0);
    let program = backend.compile(&graph, &loaded.weights, &Profile::default()).unwrap();
    let inputs: Vec<(&str, &Tensor)> = graph
        .inputs()
        .map(|(name, _)| {
            let value = values.iter().rfind(|(value, _)| value == name);
            (name, &value.unwrap_or_else(|| panic!("nothing gives {name}")).1)
        })
        .collect();
    let results = program.run_named(&inputs).unwrap();
    let name = |name: String| name.strip_prefix("pictures.0.").unwrap_or(&name).to_owned();
    values.extend(results.into_iter().map(|(output, tensor)| (name(output), tensor)));
}

/// Renames the last value.
fn rename_last(values: &mut [Named], name: &str) {
    values.last_mut().unwrap().0 = name.to_owned();
}

fn trunk(config: &ModelConfig) -> (&VitConfig, PositionTable) {
    let EncoderConfig::RotaryVit { trunk, positions } = &config.encoder else {
        panic!("another encoder");
    };
    (trunk, *positions)
}

fn exemplars(config: &ModelConfig) -> Option<Exemplars> {
    config.finder.as_ref().map(|finder| finder.detector.exemplars)
}

/// Runs all parts from pixels, tokens and boxes to detections.
fn find(loaded: &Loaded, mut values: Vec<Named>) -> Vec<Named> {
    for (name, _) in &mut values {
        *name = match name.as_str() {
            "boxes" => "boxes.coordinates".to_owned(),
            "box_labels" => "boxes.labels".to_owned(),
            _ => name.clone(),
        };
    }
    let length = |name: &str| {
        values.iter().find(|(value, _)| value == name).map_or(0, |(_, tensor)| tensor.shape()[0])
    };
    let (tokens, boxes) = (length("tokens"), length("boxes.coordinates"));
    let kept = Tensor::from_vec([tokens], (0..tokens as i64).collect()).unwrap();
    values.push(("kept".to_owned(), kept));
    run(EncodeText { tokens, kept: tokens }, loaded, &mut values);
    rename_last(&mut values, "text");
    run(Encode { pictures: 1 }, loaded, &mut values);
    run(FindFeatures, loaded, &mut values);
    let exemplars = EncodeExemplars { boxes, points: 0 };
    run(exemplars, loaded, &mut values);
    rename_last(&mut values, "exemplars");
    let before = values.len();
    run(Detect { text: tokens, exemplars: exemplars.tokens() }, loaded, &mut values);
    values.split_off(before)
}

#[test]
fn hugging_faces_layout_gives_the_same_objects() {
    let file = StageFile::load("sam3/hugging_face.safetensors").unwrap();
    // The detector alone, and the video model that holds it.
    for prefix in ["", "detector_model."] {
        let name = format!("hugging-face{prefix}");
        let rename = |path: &str| format!("{prefix}{path}");
        let loaded = through_a_file(&name, &file.weights(), rename, DType::F32);
        assert_eq!(loaded.config.decoder, None);
        assert_eq!(exemplars(&loaded.config), Some(Exemplars::Boxes));
        assert_eq!(trunk(&loaded.config).1.rows, PositionRows::Grid);
        for name in ["text", "boxes"] {
            let mut values = file.inputs("image");
            values.extend(file.inputs(name));
            let found = find(&loaded, values);
            compare_stages(&found, &file.stages(name), Tolerance::Stage)
                .unwrap_or_else(|report| panic!("{prefix}{name}: {report}"));
        }
    }
}

/// Query, key and value weights are separate in Hugging Face's layout and joined in Meta's. Both layouts use the same
/// packed memory.
#[test]
fn weights_live_once_in_both_layouts() {
    let file = StageFile::load("sam3/hugging_face.safetensors").unwrap();
    let apart = through_a_file("apart", &file.weights(), str::to_owned, DType::F32);
    let paths = apart.weights.paths().map(str::to_owned).collect::<Vec<_>>();
    let [joined, whole]: [Vec<&String>; 2] = [true, false].map(|made| {
        let of = |path: &&String| apart.weights.get(path).unwrap().ready().is_none() == made;
        paths.iter().filter(of).collect()
    });
    assert!(!joined.is_empty() && !whole.is_empty(), "{joined:?}");
    let together = through_a_file("together", &apart.weights, str::to_owned, DType::F32);
    assert!(paths.iter().all(|path| together.weights.get(path).unwrap().ready().is_some()));
    let memory = [&apart, &together].map(|loaded| {
        let mut values = file.inputs("image");
        values.extend(file.inputs("text"));
        let found = find(loaded, values.clone());
        let memory = loaded.weights.memory();
        assert_eq!(found.len(), find(loaded, values).len());
        assert_eq!(loaded.weights.memory(), memory, "the second run makes nothing");
        memory
    });
    let biases = joined.iter().filter(|path| path.ends_with("bias"));
    let biases: usize = biases.map(|path| apart.weights.get(path).unwrap().ty().bytes()).sum();
    let [apart, together] = memory;
    assert!(apart.packed > 0);
    // Joined biases are copies; those of the other file are read where they lie.
    assert!((together.plain..=together.plain + biases).contains(&apart.plain), "{memory:?}");
    assert_eq!(apart, WeightMemory { plain: apart.plain, ..together });
}

/// In Meta's files the rotation tables determine the attention span and heads of each block. No tensor determines the
/// epsilon of the norms; the quiet model is sensitive to it.
#[test]
fn metas_layout_gives_the_same_features() {
    for model in ["tiny", "wide", "quiet"] {
        let [image, detector] = ["image", "detector"]
            .map(|part| StageFile::load(&format!("sam3/{model}_{part}.safetensors")).unwrap());
        let json: serde_json::Value = serde_json::from_str(&image.metadata["config"]).unwrap();
        let number = |key: &str| json[key].as_u64().unwrap() as usize;
        let global = json["global_blocks"].as_array().unwrap();
        let global: Vec<usize> =
            global.iter().map(|block| block.as_u64().unwrap() as usize).collect();
        let mut tensors = HashMap::new();
        for weights in [image.weights(), detector.weights()] {
            let all = weights
                .paths()
                .map(|path| (path.to_owned(), weights.get(path).unwrap().tensor().unwrap()));
            tensors.extend(all);
        }
        let zeros = |shape: [usize; 2]| Tensor::zeros(&TensorType::f32(shape)).unwrap();
        let tokens = "detector.backbone.language_backbone.encoder.token_embedding.weight";
        tensors.insert(tokens.to_owned(), zeros([30, number("text_width")]));
        for block in 0..number("depth") {
            let side = number(if global.contains(&block) { "grid" } else { "window" });
            let name =
                format!("detector.backbone.vision_backbone.trunk.blocks.{block}.attn.freqs_cis");
            let pairs = number("width") / number("heads") / 2;
            tensors.insert(name, zeros([side * side, pairs]));
        }
        // As in Meta's file, in a file of the detector alone, and behind a training script's prefix.
        for (from, to) in [("", ""), ("detector.", ""), ("", "model.")] {
            let rename = |path: &str| format!("{to}{}", path.strip_prefix(from).unwrap());
            let name = format!("{model}-{from}{to}");
            let loaded = through_a_file(&name, &Weights::new(tensors.clone()), rename, DType::F32);
            assert_eq!(trunk(&loaded.config).0.global_blocks, global);
            // The interactive neck alone, without a mask decoder.
            assert_eq!(loaded.config.decoder, None);
            assert_eq!(exemplars(&loaded.config), Some(Exemplars::BoxesAndPoints));
            assert!(loaded.weights.paths().all(|path| !path.ends_with("freqs_cis")));
            let mut values = image.inputs("image");
            run(Encode { pictures: 1 }, &loaded, &mut values);
            run(FindFeatures, &loaded, &mut values);
            let mut expected = image.stages("image");
            expected.retain(|(name, _)| name == "trunk" || name.starts_with("level."));
            for (name, _) in &mut expected {
                *name = name.replace("level.", "level");
            }
            compare_stages(&values, &expected, Tolerance::Stage)
                .unwrap_or_else(|report| panic!("{model}: {report}"));
        }
    }
}

/// Hugging Face's split queries, keys and values are joined in the type they have. The rest of it is in `sam3_formats.rs`.
#[test]
fn half_precision_checkpoints_run() {
    let file = StageFile::load("sam3/hugging_face.safetensors").unwrap();
    let weights = file.weights();
    for dtype in [DType::F16, DType::BF16] {
        let rounded = |path: &str| {
            let tensor = weights.get(path).unwrap().tensor().unwrap().cast(dtype).unwrap();
            (path.to_owned(), tensor.cast(DType::F32).unwrap())
        };
        let rounded = Weights::new(weights.paths().map(rounded).collect());
        let find = |name: String, weights: &Weights, dtype: DType| {
            let loaded = through_a_file(&name, weights, str::to_owned, dtype);
            let mut values = file.inputs("image");
            values.extend(file.inputs("boxes"));
            find(&loaded, values)
        };
        let found = find(format!("{dtype}"), &weights, dtype);
        let expected = find(format!("rounded-{dtype}"), &rounded, DType::F32);
        compare_stages(&found, &expected, Tolerance::Stage)
            .unwrap_or_else(|report| panic!("{dtype}: {report}"));
        let other = compare_stages(&found, &file.stages("boxes"), Tolerance::Stage);
        assert!(other.is_err(), "{dtype}: not rounded at all");
    }
}

/// Names and shapes of a published checkpoint; see `crates/weights/tests/data/README.md`.
fn published(name: &str) -> BTreeMap<String, Vec<usize>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../weights/tests/data");
    let text = std::fs::read_to_string(folder.join(format!("{name}.keys"))).unwrap();
    let mut keys = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let axes = fields[2].split(',').filter(|axis| *axis != "scalar");
        let shape: Vec<usize> = axes.map(|axis| axis.parse().unwrap()).collect();
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            first.parse::<usize>().unwrap()..=last.parse::<usize>().unwrap()
        };
        let numbers: Vec<String> = match fields[1] {
            "-" => vec![String::new()],
            list => list.split(',').flat_map(range).map(|number| number.to_string()).collect(),
        };
        let names = numbers.iter().map(|number| fields[0].replacen('#', number, 1));
        keys.extend(names.map(|name| (name, shape.clone())));
    }
    keys
}

/// A checkpoint with these tensors, whose bytes are never read.
fn empty_file(name: &str, keys: &BTreeMap<String, Vec<usize>>) -> Checkpoint {
    let mut header = serde_json::Map::new();
    let mut offset = 0;
    for (name, shape) in keys {
        let end = offset + shape.iter().product::<usize>();
        let fields = serde_json::json!(
            {"dtype": "U8", "shape": shape, "data_offsets": [offset, end]});
        header.insert(name.clone(), fields);
        offset = end;
    }
    let header = serde_json::Value::Object(header).to_string();
    // Untouched zeros cost no memory.
    let mut bytes = vec![0u8; 8 + header.len() + offset];
    bytes[..8].copy_from_slice(&(header.len() as u64).to_le_bytes());
    bytes[8..8 + header.len()].copy_from_slice(header.as_bytes());
    Checkpoint::from_bytes(name.to_owned(), Arc::new(bytes) as SharedBytes).unwrap()
}

/// Tensors of checkpoints that are not used: the coarsest level of both necks, unused pixel decoder layers, the text projection,
/// a position that Meta's code does not use either, and the video components of SAM 3.1.
fn is_spare(name: &str) -> bool {
    let parts = [
        "convs.3.",
        "pixel_decoder.conv_layers.2.",
        "pixel_decoder.norms.2.",
        "encoder.text_projection",
        "tracker.no_mem_pos_enc",
        "propagation_convs.",
        "tracker.model.sam_mask_decoder.",
        "tracker.model.maskmem_",
    ];
    parts.iter().any(|part| name.contains(part))
}

const SAM3_1: &str = "sam3.1_multiplex";

/// SAM 3.1's detector and interactive head, under its names and with the shapes of SAM 3's; and of the rest, a tensor of each
/// part that differs. Its necks have three levels.
fn sam3_1_keys() -> BTreeMap<String, Vec<usize>> {
    let mut keys = BTreeMap::new();
    for (name, shape) in published("sam3_official_full") {
        let kept = name.starts_with("detector.") && !name.contains("convs.3.");
        if kept && name.contains(".sam2_convs.") {
            keys.insert(name.replace("sam2_convs", "interactive_convs"), shape.clone());
            keys.insert(name.replace("sam2_convs", "propagation_convs"), shape);
        } else if kept {
            keys.insert(name, shape);
        } else if let Some(part) = name.strip_prefix("tracker.sam_") {
            keys.insert(format!("tracker.model.interactive_sam_{part}"), shape);
        }
    }
    for (name, shape) in [
        ("interactivity_no_mem_embed", vec![1, 1, 256]),
        ("sam_mask_decoder.mask_tokens.weight", vec![48, 256]),
        ("maskmem_tpos_enc", vec![7, 1, 1, 256]),
    ] {
        keys.insert(format!("tracker.model.{name}"), shape);
    }
    keys
}

fn published_sam3_1() -> ModelConfig {
    let mut config = ModelConfig::sam3();
    config.decoder.as_mut().unwrap().form = DecoderForm::Sam3_1;
    config.memory = None;
    config
}

#[test]
fn every_published_checkpoint_has_what_the_graphs_ask_for() {
    let meta = ModelConfig::sam3();
    let mut video = meta.clone();
    let EncoderConfig::RotaryVit { positions, .. } = &mut video.encoder else { panic!() };
    positions.rows = PositionRows::Grid;
    video.finder.as_mut().unwrap().detector.exemplars = Exemplars::Boxes;
    let detector = ModelConfig { decoder: None, memory: None, ..video.clone() };
    let tracker = ModelConfig { finder: None, ..video.clone() };
    let clicks = ModelConfig { memory: None, ..tracker.clone() };
    for (name, expected) in [
        ("sam3_official_full", meta),
        ("sam3_hf_Sam3VideoModel", video),
        ("sam3_hf_Sam3Model", detector),
        ("sam3_hf_Sam3TrackerVideoModel", tracker),
        ("sam3_hf_Sam3TrackerModel", clicks),
        (SAM3_1, published_sam3_1()),
    ] {
        let mut keys = if name == SAM3_1 { sam3_1_keys() } else { published(name) };
        let inside = inspect(&empty_file(name, &keys)).unwrap().inside.unwrap();
        assert_eq!(inside.config, expected, "{name}");
        let mut report = inside.report;
        report.unused.retain(|tensor| !is_spare(&tensor.name));
        // The file has bytes instead of floats, to be small.
        report.unsuitable.clear();
        assert!(report.is_exact(), "{name}:\n{report}");
        // The report lists all problems.
        let all: Vec<String> =
            keys.keys().filter(|name| name.contains("layers.1.")).cloned().collect();
        for removed in &all[..2] {
            keys.remove(removed);
        }
        let report = inspect(&empty_file(name, &keys)).unwrap().inside.unwrap().report;
        assert!(report.missing.len() >= 2 || report.misshapen.len() >= 2, "{name}:\n{report}");
    }
}
