//! `cutout convert`: formats and types, dropped tensors, invalid arguments.

use cutout_tensor::{DType, Tensor};
use cutout_weights::{BlockType, Checkpoint, Format, MetadataValue, StoredType};

use crate::support::{Folder, MODEL, fixture, folder, folder_with_model};

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
        refused.fails(&["w.large", "range of f16"]);
        assert!(!folder.has(output));
    }
    assert!(folder.temporary_files().is_empty());
}
