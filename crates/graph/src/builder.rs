//! The graph builder that model code calls.

use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;

use cutout_tensor::{DType, Shape, Tensor, TensorError, TensorType};

use crate::graph::{Constant, Graph, Kind, Node, NodeId, Origin};
use crate::{Op, Scope, Value};

/// The first error of model code, with the source line and weight path it occurred at.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{origin}: {message}")]
pub struct BuildError {
    /// `file:line:column: in weight.path`.
    pub origin: String,
    /// What was wrong.
    pub message: String,
}

impl BuildError {
    /// The weight path and what was wrong, without the source line: for people who run a model.
    pub fn without_location(&self) -> String {
        match self.origin.split_once(": in ") {
            Some((_, path)) => format!("{path}: {}", self.message),
            None => self.message.clone(),
        }
    }
}

#[derive(Default)]
struct State {
    nodes: Vec<Node>,
    outputs: Vec<(String, NodeId)>,
    /// Named intermediate values; outputs of [`Builder::finish_with_stages`] only.
    stages: Vec<(String, NodeId)>,
    error: Option<BuildError>,
    scope: Arc<str>,
}

/// Collects nodes. Model code has no `?`: the first error is kept, later calls do nothing, [`Builder::finish`]
/// returns it.
#[derive(Default)]
pub struct Builder {
    state: RefCell<State>,
}

impl Builder {
    /// An empty builder.
    pub fn new() -> Self {
        Builder::default()
    }

    /// The root scope of the checkpoint's weights.
    pub fn weights(&self) -> Scope<'_> {
        Scope::root(self)
    }

    /// Declares a run-time input.
    #[track_caller]
    pub fn input(&self, name: &str, dtype: DType, shape: impl Into<Shape>) -> Value<'_> {
        let known = self.state.borrow().nodes.iter().any(|node| match &node.kind {
            Kind::Input(other) => other == name,
            Kind::Parameter(_) | Kind::Constant(_) | Kind::Op(_) => false,
        });
        if known {
            return self.fail(format!("input {name:?} is declared twice"));
        }
        self.push(Kind::Input(name.to_owned()), Vec::new(), TensorType::new(dtype, shape))
    }

    /// A value known at compile time.
    #[track_caller]
    pub fn constant(&self, tensor: Tensor) -> Value<'_> {
        let ty = tensor.ty().clone();
        self.push(Kind::Constant(Constant { value: tensor.into(), name: None }), Vec::new(), ty)
    }

    /// A constant that model code computes on the host; its error becomes the builder's.
    #[track_caller]
    pub fn computed(&self, tensor: Result<Tensor, TensorError>) -> Value<'_> {
        match tensor {
            Ok(tensor) => self.constant(tensor),
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// An `f32` number.
    #[track_caller]
    pub fn scalar(&self, value: f32) -> Value<'_> {
        self.constant(Tensor::scalar(value))
    }

    /// Names a result of the graph.
    #[track_caller]
    pub fn output(&self, name: &str, value: Value<'_>) {
        if self.failed() {
            return;
        }
        if self.state.borrow().outputs.iter().any(|(other, _)| other == name) {
            self.fail(format!("output {name:?} is declared twice"));
            return;
        }
        self.state.borrow_mut().outputs.push((name.to_owned(), value.id()));
    }

    /// Names an intermediate value, for comparison with another implementation. The graph of [`Builder::finish`] does
    /// not contain the name; see [`Builder::finish_with_stages`].
    pub(crate) fn stage(&self, name: &str, value: Value<'_>) {
        if !self.failed() {
            self.state.borrow_mut().stages.push((name.to_owned(), value.id()));
        }
    }

    /// The graph with every named stage among its outputs, in the order they were named, before the results.
    pub fn finish_with_stages(self) -> Result<Graph, BuildError> {
        let mut state = self.state.into_inner();
        if let Some(error) = state.error {
            return Err(error);
        }
        state.stages.append(&mut state.outputs);
        Ok(Graph::new(state.nodes, state.stages))
    }

    /// The graph, or the first error of the model code.
    pub fn finish(self) -> Result<Graph, BuildError> {
        let state = self.state.into_inner();
        match state.error {
            Some(error) => Err(error),
            None => Ok(Graph::new(state.nodes, state.outputs)),
        }
    }

    /// Adds an op, inferring its type.
    #[track_caller]
    pub(crate) fn op(&self, op: impl Into<Op>, inputs: &[Value<'_>]) -> Value<'_> {
        if self.failed() {
            return self.poison();
        }
        let op = op.into();
        let inferred = {
            let state = self.state.borrow();
            let types: Vec<&TensorType> =
                inputs.iter().map(|value| &state.nodes[value.id().0].ty).collect();
            op.infer(&types)
        };
        match inferred {
            Ok(ty) => self.push(Kind::Op(op), inputs.iter().map(|value| value.id()).collect(), ty),
            Err(error) => self.fail(format!("{} {error}", op.name())),
        }
    }

    /// Declares a weight. Declaring the same path and shape again returns the same node.
    #[track_caller]
    pub(crate) fn parameter(&self, path: &str, shape: Shape) -> Value<'_> {
        self.state.borrow_mut().scope = path.rsplit_once('.').map_or("", |(scope, _)| scope).into();
        let ty = TensorType::f32(shape);
        let known = self.state.borrow().nodes.iter().position(|node| match &node.kind {
            Kind::Parameter(other) => other == path,
            Kind::Input(_) | Kind::Constant(_) | Kind::Op(_) => false,
        });
        let Some(known) = known else {
            return self.push(Kind::Parameter(path.to_owned()), Vec::new(), ty);
        };
        let found = self.state.borrow().nodes[known].ty.clone();
        if found == ty {
            return Value::new(self, NodeId(known));
        }
        self.fail(format!("weight {path} is declared as {ty} and as {found}"))
    }

    /// Keeps the first error.
    #[track_caller]
    pub(crate) fn fail(&self, message: String) -> Value<'_> {
        if !self.failed() {
            let origin = self.origin().to_string();
            self.state.borrow_mut().error = Some(BuildError { origin, message });
        }
        self.poison()
    }

    pub(crate) fn failed(&self) -> bool {
        self.state.borrow().error.is_some()
    }

    /// Type of a value. After an error, a scalar: types have no meaning then.
    pub(crate) fn ty(&self, id: NodeId) -> TensorType {
        let state = self.state.borrow();
        state.nodes.get(id.0).map_or_else(|| TensorType::f32([]), |node| node.ty.clone())
    }

    #[track_caller]
    fn push(&self, kind: Kind, inputs: Vec<NodeId>, ty: TensorType) -> Value<'_> {
        if self.failed() {
            return self.poison();
        }
        let origin = self.origin();
        let mut state = self.state.borrow_mut();
        state.nodes.push(Node { kind, inputs, ty, origin });
        Value::new(self, NodeId(state.nodes.len() - 1))
    }

    #[track_caller]
    fn origin(&self) -> Origin {
        Origin { location: Location::caller(), scope: self.state.borrow().scope.clone() }
    }

    fn poison(&self) -> Value<'_> {
        Value::new(self, NodeId(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_names_line_and_weight() {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [2, 6]);
        let y =
            x.linear(builder.weights().at("blocks").at(3).at("qkv").parameter("weight", [9, 6]));
        let wrong = y.reshape([2, 4, 2]);
        let later = wrong + wrong.reshape([1]); // not reported: the first error is kept
        builder.output("y", later);
        let error = builder.finish().unwrap_err();
        assert!(error.origin.contains("builder.rs:"), "{error}");
        assert!(error.origin.ends_with(": in blocks.3.qkv"), "{error}");
        assert!(error.without_location().starts_with("blocks.3.qkv: "), "{error}");
        assert_eq!(error.message, "reshape f32[2, 9] has 18 elements, f32[2, 4, 2] has 16");
    }

    #[test]
    fn a_weight_has_one_node_and_one_shape() {
        let builder = Builder::new();
        let scope = builder.weights();
        assert_eq!(scope.parameter("w", [2]).id(), scope.parameter("w", [2]).id());
        scope.parameter("w", [3]);
        let message = builder.finish().unwrap_err().message;
        assert_eq!(message, "weight w is declared as f32[3] and as f32[2]");
    }

    #[test]
    fn names_are_unique() {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [1]);
        builder.output("y", x);
        builder.output("y", x);
        assert!(builder.finish().unwrap_err().message.contains("declared twice"));
        let builder = Builder::new();
        builder.input("x", DType::F32, [1]);
        builder.input("x", DType::F32, [1]);
        assert!(builder.finish().unwrap_err().message.contains("declared twice"));
    }
}
