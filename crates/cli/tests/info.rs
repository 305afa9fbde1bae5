//! `cutout info`: the report, and files that cannot be run.

use cutout_tensor::{DType, Tensor};
use cutout_testing::SmallSam3;

use crate::support::{MODEL, fixture, folder, folder_with_model, model_tensors};

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::from_vec(shape, vec![0f32; shape.iter().product()]).unwrap()
}

#[test]
pub(crate) fn a_model_is_described() {
    let folder = folder_with_model();
    let text = folder.cutout(&["info", MODEL]).words();
    for line in [
        "format safetensors",
        "model SAM 1, 36 channels, 2 blocks, in the layout of Meta",
        "encoder image size 80, patch 16, width 36, depth 2",
        "norm epsilon 1e-6",
        "source a test",
        "every tensor the model needs is there, and no other",
        "runs yes",
    ] {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
    assert!(!text.contains("mask_decoder.iou_token.weight"), "tensors are listed when asked for");
    let listed = folder.cutout(&["info", MODEL, "--tensors"]).succeeds();
    let line = listed.lines().find(|line| line.contains("mask_decoder.iou_token.weight")).unwrap();
    assert_eq!(
        line.split_whitespace().collect::<String>(),
        "f32[1,32]mask_decoder.iou_token.weight"
    );
    let tensors = model_tensors().len();
    assert_eq!(listed.lines().filter(|line| line.starts_with("f32 ")).count(), tensors);
}

#[test]
pub(crate) fn json_report() {
    let folder = folder_with_model();
    let facts = folder.cutout(&["info", "--json", MODEL]).json();
    let tensors = model_tensors();
    assert_eq!(facts["tensor_count"], tensors.len());
    let parameters: usize = tensors.iter().map(|(_, tensor)| tensor.shape().elements()).sum();
    assert_eq!(facts["parameters"], parameters);
    assert_eq!(facts["bytes"], folder.read(MODEL).len());
    assert_eq!(facts["element_types"]["f32"]["bytes"], parameters * 4);
    assert_eq!(facts["config"]["encoder"]["window"], 3);
    assert_eq!(facts["config"]["decoder"]["mask_tokens"], 4);
    assert_eq!(facts["metadata"]["source"], "a test");
    assert_eq!(facts["runs"], true);
    assert!(facts["problem"].is_null() && facts["tensors"].is_null());
    assert_eq!(facts["report"]["missing"].as_array().unwrap().len(), 0);
    let listed = folder.cutout(&["info", "--json", "--tensors", MODEL]).json();
    let first = &listed["tensors"][0];
    assert_eq!(listed["tensors"].as_array().unwrap().len(), tensors.len());
    assert!(first["name"].is_string() && first["shape"].is_array() && first["type"] == "f32");
}

#[test]
fn missing_and_misshapen_tensors_are_listed() {
    let folder = folder();
    let mut tensors = model_tensors();
    tensors.retain(|(name, _)| name != "mask_decoder.iou_token.weight");
    tensors.push(("mask_decoder.iou_tokens.weight".to_owned(), zeros(&[1, 32])));
    tensors.push(("optimizer.step".to_owned(), zeros(&[1])));
    for (name, tensor) in &mut tensors {
        if name == "image_encoder.neck.3.bias" {
            *tensor = zeros(&[3]);
        }
    }
    folder.checkpoint("odd.safetensors", tensors);
    let text = folder.cutout(&["info", "odd.safetensors"]).words();
    for line in [
        "fit 1 missing, 1 of another shape, 2 not used",
        "runs no: the tensors do not fit SAM 1, 36 channels, 2 blocks: 1 tensor is missing (mask_decoder.iou_token.weight), 1 tensor of another shape",
        "mask_decoder.iou_token.weight: missing [1, 32] (did you mean mask_decoder.iou_tokens.weight?)",
        "image_encoder.neck.3.bias: expected [32], the checkpoint has [3]",
        "optimizer.step: not used [1]",
    ] {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
    let report = folder.cutout(&["info", "odd.safetensors", "--json"]).json()["report"].clone();
    assert_eq!(report["missing"][0]["nearest"], "mask_decoder.iou_tokens.weight");
    assert_eq!(report["misshapen"][0]["found"][0], 3);
    assert_eq!(report["unused"].as_array().unwrap().len(), 2);
    let refused = folder.cutout(&["segment", "x.png", "-m", "odd.safetensors", "-p", "1,1"]);
    assert_eq!(refused.code, Some(1));
}

#[test]
fn a_model_that_cannot_run_is_described() {
    let folder = folder();
    let trunk = "detector.backbone.vision_backbone.trunk";
    let patch = (format!("{trunk}.patch_embed.proj.weight"), zeros(&[8, 3, 14, 14]));
    let block = (format!("{trunk}.blocks.0.norm1.weight"), zeros(&[8]));
    let other = ("tracker.no_mem_embed".to_owned(), zeros(&[1, 1, 8]));
    folder.checkpoint("sam3.safetensors", vec![patch, block, other]);
    let text = folder.cutout(&["info", "sam3.safetensors"]).words();
    assert!(text.contains("model SAM 3, 8 channels, 1 blocks"), "{text}");
    assert!(text.contains("runs no: "), "{text}");
    assert!(text.contains("tensors 3, with 4,720 parameters"), "{text}");
    assert_eq!(folder.cutout(&["info", "sam3.safetensors", "--json"]).json()["runs"], false);
    // Recognised, but without the tensor that the sizes are read from.
    let mut tensors = model_tensors();
    tensors.retain(|(name, _)| name != "image_encoder.pos_embed");
    folder.checkpoint("torso.safetensors", tensors);
    let text = folder.cutout(&["info", "torso.safetensors"]).words();
    assert!(text.contains("model SAM 1, 36 channels"), "{text}");
    assert!(text.contains("runs no: no configuration of SAM 1, 36 channels, 2 blocks: image_encoder.pos_embed: is missing"), "{text}");
}

#[test]
fn unused_tensors_of_sam_3_1_are_summarised() {
    let folder = folder();
    let mut tensors: Vec<(String, Tensor)> =
        SmallSam3::load().unwrap().weights().unwrap().into_iter().collect();
    tensors.retain(|(name, _)| name.starts_with("detector.") && !name.contains("sam2_convs"));
    let tracker = (0..60).map(|index| (format!("tracker.model.part.{index}.weight"), zeros(&[2])));
    tensors.extend(tracker);
    folder.checkpoint("sam3.1.safetensors", tensors);
    let text = folder.cutout(&["info", "sam3.1.safetensors"]).words();
    assert!(text.contains("model SAM 3.1, 24 channels, 3 blocks"), "{text}");
    assert!(text.contains("decoder none") && text.contains("runs yes"), "{text}");
    let unused = text.lines().filter(|line| line.contains(": not used")).count();
    let all = folder.cutout(&["info", "sam3.1.safetensors", "--json"]).json();
    let all = all["report"]["unused"].as_array().unwrap().len();
    assert_eq!(unused, 32);
    assert!(
        text.ends_with(&format!("{} tensors more not used; --json lists all", all - 32)),
        "{text}"
    );
}

#[test]
fn any_checkpoint_is_described() {
    let folder = folder();
    folder.write("complex.pt", fixture("complex.pt"));
    let text = folder.cutout(&["info", "complex.pt", "--tensors"]).words();
    assert!(text.contains("format PyTorch"), "{text}");
    assert!(text.contains("model not recognised"), "{text}");
    assert!(text.contains("not those of SAM 1, 2 or 3"), "{text}");
    assert!(text.contains("complex64") && text.contains("freqs_cis"), "{text}");
    folder.write("quantised.gguf", fixture("quantised.gguf"));
    let facts = folder.cutout(&["info", "quantised.gguf", "--json"]).json();
    assert_eq!(facts["format"], "GGUF");
    assert_eq!(facts["metadata"]["test.u32"], 4_000_000_000u32);
    assert_eq!(facts["metadata"]["test.list"][2], 3);
    assert!(facts["element_types"]["q6_k"]["tensors"].is_number());
    assert_eq!(facts["model"], serde_json::Value::Null);
    let halves = zeros(&[2, 2]).cast(DType::F16).unwrap();
    folder.checkpoint("halves.safetensors", vec![("h".to_owned(), halves)]);
    let text = folder.cutout(&["info", "halves.safetensors"]).words();
    assert!(text.contains("f16 1 tensor, 8 bytes"), "{text}");
}
