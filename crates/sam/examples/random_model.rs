//! Writes a checkpoint of the published size with random weights, for measurements:
//! `cargo run --release -p cutout-sam --example random_model -- sam3 FILE.safetensors`. The models are `vit_b`, `vit_h`, `sam2.1_tiny`,
//! `sam2.1_large`, `sam3` and `sam3.1`. Weights are stored as f16; masks are of no use.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::collections::BTreeMap;
use std::error::Error;

use cutout_sam::model::config::{MemoryForm, ModelConfig};
use cutout_sam::needed_weights;
use cutout_tensor::{DType, Tensor};
use cutout_testing::Random;
use cutout_weights::{Metadata, OutgoingTensor, write_safetensors};

/// Random numbers of about unit variance behind each layer: matrices by their inputs, gains near 1, biases near 0.
fn weight(path: &str, shape: &[usize], random: &mut Random) -> Result<Tensor, Box<dyn Error>> {
    let inputs: usize = shape.iter().skip(1).product();
    let (middle, spread) = match shape {
        [_] if path.ends_with("weight") || path.contains("gamma") => (1.0, 0.05),
        [] | [_] => (0.0, 0.02),
        _ => (0.0, (3.0 / inputs.max(1) as f64).sqrt()),
    };
    let count = shape.iter().product();
    let number = |_| (middle + (random.unit() - 0.5) * 2.0 * spread) as f32;
    Ok(Tensor::from_vec(shape.to_vec(), (0..count).map(number).collect())?.cast(DType::F16)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, file] = &arguments[..] else {
        return Err("expected the name of a model and a file".into());
    };
    let config = match &model[..] {
        "vit_b" => ModelConfig::sam1_vit_b(),
        "vit_h" => ModelConfig::sam1_vit_h(),
        "sam2.1_tiny" => ModelConfig::sam2_tiny(MemoryForm::Sam2_1),
        "sam2.1_large" => ModelConfig::sam2_large(MemoryForm::Sam2_1),
        "sam3" => ModelConfig::sam3(),
        "sam3.1" => ModelConfig::sam3_1(),
        other => return Err(format!("no model {other}").into()),
    };
    let mut random = Random::new(1);
    let mut weights = BTreeMap::new();
    for (path, shape) in needed_weights(&config)? {
        let tensor = weight(&path, &shape, &mut random)?;
        weights.insert(path, tensor);
    }
    let tensors: Vec<OutgoingTensor<'_>> =
        weights.iter().map(|(path, tensor)| OutgoingTensor::new(path, tensor.clone())).collect();
    write_safetensors(file, &tensors, &Metadata::default())?;
    println!("{} tensors", tensors.len());
    Ok(())
}
