//! Ops on the fast kernels of Hopper, where [`crate::fast`] has one for their shapes.
//!
//! Some kernels also compute what the graph has as separate ops before them: SAM 1's relative positions are products of the queries with two tables, which
//! attention computes itself; the rotation of queries and keys is part of the product they come from.

use std::collections::{HashMap, HashSet};

use cutout_graph::ops::{Attention, AttentionInputs, BiasForm, Epilogue, LayerNorm, Linear};
use cutout_graph::{Graph, Kind, NodeId, Op, Profile};
use cutout_tensor::DType;

use super::product::{Finish, RowsOf};
use super::{Input, Site, Target, bytes};
use crate::fast::attention::Attention as FastAttention;
use crate::fast::convolution::{Convolution, Taps, convolution};
use crate::fast::norm::{Norm, NormOutput, norm};
use crate::fast::product::{Finish as FastFinish, Product, Rotation, product};
use crate::fast::{Matrix, Tokens};
use crate::launch::Place;
use crate::rules::half_of;
use crate::variants::Family;
use crate::weights::Form;

/// What is taken into other ops, found before lowering.
#[derive(Default)]
pub(crate) struct Fusions {
    /// Attentions that compute their relative bias themselves, and the tables of rows and columns.
    tables: HashMap<NodeId, [NodeId; 2]>,
    /// Nodes that nobody reads any more.
    dropped: HashSet<NodeId>,
    /// Products whose result is rotated for an attention.
    rotations: HashMap<NodeId, NodeId>,
    /// Attentions whose queries and keys are rotated already.
    rotated: HashSet<NodeId>,
    /// Buffers of the plan whose rows were written as bytes with their steps.
    bytes: HashSet<usize>,
}

impl Fusions {
    /// Finds what a graph allows on a card.
    pub(crate) fn find(graph: &Graph, profile: &Profile, target: Target) -> Fusions {
        let mut fusions = Fusions::default();
        if target.family != Family::Sm90a {
            return fusions;
        }
        let readers = readers(graph);
        for (id, node) in graph.iter() {
            let Some(Op::Attention(op)) = graph.op(id) else { continue };
            if half_of(graph, id, profile).is_none() {
                continue;
            }
            let Ok(inputs) = op.name_inputs(&node.inputs) else { continue };
            if let Some((tables, dropped)) = bias_tables(graph, &readers, op, &inputs) {
                fusions.tables.insert(id, tables);
                fusions.dropped.extend(dropped);
            }
            if let Some(linear) = rotated_product(graph, &readers, (id, op), &inputs) {
                fusions.rotations.insert(linear, id);
            }
        }
        fusions
    }

    /// Whether a step need not run.
    pub(crate) fn drops(&self, id: NodeId) -> bool {
        self.dropped.contains(&id)
    }

    /// A step that another one computes.
    pub(crate) fn drop_step(&mut self, id: NodeId) {
        self.dropped.insert(id);
    }

    pub(crate) fn has_tables(&self, id: NodeId) -> bool {
        self.tables.contains_key(&id)
    }

    pub(crate) fn has_bytes(&self, buffer: usize) -> bool {
        self.bytes.contains(&buffer)
    }

    pub(crate) fn is_rotated(&self, id: NodeId) -> bool {
        self.rotated.contains(&id)
    }
}

/// For each node the nodes that read it.
fn readers(graph: &Graph) -> Vec<Vec<NodeId>> {
    let mut readers = vec![Vec::new(); graph.nodes().len()];
    for (id, node) in graph.iter() {
        for input in &node.inputs {
            readers[input.0].push(id);
        }
    }
    for (_, id) in graph.outputs() {
        // An output is read by the caller: never only by what is fused.
        readers[id.0].push(NodeId(usize::MAX));
    }
    readers
}

fn is_static(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).kind, Kind::Parameter(_) | Kind::Constant(_))
}

/// Widths of heads whose relative positions attention computes itself.
const BIAS_WIDTHS: [usize; 2] = [64, 80];

/// The tables of a relative bias, and the nodes that computed it, if nothing else reads them.
fn bias_tables(
    graph: &Graph,
    readers: &[Vec<NodeId>],
    op: &Attention,
    inputs: &AttentionInputs<NodeId>,
) -> Option<([NodeId; 2], Vec<NodeId>)> {
    let (bias, nodes) = (op.bias?, inputs.bias?);
    let shape = &graph.ty(inputs.query).shape;
    let whole = op.windows.is_none() && bias.grid == [64, 64] && shape[1] == 4096;
    let windowed = op
        .windows
        .is_some_and(|windows| windows.key_window == [14, 14] && windows.query_window == [14, 14]);
    let width = shape[2] / op.heads;
    let supported = bias.form == BiasForm::Relative && (whole || windowed);
    if !supported || !BIAS_WIDTHS.contains(&width) || op.key_mask || op.causal {
        return None;
    }
    let mut dropped = Vec::new();
    let mut tables = Vec::new();
    for node in nodes {
        let &Op::Linear(Linear { epilogue: Epilogue::NONE }) = graph.op(node)? else { return None };
        let &[view, table] = &graph.node(node).inputs[..] else { return None };
        let same = graph.op(view).is_some_and(|op| matches!(op, Op::Reshape(_)))
            && graph.node(view).inputs[0] == inputs.query;
        let [_, columns] = graph.ty(table).shape[..] else { return None };
        if !same || !is_static(graph, table) || columns != width || readers[node.0].len() != 1 {
            return None;
        }
        tables.push(table);
        dropped.push(node);
        dropped.push(view);
    }
    let only_dropped =
        |view: &NodeId| readers[view.0].iter().all(|reader| dropped.contains(reader));
    let views_too: Vec<NodeId> =
        dropped.iter().copied().filter(|node| nodes.contains(node) || only_dropped(node)).collect();
    Some(([tables[0], tables[1]], views_too))
}

/// The product that queries, keys and values are slices of, if only this attention reads them and it rotates both alike.
fn rotated_product(
    graph: &Graph,
    readers: &[Vec<NodeId>],
    (id, op): (NodeId, &Attention),
    inputs: &AttentionInputs<NodeId>,
) -> Option<NodeId> {
    let rope = op.rope?;
    let [query_cos, query_sin, key_cos, key_sin] = inputs.rope?;
    if rope.key_tail > 0 || (query_cos, query_sin) != (key_cos, key_sin) || op.has_padding() {
        return None;
    }
    let source = |slice: NodeId| {
        let is_slice = graph.op(slice).is_some_and(|op| matches!(op, Op::Slice(_)));
        let alone = readers[slice.0] == [id];
        (is_slice && alone).then(|| graph.node(slice).inputs[0])
    };
    let linear = source(inputs.query)?;
    let same = source(inputs.key)? == linear && source(inputs.value)? == linear;
    let is_linear =
        graph.op(linear).is_some_and(|op| matches!(op, Op::Linear(_) | Op::QuantizedLinear(_)));
    let starts = |slice: NodeId, start: usize| match graph.op(slice) {
        Some(Op::Slice(slice)) => {
            slice.starts.last() == Some(&start) && slice.steps.last() == Some(&1)
        }
        _ => false,
    };
    let width = graph.ty(inputs.query).shape[2];
    let in_order = starts(inputs.query, 0) && starts(inputs.key, width);
    (same && is_linear && in_order && readers[linear.0].len() == 3).then_some(linear)
}

/// How the result of a product is rotated for an attention.
fn rotation_of(site: &mut Site<'_, '_>, attention: NodeId) -> Option<Rotation> {
    let graph = site.lowering.graph;
    let Some(Op::Attention(op)) = graph.op(attention) else { return None };
    let op = *op;
    let inputs = op.name_inputs(&graph.node(attention).inputs).ok()?;
    let [cos, sin, ..] = inputs.rope?;
    let shape = &graph.ty(inputs.query).shape;
    let (tokens, channels) = (shape[1], shape[2]);
    let side = tokens.isqrt();
    let (grid, window) = match &op.windows {
        None => (side, side),
        Some(windows) => {
            let [height, width] = windows.key_window;
            let same = height == width && windows.query_window == windows.key_window;
            (same && windows.key_grid == windows.query_grid)
                .then_some((windows.key_grid[1], width))?
        }
    };
    let positions = graph.ty(cos).shape[0];
    if grid * grid != tokens || positions != window * window {
        return None;
    }
    if !is_static(graph, cos) || !is_static(graph, sin) {
        return None;
    }
    Some(Rotation {
        cos: site.weight(cos, Form::Plain(DType::F32)),
        sin: site.weight(sin, Form::Plain(DType::F32)),
        columns: 2 * channels,
        head: channels / op.heads,
        tokens,
        grid,
        window,
    })
}

/// What follows a product, as the fast kernels have it.
fn fast_finish(
    finish: &Finish,
    half: DType,
    out: Matrix,
    rotation: Option<Rotation>,
) -> Option<FastFinish> {
    use cutout_graph::ops::Activation;
    if finish.epilogue.scale != 1.0 {
        return None;
    }
    if let Some(rotation) = rotation {
        let plain = finish.epilogue.activation == Activation::Identity && finish.residual.is_none();
        return (plain && finish.to == half).then_some(FastFinish::Rotated(rotation));
    }
    match (finish.to, finish.residual) {
        (to, None) if to == half => Some(FastFinish::Half(finish.epilogue.activation)),
        (DType::F32, residual) if finish.epilogue.activation == Activation::Identity => {
            let residual = match residual {
                None => None,
                Some((place, DType::F32)) => Some(Matrix { place, ..out }),
                Some(_) => return None,
            };
            Some(FastFinish::Single(residual))
        }
        (_, _) => None,
    }
}

/// A product of halves with a weight; false if no kernel takes it.
pub(crate) fn product_half(
    a: RowsOf,
    (weight, columns): (Place, usize),
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> bool {
    let out = Matrix::dense(finish.output, finish.to, [a.rows, columns]);
    let RowsOf { place, stored, rows, depth: columns_of_a, stride } = a;
    let described = |finish_of: FastFinish| Product {
        a: Matrix { place, stored, rows, columns: columns_of_a, stride },
        weight: Matrix::dense(weight, stored, [columns, columns_of_a]),
        bias: finish.bias,
        scales: None,
        finish: finish_of,
        out,
    };
    rotated_or_plain(finish, (stored, out), &described, site)
}

/// A product with the rotation of the attention behind it if a kernel does both, or without; false if no kernel takes it.
fn rotated_or_plain(
    finish: &Finish,
    (half, out): (DType, Matrix),
    described: &dyn Fn(FastFinish) -> Product,
    site: &mut Site<'_, '_>,
) -> bool {
    let attention = site.lowering.fusions.rotations.get(&site.node).copied();
    let rotation = attention.and_then(|attention| rotation_of(site, attention));
    for rotation in [rotation, None] {
        let Some(fast) = fast_finish(finish, half, out, rotation) else { continue };
        let Some(launch) = product(&described(fast), site.target()) else { continue };
        site.launches.push(launch);
        if let (Some(_), Some(attention)) = (rotation, attention) {
            site.lowering.fusions.rotated.insert(attention);
        }
        return true;
    }
    false
}

/// Bytes with their scales: rows by steps, and a weight by one scale for each output.
#[derive(Clone, Copy)]
pub(crate) struct Bytes {
    /// Place, and `[rows, padded depth]`.
    pub(crate) a: (Place, [usize; 2]),
    /// Steps of the rows.
    pub(crate) steps: Place,
    /// Place, and outputs.
    pub(crate) weight: (Place, usize),
    /// Scales of the outputs.
    pub(crate) scales: Place,
}

/// A product of bytes; false if no kernel takes it.
pub(crate) fn product_bytes(bytes: Bytes, finish: &Finish, site: &mut Site<'_, '_>) -> bool {
    let (a, [rows, depth]) = bytes.a;
    let (weight, columns) = bytes.weight;
    let out = Matrix::dense(finish.output, finish.to, [rows, columns]);
    let described = |finish_of: FastFinish| Product {
        a: Matrix::dense(a, DType::I8, [rows, depth]),
        weight: Matrix::dense(weight, DType::I8, [columns, depth]),
        bias: finish.bias,
        scales: Some([bytes.steps, bytes.scales]),
        finish: finish_of,
        out,
    };
    rotated_or_plain(finish, (DType::F16, out), &described, site)
}

/// A layer norm of f32 rows into halves, or into bytes where nothing else is read; false if no kernel takes it.
pub(crate) fn layer_norm(op: &LayerNorm, site: &mut Site<'_, '_>) -> bool {
    let x = &site.inputs[0];
    let shape = &x.ty.shape;
    let suited = x.stored == DType::F32
        && matches!(site.stored, DType::F16 | DType::BF16)
        && op.axis + 1 == shape.rank()
        && x.layout().is_contiguous();
    if !suited {
        return false;
    }
    let bytes = bytes::rows_written(site);
    let (output, to) = match bytes {
        Some([bytes, steps]) => (bytes, NormOutput::Bytes(steps)),
        None => (site.output, NormOutput::Half(site.stored)),
    };
    let described = Norm {
        x: x.place,
        rows: shape.rows(),
        width: shape.last_axis(),
        gain: site.inputs[1].place,
        bias: site.inputs[2].place,
        epsilon: op.epsilon,
        output,
        to,
    };
    let Some(launch) = norm(&described, site.target()) else { return false };
    site.launches.push(launch);
    if bytes.is_some()
        && let Some(buffer) = site.lowering.planned().map(|step| step.output)
    {
        site.lowering.fusions.bytes.insert(buffer);
    }
    true
}

/// The tables of an attention that computes its relative bias itself, in half precision.
pub(crate) fn tables(half: DType, site: &mut Site<'_, '_>) -> Option<[Place; 2]> {
    let tables = *site.lowering.fusions.tables.get(&site.node)?;
    Some(tables.map(|table| {
        let padded = site.lowering.graph.ty(table).shape[1];
        site.weight(table, Form::Matrix { dtype: half, padded })
    }))
}

/// An attention of halves that are rotated already; false if no kernel takes it.
pub(crate) fn attention(
    op: &Attention,
    [query, key, value]: [&Input; 3],
    padding: Option<[&Input; 2]>,
    half: DType,
    site: &mut Site<'_, '_>,
) -> bool {
    if site.stored != half {
        return false;
    }
    let tables = tables(half, site);
    let tokens = |input: &Input| Tokens {
        place: input.place,
        picture: input.strides[0],
        token: input.strides[1],
    };
    let described = FastAttention {
        op,
        stored: half,
        pictures: query.ty.shape[0],
        tokens: [query.ty.shape[1], key.ty.shape[1]],
        widths: [query.ty.shape[2] / op.heads, value.ty.shape[2] / op.heads],
        operands: [tokens(query), tokens(key), tokens(value)],
        padding: padding.map(|padding| padding.map(|input| input.place)),
        tables,
        output: site.output,
    };
    let target = site.target();
    let mut scratch = |bytes: usize| site.scratch(bytes);
    let launches = crate::fast::attention::attention(&described, target, &mut scratch);
    let taken = launches.is_some();
    site.launches.extend(launches.unwrap_or_default());
    taken
}

/// A convolution of halves by 3 × 3, or a transposed one by 2 × 2; false if no kernel takes it.
pub(crate) fn convolve(
    x: &Input,
    taps: Taps,
    (weight, [rows, depth]): (Place, [usize; 2]),
    finish: &Finish,
    site: &mut Site<'_, '_>,
) -> bool {
    let shape: [usize; 4] = std::array::from_fn(|axis| x.ty.shape.get(axis).copied().unwrap_or(1));
    if finish.epilogue.scale != 1.0 || finish.residual.is_some() || !x.layout().is_contiguous() {
        return false;
    }
    let described = Convolution {
        pixels: x.place,
        stored: x.stored,
        shape,
        taps,
        weight: Matrix::dense(weight, x.stored, [rows, depth]),
        bias: finish.bias,
        activation: finish.epilogue.activation,
        output: finish.output,
        to: finish.to,
    };
    let launch = convolution(&described, site.target());
    site.launches.extend(launch.clone());
    launch.is_some()
}
