//! How each op runs on the CPU. No wildcard: a new op does not compile until it is answered here.

use cutout_graph::ops::{BinaryKind, UnaryKind};
use cutout_graph::plan::Operand;
use cutout_graph::{CompileError, DeviceWeights, Known, Layout, Op};
use cutout_parallel::Pool;
use cutout_tensor::TensorType;

use crate::execute::Execute;
use crate::kernels::arg_max::ArgMax;
use crate::kernels::attention::StreamingAttention;
use crate::kernels::cast::Cast;
use crate::kernels::copy::{Concat, Copy};
use crate::kernels::cumulative_sum::CumulativeSum;
use crate::kernels::elementwise::Chain;
use crate::kernels::grid_sample::GridSample;
use crate::kernels::group_norm::GroupNorm;
use crate::kernels::layer_norm::{LayerNorm, LayerNormAxis};
use crate::kernels::logic::{Compare, Logical, Select, Truth};
use crate::kernels::matmul::MatMul;
use crate::kernels::max_pool2d::MaxPool;
use crate::kernels::pad::Pad;
use crate::kernels::reduce::Reduce;
use crate::kernels::resize::Resize;
use crate::kernels::roi_align::Roi;
use crate::kernels::rope::Rope;
use crate::kernels::softmax::Softmax;
use crate::kernels::{conv_transpose2d, conv2d, gather, linear, quantized_linear};
use crate::simd::Isa;

/// What a kernel is compiled from.
pub(crate) struct Site<'a> {
    /// The inputs as the plan lays them out.
    pub(crate) inputs: &'a [Operand],
    /// Type of the output.
    pub(crate) output: &'a TensorType,
    /// The inputs that are weights or constants, as stored (perhaps in half precision) and not read yet.
    pub(crate) statics: Vec<Option<Known>>,
    /// Where packed forms of weights are kept and shared.
    pub(crate) weights: DeviceWeights<'a>,
    /// The instruction set.
    pub(crate) isa: Isa,
    /// The threads that pack weights.
    pub(crate) pool: &'a Pool,
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
        Op::MatMul(op) => Ok(MatMul::new(op, site).into()),
        Op::MaxPool2d(op) => Ok(MaxPool::new(op, site).into()),
        Op::Pad(op) => Ok(Pad::new(op, &site.inputs[0].ty.shape).into()),
        Op::QuantizedLinear(op) => quantized_linear::lower(op, site),
        Op::Reduce(op) => Ok(Reduce::new(op.kind, &op.axes, &site.inputs[0].ty.shape).into()),
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
