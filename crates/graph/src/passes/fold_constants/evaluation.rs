//! Values of nodes at compile time: now, or on request.

use std::collections::HashMap;

use cutout_tensor::{LazyTensor, Tensor, TensorError, memory};

use super::viewed;
use crate::graph::{Constant, Graph, Kind, Node, NodeId};
use crate::{CompileError, DenseTensor, Op, Weights};

/// Computes nodes that depend on no input. Intermediate values are kept until it is dropped.
pub(super) struct Evaluation<'a> {
    graph: &'a Graph,
    weights: Option<&'a Weights>,
    tensors: HashMap<NodeId, Tensor>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(graph: &'a Graph, weights: Option<&'a Weights>) -> Self {
        Evaluation { graph, weights, tensors: HashMap::new() }
    }

    /// The value of a node.
    pub(super) fn tensor(&mut self, id: NodeId) -> Result<Tensor, CompileError> {
        if let Some(tensor) = self.tensors.get(&id) {
            return Ok(tensor.clone());
        }
        let tensor = match &self.graph.node(id).kind {
            Kind::Constant(constant) => constant.value.tensor().map_err(unreadable("constant"))?,
            Kind::Parameter(path) => {
                let weight = self.weights.and_then(|weights| weights.get(path));
                let weight = weight.expect("only weights that exist are folded");
                weight.tensor().map_err(unreadable(path))?
            }
            Kind::Input(_) => panic!("inputs are never folded"),
            Kind::Op(op) => self.evaluate(id, op)?,
        };
        self.tensors.insert(id, tensor.clone());
        Ok(tensor)
    }

    fn evaluate(&mut self, id: NodeId, op: &Op) -> Result<Tensor, CompileError> {
        let inputs = self.graph.node(id).inputs.clone();
        let tensors: Vec<Tensor> =
            inputs.iter().map(|&input| self.tensor(input)).collect::<Result<_, _>>()?;
        let broken = |error| CompileError::Weight { path: op.printed(), error };
        if op.is_view() {
            let dtype = self.graph.ty(id).dtype;
            // A copy: a view would keep the whole source in memory.
            let copy = viewed(op, &tensors[0]).and_then(|view| view.cast(dtype)?.detached());
            return copy.map_err(broken);
        }
        let dense: Vec<DenseTensor<f64>> = tensors
            .iter()
            .map(DenseTensor::from_tensor)
            .collect::<Result<_, _>>()
            .map_err(broken)?;
        // References allocate without checking: their result, and what they compute it from.
        let elements = 2 * self.graph.ty(id).shape.elements();
        memory::probe((elements * size_of::<f64>()) as u64)
            .map_err(|error| broken(error.into()))?;
        let dense: Vec<&DenseTensor<f64>> = dense.iter().collect();
        op.check_values(&dense)
            .map_err(|reason| CompileError::Unsupported { op: op.printed(), reason })?;
        let computed = op.reference(&dense).to_tensor(self.graph.ty(id)).map_err(broken)?;
        tensors.iter().for_each(Tensor::release);
        Ok(computed)
    }

    /// The value of a node that is computed on every request, from copies of the nodes it depends on.
    pub(super) fn on_request(&self, id: NodeId) -> LazyTensor {
        let (graph, last) = self.expression(id);
        LazyTensor::new(self.graph.ty(id).clone(), move || {
            Evaluation::new(&graph, None).tensor(last).map_err(as_tensor_error)
        })
    }

    /// A graph of the nodes that one depends on, with the weights as constants, and the node's position in it.
    fn expression(&self, id: NodeId) -> (Graph, NodeId) {
        let count = id.0 + 1;
        let mut used = vec![false; count];
        used[id.0] = true;
        for (position, node) in self.graph.nodes()[..count].iter().enumerate().rev() {
            if used[position] {
                node.inputs.iter().for_each(|input| used[input.0] = true);
            }
        }
        let mut places = vec![NodeId(0); count];
        let mut nodes = Vec::new();
        for (position, node) in self.graph.nodes()[..count].iter().enumerate() {
            if used[position] {
                places[position] = NodeId(nodes.len());
                let inputs = node.inputs.iter().map(|input| places[input.0]).collect();
                nodes.push(Node { inputs, kind: self.with_value(&node.kind), ..node.clone() });
            }
        }
        (Graph::new(nodes, Vec::new()), places[id.0])
    }

    /// A weight as the constant it is; anything else as before.
    fn with_value(&self, kind: &Kind) -> Kind {
        let weight = match kind {
            Kind::Parameter(path) => self.weights.and_then(|weights| weights.get(path)),
            Kind::Constant(_) | Kind::Op(_) | Kind::Input(_) => None,
        };
        match weight {
            Some(value) => Kind::Constant(Constant { value: value.clone(), name: None }),
            None => kind.clone(),
        }
    }
}

pub(super) fn unreadable(path: &str) -> impl FnOnce(TensorError) -> CompileError {
    move |error| CompileError::Weight { path: path.to_owned(), error }
}

fn as_tensor_error(error: CompileError) -> TensorError {
    match error {
        CompileError::Weight { error, .. } => error,
        CompileError::Verify(_)
        | CompileError::Bind(_)
        | CompileError::Memory { .. }
        | CompileError::DeviceMemory { .. }
        | CompileError::Device { .. }
        | CompileError::Unsupported { .. } => TensorError::Shape(error.to_string()),
    }
}
