//! Computes equal expressions once.

use std::collections::HashMap;

use super::{Context, rewrite};
use crate::CompileError;
use crate::graph::{Constant, Graph, Kind};

/// Nodes with equal ops and equal inputs become one; so do equal constants.
///
/// ```text
/// %1 = Unary { kind: Exp } %0 : f32[4]
/// %2 = Unary { kind: Exp } %0 : f32[4]         →    %1 = Unary { kind: Exp } %0 : f32[4]
/// %3 = Binary { kind: Add } %1 %2 : f32[4]          %2 = Binary { kind: Add } %1 %1 : f32[4]
/// ```
pub(super) fn run(graph: &Graph, _: &Context<'_>) -> Result<Graph, CompileError> {
    let mut seen = HashMap::new();
    Ok(rewrite(graph, |draft, id| {
        let node = draft.old().node(id);
        let key = match &node.kind {
            Kind::Op(op) => (op.printed(), draft.new_inputs(id)),
            Kind::Constant(constant) => (identity(constant), Vec::new()),
            Kind::Input(_) | Kind::Parameter(_) => return None,
        };
        let key = match (&node.kind, draft.old().node(id).ty.shape.rank()) {
            // Scalars are equal by value: the same number is written in many places of a model.
            (Kind::Constant(constant), 0) => (format!("{:?}", constant.value), Vec::new()),
            _ => key,
        };
        if let Some(&earlier) = seen.get(&key) {
            return Some(earlier);
        }
        let new = draft.keep(id);
        seen.insert(key, new);
        Some(new)
    }))
}

/// Equal for constants that are known to be equal: by name, or by the memory they lie in.
fn identity(constant: &Constant) -> String {
    match (&constant.name, constant.value.ready()) {
        (None, Some(tensor)) => format!("{:?}", tensor.storage_id()),
        (name, _) => format!("{name:?}"),
    }
}
