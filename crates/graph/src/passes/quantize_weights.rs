//! Quantises the weights of linear layers to 8 bits where the profile asks for it.

use cutout_tensor::{Scales, TensorError};

use super::{Context, Draft, rewrite};
use crate::graph::{Constant, Graph, Kind, NodeId};
use crate::ops::{Linear, QuantizedLinear};
use crate::{CompileError, Op, Precision, Weights};

/// A linear layer whose weight lies in a part of precision `int8` becomes a quantised one, with one scale per output
/// channel. Nothing happens without weights.
///
/// ```text
/// %1 = weight lin.weight : f32[8, 6]                  %1 = constant <int8 values of lin.weight> : i8[8, 6]
/// %2 = Linear { .. } %0 %1 : f32[9, 8]           →    %2 = constant <int8 scales of lin.weight> : f32[8, 1]
///                                                     %3 = QuantizedLinear { scales: PerRow, .. } %0 %1 %2 : f32[9, 8]
/// ```
pub(super) fn run(graph: &Graph, context: &Context<'_>) -> Result<Graph, CompileError> {
    let mut problem = None;
    let result = rewrite(graph, |draft, id| {
        let old = draft.old();
        let &Op::Linear(op) = old.op(id)? else { return None };
        let Kind::Parameter(path) = &old.node(old.node(id).inputs[1]).kind else { return None };
        match context.profile.precision_of(path) {
            // Half precision is not a rewrite of the graph: the backend stores and multiplies values in it.
            Precision::Auto | Precision::F32 | Precision::F16 | Precision::Bf16 => return None,
            Precision::Int8 => {}
        }
        match quantized(context.weights?, path) {
            Ok(parts) => replace(draft, id, op, parts),
            Err(error) => {
                problem.get_or_insert(CompileError::Weight { path: path.clone(), error });
                None
            }
        }
    });
    problem.map_or(Ok(result), Err)
}

/// Values and scales of a weight, quantised when a kernel packs them.
fn quantized(weights: &Weights, path: &str) -> Result<[Constant; 2], TensorError> {
    let weight = weights.get(path);
    let weight = weight.ok_or_else(|| TensorError::Shape(format!("{path} is missing")))?;
    let [values, scales] = weight.clone().quantized();
    let named =
        |part: &str, value| Constant { value, name: Some(format!("int8 {part} of {path}").into()) };
    Ok([named("values", values), named("scales", scales)])
}

/// Replaces a linear layer by the quantised one.
fn replace(draft: &mut Draft<'_>, id: NodeId, op: Linear, parts: [Constant; 2]) -> Option<NodeId> {
    let origin = draft.old().node(id).origin.clone();
    let inputs = draft.new_inputs(id);
    let parts = parts.map(|constant| draft.add_constant(constant, &origin));
    let all: Vec<NodeId> =
        [inputs[0]].into_iter().chain(parts).chain(inputs[2..].iter().copied()).collect();
    draft.add(QuantizedLinear { scales: Scales::PerRow, epilogue: op.epilogue }, &all, &origin)
}
