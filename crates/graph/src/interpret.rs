//! Runs a graph by each op's plain-loop definition.

use cutout_tensor::Tensor;

use crate::graph::{Graph, Kind, NodeId};
use crate::{Named, Plain, Port, Real, RunError, Weights, check_inputs};

/// Runs `graph` by the plain-loop definitions, in single precision.
pub fn interpret(
    graph: &Graph,
    weights: &Weights,
    inputs: &[(&str, &Tensor)],
) -> Result<Vec<Named>, RunError> {
    interpret_in::<f32>(graph, weights, inputs)
}

/// Runs `graph` by the plain-loop definitions in the arithmetic of `T`, rounding only the outputs.
pub fn interpret_in<T: Real>(
    graph: &Graph,
    weights: &Weights,
    inputs: &[(&str, &Tensor)],
) -> Result<Vec<Named>, RunError> {
    weights.check(graph)?;
    let mut given = check_inputs(&Port::inputs(graph), inputs)?.into_iter();
    let mut remaining = graph.use_counts();
    let mut values: Vec<Option<Plain<T>>> = vec![None; graph.nodes().len()];
    for (id, node) in graph.iter() {
        let value = match &node.kind {
            Kind::Input(_) => {
                Plain::from_tensor(given.next().expect("every input was found above"))?
            }
            Kind::Parameter(path) => Plain::from_tensor(
                &weights.get(path).expect("the weights were checked above").tensor()?,
            )?,
            Kind::Constant(constant) => Plain::from_tensor(&constant.value.tensor()?)?,
            Kind::Op(op) => {
                let get = |input: &NodeId| {
                    values[input.0].as_ref().expect("a value lives until its last use")
                };
                let operands: Vec<&Plain<T>> = node.inputs.iter().map(get).collect();
                op.check_values(&operands)
                    .map_err(|reason| RunError::Value { op: op.printed(), reason })?;
                op.reference(&operands)
            }
        };
        assert_eq!(value.shape, node.ty.shape, "{} differs from its inference", node.origin);
        values[id.0] = Some(value);
        for &input in &node.inputs {
            remaining[input.0] -= 1;
            if remaining[input.0] == 0 {
                values[input.0] = None;
            }
        }
    }
    let outputs = graph.outputs().iter();
    outputs
        .map(|(name, id)| {
            let value = values[id.0].as_ref().expect("outputs count as uses");
            Ok((name.clone(), value.to_tensor(graph.ty(*id))?))
        })
        .collect()
}
