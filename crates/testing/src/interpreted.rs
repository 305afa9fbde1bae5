//! A backend that runs the reference definitions. Tests of models run on it too: its values are not host tensors, so code
//! that reads one without fetching it fails.

use std::sync::Arc;
use std::time::Duration;

use cutout_graph::plan::{PlainRules, Rules};
use cutout_graph::{
    Backend, CompileError, DeviceStorage, DeviceValue, Graph, Planned, Port, Profile, Program,
    RunError, StepTime, Transfers, Weights, interpret,
};
use cutout_tensor::Tensor;

/// Runs every graph by the reference definitions, in single precision.
#[derive(Default)]
pub struct Interpreted {
    transfers: Arc<Transfers>,
    /// What [`Backend::values_are_on_host`] answers.
    on_host: bool,
}

impl Interpreted {
    /// An interpreter that claims that its values are on the host, so that callers do there what they can.
    pub fn on_host() -> Self {
        Interpreted { on_host: true, ..Interpreted::default() }
    }
}

/// A value of the interpreter.
struct Kept(Tensor);

impl DeviceStorage for Kept {
    fn fetch(&self) -> Result<Tensor, RunError> {
        Ok(self.0.clone())
    }
}

struct InterpretedProgram {
    graph: Graph,
    inputs: Vec<Port>,
    weights: Weights,
    transfers: Arc<Transfers>,
}

impl Backend for Interpreted {
    fn name(&self) -> String {
        "interpreted".to_owned()
    }

    fn device(&self) -> &str {
        "interpreter"
    }

    fn rules<'a>(&'a self, _: &'a Profile) -> Box<dyn Rules + 'a> {
        Box::new(PlainRules)
    }

    fn batch_limit(&self) -> usize {
        2
    }

    fn values_are_on_host(&self) -> bool {
        self.on_host
    }

    fn lower(&self, planned: &Planned<'_>) -> Result<Box<dyn Program>, CompileError> {
        let graph = planned.graph.clone();
        let mut weights = std::collections::HashMap::new();
        for (path, id) in graph.parameters() {
            let known = planned.weights.known(&graph.node(id).kind).expect("weights were checked");
            let tensor = known.tensor();
            let tensor =
                tensor.map_err(|error| CompileError::Weight { path: path.to_owned(), error })?;
            weights.insert(path.to_owned(), tensor);
        }
        Ok(Box::new(InterpretedProgram {
            inputs: Port::inputs(&graph),
            graph,
            weights: Weights::new(weights),
            transfers: Arc::clone(&self.transfers),
        }))
    }

    fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, RunError> {
        self.transfers.count_upload(tensor.ty().bytes());
        Ok(value(tensor.clone(), &self.transfers))
    }

    fn transfers(&self) -> &Transfers {
        &self.transfers
    }
}

fn value(tensor: Tensor, transfers: &Arc<Transfers>) -> DeviceValue {
    DeviceValue::new(tensor.ty().clone(), Arc::new(Kept(tensor)), Arc::clone(transfers))
}

impl Program for InterpretedProgram {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> Vec<&str> {
        self.graph.outputs().iter().map(|(name, _)| name.as_str()).collect()
    }

    fn run(&self, inputs: &[&DeviceValue]) -> Result<Vec<DeviceValue>, RunError> {
        let tensors = inputs.iter().map(|value| match value.storage::<Kept>() {
            Some(Kept(tensor)) => Ok(tensor.clone()),
            None => value.fetch(),
        });
        let tensors = tensors.collect::<Result<Vec<Tensor>, _>>()?;
        let named: Vec<(&str, &Tensor)> =
            self.inputs.iter().map(|port| port.name.as_str()).zip(&tensors).collect();
        let outputs = interpret(&self.graph, &self.weights, &named)?;
        Ok(outputs.into_iter().map(|(_, tensor)| value(tensor, &self.transfers)).collect())
    }

    fn run_timed(
        &self,
        inputs: &[&DeviceValue],
    ) -> Result<(Vec<DeviceValue>, Vec<StepTime>), RunError> {
        let steps = self.graph.iter().filter_map(|(node, _)| {
            Some(StepTime { op: self.graph.op(node)?.name(), node, time: Duration::ZERO })
        });
        Ok((self.run(inputs)?, steps.collect()))
    }

    fn upload(&self, tensor: &Tensor) -> Result<DeviceValue, RunError> {
        self.transfers.count_upload(tensor.ty().bytes());
        Ok(value(tensor.clone(), &self.transfers))
    }

    fn activation_bytes(&self) -> usize {
        self.graph.iter().map(|(_, node)| node.ty.bytes()).sum()
    }

    fn held_bytes(&self) -> usize {
        0
    }
}
