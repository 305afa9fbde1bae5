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
        if let Some(&earlier) = seen.get(&key) {
            return Some(earlier);
        }
        let new = draft.keep(id);
        seen.insert(key, new);
        Some(new)
    }))
}

/// Equal for constants that are known to be equal: by name, by the memory they lie in, or by value if they are one number,
/// which is written in many places of a model.
fn identity(constant: &Constant) -> String {
    match (&constant.name, constant.value.ready()) {
        (_, Some(tensor)) if tensor.shape().rank() == 0 => format!("{tensor:?}"),
        (None, Some(tensor)) => format!("{:?}", tensor.storage_id()),
        (name, _) => format!("{name:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use cutout_tensor::{DType, Tensor};

    use crate::graph::{Graph, Kind};
    use crate::{Builder, Profile, Weights, passes};

    fn constants(graph: &Graph) -> usize {
        graph.iter().filter(|(_, node)| matches!(node.kind, Kind::Constant(_))).count()
    }

    /// The pass does not read scalars that are views of weights: comparing them would load the file.
    #[test]
    fn numbers_of_two_weights_stay_apart() {
        let builder = Builder::new();
        let [first, second] = ["first", "second"]
            .map(|name| builder.weights().parameter(name, [1]).reshape(&[] as &[usize]));
        let x = builder.input("x", DType::F32, [4]);
        builder.output("y", x * first + x.gelu() * second);
        let graph = builder.finish().expect("the shapes fit");
        let tensor = |value: f32| Tensor::from_vec([1], vec![value]).expect("one element");
        let tensors = [("first", tensor(2.0)), ("second", tensor(3.0))];
        let tensors = tensors.map(|(name, tensor)| (name.to_owned(), tensor));
        let (weights, profile) = (Weights::new(HashMap::from(tensors)), Profile::default());
        let context = passes::Context::new(Some(&weights), &profile);
        let last = Some("common_subexpressions");
        let graph = passes::optimize_until(&graph, &[], &context, last).expect("nothing can fail");
        assert_eq!(constants(&graph), 2);
    }
}
