//! What precision bf16 means, as a graph: the inputs of products are rounded, everything else is exact.

use cutout_graph::ops::{Attention, Cast, Conv2d};
use cutout_graph::{Graph, Kind, Node, NodeId, Op};
use cutout_tensor::{DType, TensorType};

/// The graph with the inputs of its products rounded to bf16: rows and weights of linear layers and convolutions (except depthwise
/// ones), queries, keys and values of attention. Queries and keys that attention rotates are rounded after that, inside the op, and
/// are left as they are here.
pub fn with_rounded_products(graph: &Graph) -> Graph {
    let mut rounding = Rounding { nodes: Vec::new(), places: Vec::new() };
    for (id, node) in graph.iter() {
        let mut inputs: Vec<NodeId> =
            node.inputs.iter().map(|input| rounding.places[input.0]).collect();
        if let Kind::Op(op) = &node.kind {
            for index in rounded_inputs(op, &graph.input_types(id)) {
                inputs[index] = rounding.round(inputs[index]);
            }
        }
        rounding.places.push(NodeId(rounding.nodes.len()));
        rounding.nodes.push(Node { inputs, ..node.clone() });
    }
    let outputs = graph.outputs().iter();
    let outputs = outputs.map(|(name, id)| (name.clone(), rounding.places[id.0])).collect();
    Graph::new(rounding.nodes, outputs)
}

/// Whether an op's products lose more than the rounding of its inputs: attention rounds its weights too.
pub(crate) fn rounds_inside(op: &Op) -> bool {
    matches!(op, Op::Attention(_))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other ops compute in f32")]
fn rounded_inputs(op: &Op, types: &[&TensorType]) -> Vec<usize> {
    match op {
        Op::Linear(_) | Op::ConvTranspose2d(_) => vec![0, 1],
        Op::Conv2d(op) if !is_depthwise(op, types) => vec![0, 1],
        Op::Attention(op) => attention_inputs(op, types.len()),
        _ => Vec::new(),
    }
}

fn is_depthwise(op: &Conv2d, types: &[&TensorType]) -> bool {
    let (inputs, outputs) = (types[0].shape.last_axis(), types[1].shape[0]);
    op.groups > 1 && op.groups == inputs && op.groups == outputs
}

fn attention_inputs(op: &Attention, count: usize) -> Vec<usize> {
    let numbers: Vec<usize> = (0..count).collect();
    let Ok(names) = op.name_inputs(&numbers) else { return Vec::new() };
    let padding = names.padding.into_iter().flatten();
    match op.rope {
        Some(_) => vec![names.value],
        None => [names.query, names.key, names.value].into_iter().chain(padding).collect(),
    }
}

/// The nodes so far, and the place of each old node among them.
struct Rounding {
    nodes: Vec<Node>,
    places: Vec<NodeId>,
}

impl Rounding {
    fn round(&mut self, id: NodeId) -> NodeId {
        let narrow = self.cast(id, DType::BF16);
        self.cast(narrow, DType::F32)
    }

    fn cast(&mut self, id: NodeId, dtype: DType) -> NodeId {
        let node = &self.nodes[id.0];
        let ty = TensorType::new(dtype, node.ty.shape.clone());
        let (kind, origin) = (Kind::Op(Op::Cast(Cast { dtype })), node.origin.clone());
        self.nodes.push(Node { kind, inputs: vec![id], ty, origin });
        NodeId(self.nodes.len() - 1)
    }
}
