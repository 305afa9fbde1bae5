//! The table of ops: one line each. The op itself is in the file of its name.

mod attention;
mod binary;
mod checks;
mod conv2d;
mod conv_transpose2d;
mod group_norm;
mod layer_norm;
mod linear;
mod matmul;
mod quantized_linear;
mod reshape;
mod rope;
mod softmax;
mod unary;

pub use attention::{Attention, AttentionInputs, AttentionRope, BiasForm, SeparableBias, Windows};
pub use binary::{Binary, BinaryKind};
pub use conv_transpose2d::ConvTranspose2d;
pub use conv2d::Conv2d;
pub use group_norm::GroupNorm;
pub use layer_norm::LayerNorm;
pub use linear::{Activation, Epilogue, Linear};
pub use matmul::MatMul;
pub use quantized_linear::{LONGEST_GROUP, QuantizedLinear};
pub use reshape::Reshape;
pub use rope::{Rope, axial_rope_tables};
pub use softmax::Softmax;
pub use unary::{Unary, UnaryKind};

use cutout_tensor::TensorType;

use crate::{Case, Cost, OpDef, OpError, Plain, Real};

/// Makes the closed enum of ops, its conversions and its forwarding methods from one list.
macro_rules! ops {
    ($($op:ident),* $(,)?) => {
        /// Any op. Closed on purpose: a backend that has not answered for an op does not compile.
        #[derive(Clone, Debug, PartialEq)]
        #[expect(missing_docs, reason = "each variant carries the op of its name, documented there")]
        pub enum Op { $($op($op)),* }

        $(impl From<$op> for Op {
            fn from(op: $op) -> Op { Op::$op(op) }
        })*

        impl Op {
            /// Name in printed graphs, profiles and fixtures.
            pub fn name(&self) -> &'static str {
                match self { $(Op::$op(_) => <$op as OpDef>::NAME),* }
            }
            /// Type of the output, or why these inputs are wrong.
            pub fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
                match self { $(Op::$op(op) => op.infer(inputs)),* }
            }
            /// Plain-loop definition of the op.
            pub fn reference<T: Real>(&self, inputs: &[&Plain<T>]) -> Plain<T> {
                match self { $(Op::$op(op) => op.reference(inputs)),* }
            }
            /// What is wrong with the values of the inputs, if the op is not defined on all.
            pub fn check_values<T: Real>(&self, inputs: &[&Plain<T>]) -> Result<(), String> {
                match self { $(Op::$op(op) => op.check_values(inputs)),* }
            }
            /// Arithmetic and bytes of the op on these inputs.
            pub fn cost(&self, inputs: &[&TensorType], output: &TensorType) -> Cost {
                let flops = match self { $(Op::$op(op) => op.flops(inputs, output)),* };
                let bytes = inputs.iter().map(|ty| ty.bytes() as u64).sum::<u64>();
                Cost { flops, bytes: bytes + output.bytes() as u64 }
            }
            /// The attributes as JSON, for fixtures.
            pub fn attributes(&self) -> Result<serde_json::Value, serde_json::Error> {
                match self { $(Op::$op(op) => serde_json::to_value(op)),* }
            }
            /// Attributes as `derive(Debug)` prints them, the key of common subexpressions.
            pub fn printed(&self) -> String {
                match self { $(Op::$op(op) => format!("{op:?}")),* }
            }
            /// The cases of every op.
            pub fn all_cases() -> Vec<Case> {
                [$(<$op as OpDef>::cases()),*].into_iter().flatten().collect()
            }
            /// The names of every op.
            pub const NAMES: &[&str] = &[$(<$op as OpDef>::NAME),*];
        }
    };
}

ops! {
    Attention, Binary, Conv2d, ConvTranspose2d, GroupNorm, LayerNorm, Linear, MatMul, QuantizedLinear,
    Reshape, Rope, Softmax, Unary,
}

#[cfg(test)]
mod tests {
    use cutout_tensor::DType;

    use super::*;
    use crate::Data;

    #[test]
    fn inference_agrees_with_the_reference_on_every_case() {
        for case in Op::all_cases() {
            let name = case.full_name();
            let types: Vec<&TensorType> = case.inputs.iter().map(|input| &input.ty).collect();
            let inferred = case.op.infer(&types).unwrap_or_else(|error| panic!("{name}: {error}"));
            let tensors = case.tensors().unwrap();
            let plain: Vec<Plain<f64>> =
                tensors.iter().map(|tensor| Plain::from_tensor(tensor).unwrap()).collect();
            let output = case.op.reference(&plain.iter().collect::<Vec<_>>());
            assert_eq!(output.shape, inferred.shape, "{name}");
            let same_kind = match &output.data {
                Data::Real(_) => inferred.dtype.is_float(),
                Data::Int(_) => inferred.dtype.is_integer(),
                Data::Bool(_) => inferred.dtype == DType::Bool,
            };
            assert!(same_kind, "{name} is inferred as {inferred}");
        }
    }

    /// `types` with one input changed: to a scalar of another type, or in the length of one axis, there alone and
    /// wherever the old length occurs.
    fn changed(types: &[TensorType], input: usize) -> Vec<Vec<TensorType>> {
        let with = |ty: TensorType| {
            let mut types = types.to_vec();
            types[input] = ty;
            types
        };
        let mut all: Vec<_> = [DType::F32, DType::I64, DType::Bool]
            .map(|dtype| with(TensorType::new(dtype, [])))
            .into();
        let lengths = [0, 1, 2, 3, 1 << 33, usize::MAX / 2, usize::MAX];
        let ty = &types[input];
        for (axis, length) in (0..ty.rank()).flat_map(|axis| lengths.map(|length| (axis, length))) {
            let mut longer = ty.clone();
            longer.shape[axis] = length;
            all.push(with(longer));
            let mut everywhere = types.to_vec();
            let axes = everywhere.iter_mut().flat_map(|ty| ty.shape.iter_mut());
            axes.filter(|other| **other == ty.shape[axis]).for_each(|other| *other = length);
            all.push(everywhere);
        }
        all
    }

    #[test]
    fn inference_of_any_types_gives_a_type_or_an_error() {
        for case in Op::all_cases() {
            let types: Vec<TensorType> = case.inputs.into_iter().map(|input| input.ty).collect();
            for types in (0..types.len()).flat_map(|input| changed(&types, input)) {
                let _type_or_error = case.op.infer(&types.iter().collect::<Vec<_>>());
            }
            let _no_inputs = case.op.infer(&[]);
        }
    }
}
