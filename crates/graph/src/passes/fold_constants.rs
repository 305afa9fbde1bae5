//! Constant folding: evaluates expressions of weights and constants at compile time.

mod evaluation;

use std::collections::HashMap;
use std::sync::Arc;

use cutout_tensor::{LazyTensor, Tensor, TensorError, TensorType};

use super::{Context, Draft, remove_dead_code};
use crate::graph::{Constant, Graph, Kind, NodeId};
use crate::weights::Folded;
use crate::{CompileError, Layout, Op};
use evaluation::{Evaluation, unreadable};

/// Names longer than this are replaced by their hash.
const LONGEST_NAME: usize = 200;

/// Expressions of weights and constants become constants: resized position tables, permuted weights. Each is named
/// by its expression, and computed once for all graphs over the same weights. A view of a weight is not computed here: it
/// is made when a kernel packs it. A broadcast stays an op: folding would only make the constant larger. Tables of model code are
/// named by their content, so that all graphs share one.
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
        foldable: foldable_nodes(graph, context),
        values: Evaluation::new(graph, context.weights),
        names: HashMap::new(),
    };
    let needed = folder.needed();
    let mut draft = Draft::new(graph);
    for (id, node) in graph.iter() {
        if !needed[id.0] {
            draft.keep(id);
            continue;
        }
        let name = folder.name(id)?;
        let value = folder.value(id, &name)?;
        let constant = Constant { value, name: Some(name) };
        let new = draft.add_constant_as(node.ty.clone(), constant, &node.origin);
        draft.replace(id, new);
    }
    Ok(remove_dead_code(&draft.finish()))
}

/// For each node, whether its value can be computed at compile time.
fn foldable_nodes(graph: &Graph, context: &Context<'_>) -> Vec<bool> {
    let mut foldable = vec![false; graph.nodes().len()];
    for (id, node) in graph.iter() {
        foldable[id.0] = match &node.kind {
            Kind::Input(_) | Kind::Op(Op::Broadcast(_)) => false,
            Kind::Parameter(path) => {
                context.weights.is_some_and(|weights| weights.get(path).is_some())
            }
            Kind::Constant(_) => true,
            Kind::Op(_) => {
                !node.inputs.is_empty() && node.inputs.iter().all(|input| foldable[input.0])
            }
        };
    }
    foldable
}

/// Computes the values of a graph's foldable nodes.
struct Folder<'a> {
    graph: &'a Graph,
    context: &'a Context<'a>,
    foldable: Vec<bool>,
    values: Evaluation<'a>,
    names: HashMap<NodeId, Arc<str>>,
}

impl Folder<'_> {
    /// Foldable ops and unnamed tables that outputs or other ops read at run time: only these become named constants.
    fn needed(&self) -> Vec<bool> {
        let mut needed = vec![false; self.foldable.len()];
        for (_, node) in self.graph.iter().filter(|(id, _)| !self.foldable[id.0]) {
            for input in &node.inputs {
                needed[input.0] = true;
            }
        }
        for (_, id) in self.graph.outputs() {
            needed[id.0] = true;
        }
        for (id, node) in self.graph.iter() {
            needed[id.0] &= self.foldable[id.0]
                && match &node.kind {
                    Kind::Op(_) => true,
                    // Numbers need no name: they are compared by value. Without weights there is nobody to share with.
                    Kind::Constant(constant) => {
                        let is_table = node.ty.shape.elements() > 1;
                        is_table && constant.name.is_none() && self.context.weights.is_some()
                    }
                    Kind::Parameter(_) | Kind::Input(_) => false,
                };
        }
        needed
    }

    /// The value of a needed node: a view of a weight is made when it is read; anything else is computed now, unless
    /// another graph has computed it.
    fn value(&mut self, id: NodeId, name: &Arc<str>) -> Result<LazyTensor, CompileError> {
        if let Some(view) = self.weight_view(id) {
            return Ok(view);
        }
        let Some(weights) = self.context.weights else {
            return self.values.tensor(id).map(LazyTensor::from);
        };
        Ok(match weights.folded(name) {
            Some(Folded::Kept(tensor)) => tensor.into(),
            Some(Folded::Packed) => self.values.on_request(id),
            None => weights.keep_folded(name, self.values.tensor(id)?).into(),
        })
    }

    /// A weight or a view of one; `None` for values that are computed.
    fn weight_view(&self, id: NodeId) -> Option<LazyTensor> {
        let node = self.graph.node(id);
        match &node.kind {
            Kind::Parameter(path) => self.context.weights?.get(path).cloned(),
            Kind::Op(op) if op.is_view() => {
                let op = op.clone();
                let source = self.weight_view(node.inputs[0])?;
                // A weight stored in half precision stays in half precision, though the graph says f32.
                let ty = TensorType::new(source.dtype(), node.ty.shape.clone());
                Some(source.map(ty, move |x| viewed(&op, x)))
            }
            Kind::Op(_) | Kind::Constant(_) | Kind::Input(_) => None,
        }
    }

    /// The expression of a node over weights and constants, as text.
    fn name(&mut self, id: NodeId) -> Result<Arc<str>, CompileError> {
        if let Some(name) = self.names.get(&id) {
            return Ok(name.clone());
        }
        let node = self.graph.node(id);
        let name: Arc<str> = match &node.kind {
            Kind::Parameter(path) => path.as_str().into(),
            Kind::Constant(Constant { name: Some(name), .. }) => name.clone(),
            Kind::Constant(constant) => constant
                .value
                .tensor()
                .and_then(|tensor| content_name(&tensor))
                .map_err(unreadable("constant"))?
                .into(),
            Kind::Input(_) => panic!("inputs are never folded"),
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

/// The result of a view op on a host tensor: a view of it, or of a contiguous copy where strides cannot express it.
fn viewed(op: &Op, x: &Tensor) -> Result<Tensor, TensorError> {
    let strided = Layout { shape: x.shape().clone(), strides: x.strides().to_vec(), offset: 0 };
    if let Some(layout) = op.view(&strided) {
        return x.strided(layout.shape, layout.strides, layout.offset);
    }
    let layout = op.view(&Layout::contiguous(x.shape()));
    let layout = layout.expect("a view op can express the view of a contiguous tensor");
    x.to_contiguous()?.strided(layout.shape, layout.strides, layout.offset)
}

/// Name of an unnamed constant: its value if it is one number, else a hash of its content.
fn content_name(tensor: &Tensor) -> Result<String, TensorError> {
    if tensor.shape().elements() == 1 {
        let value = tensor.to_f64_vec()?;
        return Ok(format!("{} {:?}", tensor.ty(), value[0]));
    }
    let tensor = tensor.to_contiguous()?;
    Ok(format!("{} #{:032x}", tensor.ty(), hash(tensor.as_bytes()?)))
}

fn shortened(name: String) -> String {
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let operation = name.split_once([' ', '(']).map_or("", |(operation, _)| operation);
    format!("{operation} #{:032x}", hash(name.as_bytes()))
}

/// Words that are hashed side by side, because each waits for the one before it.
const LANES: usize = 4;

/// A 128-bit hash (FNV-1a over words of eight bytes in four lanes, with the upper bits folded in).
fn hash(bytes: &[u8]) -> u128 {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    let mut lanes = [0x6c62_272e_07bb_0142_62b8_2175_6295_c58d; LANES];
    let blocks = bytes.chunks_exact(8 * LANES);
    let rest = blocks.remainder();
    for block in blocks {
        for (lane, chunk) in lanes.iter_mut().zip(block.chunks_exact(8)) {
            *lane = mixed(*lane, u128::from(word(chunk)));
        }
    }
    let ends = lanes.into_iter().chain(rest.chunks(8).map(|chunk| u128::from(word(chunk))));
    ends.fold(bytes.len() as u128, mixed)
}

fn mixed(hash: u128, word: u128) -> u128 {
    let mixed = (hash ^ word).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    mixed ^ (mixed >> 71)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn hashes_differ_in_every_byte_and_length() {
        let bytes: Vec<u8> = (0..100).map(|i| (i * 37) as u8).collect();
        let mut seen = HashSet::from([hash(&[]), hash(&[0; 7]), hash(&[0; 8])]);
        for length in 1..=bytes.len() {
            assert!(seen.insert(hash(&bytes[..length])), "length {length}");
        }
        for index in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            assert!(seen.insert(hash(&changed)), "byte {index}");
        }
        let mut swapped = bytes.clone();
        swapped.rotate_left(8);
        assert!(seen.insert(hash(&swapped)), "words in another order");
    }
}
