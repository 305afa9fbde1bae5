//! `cutout convert`: formats and types, dropped tensors, invalid arguments.

use cutout_tensor::{DType, Tensor};
use cutout_weights::{
    BlockType, Checkpoint, Format, Metadata, MetadataValue, OutgoingTensor, StoredType,
    write_safetensors,
};

use crate::support::{Folder, MODEL, fixture, folder, folder_with_model, model_tensors};

fn stored(folder: &Folder, file: &str, tensor: &str) -> StoredType {
    let checkpoint = Checkpoint::open(folder.path(file)).unwrap();
    checkpoint.info(tensor).unwrap().stored.clone()
}

#[test]
pub(crate) fn formats_and_types() {
    let folder = folder_with_model();
    let (matrix, bias) = ("mask_decoder.iou_token.weight", "image_encoder.neck.1.bias");
    let plain = StoredType::Plain;
    for (output, quantize, expected) in [
        ("keep.safetensors", None, plain(DType::F32)),
        ("keep.gguf", None, plain(DType::F32)),
        ("f32.gguf", Some("f32"), plain(DType::F32)),
        ("f16.safetensors", Some("f16"), plain(DType::F16)),
        ("f16.gguf", Some("f16"), plain(DType::F16)),
        ("bf16.safetensors", Some("bf16"), plain(DType::BF16)),
        ("q8.gguf", Some("q8_0"), StoredType::Block(BlockType::Q8_0)),
        ("q4.GGUF", Some("q4_0"), StoredType::Block(BlockType::Q4_0)),
    ] {
        let flag = quantize.map_or(vec![], |name| vec!["--quantize", name]);
        let line = folder.cutout(&[&["convert", MODEL, output], &flag[..]].concat()).succeeds();
        assert!(line.starts_with(output) && line.contains("instead of"), "{line}");
        assert_eq!(stored(&folder, output, matrix), expected, "{output}");
        assert_eq!(stored(&folder, output, bias), plain(DType::F32), "{output}");
        let checkpoint = Checkpoint::open(folder.path(output)).unwrap();
        let gguf = output.to_lowercase().ends_with("gguf");
        let format = if gguf { Format::Gguf } else { Format::Safetensors };
        assert_eq!(checkpoint.format(), format);
        let source = checkpoint.metadata().get("source").and_then(MetadataValue::as_text);
        assert_eq!(source, Some("a test"), "{output}: the metadata is carried along");
        let runs = ["segment", "picture.png", "-m", output, "-p", "20,11", "-o", "mask.png"];
        folder.cutout(&runs).succeeds();
    }
    assert!(folder.temporary_files().is_empty());
    assert!(folder.read("q4.GGUF").len() < folder.read("keep.gguf").len() / 2);
}

/// The card's lines, by their names, as the numbers after them.
fn card(text: &str) -> Vec<(String, Vec<f64>)> {
    let lines = text.lines().skip_while(|line| !line.starts_with("before")).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_number = |word: &&&str| **word == "-" || word.parse::<f64>().is_ok();
        let named = words.iter().take_while(|word| !is_number(word)).count();
        let numbers = words[named..].iter().filter_map(|word| word.parse().ok()).collect();
        (words[..named].join(" "), numbers)
    });
    lines.collect()
}

#[test]
pub(crate) fn what_fewer_bits_cost_is_printed() {
    let folder = folder_with_model();
    let convert = |output: &str, flags: &[&str]| {
        folder.cutout(&[&["convert", MODEL, output], flags].concat())
    };
    // Of the logits: the small encoder has matrices that are too narrow for blocks.
    let errors = |flags: &[&str], expected: &[&str]| {
        let rows = card(&convert("out.gguf", flags).succeeds());
        let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, [&["before"], expected].concat(), "{flags:?}");
        rows.iter().skip(1).map(|(_, numbers)| numbers[1]).collect::<Vec<f64>>()
    };
    let half = errors(&["--quantize", "f16"], &["f16 in f32"])[0];
    let eight = errors(&["--quantize", "q8_0"], &["q8_0 in f32", "q8_0 in int8"]);
    let four = errors(&["--quantize", "q4_0"], &["q4_0 in f32", "q4_0 in int8"])[0];
    assert!(0.0 < half && half < eight[0] && eight[0] < four, "{half} {eight:?} {four}");
    // Another picture has other errors.
    let with_picture = ["--quantize", "q8_0", "--images", "picture.png"];
    assert_ne!(errors(&with_picture, &["q8_0 in f32", "q8_0 in int8"]), eight);
    assert_eq!(card(&convert("out.gguf", &["--quantize", "q8_0", "--no-card"]).succeeds()), []);
    assert_eq!(card(&convert("out.gguf", &[]).succeeds()), []);
    convert("new.gguf", &["--quantize", "q8_0", "--images", "absent.png"]).fails(&["absent.png"]);
    assert!(!folder.has("new.gguf"));
    convert("new.gguf", &["--images", "picture.png"]).wrong_usage(&["--quantize"]);
    convert("new.gguf", &["--quantize", "q8_0", "--images", "picture.png", "--no-card"])
        .wrong_usage(&["--no-card"]);
}

#[test]
fn a_round_trip_is_lossless() {
    let folder = folder_with_model();
    folder.cutout(&["convert", MODEL, "there.gguf"]).succeeds();
    folder.cutout(&["convert", "there.gguf", "back.safetensors"]).succeeds();
    assert_eq!(folder.read("back.safetensors"), folder.read(MODEL));
}

#[test]
fn hugging_face_names_become_meta_names() {
    let folder = folder();
    let tensor =
        |shape: &[usize]| Tensor::from_vec(shape, vec![1f32; shape.iter().product()]).unwrap();
    let named = |name: &str, shape: &[usize]| (name.to_owned(), tensor(shape));
    folder.checkpoint(
        "hugging.safetensors",
        vec![
            named("vision_encoder.patch_embed.projection.weight", &[8, 3, 16, 16]),
            named("vision_encoder.layers.0.layer_norm1.weight", &[8]),
            named("prompt_encoder.point_embed.weight", &[4, 8]),
        ],
    );
    let ended = folder.cutout(&["convert", "hugging.safetensors", "meta.safetensors"]);
    assert_eq!(ended.stderr, "");
    ended.succeeds();
    let written = Checkpoint::open(folder.path("meta.safetensors")).unwrap();
    let names: Vec<&str> = written.tensors().iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names.len(), 6);
    for name in [
        "image_encoder.patch_embed.proj.weight",
        "image_encoder.blocks.0.norm1.weight",
        "prompt_encoder.point_embeddings.3.weight",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
}

#[test]
fn dropped_tensors_are_listed() {
    let folder = folder();
    folder.write("complex.pt", fixture("complex.pt"));
    let ended = folder.cutout(&["convert", "complex.pt", "out.safetensors"]);
    let notes = ended.stderr.clone();
    ended.succeeds();
    assert!(notes.contains("left out: freqs_cis") && notes.contains("complex64"), "{notes}");
    assert!(notes.contains("left out: f8") && notes.contains("float8_e4m3fn"), "{notes}");
    assert!(notes.contains("its names are kept"), "{notes}");
    assert!(Checkpoint::open(folder.path("out.safetensors")).unwrap().info("weight").is_some());
}

#[test]
fn invalid_arguments_are_rejected() {
    let folder = folder_with_model();
    let before = folder.read(MODEL);
    folder.cutout(&["convert", MODEL, MODEL]).wrong_usage(&["which is an input"]);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(MODEL, folder.path("link.safetensors")).unwrap();
        std::fs::hard_link(folder.path(MODEL), folder.path("hard.gguf")).unwrap();
        for other_name in ["link.safetensors", "hard.gguf"] {
            let refused = folder.cutout(&["convert", MODEL, other_name]);
            refused.wrong_usage(&["which is an input"]);
        }
    }
    assert_eq!(folder.read(MODEL), before);
    for quantize in ["q8_0", "q4_0"] {
        let refused = ["convert", MODEL, "out.safetensors", "--quantize", quantize];
        folder.cutout(&refused).wrong_usage(&["safetensors holds no quantised blocks"]);
    }
    folder.cutout(&["convert", MODEL, "out.pt"]).wrong_usage(&[".safetensors or .gguf"]);
    folder.cutout(&["convert", MODEL, "out.gguf", "--quantize", "q2"]).wrong_usage(&["q8_0"]);
    folder.cutout(&["convert", MODEL, "no/out.gguf"]).wrong_usage(&["folder does not exist"]);
    folder.cutout(&["convert", "absent.pt", "out.gguf"]).fails(&["absent.pt", "no such file"]);
    let large = Tensor::from_vec([1, 32], vec![1e6f32; 32]).unwrap();
    folder.checkpoint("large.safetensors", vec![("w.large".to_owned(), large)]);
    for output in ["out.gguf", "out.safetensors"] {
        let refused = folder.cutout(&["convert", "large.safetensors", output, "--quantize", "f16"]);
        refused.fails(&["w.large", "element 0 is 1e6, beyond the range of f16"]);
        assert!(!folder.has(output));
    }
    assert!(folder.temporary_files().is_empty());
}

#[test]
fn numbers_that_are_not_finite_are_rejected() {
    let folder = folder_with_model();
    let rejected = |input: &str, words: &[&str]| {
        for (output, quantize) in [
            ("out.safetensors", None),
            ("out.gguf", None),
            ("out.safetensors", Some("bf16")),
            ("out.gguf", Some("q8_0")),
        ] {
            let flag = quantize.map_or(vec![], |name| vec!["--quantize", name]);
            let ended = folder.cutout(&[&["convert", input, output], &flag[..]].concat());
            let lines: Vec<&str> =
                ended.stderr.lines().filter(|line| !line.contains("names are kept")).collect();
            assert_eq!(lines.len(), 1, "{}", ended.stderr);
            ended.fails(words);
            assert!(!folder.has(output) && folder.temporary_files().is_empty());
        }
    };
    // A model, a tensor of which is stored under another name than it is written, and a file that is none.
    let mut tensors = model_tensors();
    let (name, tensor) = tensors.last_mut().unwrap();
    let mut numbers = tensor.to_vec::<f32>().unwrap();
    numbers[0] = f32::NEG_INFINITY;
    let words = format!("model.safetensors: tensor {name}: element 0 is -inf; the numbers");
    *tensor = Tensor::from_vec(tensor.shape().clone(), numbers).unwrap();
    folder.checkpoint("bad-model.safetensors", tensors);
    rejected("bad-model.safetensors", &[&words]);
    let half = Tensor::from_vec([2, 32], vec![f32::NAN; 64]).unwrap().cast(DType::F16).unwrap();
    folder.checkpoint("bad.safetensors", vec![("odd.name".to_owned(), half)]);
    rejected("bad.safetensors", &["bad.safetensors: tensor odd.name: element 0 is NaN"]);
}

#[test]
fn numbers_beyond_the_new_type_are_rejected() {
    let folder = folder();
    let large = Tensor::from_vec([1, 64], [vec![0f32; 32], vec![f32::MAX; 32]].concat()).unwrap();
    folder.checkpoint("large.safetensors", vec![("w".to_owned(), large)]);
    for (quantize, words) in [
        ("bf16", "element 32 is 3.4028234663852886e38, beyond the range of bf16"),
        ("f16", "element 32 is 3.4028234663852886e38, beyond the range of f16"),
        ("q8_0", "elements 32 to 63: expected numbers within the range of a quantised block"),
        ("q4_0", "elements 32 to 63: expected numbers within the range of a quantised block"),
    ] {
        let run = ["convert", "large.safetensors", "out.gguf", "--quantize", quantize];
        folder.cutout(&run).fails(&["out.gguf: tensor w: ", words]);
    }
    folder.cutout(&["convert", "large.safetensors", "out.gguf"]).succeeds();
    // Double precision is written as single precision.
    let header = br#"{"d":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}"#;
    let doubles = [0.5f64, 1e300].map(f64::to_le_bytes).concat();
    let length = (header.len() as u64).to_le_bytes();
    folder.write("doubles.safetensors", [&length[..], header, &doubles].concat());
    let ended = folder.cutout(&["convert", "doubles.safetensors", "doubles.gguf"]);
    ended.fails(&["doubles.safetensors: tensor d: element 1 is 1e300, beyond the range of f32"]);
    assert!(!folder.has("doubles.gguf"));
}

#[test]
fn a_profile_for_int8_is_measured_and_stored() {
    let folder = folder_with_model();
    folder.cutout(&["convert", "built-in", "q8.gguf", "--quantize", "q8_0"]).succeeds();
    let profile = |name: &str| folder.cutout(&["info", name, "--json"]).json()["profile"].clone();
    let stored = profile("q8.gguf");
    assert_eq!(stored["precision"], "int8");
    assert_eq!(stored["parts"]["image_encoder.trunk.patch_embed"], "f32");
    let text = folder.cutout(&["info", "q8.gguf"]).succeeds();
    let line = text.lines().find(|line| line.starts_with("profile ")).unwrap();
    assert!(line.contains("for --precision int8, with "), "{text}");
    assert!(text.contains("image_encoder.trunk.patch_embed: f32"), "{text}");
    // Metadata is carried along, but what other numbers cost was not measured.
    for (output, flags, is_there) in [
        ("none.gguf", &["--quantize", "q8_0", "--no-card"][..], false),
        ("half.safetensors", &["--quantize", "f16", "--no-card"], false),
        ("keep.safetensors", &[], true),
        ("keep.gguf", &[], true),
    ] {
        folder.cutout(&[&["convert", "q8.gguf", output], flags].concat()).succeeds();
        assert_eq!(profile(output) == stored, is_there, "{output}");
        assert_eq!(profile(output).is_null(), !is_there, "{output}");
    }
    let run = |name: &str, more: &[&str]| {
        let always = ["segment", "picture.png", "-m", name, "-p", "20,11", "--json"];
        folder.cutout(&[&always[..], more].concat()).json()["annotations"].clone()
    };
    let int8 = run("q8.gguf", &["--precision", "int8", "--device", "cpu"]);
    assert_eq!(run("q8.gguf", &["--precision", "auto", "--device", "cpu"]), int8);
    assert_ne!(run("q8.gguf", &["--device", "cpu"]), int8, "the default is f32");
    assert_ne!(run("none.gguf", &["--precision", "auto", "--device", "cpu"]), int8);
}

#[test]
fn a_stored_profile_that_is_wrong_is_named() {
    let folder = folder_with_model();
    let tensors = model_tensors().into_iter();
    let tensors = tensors.map(|(name, tensor)| OutgoingTensor::new(name, tensor));
    let text = "precision = \"int8\"\ndevice = \"cuda:7\"\n";
    let metadata = Metadata::from([("cutout.profile".to_owned(), text.into())]);
    let path = folder.path("wrong.safetensors");
    write_safetensors(path, &tensors.collect::<Vec<_>>(), &metadata).unwrap();
    let run = |precision: &str| {
        let run = ["segment", "picture.png", "-m", "wrong.safetensors", "-p", "20,11"];
        folder.cutout(&[&run[..], &["--device", "cpu", "--precision", precision]].concat())
    };
    for precision in ["int8", "auto"] {
        run(precision).fails(&["wrong.safetensors", "cutout.profile", "line 2", "`device`"]);
    }
    run("f32").succeeds();
    let shown = folder.cutout(&["info", "wrong.safetensors"]).succeeds();
    assert!(shown.contains("cannot be used: ") && shown.contains("line 2"), "{shown}");
}
