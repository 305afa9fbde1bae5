//! The interpreter: runs a graph by the reference definition of each op.

use cutout_tensor::Tensor;

use crate::graph::{Graph, Kind, NodeId};
use crate::{DenseTensor, Named, Node, Op, Port, Real, RunError, Weights, check_inputs};

/// Runs `graph` by the reference definitions, in single precision.
pub fn interpret(
    graph: &Graph,
    weights: &Weights,
    inputs: &[(&str, &Tensor)],
) -> Result<Vec<Named>, RunError> {
    interpret_in::<f32>(graph, weights, inputs)
}

/// Runs `graph` by the reference definitions in the arithmetic of `T`; only the outputs are rounded to `f32`.
pub fn interpret_in<T: Real>(
    graph: &Graph,
    weights: &Weights,
    inputs: &[(&str, &Tensor)],
) -> Result<Vec<Named>, RunError> {
    interpret_with::<T>(graph, weights, inputs, |_, op, operands| op.reference(operands))
}

/// Runs `graph` in the arithmetic of `T`. `run` computes the op of a node from its operands.
pub fn interpret_with<T: Real>(
    graph: &Graph,
    weights: &Weights,
    inputs: &[(&str, &Tensor)],
    run: impl Fn(&Node, &Op, &[&DenseTensor<T>]) -> DenseTensor<T>,
) -> Result<Vec<Named>, RunError> {
    weights.check(graph)?;
    let mut given = check_inputs(&Port::inputs(graph), inputs)?.into_iter();
    let mut remaining = graph.use_counts();
    let mut values: Vec<Option<DenseTensor<T>>> = vec![None; graph.nodes().len()];
    for (id, node) in graph.iter() {
        let value = match &node.kind {
            Kind::Input(_) => {
                DenseTensor::from_tensor(given.next().expect("every input was found above"))?
            }
            Kind::Parameter(path) => DenseTensor::from_tensor(
                &weights.get(path).expect("the weights were checked above").tensor()?,
            )?,
            Kind::Constant(constant) => DenseTensor::from_tensor(&constant.value.tensor()?)?,
            Kind::Op(op) => {
                let get = |input: &NodeId| {
                    values[input.0].as_ref().expect("a value lives until its last use")
                };
                let operands: Vec<&DenseTensor<T>> = node.inputs.iter().map(get).collect();
                op.check_values(&operands)
                    .map_err(|reason| RunError::Value { op: op.printed(), reason })?;
                run(node, op, &operands)
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
