//! The input tensors of op cases, the same on every machine.

use cutout_graph::Case;
use cutout_graph::cases::{CaseInput, Fill};
use cutout_tensor::{DType, Tensor, TensorError};

use crate::Random;

/// The inputs of a case, seeded by the case's name.
pub fn case_tensors(case: &Case) -> Result<Vec<Tensor>, TensorError> {
    let seed = fnv1a(case.full_name().as_bytes());
    let inputs = case.inputs.iter().enumerate();
    inputs.map(|(index, input)| input_tensor(input, seed.wrapping_add(index as u64))).collect()
}

/// The tensor of one input.
pub fn input_tensor(input: &CaseInput, seed: u64) -> Result<Tensor, TensorError> {
    let count = input.ty.shape.checked_len()?;
    let mut random = Random::new(seed);
    let whole = input.ty.dtype.is_integer() || input.ty.dtype == DType::Bool;
    let numbers: Vec<f32> = match &input.fill {
        Fill::Noise => (0..count).map(|_| random.normal() as f32).collect(),
        Fill::Uniform { low, high } => (0..count)
            .map(|_| {
                let value = low + (high - low) * random.unit();
                (if whole { value.floor() } else { value }) as f32
            })
            .collect(),
        Fill::Values(values) => values.iter().map(|&value| value as f32).collect(),
    };
    Tensor::from_vec(input.ty.shape.clone(), numbers)?.cast(input.ty.dtype)
}

/// The 64-bit FNV-1a hash.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}
