//! `cutout explain`: every flag.

use crate::support::{MODEL, folder, folder_with_model};

#[test]
fn parts_and_passes() {
    let folder = folder_with_model();
    let encoder = folder.cutout(&["explain", MODEL]).done();
    assert!(encoder.contains("image_encoder.") && encoder.contains("Attention"), "{encoder}");
    let decoder = folder.cutout(&["explain", MODEL, "--part", "decoder"]).done();
    assert!(decoder.contains("mask_decoder.") && !decoder.contains("image_encoder."));
    let early = folder.cutout(&["explain", MODEL, "--after", "fold_constants"]).done();
    assert!(early.lines().count() > encoder.lines().count(), "fusing makes graphs shorter");
    folder.cutout(&["explain", MODEL, "--part", "heart"]).wrong_usage(&["heart", "decoder"]);
    let unknown = folder.cutout(&["explain", MODEL, "--after", "magic"]);
    assert_ne!(unknown.code, Some(0));
    assert!(unknown.stderr.contains("magic"), "{}", unknown.stderr);
    folder.cutout(&["explain", "absent.pt"]).could_not(&["absent.pt"]);
}

#[test]
fn the_memory_of_sam2_is_explained() {
    let folder = folder();
    let builtin = concat!(env!("CARGO_MANIFEST_DIR"), "/../sam/builtin/model.safetensors");
    let explain = |part: &str| folder.cutout(&["explain", builtin, "--part", part]).done();
    let attention = explain("memory_attention");
    assert!(attention.contains("memory_attention.layers.0."), "{attention}");
    // Its memory holds five frames.
    assert!(attention.contains("frames.4.key.0") && !attention.contains("frames.5.key.0"));
    let encoder = explain("memory_encoder");
    assert!(encoder.contains("memory_encoder.fuser"), "{encoder}");
    let keys = explain("memory_projection");
    assert!(keys.contains("k_proj"), "{keys}");
}

#[test]
fn the_graph_depends_on_how_it_runs() {
    let folder = folder_with_model();
    let plain = folder.cutout(&["explain", MODEL, "--device", "cpu", "--threads", "1"]).done();
    let int8 = folder.cutout(&["explain", MODEL, "--precision", "int8"]).done();
    assert_ne!(plain, int8);
    folder.write("int8.toml", "precision = \"int8\"\n");
    assert_eq!(folder.cutout(&["explain", MODEL, "--profile", "int8.toml"]).done(), int8);
}
