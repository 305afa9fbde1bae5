//! What the kernels can do, as far as memory is concerned, and in which element type values are stored.

use std::sync::OnceLock;

use cutout_graph::plan::Rules;
use cutout_graph::{Graph, Layout, NodeId, Op, Precision, Profile};
use cutout_tensor::DType;

/// The answers for the memory plan of one program.
pub struct CudaRules<'a> {
    profile: &'a Profile,
    /// For each node of the graph the nodes that read it, and as which input.
    readers: OnceLock<Vec<Vec<(NodeId, usize)>>>,
}

impl<'a> CudaRules<'a> {
    /// Rules for graphs compiled with `profile`.
    pub fn new(profile: &'a Profile) -> Self {
        CudaRules { profile, readers: OnceLock::new() }
    }

    fn readers<'r>(&'r self, graph: &Graph, node: NodeId) -> &'r [(NodeId, usize)] {
        let readers = self.readers.get_or_init(|| {
            let mut readers = vec![Vec::new(); graph.nodes().len()];
            for (id, node) in graph.iter() {
                for (index, input) in node.inputs.iter().enumerate() {
                    readers[input.0].push((id, index));
                }
            }
            readers
        });
        readers.get(node.0).map_or(&[], Vec::as_slice)
    }

    /// Whether every reader takes the value in half precision `dtype`, through views too.
    fn all_read_half(&self, graph: &Graph, node: NodeId, dtype: DType) -> bool {
        let readers = self.readers(graph, node);
        !readers.is_empty()
            && readers.iter().all(|&(id, index)| self.reads_half(graph, id, index, dtype))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other ops compute in f32")]
    fn reads_half(&self, graph: &Graph, id: NodeId, index: usize, dtype: DType) -> bool {
        let Some(op) = graph.op(id) else { return false };
        let multiplies = half_of(graph, id, self.profile) == Some(dtype);
        match op {
            Op::Linear(_) | Op::QuantizedLinear(_) | Op::Conv2d(_) | Op::ConvTranspose2d(_) => {
                index == 0 && multiplies
            }
            Op::Attention(_) => index < 3 && multiplies,
            op if op.is_view() => self.all_read_half(graph, id, dtype),
            Op::Rope(_) | Op::MaxPool2d(_) => index == 0 && self.all_read_half(graph, id, dtype),
            Op::Concat(_) => self.all_read_half(graph, id, dtype),
            _ => false,
        }
    }
}

/// The half precision type that the products of a node use; `None` for single precision. With bytes, what is no linear layer uses halves.
pub(crate) fn half_of(graph: &Graph, node: NodeId, profile: &Profile) -> Option<DType> {
    match profile.precision_of(&graph.node(node).origin.scope) {
        Precision::F16 | Precision::Int8 => Some(DType::F16),
        Precision::Bf16 => Some(DType::BF16),
        Precision::Auto | Precision::F32 => None,
    }
}

impl Rules for CudaRules<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kernels want contiguous inputs")]
    fn reads_strided(&self, graph: &Graph, node: NodeId, index: usize, layout: &Layout) -> bool {
        let Some(op) = graph.op(node) else { return false };
        match op {
            Op::Linear(_) | Op::QuantizedLinear(_) => index == 0 && layout.as_rows().is_some(),
            Op::LayerNorm(op) => {
                index == 0 && op.axis + 1 == layout.shape.rank() && is_dense(layout)
            }
            Op::Rope(_) | Op::Softmax(_) => index == 0 && is_dense(layout),
            Op::Attention(op) => {
                let biases = if op.bias.is_some() { 3 + usize::from(op.key_mask) } else { 3 };
                let is_bias = op.bias.is_some() && (biases..biases + 2).contains(&index);
                (index < 3 || is_bias) && is_dense(layout)
            }
            Op::MatMul(_) => index < 2,
            Op::Concat(_) | Op::Compare(_) | Op::Select(_) => true,
            other => other.steps().is_some(),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the other kernels never overwrite an input"
    )]
    fn overwrites(&self, graph: &Graph, node: NodeId, index: usize) -> bool {
        let Some(op) = graph.op(node) else { return false };
        match op {
            // The residual, which is the last input: each element is read by the thread that writes it.
            Op::Linear(_) | Op::QuantizedLinear(_) | Op::MatMul(_) => {
                op.epilogue().is_some_and(|epilogue| epilogue.residual)
                    && index + 1 == graph.node(node).inputs.len()
            }
            Op::Rope(_) | Op::Softmax(_) => index == 0,
            Op::LayerNorm(norm) => index == 0 && norm.axis + 1 == graph.ty(node).rank(),
            other => {
                let ty = graph.ty(node);
                let same_type = ty.dtype == DType::F32 && graph.input_types(node)[index] == ty;
                same_type && other.steps().is_some()
            }
        }
    }

    fn stored(&self, graph: &Graph, node: NodeId) -> DType {
        let own = graph.ty(node).dtype;
        // A choice copies elements as they are stored.
        let copies = graph.op(node).is_some_and(|op| matches!(op, Op::Select(_)));
        // The kernels add a residual in f32 and leave the sum in it; who multiplies with it converts it.
        let adds = matches!(graph.op(node), Some(Op::Linear(_) | Op::QuantizedLinear(_)))
            && graph.op(node).and_then(Op::epilogue).is_some_and(|epilogue| epilogue.residual);
        if own != DType::F32 || copies || adds {
            return own;
        }
        let halves = [DType::F16, DType::BF16];
        let all = halves.into_iter().find(|&half| self.all_read_half(graph, node, half));
        all.unwrap_or(own)
    }
}

/// Whether neighbours along the last axis are neighbours in memory.
fn is_dense(layout: &Layout) -> bool {
    layout.shape.last_axis() == 1 || layout.strides.last() == Some(&1)
}
