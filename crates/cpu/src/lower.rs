//! How each op runs on the CPU. No wildcard: a new op does not compile until it is answered here.

use cutout_graph::ops::{BinaryKind, UnaryKind};
use cutout_graph::plan::Operand;
use cutout_graph::{CompileError, Layout, Op, Weights};
use cutout_tensor::{Tensor, TensorType};

use crate::execute::Execute;
use crate::kernels::arg_max::ArgMax;
use crate::kernels::cast::Cast;
use crate::kernels::copy::{Concat, Copy};
use crate::kernels::cumulative_sum::CumulativeSum;
use crate::kernels::elementwise::Chain;
use crate::kernels::gather::Gather;
use crate::kernels::group_norm::GroupNorm;
use crate::kernels::layer_norm::{LayerNorm, LayerNormAxis};
use crate::kernels::logic::{Compare, Logical, Select, Truth};
use crate::kernels::pad::Pad;
use crate::kernels::reduce::Reduce;
use crate::kernels::reference::Reference;
use crate::kernels::rope::Rope;
use crate::kernels::softmax::Softmax;
use crate::simd::Isa;

/// What a kernel is compiled from.
pub(crate) struct Site<'a> {
    /// The inputs as the plan lays them out.
    pub(crate) inputs: &'a [Operand],
    /// Type of the output.
    pub(crate) output: &'a TensorType,
    /// Values of the inputs that are weights or constants, as stored (perhaps in half precision).
    pub(crate) statics: Vec<Option<Tensor>>,
    /// Where packed forms of weights are kept and shared.
    pub(crate) weights: &'a Weights,
    /// The instruction set.
    pub(crate) isa: Isa,
}

/// A kernel and the inputs that are packed inside it, which it never reads again.
pub(crate) struct Lowered {
    pub(crate) kernel: Box<dyn Execute>,
    pub(crate) absorbed: Vec<usize>,
}

impl<K: Execute + 'static> From<K> for Lowered {
    fn from(kernel: K) -> Self {
        Lowered { kernel: Box::new(kernel), absorbed: Vec::new() }
    }
}

/// The kernel of an op at a place in a program.
pub(crate) fn lower(op: &Op, site: &Site<'_>) -> Result<Lowered, CompileError> {
    let reference = || Ok(Reference::new(op, site).into());
    let shape = &site.output.shape;
    match op {
        Op::ArgMax(op) => Ok(ArgMax::new(&site.inputs[0].ty.shape, op.axis).into()),
        Op::Binary(op) => Ok(binary(op.kind, site)),
        Op::Cast(op) => Ok(Cast { from: site.inputs[0].ty.dtype, to: op.dtype }.into()),
        Op::Compare(op) => {
            Ok(Compare::new(op.kind, site.inputs[0].ty.dtype, &layouts(site), shape).into())
        }
        Op::Concat(op) => Ok(Concat {
            axis: op.axis,
            output: shape.to_vec(),
            element_bytes: site.output.dtype.size(),
        }
        .into()),
        Op::CumulativeSum(op) => Ok(CumulativeSum::new(shape, op.axis).into()),
        Op::Elementwise(op) => Ok(Chain::new(&op.steps, &layouts(site), shape).into()),
        Op::Gather(_) => Ok(Gather { indices: site.inputs[1].ty.dtype }.into()),
        Op::GroupNorm(op) => {
            Ok(GroupNorm::new(&site.inputs[0].layout, op.groups, op.epsilon).into())
        }
        Op::LayerNorm(op) if op.axis + 1 == shape.rank() => {
            Ok(LayerNorm::new(&site.inputs[0].layout, op.epsilon).into())
        }
        Op::LayerNorm(op) => Ok(LayerNormAxis::new(shape, op.axis, op.epsilon).into()),
        Op::Pad(op) => Ok(Pad::new(op, &site.inputs[0].ty.shape).into()),
        Op::Reduce(op) => Ok(Reduce::new(op.kind, &op.axes, &site.inputs[0].ty.shape).into()),
        // A view op that is scheduled has inputs no stride can describe: its result is a copy.
        Op::Reshape(_) => Ok(copy_kernel(&site.inputs[0])),
        Op::Permute(_) | Op::Slice(_) | Op::Broadcast(_) => {
            panic!("the plan turns every permute, slice and broadcast into a view")
        }
        Op::Rope(op) => Ok(Rope::new(&site.inputs[0].layout, op.tail).into()),
        Op::Select(_) => Ok(Select::new(&layouts(site), shape, site.output.dtype.size()).into()),
        Op::Softmax(_) => Ok(Softmax::new(&site.inputs[0].layout).into()),
        Op::Unary(op) if op.kind == UnaryKind::Not => {
            Ok(Logical::new(Truth::Not, &layouts(site), shape).into())
        }
        Op::Unary(op) => Ok(Chain::unary(op.kind, &site.inputs[0].layout, shape).into()),
        Op::Attention(_)
        | Op::Conv2d(_)
        | Op::ConvTranspose2d(_)
        | Op::GridSample(_)
        | Op::Linear(_)
        | Op::MatMul(_)
        | Op::MaxPool2d(_)
        | Op::QuantizedLinear(_)
        | Op::Resize(_)
        | Op::RoiAlign(_) => reference(),
    }
}

fn binary(kind: BinaryKind, site: &Site<'_>) -> Lowered {
    let (layouts, shape) = (layouts(site), &site.output.shape);
    match kind {
        BinaryKind::And => Logical::new(Truth::And, &layouts, shape).into(),
        BinaryKind::Or => Logical::new(Truth::Or, &layouts, shape).into(),
        BinaryKind::Add
        | BinaryKind::Subtract
        | BinaryKind::Multiply
        | BinaryKind::Divide
        | BinaryKind::Maximum
        | BinaryKind::Minimum
        | BinaryKind::Power => Chain::binary(kind, &layouts, shape).into(),
    }
}

fn layouts<'a>(site: &Site<'a>) -> Vec<&'a Layout> {
    site.inputs.iter().map(|operand| &operand.layout).collect()
}

/// The kernel that copies a strided value into contiguous memory.
pub(crate) fn copy_kernel(operand: &Operand) -> Lowered {
    Copy { element_bytes: operand.ty.dtype.size() }.into()
}
