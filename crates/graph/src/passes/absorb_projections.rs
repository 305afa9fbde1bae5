//! Moves projections of many tokens in an attention to the few tokens on its other side.

use std::cell::Cell;

use cutout_tensor::Tensor;

use super::{Context, Draft, fold_constants, rewrite};
use crate::graph::{Constant, Graph, NodeId, Origin};
use crate::ops::{
    Attention, Binary, BinaryKind, Broadcast, Epilogue, Linear, MatMul, Permute, Reduce,
    ReduceKind, Reshape, Softmax,
};
use crate::{CompileError, Op};

/// Largest share of the multiply-adds that a rewrite may leave. Its ops are more and smaller, so it must save more than
/// their overhead.
const WORTHWHILE: f64 = 0.75;

/// Where a few tokens meet many in an attention, the projections of the many move to the few. Products may be taken in
/// any order: `q · (x Wᵀ)ᵀ = (q W) · xᵀ`, so with few queries the keys are `x` itself and every head's queries are
/// projected back, one row for each head and query. Weights sum to one, so the values are projected after they were
/// summed. A key's bias adds the same to all scores of a query, which changes no weight: it is left out.
///
/// Seven tokens of a mask decoder look at 4096 pixels, with eight heads (`by head` stands for a product with a constant
/// that keeps the channels of one head, and a reshape):
///
/// ```text
/// %6 = Linear { bias } %1 %2 %3 : f32[1, 4096, 128]          %6 = by head %0 : f32[1, 56, 128]
/// %7 = Linear { bias } %1 %4 %5 : f32[1, 4096, 128]      →   %7 = Linear %6 %2ᵀ : f32[1, 56, 256]
/// %8 = Attention { heads: 8 } %0 %6 %7 : f32[1, 7, 128]      %8 = Attention { heads: 1 } %7 %1 %1 : f32[1, 56, 256]
///                                                            %9 = sum of by head (Linear %8 %4) + %5 : f32[1, 7, 128]
/// ```
///
/// With few keys, queries are multiplied with every head's keys, projected back, in one product; what is projected
/// after the attention becomes part of the values. The scores are fewer than the channels they replace:
///
/// ```text
/// %6 = Linear { bias } %0 %1 %2 : f32[1, 4096, 128]          %6 = Linear (by head %3) %1ᵀ : f32[1, 56, 256]
/// %7 = Attention { heads: 8 } %6 %3 %4 : f32[1, 4096, 128] → %7 = Softmax (MatMul %0 %6ᵀ + ..) : f32[1, 4096, 8, 7]
/// %8 = Linear %7 %5 : f32[1, 4096, 256]                      %8 = Linear (by head %4) %5 : f32[1, 56, 256]
///                                                            %9 = MatMul %7 %8 : f32[1, 4096, 256]
/// ```
///
/// Either rewrite is made where it leaves at most three quarters of the multiply-adds.
#[expect(clippy::wildcard_enum_match_arm, reason = "only these two can absorb a projection")]
pub(super) fn run(graph: &Graph, context: &Context<'_>) -> Result<Graph, CompileError> {
    let count = Cell::new(0);
    let rewritten = rewrite(graph, |draft, id| {
        let (new, what) = match *draft.old().op(id)? {
            Op::Attention(op) => {
                (FewQueries::find(draft, id, op)?.build(draft)?, "keys and values")
            }
            Op::Linear(op) => (FewKeys::find(draft, id, op)?.build(draft)?, "queries and outputs"),
            _ => return None,
        };
        count.set(count.get() + 1);
        context.note(format!("absorbed: projections of {what} at {}", draft.old().node(id).origin));
        Some(new)
    });
    if count.get() == 0 {
        return Ok(graph.clone());
    }
    if context.profile.runs("fold_constants") {
        // Transposed weights are expressions of weights.
        return fold_constants::run(&rewritten, context);
    }
    Ok(rewritten)
}

/// `input · weightᵀ + bias`, read by nothing but the attention.
#[derive(Clone, Copy)]
struct Projection {
    input: NodeId,
    weight: NodeId,
    bias: Option<NodeId>,
}

impl Projection {
    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is a projection")]
    fn find(draft: &Draft<'_>, id: NodeId) -> Option<Projection> {
        let inputs = &draft.node(id).inputs;
        match draft.op(id)? {
            Op::Linear(op) if draft.read_once(id) => {
                let bias = Epilogue { bias: true, ..Epilogue::NONE };
                let known = op.epilogue == Epilogue::NONE || op.epilogue == bias;
                let [input, weight] = [inputs[0], inputs[1]];
                known.then(|| Projection { input, weight, bias: inputs.get(2).copied() })
            }
            Op::Binary(Binary { kind: BinaryKind::Add }) if draft.read_once(id) => {
                let orders = [(inputs[0], inputs[1]), (inputs[1], inputs[0])];
                orders.into_iter().find_map(|(product, bias)| {
                    let found = Projection::find(draft, product)?;
                    let outputs = draft.node(product).ty.shape.last_axis();
                    let is_bias = draft.node(bias).ty.shape[..] == [outputs];
                    (found.bias.is_none() && is_bias)
                        .then_some(Projection { bias: Some(bias), ..found })
                })
            }
            _ => None,
        }
    }

    /// The same behind a broadcast.
    fn find_broadcast(draft: &Draft<'_>, id: NodeId) -> Option<Projection> {
        let repeats = matches!(draft.op(id)?, Op::Broadcast(_)) && draft.read_once(id);
        Projection::find(draft, if repeats { draft.node(id).inputs[0] } else { id })
    }

    /// Multiply-adds of the projection.
    fn cost(&self, draft: &Draft<'_>) -> f64 {
        let [outputs, _] = axes(draft, self.weight);
        (draft.node(self.input).ty.shape.elements() * outputs) as f64
    }
}

/// The axes of a value whose rank is known.
fn axes<const N: usize>(draft: &Draft<'_>, id: NodeId) -> [usize; N] {
    let shape = &draft.node(id).ty.shape;
    std::array::from_fn(|axis| shape[axis])
}

/// Whether every query attends to every key, without mask, bias or windows.
fn is_plain(op: &Attention) -> bool {
    *op == Attention::new(op.heads, op.scale)
}

/// An attention of few queries to keys and values that are projected for it.
struct FewQueries {
    op: Attention,
    query: NodeId,
    key: Projection,
    value: Projection,
    origin: Origin,
}

impl FewQueries {
    fn find(draft: &Draft<'_>, id: NodeId, op: Attention) -> Option<FewQueries> {
        if !is_plain(&op) {
            return None;
        }
        let inputs = draft.new_inputs(id);
        let found = FewQueries {
            op,
            query: inputs[0],
            key: Projection::find_broadcast(draft, inputs[1])?,
            value: Projection::find_broadcast(draft, inputs[2])?,
            origin: draft.old().node(id).origin.clone(),
        };
        let [batch, queries, width] = axes(draft, found.query);
        let [_, keys, _] = axes(draft, inputs[1]);
        let [value_width, value_channels] = axes(draft, found.value.weight);
        let [_, channels] = axes(draft, found.key.weight);
        let scores = (batch * queries * keys) as f64;
        let rows = (batch * queries * op.heads) as f64;
        let before =
            found.key.cost(draft) + found.value.cost(draft) + scores * (width + value_width) as f64;
        let after = scores * (op.heads * (channels + value_channels)) as f64
            + rows * (width * channels + value_width * value_channels) as f64;
        (after < WORTHWHILE * before).then_some(found)
    }

    fn build(self, draft: &mut Draft<'_>) -> Option<NodeId> {
        let FewQueries { op, query, key, value, ref origin } = self;
        let [batch, queries, _] = axes(draft, query);
        let [value_width, _] = axes(draft, value.weight);
        let by_head = ByHead { heads: op.heads, factor: 1.0, origin };
        let rows = by_head.rows(draft, query)?;
        let rows = by_head.projected_back(draft, rows, key.weight)?;
        let [keys, values] = [key.input, value.input].map(|input| {
            let [_, tokens, channels] = axes(draft, input);
            draft.add(Broadcast { shape: vec![batch, tokens, channels] }, &[input], origin)
        });
        let mixed = draft.add(Attention::new(1, op.scale), &[rows, keys?, values?], origin)?;
        let mixed =
            draft.add(Linear { epilogue: Epilogue::NONE }, &[mixed, value.weight], origin)?;
        let shape = vec![batch, op.heads, queries, value_width];
        let mixed = draft.add(Reshape { shape }, &[mixed], origin)?;
        let own = by_head.own_channels(draft, mixed)?;
        let sum = Reduce { kind: ReduceKind::Sum, axes: vec![1], keep: false };
        let sum = draft.add(sum, &[own], origin)?;
        match value.bias {
            Some(bias) => draft.add(Binary { kind: BinaryKind::Add }, &[sum, bias], origin),
            None => Some(sum),
        }
    }
}

/// An attention to few keys and values, whose result is projected.
struct FewKeys {
    op: Attention,
    query: NodeId,
    projection: Option<Projection>,
    key: NodeId,
    value: NodeId,
    outputs: Linear,
    /// Inputs of the linear layer behind the attention, from its weight on.
    behind: Vec<NodeId>,
    origin: Origin,
}

impl FewKeys {
    fn find(draft: &Draft<'_>, id: NodeId, outputs: Linear) -> Option<FewKeys> {
        let inputs = draft.new_inputs(id);
        let Some(&Op::Attention(op)) = draft.op(inputs[0]) else { return None };
        if !is_plain(&op) || !draft.read_once(inputs[0]) {
            return None;
        }
        let &[query, key, value] = &draft.node(inputs[0]).inputs[..] else { return None };
        let projection = Projection::find_broadcast(draft, query);
        let [batch, queries, width] = axes(draft, query);
        let [_, keys, value_width] = axes(draft, value);
        let [channels_out, _] = axes(draft, inputs[1]);
        let channels = match projection {
            Some(projection) => axes::<2>(draft, projection.weight)[1],
            None => width,
        };
        let scores = (batch * queries * keys) as f64;
        let rows = (batch * keys * op.heads) as f64;
        let before = projection.map_or(0.0, |projection| projection.cost(draft))
            + scores * (width + value_width) as f64
            + (batch * queries * value_width * channels_out) as f64;
        let projected = if projection.is_some() { width * channels } else { 0 };
        let after = scores * (op.heads * (channels + channels_out)) as f64
            + rows * (projected + value_width * channels_out) as f64;
        let (behind, origin) = (inputs[1..].to_vec(), draft.old().node(id).origin.clone());
        (after < WORTHWHILE * before).then_some(FewKeys {
            op,
            query,
            projection,
            key,
            value,
            outputs,
            behind,
            origin,
        })
    }

    fn build(self, draft: &mut Draft<'_>) -> Option<NodeId> {
        let FewKeys { op, query, key, value, ref origin, .. } = self;
        let [batch, queries, _] = axes(draft, query);
        let [_, keys, _] = axes(draft, key);
        let scores = self.scores(draft)?;
        let shape = vec![batch, queries, op.heads, keys];
        let scores = draft.add(Reshape { shape }, &[scores], origin)?;
        let weights = draft.add(Softmax, &[scores], origin)?;
        let shape = vec![batch, queries, op.heads * keys];
        let weights = draft.add(Reshape { shape }, &[weights], origin)?;
        let by_head = ByHead { heads: op.heads, factor: 1.0, origin };
        let values = by_head.rows(draft, value)?;
        let linear = Linear { epilogue: Epilogue::NONE };
        let values = draft.add(linear, &[values, self.behind[0]], origin)?;
        let product = MatMul { epilogue: self.outputs.epilogue, ..MatMul::PLAIN };
        let inputs: Vec<NodeId> =
            [weights, values].into_iter().chain(self.behind[1..].iter().copied()).collect();
        draft.add(product, &inputs, origin)
    }

    /// Scores of every query with each head's keys: `[batch, queries, heads * keys]`.
    fn scores(&self, draft: &mut Draft<'_>) -> Option<NodeId> {
        let FewKeys { op, query, key, ref origin, .. } = *self;
        let by_head = ByHead { heads: op.heads, factor: op.scale, origin };
        let rows = by_head.rows(draft, key)?;
        let Some(Projection { input, weight, bias }) = self.projection else {
            return draft.add(MatMul::TRANSPOSED, &[query, rows], origin);
        };
        let back = by_head.projected_back(draft, rows, weight)?;
        let scores = draft.add(MatMul::TRANSPOSED, &[input, back], origin)?;
        let Some(bias) = bias else { return Some(scores) };
        let [batch, count, width] = axes(draft, rows);
        let bias = draft.add(Reshape { shape: vec![1, width] }, &[bias], origin)?;
        let linear = Linear { epilogue: Epilogue::NONE };
        let added = draft.add(linear, &[rows, bias], origin)?; // [batch, heads * keys, 1]
        let added = draft.add(Reshape { shape: vec![batch, 1, count] }, &[added], origin)?;
        draft.add(Binary { kind: BinaryKind::Add }, &[scores, added], origin)
    }
}

/// Tokens taken apart by head.
struct ByHead<'a> {
    heads: usize,
    /// What the channels of a head are multiplied with.
    factor: f32,
    origin: &'a Origin,
}

impl ByHead<'_> {
    /// `[batch, tokens, width]` as `[batch, heads * tokens, width]`: each token once for each head, with the channels of
    /// the others zero.
    fn rows(&self, draft: &mut Draft<'_>, tokens: NodeId) -> Option<NodeId> {
        let [batch, count, width] = axes(draft, tokens);
        let shape = vec![batch, 1, count, width];
        let tokens = draft.add(Reshape { shape }, &[tokens], self.origin)?;
        let own = self.own_channels(draft, tokens)?;
        draft.add(Reshape { shape: vec![batch, self.heads * count, width] }, &[own], self.origin)
    }

    /// `[batch, heads or 1, tokens, width]` as `[batch, heads, tokens, width]`, with zeros in all but each head's own
    /// channels.
    fn own_channels(&self, draft: &mut Draft<'_>, tokens: NodeId) -> Option<NodeId> {
        let &ByHead { heads, factor, origin } = self;
        let [.., width] = axes::<4>(draft, tokens);
        let element = |i: usize| {
            let (head, channel) = (i / width, i % width);
            if channel / (width / heads) == head { factor } else { 0.0 }
        };
        let values: Vec<f32> = (0..heads * width).map(element).collect();
        let tensor = Tensor::from_vec([heads, 1, width], values).ok()?;
        let name = format!("channels of {heads} heads in {width} by {factor:?}").into();
        let own = draft.add_constant(Constant { value: tensor.into(), name: Some(name) }, origin);
        draft.add(Binary { kind: BinaryKind::Multiply }, &[tokens, own], origin)
    }

    /// `rows · weight` for rows that a projection with this weight gives.
    fn projected_back(
        &self,
        draft: &mut Draft<'_>,
        rows: NodeId,
        weight: NodeId,
    ) -> Option<NodeId> {
        let transposed = draft.add(Permute { axes: vec![1, 0] }, &[weight], self.origin)?;
        draft.add(Linear { epilogue: Epilogue::NONE }, &[rows, transposed], self.origin)
    }
}

#[cfg(test)]
mod tests {
    use cutout_tensor::DType;

    use super::*;
    use crate::ops::AttentionInputs;
    use crate::{Builder, Profile, Scope, Value};

    fn projected<'g>(x: Value<'g>, w: &Scope<'g>, outputs: usize) -> Value<'g> {
        let inputs = x.shape().last_axis();
        x.linear(w.parameter("weight", [outputs, inputs])) + w.parameter("bias", [outputs])
    }

    /// Queries look at keys with eight heads of four channels, everything projected; the ops after the pass, counted.
    fn rewritten(queries: usize, keys: usize) -> [usize; 3] {
        let builder = Builder::new();
        let w = builder.weights();
        let input = |name, tokens| builder.input(name, DType::F32, [2, tokens, 64]);
        let (queries, keys) = (input("queries", queries), input("keys", keys));
        let inputs = AttentionInputs::new(
            projected(queries, &w.at("q"), 32),
            projected(keys, &w.at("k"), 32),
            projected(keys, &w.at("v"), 32),
        );
        let mixed = inputs.attend(Attention::new(8, 0.5));
        builder.output("y", queries + projected(mixed, &w.at("out"), 64));
        let graph = builder.finish().expect("the shapes fit");
        let profile = Profile::default();
        let graph = run(&graph, &Context::new(None, &profile)).expect("nothing can fail");
        let count = |name: &str| {
            let has_name = |id: &NodeId| graph.op(*id).is_some_and(|op| op.name() == name);
            graph.iter().map(|(id, _)| id).filter(has_name).count()
        };
        ["attention", "softmax", "linear"].map(count)
    }

    #[test]
    fn projections_move_to_the_few() {
        // Queries and outputs are projected as before; queries also back, and the sums of values.
        assert_eq!(rewritten(2, 100), [1, 0, 4]);
        // Keys and values are projected as before; keys also back, values also on, and the bias of the queries.
        assert_eq!(rewritten(100, 2), [0, 1, 5]);
    }

    #[test]
    fn projections_of_as_many_tokens_stay() {
        assert_eq!(rewritten(50, 50), [1, 0, 4]);
        assert_eq!(rewritten(7, 7), [1, 0, 4]);
    }
}
