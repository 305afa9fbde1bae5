//! A backend that runs the reference definitions, to test the harness with.

use cutout_graph::{
    Backend, CompileError, Graph, Named, Profile, Program, RunError, Weights, interpret, verify,
};
use cutout_tensor::Tensor;

/// Runs every graph by the reference definitions, in single precision.
pub struct Interpreted;

struct InterpretedProgram {
    graph: Graph,
    weights: Weights,
}

impl Backend for Interpreted {
    fn name(&self) -> String {
        "interpreted".to_owned()
    }

    fn compile(
        &self,
        graph: &Graph,
        weights: &Weights,
        _: &Profile,
    ) -> Result<Box<dyn Program>, CompileError> {
        verify(graph)?;
        weights.check(graph)?;
        let own = graph
            .parameters()
            .filter_map(|(path, _)| Some((path.to_owned(), weights.get(path)?.clone())))
            .collect();
        Ok(Box::new(InterpretedProgram { graph: graph.clone(), weights: Weights::lazy(own) }))
    }
}

impl Program for InterpretedProgram {
    fn run(&self, inputs: &[(&str, &Tensor)]) -> Result<Vec<Named>, RunError> {
        interpret(&self.graph, &self.weights, inputs)
    }

    fn arena_bytes(&self) -> usize {
        self.graph.iter().map(|(_, node)| node.ty.bytes()).sum()
    }
}
