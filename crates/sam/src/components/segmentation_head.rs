//! The segmentation head: a mask for each query and a semantic mask.

use cutout_graph::ops::{GroupNorm, ResizeMode};
use cutout_graph::{Scope, Value};

use crate::components::fusion_encoder::NORM_EPSILON;
use crate::components::layers::{Bias, Convolution, head, layer_norm};
use crate::components::multi_head::MultiHead;
use crate::model::config::DetectorConfig;

/// Groups of the pixel decoder's norms.
const GROUPS: usize = 8;

/// Inputs of the head.
#[derive(Clone, Copy)]
pub(crate) struct MaskSources<'g> {
    /// Levels of the image, `[1, 4 grid, 4 grid, width]` and `[1, 2 grid, 2 grid, width]`.
    pub(crate) levels: [Value<'g>; 2],
    /// Image tokens after the fusion encoder, `[1, grid * grid, width]`.
    pub(crate) image: Value<'g>,
    /// `[1, tokens, width]`.
    pub(crate) prompt: Value<'g>,
    /// `[1, queries, width]`.
    pub(crate) queries: Value<'g>,
}

/// Logits of pixels.
#[derive(Clone, Copy)]
pub(crate) struct MaskLogits<'g> {
    /// `[queries, 4 grid, 4 grid]`.
    pub(crate) masks: Value<'g>,
    /// `[1, 4 grid, 4 grid]`.
    pub(crate) semantic: Value<'g>,
}

/// Masks of all queries, and the semantic mask.
pub(crate) fn segmentation_head<'g>(
    sources: MaskSources<'g>,
    w: &Scope<'g>,
    config: &DetectorConfig,
) -> MaskLogits<'g> {
    let width = config.width;
    let attention = MultiHead { w: w.at("cross_attend_prompt"), width, heads: config.heads };
    let normed = layer_norm(sources.image, &w.at("cross_attn_norm"), NORM_EPSILON);
    let image = sources.image + attention.cross(normed, sources.prompt, sources.prompt);
    let [finest, fine] = sources.levels;
    let [_, side, _, _] = finest.dims();
    let coarse = image.reshape([1, side / 4, side / 4, width]);
    let pixels = &w.at("pixel_decoder");
    let x = finer(coarse, fine, pixels, 0);
    let x = finer(x, finest, pixels, 1).reshape([1, side * side, width]);
    let semantic = &w.at("semantic_seg_head");
    let weight = semantic.parameter("weight", [1, width, 1, 1]).reshape([1, width]);
    let semantic = x.linear(weight) + semantic.parameter("bias", [1]);
    MaskLogits {
        masks: masks(sources.queries, x, w).reshape([config.queries, side, side]),
        semantic: semantic.reshape([1, side, side]),
    }
}

/// Adds the upsampled coarser level, then convolution, norm and ReLU.
fn finer<'g>(coarse: Value<'g>, level: Value<'g>, w: &Scope<'g>, index: usize) -> Value<'g> {
    let [_, height, columns, width] = level.dims();
    let mix = Convolution { outputs: width, kernel: 3, stride: 1, padding: 1, bias: Bias::With };
    let both = level + coarse.resize(ResizeMode::Nearest, [height, columns]);
    let mixed = mix.apply(both, &w.at("conv_layers").at(index));
    let norm = &w.at("norms").at(index);
    let op = GroupNorm { groups: GROUPS, epsilon: NORM_EPSILON };
    let (weight, bias) = (norm.parameter("weight", [width]), norm.parameter("bias", [width]));
    let normed = mixed.group_norm(weight, bias, op);
    norm.stage("", normed).relu()
}

/// Products of queries and pixels `[1, pixels, width]`, each projected first: `[1, queries, pixels]`.
///
/// The projection of the pixels is applied to the queries instead, of which there are hundreds of times fewer.
fn masks<'g>(queries: Value<'g>, pixels: Value<'g>, w: &Scope<'g>) -> Value<'g> {
    let [_, _, width] = queries.dims();
    let queries = head(queries, &w.at("mask_predictor.mask_embed"), &[width; 3]);
    let projection = &w.at("instance_seg_head");
    let weight = projection.parameter("weight", [width, width, 1, 1]).reshape([width, width]);
    let bias = projection.parameter("bias", [width]).reshape([1, width]);
    queries.linear(weight.transposed()).matmul_transposed(pixels) + queries.linear(bias)
}
