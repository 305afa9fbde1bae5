//! Checks that a graph is well formed. Run after building and after every pass.

use std::collections::HashSet;

use cutout_tensor::DType;

use crate::graph::{Constant, Graph, Kind, NodeId};
use crate::{Op, OpError};

/// What is wrong with a graph.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum VerifyError {
    /// A node reads a node that does not come before it.
    #[error("{node} reads {input}, which does not come before it")]
    Order {
        /// The reader.
        node: NodeId,
        /// What it reads.
        input: NodeId,
    },
    /// An op does not accept its inputs.
    #[error("{node} = {op}: {error}")]
    Op {
        /// The node.
        node: NodeId,
        /// Its op, as printed.
        op: String,
        /// The reason.
        error: OpError,
    },
    /// The stored type is not the inferred one.
    #[error("{node} is stored as {stored}, but is {inferred}")]
    Type {
        /// The node.
        node: NodeId,
        /// Type in the graph.
        stored: String,
        /// Type by inference.
        inferred: String,
    },
    /// An input, weight or constant with inputs of its own.
    #[error("{0} is not an op, but has inputs")]
    SourceWithInputs(NodeId),
    /// A name used twice.
    #[error("{what} {name:?} is declared twice")]
    Duplicate {
        /// "input", "weight" or "output".
        what: &'static str,
        /// The name.
        name: String,
    },
    /// An output that names no node.
    #[error("output {name:?} is {id}, which does not exist")]
    Output {
        /// Its name.
        name: String,
        /// The id.
        id: NodeId,
    },
}

/// Checks order, types, sources and names of a graph.
pub fn verify(graph: &Graph) -> Result<(), VerifyError> {
    for (id, node) in graph.iter() {
        if let Some(&input) = node.inputs.iter().find(|input| input.0 >= id.0) {
            return Err(VerifyError::Order { node: id, input });
        }
        match &node.kind {
            Kind::Op(op) => verify_op(graph, id, op)?,
            Kind::Constant(constant) => verify_constant(graph, id, constant)?,
            Kind::Input(_) | Kind::Parameter(_) => {}
        }
        if !matches!(node.kind, Kind::Op(_)) && !node.inputs.is_empty() {
            return Err(VerifyError::SourceWithInputs(id));
        }
    }
    expect_unique("input", graph.inputs().map(|(name, _)| name))?;
    expect_unique("weight", graph.parameters().map(|(path, _)| path))?;
    expect_unique("output", graph.outputs().iter().map(|(name, _)| name.as_str()))?;
    match graph.outputs().iter().find(|(_, id)| id.0 >= graph.nodes().len()) {
        Some((name, id)) => Err(VerifyError::Output { name: name.clone(), id: *id }),
        None => Ok(()),
    }
}

/// A constant has the type of its node, or is stored in another float type, as weights may be.
fn verify_constant(graph: &Graph, id: NodeId, constant: &Constant) -> Result<(), VerifyError> {
    let (stored, ty) = (constant.value.ty(), graph.ty(id));
    if stored.shape == ty.shape && stored.dtype.is_float() && ty.dtype == DType::F32 {
        return Ok(());
    }
    expect_type(id, graph, stored)
}

fn verify_op(graph: &Graph, id: NodeId, op: &Op) -> Result<(), VerifyError> {
    match op.infer(&graph.input_types(id)) {
        Ok(inferred) => expect_type(id, graph, &inferred),
        Err(error) => Err(VerifyError::Op { node: id, op: op.printed(), error }),
    }
}

fn expect_type(
    id: NodeId,
    graph: &Graph,
    inferred: &cutout_tensor::TensorType,
) -> Result<(), VerifyError> {
    let stored = graph.ty(id);
    if stored == inferred {
        return Ok(());
    }
    let (stored, inferred) = (stored.to_string(), inferred.to_string());
    Err(VerifyError::Type { node: id, stored, inferred })
}

fn expect_unique<'a>(
    what: &'static str,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), VerifyError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(VerifyError::Duplicate { what, name: name.to_owned() });
        }
    }
    Ok(())
}
