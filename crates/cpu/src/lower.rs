//! How each op runs on the CPU. No wildcard: a new op does not compile until it is answered here.

use cutout_graph::ops::UnaryKind;
use cutout_graph::plan::Operand;
use cutout_graph::{CompileError, Layout, Op, Weights};
use cutout_tensor::{Tensor, TensorType};

use crate::execute::Execute;
use crate::kernels::attention::StreamingAttention;
use crate::kernels::copy::{Concat, Copy};
use crate::kernels::elementwise::Chain;
use crate::kernels::grid_sample::GridSample;
use crate::kernels::linear;
use crate::kernels::matmul::MatMul;
use crate::kernels::max_pool2d::MaxPool;
use crate::kernels::quantized_linear;
use crate::kernels::reference::Reference;
use crate::kernels::resize::Resize;
use crate::kernels::roi_align::Roi;
use crate::kernels::{conv_transpose2d, conv2d};
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
    match op {
        Op::Attention(op) => Ok(StreamingAttention::new(op, site).into()),
        Op::Concat(op) => Ok(Concat {
            axis: op.axis,
            output: site.output.shape.to_vec(),
            element_bytes: site.output.dtype.size(),
        }
        .into()),
        // A view op that is scheduled has inputs no stride can describe: its result is a copy.
        Op::Reshape(_) => Ok(copy_kernel(&site.inputs[0])),
        Op::Permute(_) | Op::Slice(_) | Op::Broadcast(_) => {
            panic!("the plan turns every permute, slice and broadcast into a view")
        }
        Op::Unary(op) if op.kind != UnaryKind::Not => {
            Ok(Chain::unary(op.kind, &site.inputs[0].layout, &site.output.shape).into())
        }
        Op::Binary(op) if !op.kind.is_logical() => {
            Ok(Chain::binary(op.kind, &layouts(site), &site.output.shape).into())
        }
        Op::Elementwise(op) => Ok(Chain::new(&op.steps, &layouts(site), &site.output.shape).into()),
        Op::Linear(op) => linear::lower(op, site),
        Op::MatMul(op) => Ok(MatMul::new(op, site).into()),
        Op::QuantizedLinear(op) => quantized_linear::lower(op, site),
        Op::Conv2d(op) => conv2d::lower(op, site),
        Op::ConvTranspose2d(op) => conv_transpose2d::lower(op, site),
        Op::GridSample(_) => Ok(GridSample::new(site).into()),
        Op::MaxPool2d(op) => Ok(MaxPool::new(op, site).into()),
        Op::Resize(op) => Ok(Resize::new(op, site).into()),
        Op::RoiAlign(op) => Ok(Roi::new(op, site).into()),
        Op::ArgMax(_)
        | Op::Binary(_)
        | Op::Cast(_)
        | Op::Compare(_)
        | Op::CumulativeSum(_)
        | Op::Gather(_)
        | Op::GroupNorm(_)
        | Op::LayerNorm(_)
        | Op::Pad(_)
        | Op::Reduce(_)
        | Op::Rope(_)
        | Op::Select(_)
        | Op::Softmax(_)
        | Op::Unary(_) => reference(),
    }
}

fn layouts<'a>(site: &Site<'a>) -> Vec<&'a Layout> {
    site.inputs.iter().map(|operand| &operand.layout).collect()
}

/// The kernel that copies a strided value into contiguous memory.
pub(crate) fn copy_kernel(operand: &Operand) -> Lowered {
    Copy { element_bytes: operand.ty.dtype.size() }.into()
}
