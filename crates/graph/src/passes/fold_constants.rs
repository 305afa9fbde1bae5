//! Constant folding: evaluates expressions of weights and constants at compile time.

use std::collections::HashMap;
use std::sync::Arc;

use cutout_tensor::{LazyTensor, Tensor, TensorError, TensorType, memory};

use super::{Context, Draft, remove_dead_code};
use crate::graph::{Constant, Graph, Kind, NodeId};
use crate::{CompileError, DenseTensor, Layout, Op};

/// Names longer than this are replaced by their hash.
const LONGEST_NAME: usize = 200;

/// Expressions of weights and constants become constants: resized position tables, permuted weights. Each is named
/// by its expression, and computed once for all graphs over the same weights. A view of a weight is not computed here: it
/// is made when a kernel packs it. A broadcast stays an op: folding would only make the constant larger.
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
    /// Values computed so far.
    tensors: HashMap<NodeId, Tensor>,
    names: HashMap<NodeId, Arc<str>>,
}

impl Folder<'_> {
    /// Foldable ops that outputs or other ops read at run time: only these become constants.
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
        for (id, _) in self.graph.iter() {
            needed[id.0] &= self.foldable[id.0] && self.graph.op(id).is_some();
        }
        needed
    }

    /// The value of a needed node: a view of a weight is made when it is read; anything else is computed now, unless
    /// another graph has computed it.
    fn value(&mut self, id: NodeId, name: &Arc<str>) -> Result<LazyTensor, CompileError> {
        if let Some(view) = self.weight_view(id) {
            return Ok(view);
        }
        let computed = match self.context.weights {
            Some(weights) => weights.folded(name, || self.tensor(id)),
            None => self.tensor(id),
        };
        computed.map(LazyTensor::from)
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

    /// The value of a node at compile time. Intermediate values are kept until the pass ends.
    fn tensor(&mut self, id: NodeId) -> Result<Tensor, CompileError> {
        if let Some(tensor) = self.tensors.get(&id) {
            return Ok(tensor.clone());
        }
        let tensor = match &self.graph.node(id).kind {
            Kind::Constant(constant) => constant.value.tensor().map_err(unreadable("constant"))?,
            Kind::Parameter(path) => {
                let weight = self.context.weights.and_then(|weights| weights.get(path));
                let weight = weight.expect("only weights that exist are folded");
                weight.tensor().map_err(unreadable(path))?
            }
            Kind::Input(_) => panic!("inputs are never folded"),
            Kind::Op(op) => self.evaluate(id, op)?,
        };
        self.tensors.insert(id, tensor.clone());
        Ok(tensor)
    }

    fn evaluate(&mut self, id: NodeId, op: &Op) -> Result<Tensor, CompileError> {
        let inputs = self.graph.node(id).inputs.clone();
        let tensors: Vec<Tensor> =
            inputs.iter().map(|&input| self.tensor(input)).collect::<Result<_, _>>()?;
        let broken = |error| CompileError::Weight { path: op.printed(), error };
        if op.is_view() {
            let dtype = self.graph.ty(id).dtype;
            // A copy: a view would keep the whole source in memory.
            let copy = viewed(op, &tensors[0]).and_then(|view| view.cast(dtype)?.detached());
            return copy.map_err(broken);
        }
        let dense: Vec<DenseTensor<f64>> = tensors
            .iter()
            .map(DenseTensor::from_tensor)
            .collect::<Result<_, _>>()
            .map_err(broken)?;
        // References allocate without checking: their result, and what they compute it from.
        let elements = 2 * self.graph.ty(id).shape.elements();
        memory::probe((elements * size_of::<f64>()) as u64)
            .map_err(|error| broken(error.into()))?;
        let dense: Vec<&DenseTensor<f64>> = dense.iter().collect();
        op.check_values(&dense)
            .map_err(|reason| CompileError::Unsupported { op: op.printed(), reason })?;
        let computed = op.reference(&dense).to_tensor(self.graph.ty(id)).map_err(broken)?;
        tensors.iter().for_each(Tensor::release);
        Ok(computed)
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

fn unreadable(path: &str) -> impl FnOnce(TensorError) -> CompileError {
    move |error| CompileError::Weight { path: path.to_owned(), error }
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
