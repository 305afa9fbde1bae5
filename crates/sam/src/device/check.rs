//! Self-check: compares the kernels of every instruction set with the portable ones.

use std::collections::HashMap;

use cutout_cpu::{Cpu, Isa};
use cutout_graph::{Backend, Builder, Profile, Weights};
use cutout_tensor::{Difference, Tensor, TensorError, Tolerance, compare};

use crate::model::ModelError;

/// Rows, inner length and columns of the product: none of them a multiple of a kernel's tile.
const SHAPE: [usize; 3] = [197, 301, 263];

/// Result of one instruction set.
#[derive(Debug)]
pub struct SelfCheck {
    /// The instruction set.
    pub isa: Isa,
    /// Difference from the portable result, or the error.
    pub outcome: Result<Difference, ModelError>,
}

impl SelfCheck {
    /// Whether the result is the portable one, up to the order of its sums.
    pub fn passed(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|difference| difference.within)
    }
}

/// Multiplies two random matrices and adds a bias, on every instruction set of this machine, and compares with the
/// portable result.
pub fn self_check(threads: usize) -> Vec<SelfCheck> {
    let portable = product(Isa::Portable, 1);
    let check = |isa| {
        let outcome = product(isa, threads).and_then(|found| match &portable {
            Ok(expected) => Ok(compare(&found, expected, Tolerance::Rounding)?),
            Err(error) => Err(TensorError::Shape(format!("no portable result: {error}")).into()),
        });
        SelfCheck { isa, outcome }
    };
    Isa::available().into_iter().map(check).collect()
}

/// The product on one instruction set.
fn product(isa: Isa, threads: usize) -> Result<Tensor, ModelError> {
    let [rows, inner, columns] = SHAPE;
    let builder = Builder::new();
    let x = builder.input("x", cutout_tensor::DType::F32, [rows, inner]);
    let w = builder.weights();
    let product = x.linear(w.parameter("weight", [columns, inner]));
    builder.output("y", product + w.parameter("bias", [columns]));
    let weights = Weights::new(HashMap::from([
        ("weight".to_owned(), random(&[columns, inner], 2)?),
        ("bias".to_owned(), random(&[columns], 3)?),
    ]));
    let graph = builder.finish()?;
    let program = Cpu::with_isa(isa, threads).compile(&graph, &weights, &Profile::default())?;
    let mut outputs = program.run_named(&[("x", &random(&[rows, inner], 1)?)])?;
    Ok(outputs.pop().expect("the graph has one output").1)
}

/// Numbers between -1 and 1 that are the same on every machine.
fn random(shape: &[usize], seed: u32) -> Result<Tensor, TensorError> {
    let mut state = seed.wrapping_mul(0x9e37_79b9);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let elements: usize = shape.iter().product();
    Tensor::from_vec(shape, (0..elements).map(|_| next()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_of_this_machine_passes() {
        let checks = self_check(2);
        assert_eq!(checks.len(), Isa::available().len());
        for check in &checks {
            assert!(check.passed(), "{check:?}");
        }
    }

    #[test]
    fn the_product_is_the_product() {
        let found = product(Isa::Portable, 1).unwrap();
        let [rows, inner, columns] = SHAPE;
        let [x, w, bias] = [(&[rows, inner][..], 1), (&[columns, inner], 2), (&[columns], 3)]
            .map(|(shape, seed)| random(shape, seed).unwrap().to_f64_vec().unwrap());
        let found = found.to_f64_vec().unwrap();
        for (row, column) in [(0, 0), (17, 100), (rows - 1, columns - 1)] {
            let sum: f64 = (0..inner).map(|i| x[row * inner + i] * w[column * inner + i]).sum();
            let found = found[row * columns + column];
            assert!((found - sum - bias[column]).abs() < 1e-4, "{found}");
        }
    }
}
