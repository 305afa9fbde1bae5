//! The detector's decoder: queries that become objects, with their boxes, scores and the presence of the phrase.

use cutout_graph::ops::{Attention, AttentionInputs, BiasForm, SeparableBias};
use cutout_graph::{Reduced, Scope, Value};
use cutout_tensor::Tensor;

use crate::components::fusion_encoder::{KeysAndValues, NORM_EPSILON, mlp};
use crate::components::geometry_encoder::corners;
use crate::components::layers::{head, layer_norm, linear};
use crate::components::multi_head::{MultiHead, Projection};
use crate::components::positions::sine_positions;
use crate::model::config::DetectorConfig;

/// Lower bound of box coordinates and their complements in the inverse sigmoid.
const BOX_EPSILON: f32 = 1e-3;
/// Bounds of the scores.
const LARGEST_SCORE: f32 = 12.0;

/// Inputs of the decoder.
#[derive(Clone, Copy)]
pub(crate) struct DecoderSources<'g> {
    /// Image tokens after the fusion encoder, `[1, grid * grid, width]`.
    pub(crate) image: KeysAndValues<'g>,
    /// `[1, tokens, width]`.
    pub(crate) prompt: Value<'g>,
}

/// Outputs of the decoder.
#[derive(Clone, Copy)]
pub(crate) struct DecodedQueries<'g> {
    /// Normalised queries, `[1, queries, width]`.
    pub(crate) queries: Value<'g>,
    /// (centre x, centre y, width, height) in 0..1, `[1, queries, 4]`.
    pub(crate) boxes: Value<'g>,
    /// Logit of the phrase being in the image at all, `[1]`.
    pub(crate) presence: Value<'g>,
}

/// Decodes all queries. The first token is the presence token: it has no position and no box.
pub(crate) fn decoder<'g>(
    sources: DecoderSources<'g>,
    w: &Scope<'g>,
    config: &DetectorConfig,
) -> DecodedQueries<'g> {
    let (queries, width) = (config.queries, config.width);
    let presence = w.at("presence_token").parameter("weight", [1, width]);
    let embeddings = w.at("query_embed").parameter("weight", [queries, width]);
    let mut tokens = Value::concat(&[presence, embeddings], 0).reshape([1, queries + 1, width]);
    let boxes = w.at("reference_points").parameter("weight", [queries, 4]).sigmoid();
    let mut found =
        DecodedQueries { queries: tokens, boxes: boxes.reshape([1, queries, 4]), presence };
    for index in 0..config.decoder_depth {
        let layer = Layer { w: w.at("layers").at(index), config };
        let guidance = BoxGuidance {
            positions: query_positions(found.boxes, w, width),
            bias: box_bias(found.boxes, w, config, sources.image),
        };
        tokens = layer.w.stage("", layer.apply(tokens, guidance, sources));
        found = refine(tokens, found.boxes, w, config);
        layer.w.stage("boxes", found.boxes);
        layer.w.stage("presence", found.presence);
    }
    found
}

/// Positions and attention bias from the boxes of the queries.
#[derive(Clone, Copy)]
struct BoxGuidance<'g> {
    /// Positions of the tokens, `[1, 1 + queries, width]`.
    positions: Value<'g>,
    /// Bias on rows and columns of the image's grid, `[1, 1 + queries, heads, grid]` each.
    bias: [Value<'g>; 2],
}

/// A post-norm layer: self-attention, cross-attention to the prompt, cross-attention to the image, MLP.
struct Layer<'g, 'c> {
    w: Scope<'g>,
    config: &'c DetectorConfig,
}

impl<'g> Layer<'g, '_> {
    fn attention(&self, name: &str) -> MultiHead<'g> {
        MultiHead { w: self.w.at(name), width: self.config.width, heads: self.config.heads }
    }

    fn normed(&self, x: Value<'g>, norm: &str) -> Value<'g> {
        layer_norm(x, &self.w.at(norm), NORM_EPSILON)
    }

    fn apply(
        &self,
        x: Value<'g>,
        guidance: BoxGuidance<'g>,
        sources: DecoderSources<'g>,
    ) -> Value<'g> {
        let own = self.attention("self_attn");
        let [query, key] = own.project(x + guidance.positions, Projection::Query);
        let [value] = own.project(x, Projection::Value);
        let seen = own.mix(AttentionInputs::new(query, key, value), own.op());
        let x = self.normed(x + seen, "norm2");
        let prompt = sources.prompt;
        let seen = self.attention("ca_text").cross(x + guidance.positions, prompt, prompt);
        let x = self.normed(x + seen, "catext_norm");
        let x = self.normed(x + self.image_cross_attention(x, guidance, sources.image), "norm1");
        self.normed(x + mlp(self.config).apply(x, &self.w), "norm3")
    }

    fn image_cross_attention(
        &self,
        x: Value<'g>,
        guidance: BoxGuidance<'g>,
        image: KeysAndValues<'g>,
    ) -> Value<'g> {
        let attention = self.attention("cross_attn");
        let [query] = attention.project(x + guidance.positions, Projection::Query);
        let [key] = attention.project(image.keys, Projection::Key);
        let [value] = attention.project(image.values, Projection::Value);
        let [rows, columns] = guidance.bias.map(|bias| bias.shape().last_axis());
        let bias = SeparableBias { form: BiasForm::Absolute, grid: [rows, columns] };
        let op = Attention { bias: Some(bias), ..attention.op() };
        let inputs = AttentionInputs {
            bias: Some(guidance.bias),
            ..AttentionInputs::new(query, key, value)
        };
        attention.mix(inputs, op)
    }
}

/// Prepends zeros for the presence token along axis 1.
fn with_presence_row(x: Value<'_>) -> Value<'_> {
    let mut before = vec![0; x.shape().rank()];
    before[1] = 1;
    x.pad(before.clone(), vec![0; before.len()], 0.0)
}

/// Positions of the tokens `[1, 1 + queries, width]` from boxes `[1, queries, 4]`: y, x, width, height as sines.
fn query_positions<'g>(boxes: Value<'g>, w: &Scope<'g>, width: usize) -> Value<'g> {
    let [_, queries, _] = boxes.dims();
    let [x, y, box_width, box_height] = boxes.split(2);
    let ordered = Value::concat(&[y, x, box_width, box_height], 2);
    let sines = sine_positions(ordered, width / 2).reshape([1, queries, 2 * width]);
    with_presence_row(head(sines, &w.at("ref_point_head"), &[width, width]))
}

/// Attention bias of each token on rows and columns of the grid, from the edges of its box.
fn box_bias<'g>(
    boxes: Value<'g>,
    w: &Scope<'g>,
    config: &DetectorConfig,
    image: KeysAndValues<'g>,
) -> [Value<'g>; 2] {
    let [_, tokens, _] = image.keys.dims();
    let side = tokens.isqrt();
    let [left, top, right, bottom] = corners(boxes).split(2);
    let widths = [config.width, config.heads];
    let one = |edges: [Value<'g>; 2], name: &str| {
        let distances = log_distances(Value::concat(&edges, 2), side); // [1, queries, side, 2]
        let bias = head(distances, &w.at(name), &widths);
        with_presence_row(bias.permute([0, 1, 3, 2]))
    };
    [one([top, bottom], "boxRPB_embed_y"), one([left, right], "boxRPB_embed_x")]
}

/// Signed logarithms of the distances from two edges `[1, queries, 2]` to the near edge of every cell,
/// `[1, queries, side, 2]`.
fn log_distances(edges: Value<'_>, side: usize) -> Value<'_> {
    let [_, queries, _] = edges.dims();
    let builder = edges.builder();
    let cells: Vec<f32> = (0..side).map(|cell| cell as f32 / side as f32).collect();
    let cells = builder.computed(Tensor::from_vec([side, 1], cells));
    let distances = (cells - edges.reshape([1, queries, 1, 2])) * builder.scalar(8.0);
    let size = (distances.abs() + builder.scalar(1.0)).log2();
    // The logarithm of the factor above, to base two.
    distances.sign() * size * builder.scalar(1.0 / 3.0)
}

/// Refines the boxes and computes the presence logit.
fn refine<'g>(
    tokens: Value<'g>,
    boxes: Value<'g>,
    w: &Scope<'g>,
    config: &DetectorConfig,
) -> DecodedQueries<'g> {
    let (queries, width) = (config.queries, config.width);
    let normed = layer_norm(tokens.slice(1, 1..queries + 1), &w.at("norm"), NORM_EPSILON);
    let moved = head(normed, &w.at("bbox_embed"), &[width, width, 4]);
    let first = layer_norm(tokens.slice(1, 0..1), &w.at("presence_token_out_norm"), NORM_EPSILON);
    // Meta's code clamps this logit but discards the clamped value.
    let presence = head(first, &w.at("presence_token_head"), &[width, width, 1]);
    DecodedQueries {
        queries: normed,
        boxes: (inverse_sigmoid(boxes) + moved).sigmoid(),
        presence: presence.reshape([1]),
    }
}

/// The number whose sigmoid is `x`, in 0..1.
fn inverse_sigmoid(x: Value<'_>) -> Value<'_> {
    let builder = x.builder();
    let least = builder.scalar(BOX_EPSILON);
    (x.maximum(least) / (builder.scalar(1.0) - x).maximum(least)).log()
}

/// Scores of queries `[1, queries, width]` for the prompt `[1, tokens, width]`, as logits: `[queries]`.
pub(crate) fn scores<'g>(
    queries: Value<'g>,
    prompt: Value<'g>,
    w: &Scope<'g>,
    config: &DetectorConfig,
) -> Value<'g> {
    let width = config.width;
    let prompt_mlp = &w.at("prompt_mlp");
    let inner = head(prompt, prompt_mlp, &[config.scoring_width, width]);
    let prompt = layer_norm(prompt + inner, &prompt_mlp.at("out_norm"), NORM_EPSILON);
    let pooled = linear(prompt.mean([1], Reduced::Keep), &w.at("prompt_proj"), width);
    let queries = linear(queries, &w.at("hs_proj"), width);
    let builder = queries.builder();
    let scores = queries.matmul_transposed(pooled) * builder.scalar(1.0 / (width as f32).sqrt());
    let bounded =
        scores.minimum(builder.scalar(LARGEST_SCORE)).maximum(builder.scalar(-LARGEST_SCORE));
    bounded.reshape([config.queries])
}
