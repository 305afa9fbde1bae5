//! `cargo xtask fixtures`: the op cases as files, so that they are declared once, in Rust.

use std::path::Path;

use anyhow::{Context, Result};
use cutout_graph::{Case, Op};
use cutout_tensor::Tensor;
use cutout_testing::case_tensors;
use cutout_testing::fixtures::{digest, stored};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

/// An input as the file stores it.
struct Stored {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Writes `cases.json` (name, op, attributes, inputs and digest of each case) and `inputs.safetensors`
/// (`<op>/<case>/<index>`) into `directory`.
pub(crate) fn write_cases(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let mut described = Vec::new();
    let mut inputs: Vec<Stored> = Vec::new();
    for case in Op::all_cases() {
        let name = case.full_name();
        let tensors = case_tensors(&case).with_context(|| name.clone())?;
        described.push(describe(&case, &tensors)?);
        for (index, tensor) in tensors.iter().enumerate() {
            let (dtype, bytes) = stored(tensor)?;
            let (name, shape) = (format!("{name}/{index}"), tensor.shape().to_vec());
            inputs.push(Stored { name, dtype, shape, bytes });
        }
    }
    let views = inputs
        .iter()
        .map(|Stored { name, dtype, shape, bytes }| {
            Ok((name.as_str(), TensorView::new(*dtype, shape.clone(), bytes)?))
        })
        .collect::<Result<Vec<_>>>()?;
    std::fs::write(
        directory.join("cases.json"),
        serde_json::to_string_pretty(&Value::Array(described))?,
    )?;
    safetensors::serialize_to_file(views, None, &directory.join("inputs.safetensors"))?;
    Ok(())
}

fn describe(case: &Case, tensors: &[Tensor]) -> Result<Value> {
    let input = |tensor: &Tensor| json!({ "dtype": tensor.dtype().name(), "shape": tensor.shape().to_vec() });
    Ok(json!({
        "name": case.full_name(),
        "op": case.op.name(),
        "attributes": case.op.attributes()?,
        "inputs": tensors.iter().map(input).collect::<Vec<_>>(),
        "digest": digest(case)?,
    }))
}
