//! The harness passes a right backend and reports everything about a wrong one.

use cutout_graph::{Backend, CompileError, Graph, Named, Op, Profile, Program, RunError, Weights};
use cutout_tensor::Tensor;
use cutout_testing::{Interpreted, check_backend};

#[test]
fn the_references_themselves_pass() {
    let checks = check_backend("interpreted", &Interpreted::default(), &Profile::default());
    assert!(checks.unwrap() > Op::all_cases().len());
}

/// Gives zeros, and panics for one op.
struct Zeros;

struct ZerosProgram(Graph);

impl Backend for Zeros {
    fn name(&self) -> String {
        "zeros".to_owned()
    }

    fn compile(
        &self,
        graph: &Graph,
        _: &Weights,
        _: &Profile,
    ) -> Result<Box<dyn Program>, CompileError> {
        Ok(Box::new(ZerosProgram(graph.clone())))
    }
}

impl Program for ZerosProgram {
    fn run(&self, _: &[(&str, &Tensor)]) -> Result<Vec<Named>, RunError> {
        let (name, id) = &self.0.outputs()[0];
        assert!(self.0.op(*id).is_none_or(|op| op.name() != "resize"), "cannot resize");
        Ok(vec![(name.clone(), Tensor::zeros(self.0.ty(*id))?)])
    }

    fn arena_bytes(&self) -> usize {
        0
    }
}

#[test]
fn a_wrong_backend_is_reported_case_by_case() {
    let report = check_backend("zeros", &Zeros, &Profile::default()).unwrap_err();
    let text = report.to_string();
    assert!(text.starts_with("zeros: "), "{text}");
    for line in [
        "\n  linear/tokens (Inputs): outside tolerance, worst at element ",
        "\n  linear/tokens (Parameters): outside tolerance, worst at element ",
        "\n  resize/bilinear_up (Inputs): panicked: cannot resize",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("linear/no_rows"), "nothing is right by zeros:\n{text}");
}
