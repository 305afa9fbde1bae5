//! Computes what depends only on weights and constants.

use std::collections::HashMap;
use std::sync::Arc;

use cutout_tensor::{Tensor, TensorError};

use super::{Context, Draft, remove_dead_code};
use crate::graph::{Constant, Graph, Kind, NodeId};
use crate::{CompileError, Op, Plain};

/// Names longer than this are replaced by their hash.
const LONGEST_NAME: usize = 200;

/// Expressions of weights and constants become constants: resized position tables, permuted weights. Each is named
/// by its expression, and computed once for all graphs over the same weights. A broadcast stays an op: it would only
/// make the constant larger.
///
/// ```text
/// %0 = input "x" : f32[4, 2]
/// %1 = weight scale : f32[2, 1]                       %0 = input "x" : f32[4, 2]
/// %2 = Permute { axes: [1, 0] } %1 : f32[1, 2]   →    %1 = constant <Permute { axes: [1, 0] }(scale)> : f32[1, 2]
/// %3 = Binary { kind: Multiply } %0 %2 : f32[4, 2]    %2 = Binary { kind: Multiply } %0 %1 : f32[4, 2]
/// ```
pub(super) fn run(graph: &Graph, context: &Context<'_>) -> Result<Graph, CompileError> {
    let mut folder = Folder {
        graph,
        context,
        known: known_nodes(graph, context),
        tensors: HashMap::new(),
        names: HashMap::new(),
    };
    let needed = folder.needed();
    let mut draft = Draft::new(graph);
    for (id, node) in graph.iter() {
        if !needed[id.0] {
            draft.keep(id);
            continue;
        }
        let tensor = folder.tensor(id)?;
        let constant = Constant { tensor, name: Some(folder.name(id)?) };
        let new = draft.add_constant(constant, &node.origin);
        draft.replace(id, new);
    }
    Ok(remove_dead_code(&draft.finish()))
}

/// Which nodes have a value at compile time.
fn known_nodes(graph: &Graph, context: &Context<'_>) -> Vec<bool> {
    let mut known = vec![false; graph.nodes().len()];
    for (id, node) in graph.iter() {
        known[id.0] = match &node.kind {
            Kind::Input(_) | Kind::Op(Op::Broadcast(_)) => false,
            Kind::Parameter(path) => {
                context.weights.is_some_and(|weights| weights.get(path).is_some())
            }
            Kind::Constant(_) => true,
            Kind::Op(_) => {
                !node.inputs.is_empty() && node.inputs.iter().all(|input| known[input.0])
            }
        };
    }
    known
}

struct Folder<'a> {
    graph: &'a Graph,
    context: &'a Context<'a>,
    known: Vec<bool>,
    tensors: HashMap<NodeId, Tensor>,
    names: HashMap<NodeId, Arc<str>>,
}

impl Folder<'_> {
    /// Known ops that something unknown reads: only these need a value at run time.
    fn needed(&self) -> Vec<bool> {
        let mut needed = vec![false; self.known.len()];
        for (id, node) in self.graph.iter().filter(|(id, _)| !self.known[id.0]) {
            debug_assert!(!self.known[id.0]);
            for input in &node.inputs {
                needed[input.0] = true;
            }
        }
        for (_, id) in self.graph.outputs() {
            needed[id.0] = true;
        }
        for (id, _) in self.graph.iter() {
            needed[id.0] &= self.known[id.0] && self.graph.op(id).is_some();
        }
        needed
    }

    /// The value of a known node.
    fn tensor(&mut self, id: NodeId) -> Result<Tensor, CompileError> {
        if let Some(tensor) = self.tensors.get(&id) {
            return Ok(tensor.clone());
        }
        let tensor = match &self.graph.node(id).kind {
            Kind::Constant(constant) => constant.tensor.clone(),
            Kind::Parameter(path) => {
                let weights = self.context.weights.and_then(|weights| weights.get(path));
                weights.expect("only weights that exist are known").clone()
            }
            Kind::Input(_) => panic!("inputs are never known"),
            Kind::Op(op) => self.computed(id, op)?,
        };
        self.tensors.insert(id, tensor.clone());
        Ok(tensor)
    }

    /// The value of a known op, from the store of derived weights if another graph has computed it.
    fn computed(&mut self, id: NodeId, op: &Op) -> Result<Tensor, CompileError> {
        let name = self.name(id)?;
        match self.context.weights {
            Some(weights) => weights.derived(&name, || self.evaluate(id, op)),
            None => self.evaluate(id, op),
        }
    }

    fn evaluate(&mut self, id: NodeId, op: &Op) -> Result<Tensor, CompileError> {
        let inputs = self.graph.node(id).inputs.clone();
        let tensors: Vec<Tensor> =
            inputs.iter().map(|&input| self.tensor(input)).collect::<Result<_, _>>()?;
        let broken = |error| CompileError::Weight { path: op.printed(), error };
        if let Some(view) = moved(op, &tensors[0]) {
            // Weights in half precision become what the graph calls them.
            return view.and_then(|view| view.cast(self.graph.ty(id).dtype)).map_err(broken);
        }
        let plain: Vec<Plain<f64>> =
            tensors.iter().map(Plain::from_tensor).collect::<Result<_, _>>().map_err(broken)?;
        let plain: Vec<&Plain<f64>> = plain.iter().collect();
        op.check_values(&plain)
            .map_err(|reason| CompileError::Unsupported { op: op.printed(), reason })?;
        op.reference(&plain).to_tensor(self.graph.ty(id)).map_err(broken)
    }

    /// What a known node is computed from, as text.
    fn name(&mut self, id: NodeId) -> Result<Arc<str>, CompileError> {
        if let Some(name) = self.names.get(&id) {
            return Ok(name.clone());
        }
        let node = self.graph.node(id);
        let name: Arc<str> = match &node.kind {
            Kind::Parameter(path) => path.as_str().into(),
            Kind::Constant(Constant { name: Some(name), .. }) => name.clone(),
            Kind::Constant(constant) => content_name(&constant.tensor)
                .map_err(|error| CompileError::Weight { path: "constant".to_owned(), error })?
                .into(),
            Kind::Input(_) => panic!("inputs are never known"),
            Kind::Op(op) => {
                let inputs: Vec<Arc<str>> =
                    node.inputs.iter().map(|&input| self.name(input)).collect::<Result<_, _>>()?;
                shortened(format!("{}({})", op.printed(), inputs.join(", "))).into()
            }
        };
        self.names.insert(id, name.clone());
        Ok(name)
    }
}

/// The result of an op that only moves elements; `None` for other ops.
#[expect(clippy::wildcard_enum_match_arm, reason = "everything else goes through its definition")]
fn moved(op: &Op, x: &Tensor) -> Option<Result<Tensor, TensorError>> {
    match op {
        Op::Reshape(op) => Some(x.reshape(&op.shape[..])),
        Op::Permute(op) => Some(x.permute(&op.axes)),
        _ => None,
    }
}

/// Name of an unnamed constant: its value if it is one number, else a hash of its content.
fn content_name(tensor: &Tensor) -> Result<String, TensorError> {
    let values = tensor.to_f64_vec()?;
    if let [value] = values[..] {
        return Ok(format!("{} {value:?}", tensor.ty()));
    }
    let words = values.iter().map(|value| value.to_bits());
    Ok(format!("{} #{:032x}", tensor.ty(), hash(words)))
}

fn shortened(name: String) -> String {
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let operation = name.split_once([' ', '(']).map_or("", |(operation, _)| operation);
    format!("{operation} #{:032x}", hash(name.bytes().map(u64::from)))
}

/// A 128-bit hash (FNV-1a over words, with the upper bits folded in).
fn hash(words: impl Iterator<Item = u64>) -> u128 {
    words.fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, word| {
        let mixed =
            (hash ^ u128::from(word)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        mixed ^ (mixed >> 71)
    })
}
