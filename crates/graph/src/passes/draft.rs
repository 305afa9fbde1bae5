//! The graph that a pass is writing, and the mapping from old nodes to new ones.

use std::collections::HashMap;

use cutout_tensor::TensorType;

use crate::Op;
use crate::graph::{Constant, Graph, Kind, Node, NodeId, Origin};

/// A graph being rewritten: old nodes are kept, replaced or left out.
pub(crate) struct Draft<'a> {
    old: &'a Graph,
    nodes: Vec<Node>,
    /// New id of each old node that was kept or replaced.
    map: Vec<Option<NodeId>>,
    /// How often each old node is read.
    uses: Vec<usize>,
    /// Old node that each new one stands for; absent for nodes that a pass added.
    stands_for: HashMap<NodeId, NodeId>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(old: &'a Graph) -> Self {
        let count = old.nodes().len();
        let uses = old.use_counts();
        Draft {
            old,
            nodes: Vec::with_capacity(count),
            map: vec![None; count],
            uses,
            stands_for: HashMap::new(),
        }
    }

    /// The graph being read.
    pub(crate) fn old(&self) -> &'a Graph {
        self.old
    }

    /// The new node that stands for an old one.
    pub(crate) fn new_id(&self, old: NodeId) -> NodeId {
        self.map[old.0].expect("inputs are rewritten before their uses")
    }

    /// The new nodes that stand for an old node's inputs.
    pub(crate) fn new_inputs(&self, old: NodeId) -> Vec<NodeId> {
        self.old.node(old).inputs.iter().map(|&input| self.new_id(input)).collect()
    }

    /// A new node.
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// The op of a new node, if it is one.
    pub(crate) fn op(&self, id: NodeId) -> Option<&Op> {
        match &self.nodes[id.0].kind {
            Kind::Op(op) => Some(op),
            Kind::Input(_) | Kind::Parameter(_) | Kind::Constant(_) => None,
        }
    }

    /// The value of a new node that is a constant with a single `f32` element.
    pub(crate) fn number(&self, id: NodeId) -> Option<f32> {
        let node = &self.nodes[id.0];
        match &node.kind {
            Kind::Constant(constant) if node.ty.shape.elements() == 1 => {
                constant.value.tensor().ok()?.to_vec::<f32>().ok()?.first().copied()
            }
            Kind::Constant(_) | Kind::Input(_) | Kind::Parameter(_) | Kind::Op(_) => None,
        }
    }

    /// Whether the old node of a new one is read exactly once, so that fusing it computes nothing twice.
    pub(crate) fn read_once(&self, new: NodeId) -> bool {
        self.stands_for.get(&new).is_some_and(|old| self.uses[old.0] == 1)
    }

    /// Adds an op; `None` if the op does not accept these inputs, which means that the rewrite does not apply.
    pub(crate) fn add(
        &mut self,
        op: impl Into<Op>,
        inputs: &[NodeId],
        origin: &Origin,
    ) -> Option<NodeId> {
        let op = op.into();
        let types: Vec<_> = inputs.iter().map(|&input| &self.nodes[input.0].ty).collect();
        let ty = op.infer(&types).ok()?;
        Some(self.push(Node {
            kind: Kind::Op(op),
            inputs: inputs.to_vec(),
            ty,
            origin: origin.clone(),
        }))
    }

    /// Adds a constant.
    pub(crate) fn add_constant(&mut self, constant: Constant, origin: &Origin) -> NodeId {
        let ty = constant.value.ty().clone();
        self.add_constant_as(ty, constant, origin)
    }

    /// Adds a constant that is stored in another float type than the graph calls it, as weights may be.
    pub(crate) fn add_constant_as(
        &mut self,
        ty: TensorType,
        constant: Constant,
        origin: &Origin,
    ) -> NodeId {
        let origin = origin.clone();
        self.push(Node { kind: Kind::Constant(constant), inputs: Vec::new(), ty, origin })
    }

    /// Lets `new` stand for `old`.
    pub(crate) fn replace(&mut self, old: NodeId, new: NodeId) {
        self.map[old.0] = Some(new);
        self.stands_for.insert(new, old);
    }

    /// Copies an old node with its rewritten inputs.
    pub(crate) fn keep(&mut self, old: NodeId) -> NodeId {
        let inputs = self.new_inputs(old);
        let node = Node { inputs, ..self.old.node(old).clone() };
        let new = self.push(node);
        self.replace(old, new);
        new
    }

    /// The new graph. Every output of the old graph must have been rewritten.
    pub(crate) fn finish(self) -> Graph {
        let outputs = self.old.outputs().iter();
        let outputs = outputs.map(|(name, id)| (name.clone(), self.new_id(*id))).collect();
        Graph::new(self.nodes, outputs)
    }

    fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }
}

/// Rewrites a graph node by node: `rule` returns the new node that stands for an old one, or `None` to keep it.
/// What becomes unused is dropped.
pub(crate) fn rewrite(
    graph: &Graph,
    mut rule: impl FnMut(&mut Draft<'_>, NodeId) -> Option<NodeId>,
) -> Graph {
    let mut draft = Draft::new(graph);
    for (id, _) in graph.iter() {
        match rule(&mut draft, id) {
            Some(new) => draft.replace(id, new),
            None => {
                draft.keep(id);
            }
        }
    }
    super::remove_dead_code(&draft.finish())
}
