//! `cutout explain`: every flag.

use crate::support::{MODEL, folder, folder_with_model};

#[test]
pub(crate) fn parts_and_passes() {
    let folder = folder_with_model();
    let encoder = folder.cutout(&["explain", MODEL]).succeeds();
    assert!(encoder.contains("image_encoder.") && encoder.contains("Attention"), "{encoder}");
    let decoder = folder.cutout(&["explain", MODEL, "--part", "decoder"]).succeeds();
    assert!(decoder.contains("mask_decoder.") && !decoder.contains("image_encoder."));
    let early = folder.cutout(&["explain", MODEL, "--after", "fold_constants"]).succeeds();
    assert!(early.lines().count() > encoder.lines().count(), "fusing makes graphs shorter");
    folder.cutout(&["explain", MODEL, "--part", "heart"]).wrong_usage(&["heart", "decoder"]);
    let unknown = folder.cutout(&["explain", MODEL, "--after", "magic"]);
    assert_ne!(unknown.code, Some(0));
    assert!(unknown.stderr.contains("magic"), "{}", unknown.stderr);
    folder.cutout(&["explain", "absent.pt"]).fails(&["absent.pt"]);
}

#[test]
fn parts_of_sam2_memory() {
    let folder = folder();
    let builtin = concat!(env!("CARGO_MANIFEST_DIR"), "/../sam/builtin/model.safetensors");
    let explain = |part: &str| folder.cutout(&["explain", builtin, "--part", part]).succeeds();
    let frame = explain("follow");
    for scope in ["memory_attention.layers.0.", "memory_encoder.fuser", "k_proj", "obj_ptr_proj"] {
        assert!(frame.contains(scope), "{scope} is not in:\n{frame}");
    }
    // The built-in model keeps five memory frames.
    let key = |frame: usize| format!("bank.objects.0.frames.{frame}.keys.0");
    assert!(frame.contains(&key(4)) && !frame.contains(&key(5)));
}

#[test]
pub(crate) fn the_graph_depends_on_how_it_runs() {
    let folder = folder_with_model();
    let one = folder.cutout(&["explain", MODEL, "--threads", "1"]).succeeds();
    assert_ne!(one, folder.cutout(&["explain", MODEL, "--threads", "3"]).succeeds());
    folder.cutout(&["explain", MODEL, "--device", "cuda:1"]).fails(&["cuda:1"]);
    folder.cutout(&["explain", MODEL, "--vram-limit", "0"]).wrong_usage(&["--vram-limit"]);
    let int8 = folder.cutout(&["explain", MODEL, "--precision", "int8"]).succeeds();
    assert!(int8.contains("QuantizedLinear") && !one.contains("QuantizedLinear"), "{int8}");
    folder.write("int8.toml", "precision = \"int8\"\n");
    assert_eq!(folder.cutout(&["explain", MODEL, "--profile", "int8.toml"]).succeeds(), int8);
}
