//! The harness passes a right backend and reports everything about a wrong one.

use cutout_graph::plan::Rules;
use cutout_graph::{
    Backend, CompileError, DeviceValue, Graph, Kind, Node, NodeId, Op, Planned, Port, Profile,
    Program, RunError, StepTime, Transfers,
};
use cutout_tensor::Tensor;
use cutout_testing::{Interpreted, check_backend};

#[test]
fn the_references_themselves_pass() {
    let checks = check_backend("interpreted", &Interpreted::default(), &Profile::default());
    assert!(checks.unwrap() > Op::all_cases().len());
}

/// Gives zeros, and panics for one op.
#[derive(Default)]
struct Zeros(Interpreted);

struct ZerosProgram {
    inner: Box<dyn Program>,
    graph: Graph,
}

impl Backend for Zeros {
    fn name(&self) -> String {
        "zeros".to_owned()
    }

    fn device(&self) -> &str {
        self.0.device()
    }

    fn rules<'a>(&'a self, profile: &'a Profile) -> Box<dyn Rules + 'a> {
        self.0.rules(profile)
    }

    fn batch_limit(&self) -> usize {
        2
    }

    fn values_are_on_host(&self) -> bool {
        true
    }

    fn lower(&self, planned: &Planned<'_>) -> Result<Box<dyn Program>, CompileError> {
        let (inner, graph) = (self.0.lower(planned)?, planned.graph.clone());
        Ok(Box::new(ZerosProgram { inner, graph }))
    }

    fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, RunError> {
        self.0.upload(tensor)
    }

    fn transfers(&self) -> &Transfers {
        self.0.transfers()
    }
}

impl Program for ZerosProgram {
    fn inputs(&self) -> &[Port] {
        self.inner.inputs()
    }

    fn outputs(&self) -> Vec<&str> {
        self.inner.outputs()
    }

    fn run(&self, _: &[&DeviceValue]) -> Result<Vec<DeviceValue>, RunError> {
        let resizes = |(_, node): (_, &Node)| matches!(node.kind, Kind::Op(Op::Resize(_)));
        assert!(!self.graph.iter().any(resizes), "cannot resize");
        let zeros = |(_, id): &(String, NodeId)| self.upload(&Tensor::zeros(self.graph.ty(*id))?);
        self.graph.outputs().iter().map(zeros).collect()
    }

    fn run_timed(
        &self,
        inputs: &[&DeviceValue],
    ) -> Result<(Vec<DeviceValue>, Vec<StepTime>), RunError> {
        Ok((self.run(inputs)?, Vec::new()))
    }

    fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, RunError> {
        self.inner.upload(tensor)
    }

    fn activation_bytes(&self) -> usize {
        0
    }

    fn held_bytes(&self) -> usize {
        0
    }
}

#[test]
fn a_wrong_backend_is_reported_case_by_case() {
    let report = check_backend("zeros", &Zeros::default(), &Profile::default()).unwrap_err();
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
