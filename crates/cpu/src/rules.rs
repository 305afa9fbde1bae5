//! What the CPU's kernels can do, as far as memory is concerned.

use cutout_graph::plan::Rules;
use cutout_graph::{Graph, Layout, NodeId, Op};
use cutout_tensor::DType;

/// The CPU's answers for the memory plan.
pub(crate) struct CpuRules;

impl Rules for CpuRules {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kernels want contiguous inputs")]
    fn reads_strided(&self, graph: &Graph, node: NodeId, index: usize, layout: &Layout) -> bool {
        let Some(op) = graph.op(node) else { return false };
        match op {
            // Rows with one stride between them.
            Op::Linear(_) | Op::QuantizedLinear(_) => index == 0 && layout.as_rows().is_some(),
            // Rows anywhere.
            Op::LayerNorm(op) => {
                index == 0 && op.axis + 1 == layout.shape.rank() && is_dense(layout)
            }
            Op::Rope(_) | Op::Softmax(_) => index == 0 && is_dense(layout),
            // Queries, keys, values and biases: any strides as long as channels are dense.
            Op::Attention(op) => {
                let biases = if op.bias.is_some() { 3 + usize::from(op.key_mask) } else { 3 };
                let is_bias = op.bias.is_some() && (biases..biases + 2).contains(&index);
                (index < 3 || is_bias) && is_dense(layout)
            }
            Op::Conv2d(_) => index == 0 && is_dense(layout),
            // Only the left side is read along its rows.
            Op::MatMul(_) => index == 1 || (index == 0 && is_dense(layout)),
            Op::Concat(_) => true,
            Op::Compare(_) | Op::Select(_) => is_walkable(layout),
            // Of the others only the elementwise kernels follow strides.
            other => other.steps().is_some() && is_walkable(layout),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the other kernels never overwrite an input"
    )]
    fn overwrites(&self, graph: &Graph, node: NodeId, index: usize) -> bool {
        let Some(op) = graph.op(node) else { return false };
        match op {
            // The residual, which is the last input.
            Op::Linear(_) | Op::QuantizedLinear(_) | Op::MatMul(_) => {
                op.epilogue().is_some_and(|epilogue| epilogue.residual)
                    && index + 1 == graph.node(node).inputs.len()
            }
            Op::Rope(_) | Op::Softmax(_) => index == 0,
            Op::LayerNorm(norm) => index == 0 && norm.axis + 1 == graph.ty(node).rank(),
            // Of the others only the elementwise kernels write over what they read.
            other => {
                let ty = graph.ty(node);
                let same_type = ty.dtype == DType::F32 && graph.input_types(node)[index] == ty;
                same_type && other.steps().is_some()
            }
        }
    }
}

/// Whether neighbours along the last axis are neighbours in memory.
fn is_dense(layout: &Layout) -> bool {
    layout.shape.last_axis() == 1 || layout.strides.last() == Some(&1)
}

/// Whether the innermost axis that has a length is dense, or repeats one element.
fn is_walkable(layout: &Layout) -> bool {
    let mut axes = layout.shape.iter().zip(&layout.strides).rev();
    axes.find(|(length, _)| **length != 1).is_none_or(|(_, stride)| *stride <= 1)
}
