//! The printed form of a graph: one line per node.

use std::fmt;

use crate::graph::{Graph, Kind, Node, NodeId};

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, node) in self.iter() {
            writeln!(f, "{}", NodeLine { id, node })?;
        }
        let outputs: Vec<String> =
            self.outputs().iter().map(|(name, id)| format!("{name} = {id}")).collect();
        writeln!(f, "return {}", outputs.join(", "))
    }
}

/// `%25 = Softmax %24 : f32[4, 2, 9, 9]`.
struct NodeLine<'a> {
    id: NodeId,
    node: &'a Node,
}

impl fmt::Display for NodeLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = ", self.id)?;
        match &self.node.kind {
            Kind::Input(name) => write!(f, "input {name:?}")?,
            Kind::Parameter(path) => write!(f, "weight {path}")?,
            Kind::Constant(constant) => match (&constant.name, self.node.ty.shape.elements()) {
                (Some(name), _) => write!(f, "constant <{name}>")?,
                (None, 1) => {
                    let value = constant.value.tensor().and_then(|tensor| tensor.to_f64_vec());
                    let value = value.map_err(|_| fmt::Error)?;
                    write!(f, "constant {}", value[0])?;
                }
                (None, _) => f.write_str("constant")?,
            },
            Kind::Op(op) => f.write_str(&op.printed())?,
        }
        for input in &self.node.inputs {
            write!(f, " {input}")?;
        }
        write!(f, " : {}", self.node.ty)
    }
}
