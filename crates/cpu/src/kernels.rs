//! The kernels, one file per family of ops, and which kernel runs each op.

pub(crate) mod arg_max;
pub(crate) mod attention;
mod axes;
pub(crate) mod bilinear;
pub(crate) mod cast;
pub(crate) mod conv2d;
pub(crate) mod conv_transpose2d;
pub(crate) mod copy;
pub(crate) mod cumulative_sum;
pub(crate) mod elementwise;
mod fold;
pub(crate) mod gather;
pub(crate) mod grid_sample;
pub(crate) mod group_norm;
pub(crate) mod image;
pub(crate) mod layer_norm;
pub(crate) mod linear;
pub(crate) mod logic;
pub(crate) mod mask_bits;
pub(crate) mod matmul;
pub(crate) mod max_pool2d;
pub(crate) mod pad;
pub(crate) mod quantized_linear;
pub(crate) mod reduce;
pub(crate) mod resample;
pub(crate) mod resize;
pub(crate) mod roi_align;
pub(crate) mod rope;
mod rows;
pub(crate) mod softmax;

use cutout_graph::ops::{BinaryKind, UnaryKind};
use cutout_graph::plan::Operand;
use cutout_graph::{CompileError, Layout, Op};

use crate::lower::{Lowered, Site};
use arg_max::ArgMax;
use attention::StreamingAttention;
use cast::Cast;
use copy::{Concat, Copy};
use cumulative_sum::CumulativeSum;
use elementwise::Chain;
use grid_sample::GridSample;
use group_norm::GroupNorm;
use layer_norm::{LayerNorm, LayerNormAxis};
use logic::{Compare, Logical, Select, Truth};
use mask_bits::MaskBits;
use matmul::MatMul;
use max_pool2d::MaxPool;
use pad::Pad;
use reduce::Reduce;
use resample::Resample;
use resize::Resize;
use roi_align::Roi;
use rope::Rope;
use softmax::Softmax;

/// The kernel of an op at a place in a program. No wildcard: a new op does not compile until it has an arm here.
pub(crate) fn lower(op: &Op, site: &Site<'_>) -> Result<Lowered, CompileError> {
    let shape = &site.output.shape;
    match op {
        Op::ArgMax(op) => Ok(ArgMax::new(&site.inputs[0].ty.shape, op.axis).into()),
        Op::Attention(op) => Ok(StreamingAttention::new(op, site).into()),
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
        Op::Conv2d(op) => conv2d::lower(op, site),
        Op::ConvTranspose2d(op) => conv_transpose2d::lower(op, site),
        Op::CumulativeSum(op) => Ok(CumulativeSum::new(shape, op.axis).into()),
        Op::Elementwise(op) => Ok(Chain::new(&op.steps, &layouts(site), shape).into()),
        Op::Gather(_) => gather::lower(site),
        Op::GridSample(_) => Ok(GridSample::new(site).into()),
        Op::GroupNorm(op) => {
            Ok(GroupNorm::new(&site.inputs[0].layout, op.groups, op.epsilon).into())
        }
        Op::LayerNorm(op) if op.axis + 1 == shape.rank() => {
            Ok(LayerNorm::new(&site.inputs[0].layout, op.epsilon).into())
        }
        Op::LayerNorm(op) => Ok(LayerNormAxis::new(shape, op.axis, op.epsilon).into()),
        Op::Linear(op) => linear::lower(op, site),
        Op::MaskBits(op) => Ok(MaskBits::new(op, site)?.into()),
        Op::MatMul(op) => Ok(MatMul::new(op, site).into()),
        Op::MaxPool2d(op) => Ok(MaxPool::new(op, site).into()),
        Op::Pad(op) => Ok(Pad::new(op, &site.inputs[0].ty.shape).into()),
        Op::QuantizedLinear(op) => quantized_linear::lower(op, site),
        Op::Reduce(op) => Ok(Reduce::new(op.kind, &op.axes, &site.inputs[0].ty.shape).into()),
        Op::Resample(op) => Ok(Resample::new(op, site).into()),
        // A view op that is scheduled has inputs no stride can describe: its result is a copy.
        Op::Reshape(_) => Ok(copy_kernel(&site.inputs[0])),
        Op::Permute(_) | Op::Slice(_) | Op::Broadcast(_) => {
            panic!("the plan turns every permute, slice and broadcast into a view")
        }
        Op::Resize(op) => Ok(Resize::new(op, site).into()),
        Op::RoiAlign(op) => Ok(Roi::new(op, site).into()),
        Op::Rope(op) => Ok(Rope::new(&site.inputs[0].layout, op.tail).into()),
        Op::Select(_) => Ok(Select::new(&layouts(site), shape, site.output.dtype.size()).into()),
        Op::Softmax(_) => Ok(Softmax::new(&site.inputs[0].layout).into()),
        Op::Unary(op) if op.kind == UnaryKind::Not => {
            Ok(Logical::new(Truth::Not, &layouts(site), shape).into())
        }
        Op::Unary(op) => Ok(Chain::unary(op.kind, &site.inputs[0].layout, shape).into()),
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
