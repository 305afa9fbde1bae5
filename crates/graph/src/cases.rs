//! Op cases: op, attributes and inputs on which every backend and PyTorch are compared. Only data: `cutout-testing`
//! makes the tensors.

use cutout_tensor::{DType, Shape, TensorType, Tolerance};

use crate::Op;

/// How the elements of a case's input are chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// Seeded normal noise with mean 0 and deviation 1.
    Noise,
    /// Seeded uniform numbers in `low..high`; integers for integer types.
    Uniform {
        /// Smallest value.
        low: f64,
        /// Exclusive upper bound.
        high: f64,
    },
    /// These values.
    Values(Vec<f64>),
}

/// One input of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseInput {
    /// Its type.
    pub ty: TensorType,
    /// Its elements.
    pub fill: Fill,
}

/// Normal `f32` noise.
pub fn noise(shape: impl Into<Shape>) -> CaseInput {
    CaseInput { ty: TensorType::f32(shape), fill: Fill::Noise }
}

/// Uniform `f32` numbers in `low..high`.
pub fn uniform(shape: impl Into<Shape>, low: f64, high: f64) -> CaseInput {
    CaseInput { ty: TensorType::f32(shape), fill: Fill::Uniform { low, high } }
}

/// Uniform `i64` numbers in `low..high`.
pub fn integers(shape: impl Into<Shape>, low: i64, high: i64) -> CaseInput {
    let fill = Fill::Uniform { low: low as f64, high: high as f64 };
    CaseInput { ty: TensorType::new(DType::I64, shape), fill }
}

/// Random truth values.
pub fn bools(shape: impl Into<Shape>) -> CaseInput {
    let fill = Fill::Uniform { low: 0.0, high: 2.0 };
    CaseInput { ty: TensorType::new(DType::Bool, shape), fill }
}

/// Given values of any type.
pub fn values(ty: TensorType, values: &[f64]) -> CaseInput {
    CaseInput { ty, fill: Fill::Values(values.to_vec()) }
}

impl CaseInput {
    /// The input in another element type.
    pub fn of(mut self, dtype: DType) -> Self {
        self.ty.dtype = dtype;
        self
    }

    /// The input with its elements under another shape.
    pub fn reshaped(mut self, shape: impl Into<Shape>) -> Self {
        self.ty.shape = shape.into();
        self
    }
}

/// One check of one op.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name, unique among the op's cases.
    pub name: &'static str,
    /// The op with its attributes.
    pub op: Op,
    /// Its inputs.
    pub inputs: Vec<CaseInput>,
    /// How far a backend (and PyTorch) may be from the reference.
    pub tolerance: Tolerance,
}

impl Case {
    /// A case under the `Rounding` tolerance.
    pub fn new(
        name: &'static str,
        op: impl Into<Op>,
        inputs: impl IntoIterator<Item = CaseInput>,
    ) -> Self {
        let inputs = inputs.into_iter().collect();
        Case { name, op: op.into(), inputs, tolerance: Tolerance::Rounding }
    }

    /// The same case under another tolerance.
    pub fn within(mut self, tolerance: Tolerance) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// `op/case`, as fixtures and messages name it.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.op.name(), self.name)
    }
}
