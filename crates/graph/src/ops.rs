//! The table of ops. Each op is declared in the file of its name.

mod arg_max;
mod attention;
mod binary;
mod broadcast;
mod cast;
mod checks;
mod compare;
mod concat;
mod conv2d;
mod conv_transpose2d;
mod cumulative_sum;
mod elementwise;
mod gather;
mod grid_sample;
mod group_norm;
mod layer_norm;
mod linear;
mod mask_bits;
mod matmul;
mod max_pool2d;
mod pad;
mod permute;
mod quantized_linear;
mod reduce;
mod resample;
mod reshape;
mod resize;
mod roi_align;
mod rope;
mod select;
mod slice;
mod softmax;
mod unary;

pub use arg_max::ArgMax;
pub use attention::{Attention, AttentionInputs, AttentionRope, BiasForm, SeparableBias, Windows};
pub use binary::{Binary, BinaryKind};
pub use broadcast::Broadcast;
pub use cast::Cast;
pub use compare::{Compare, CompareKind};
pub use concat::Concat;
pub use conv_transpose2d::ConvTranspose2d;
pub use conv2d::Conv2d;
pub use cumulative_sum::CumulativeSum;
pub use elementwise::{Elementwise, Operand, Step};
pub use gather::Gather;
pub use grid_sample::GridSample;
pub use group_norm::GroupNorm;
pub use layer_norm::LayerNorm;
pub use linear::{Activation, Epilogue, Linear};
pub use mask_bits::{BilinearStage, BilinearTap, MaskBits, ModelSquare};
pub use matmul::MatMul;
pub use max_pool2d::MaxPool2d;
pub use pad::Pad;
pub use permute::Permute;
pub use quantized_linear::{LONGEST_GROUP, QuantizedLinear, SMALLEST_ROW};
pub use reduce::{Reduce, ReduceKind};
pub use resample::{Resample, ResampleSizes};
pub use reshape::Reshape;
pub use resize::{Resize, ResizeMode, Tap};
pub use roi_align::RoiAlign;
pub use rope::{Rope, axial_rope_tables};
pub use select::Select;
pub use slice::Slice;
pub use softmax::Softmax;
pub use unary::{Unary, UnaryKind};

use cutout_tensor::TensorType;

use crate::{Case, Cost, DenseTensor, Layout, OpDef, OpError, Real};

/// Generates the closed enum of ops, its conversions and its forwarding methods from one list.
macro_rules! ops {
    ($($op:ident),* $(,)?) => {
        /// Any op. The enum is closed: a backend without an arm for an op does not compile.
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
            /// Type of the output, or why the op does not accept these inputs.
            pub fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
                match self { $(Op::$op(op) => op.infer(inputs)),* }
            }
            /// Plain-loop definition of the op.
            pub fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
                match self { $(Op::$op(op) => op.reference(inputs)),* }
            }
            /// Checks the values of the inputs, for ops that are not defined on all.
            pub fn check_values<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> Result<(), String> {
                match self { $(Op::$op(op) => op.check_values(inputs)),* }
            }
            /// Whether the op only rearranges the elements of its only input; see [`Op::view`].
            pub fn is_view(&self) -> bool {
                match self { $(Op::$op(_) => <$op as OpDef>::VIEW.is_some()),* }
            }
            /// Layout of a view op's result over the memory of its input; `None` if the op computes or must copy.
            pub fn view(&self, input: &Layout) -> Option<Layout> {
                match self { $(Op::$op(op) => <$op as OpDef>::VIEW?(op, input)),* }
            }
            /// The functions of an elementwise op, in order; `None` for all other ops.
            pub fn steps(&self) -> Option<Vec<Step>> {
                match self { $(Op::$op(op) => op.steps()),* }
            }
            /// The epilogue, of a product that has one.
            pub fn epilogue(&self) -> Option<Epilogue> {
                self.clone().epilogue_mut().copied()
            }
            /// The epilogue, to be changed.
            pub fn epilogue_mut(&mut self) -> Option<&mut Epilogue> {
                match self { $(Op::$op(op) => op.epilogue_mut()),* }
            }
            /// Arithmetic and bytes of the op on these inputs.
            pub fn cost(&self, inputs: &[&TensorType], output: &TensorType) -> Cost {
                let flops = match self { $(Op::$op(op) => op.flops(inputs, output)),* };
                let tensors = inputs.iter().copied().chain([output]);
                let bytes = tensors.fold(0u64, |sum, ty| sum.saturating_add(ty.bytes() as u64));
                Cost { flops, bytes }
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
    ArgMax,
    Attention,
    Binary,
    Broadcast,
    Cast,
    Compare,
    Concat,
    Conv2d,
    ConvTranspose2d,
    CumulativeSum,
    Elementwise,
    Gather,
    GridSample,
    GroupNorm,
    LayerNorm,
    Linear,
    MaskBits,
    MatMul,
    MaxPool2d,
    Pad,
    Permute,
    QuantizedLinear,
    Reduce,
    Resample,
    Reshape,
    Resize,
    RoiAlign,
    Rope,
    Select,
    Slice,
    Softmax,
    Unary,
}
