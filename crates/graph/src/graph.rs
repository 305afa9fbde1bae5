//! The graph itself: nodes in an order in which every input comes before its use.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use cutout_tensor::{LazyTensor, TensorType};

use crate::{Cost, Op};

/// Position of a node in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub usize);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// A value known when the graph is compiled.
#[derive(Clone, Debug)]
pub struct Constant {
    /// The value: computed, or derived from a weight when it is read. Like a weight it may be stored in any float type where
    /// the graph says `f32`.
    pub value: LazyTensor,
    /// The expression it was folded from. Equal names mean equal values in all graphs over the same weights.
    pub name: Option<Arc<str>>,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Given at each run, by name.
    Input(String),
    /// A weight, by its path in the checkpoint.
    Parameter(String),
    /// Known at compile time.
    Constant(Constant),
    /// Computed from other nodes.
    Op(Op),
}

/// Source line and weight path that a node was built at.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Line of model code.
    pub location: &'static Location<'static>,
    /// Path of the weight declared last; empty before the first.
    pub scope: Arc<str>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.location.file(), self.location.line(), self.location.column())?;
        if self.scope.is_empty() { Ok(()) } else { write!(f, ": in {}", self.scope) }
    }
}

/// One value and how it is made.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// The nodes it is computed from; empty for all kinds but `Op`.
    pub inputs: Vec<NodeId>,
    /// Type of the value.
    pub ty: TensorType,
    /// Where it comes from.
    pub origin: Origin,
}

/// A pure function from named inputs and weights to named outputs.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    outputs: Vec<(String, NodeId)>,
}

impl Graph {
    /// A graph from nodes, each after its inputs, and named outputs. See [`crate::verify`] for what must hold.
    pub fn new(nodes: Vec<Node>, outputs: Vec<(String, NodeId)>) -> Self {
        Graph { nodes, outputs }
    }

    /// All nodes, inputs before uses.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// The op of a node, if it is one.
    pub fn op(&self, id: NodeId) -> Option<&Op> {
        match &self.node(id).kind {
            Kind::Op(op) => Some(op),
            Kind::Input(_) | Kind::Parameter(_) | Kind::Constant(_) => None,
        }
    }

    /// Type of a node's value.
    pub fn ty(&self, id: NodeId) -> &TensorType {
        &self.node(id).ty
    }

    /// Types of a node's inputs.
    pub fn input_types(&self, id: NodeId) -> Vec<&TensorType> {
        self.node(id).inputs.iter().map(|&input| self.ty(input)).collect()
    }

    /// The outputs, in the order they were declared.
    pub fn outputs(&self) -> &[(String, NodeId)] {
        &self.outputs
    }

    /// Every node with its position.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, node)| (NodeId(i), node))
    }

    /// Named run-time inputs.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, NodeId)> {
        self.iter().filter_map(|(id, node)| match &node.kind {
            Kind::Input(name) => Some((name.as_str(), id)),
            Kind::Parameter(_) | Kind::Constant(_) | Kind::Op(_) => None,
        })
    }

    /// Weights by path.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, NodeId)> {
        self.iter().filter_map(|(id, node)| match &node.kind {
            Kind::Parameter(path) => Some((path.as_str(), id)),
            Kind::Input(_) | Kind::Constant(_) | Kind::Op(_) => None,
        })
    }

    /// How many nodes and outputs read each node.
    pub fn use_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.nodes.len()];
        let reads = self.nodes.iter().flat_map(|node| &node.inputs);
        for id in reads.chain(self.outputs.iter().map(|(_, id)| id)) {
            counts[id.0] += 1;
        }
        counts
    }

    /// Work of one node; nothing for inputs, weights and constants.
    pub fn cost(&self, id: NodeId) -> Cost {
        self.op(id).map_or_else(Cost::default, |op| op.cost(&self.input_types(id), self.ty(id)))
    }
}
