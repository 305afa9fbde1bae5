//! The declaration of an op, and the errors of its inputs.

use std::fmt::Debug;

use cutout_tensor::{DType, Shape, TensorType};

use crate::ops::{Epilogue, Step};
use crate::{Case, DenseTensor, Layout, Real};

/// Layout of a view op's result over the memory of its input; `None` when the elements must be copied.
pub(crate) type ViewRule<T> = fn(&T, &Layout) -> Option<Layout>;

/// The declaration of an op. Each op has one, in its own file.
pub trait OpDef: Clone + Debug + PartialEq + serde::Serialize {
    /// Name in printed graphs, profiles and fixtures.
    const NAME: &'static str;

    /// For an op that rearranges the elements of its only input: where they already lie. `None` for ops that compute.
    const VIEW: Option<ViewRule<Self>> = None;

    /// Type of the output, or why the op does not accept these inputs.
    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError>;

    /// Plain-loop definition of the op: the oracle for every fast kernel.
    /// Only called with inputs that [`OpDef::infer`] accepts.
    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T>;

    /// The cases every backend is checked on.
    fn cases() -> Vec<Case>;

    /// Checks the values of the inputs, for ops that are not defined on all (an index outside its table). Backends
    /// check the same condition and report the same message.
    fn check_values<T: Real>(&self, _inputs: &[&DenseTensor<T>]) -> Result<(), String> {
        Ok(())
    }

    /// For an elementwise op (each output element depends on one element of each input): its functions, in order.
    /// Such ops fuse into one loop.
    fn steps(&self) -> Option<Vec<Step>> {
        None
    }

    /// For a product that can scale, bias, activate and add to its result as it writes it: those attributes.
    fn epilogue_mut(&mut self) -> Option<&mut Epilogue> {
        None
    }

    /// Arithmetic operations; by default one per output element.
    fn flops(&self, _inputs: &[&TensorType], output: &TensorType) -> u64 {
        output.shape.elements() as u64
    }
}

/// Arithmetic and memory traffic of one op, for `explain` and the benchmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Arithmetic operations, a multiply-add counted as two.
    pub flops: u64,
    /// Bytes of all inputs and of the output.
    pub bytes: u64,
}

/// Why an op does not accept its inputs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OpError {
    /// Wrong number of inputs.
    #[error("takes {expected} inputs, got {found}")]
    Arity {
        /// Inputs the op takes.
        expected: usize,
        /// Inputs given.
        found: usize,
    },
    /// Wrong element type.
    #[error("{input} must be {expected}, got {found}")]
    Type {
        /// Which input.
        input: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: TensorType,
    },
    /// Shapes that do not match the op or each other.
    #[error("{0}")]
    Shape(String),
    /// An attribute outside its range.
    #[error("{0}")]
    Attribute(String),
}

/// The inputs as an array, or the arity error.
pub(crate) fn take<'a, const N: usize>(
    inputs: &[&'a TensorType],
) -> Result<[&'a TensorType; N], OpError> {
    inputs.try_into().map_err(|_| OpError::Arity { expected: N, found: inputs.len() })
}

/// Checks that an input is `f32`.
pub(crate) fn expect_f32(input: &'static str, ty: &TensorType) -> Result<(), OpError> {
    expect(input, ty, "f32", ty.dtype == DType::F32)
}

/// Checks that an input holds whole numbers.
pub(crate) fn expect_integer(input: &'static str, ty: &TensorType) -> Result<(), OpError> {
    expect(input, ty, "an integer type", ty.dtype.is_integer())
}

/// Checks that an input is `bool`.
pub(crate) fn expect_bool(input: &'static str, ty: &TensorType) -> Result<(), OpError> {
    expect(input, ty, "bool", ty.dtype == DType::Bool)
}

/// Checks that `axis` is one of an input's axes.
pub(crate) fn expect_axis(axis: usize, ty: &TensorType) -> Result<(), OpError> {
    if axis < ty.rank() {
        return Ok(());
    }
    Err(OpError::Attribute(format!("axis {axis} is outside {ty}")))
}

/// The shape that all inputs broadcast to.
pub(crate) fn broadcast_all(inputs: &[&TensorType]) -> Result<Shape, OpError> {
    let together =
        inputs.iter().try_fold(Shape::new(&[]), |shape, input| shape.broadcast(&input.shape));
    together.ok_or_else(|| {
        let types: Vec<String> = inputs.iter().map(|ty| ty.to_string()).collect();
        OpError::Shape(format!("{} do not broadcast", types.join(", ")))
    })
}

fn expect(
    input: &'static str,
    ty: &TensorType,
    expected: &'static str,
    holds: bool,
) -> Result<(), OpError> {
    if holds { Ok(()) } else { Err(OpError::Type { input, expected, found: ty.clone() }) }
}

/// Checks an input's rank and returns its axes.
pub(crate) fn axes<const N: usize>(
    input: &'static str,
    ty: &TensorType,
) -> Result<[usize; N], OpError> {
    <[usize; N]>::try_from(&ty.shape[..])
        .map_err(|_| OpError::Shape(format!("{input} needs {N} axes, got {ty}")))
}

/// Checks an input's exact shape.
pub(crate) fn expect_shape(
    input: &'static str,
    ty: &TensorType,
    shape: &[usize],
) -> Result<(), OpError> {
    if ty.shape[..] == *shape {
        return Ok(());
    }
    Err(OpError::Shape(format!("{input} must have shape {shape:?}, got {ty}")))
}
