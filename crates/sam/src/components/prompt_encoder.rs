//! Prompts to tokens: points, box corners, and the mask of an earlier answer.

use std::f32::consts::TAU;

use cutout_graph::{Scope, Value};
use cutout_tensor::Tensor;

use crate::components::image_encoder::CHANNEL_NORM_EPSILON;
use crate::components::layers::{Bias, Convolution, layer_norm};
use crate::model::config::DecoderConfig;

/// What a point of a prompt is. The numbers are the rows of the table of embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i64)]
pub enum PointKind {
    /// Padding in place of a box; has no position.
    Padding = 0,
    /// Not part of the object.
    Negative = 1,
    /// Part of the object.
    Positive = 2,
    /// Upper left corner of a box.
    TopLeft = 3,
    /// Lower right corner of a box.
    BottomRight = 4,
}

/// Where the random features have their weights.
const POSITIONS: &str = "pe_layer";

/// Random features of positions: `[.., 2]` (x, y) in 0..1 to `[.., width]`.
fn position_features<'g>(positions: Value<'g>, w: &Scope<'g>, width: usize) -> Value<'g> {
    let matrix = w.parameter("positional_encoding_gaussian_matrix", [2, width / 2]);
    let angles = (positions * 2.0 - 1.0).linear(matrix.transposed()) * TAU;
    let last = angles.shape().rank() - 1;
    Value::concat(&[angles.sin(), angles.cos()], last)
}

/// Embeddings of points `[prompts, points, 2]` in pixels of the model's input, of the kinds `[prompts, points]`:
/// `[prompts, points, width]`.
pub(crate) fn points<'g>(
    positions: Value<'g>,
    kinds: Value<'g>,
    w: &Scope<'g>,
    image_size: usize,
    width: usize,
) -> Value<'g> {
    let [prompts, count, _] = positions.dims();
    let builder = positions.builder();
    let places = (positions + 0.5) / image_size as f32;
    let features = position_features(places, &w.at(POSITIONS), width);
    let row = |scope: Scope<'g>| scope.parameter("weight", [1, width]);
    let mut rows = vec![row(w.at("not_a_point_embed"))];
    rows.extend((0..4).map(|kind| row(w.at("point_embeddings").at(kind))));
    let table = Value::concat(&rows, 0);
    let padding = builder.constant(Tensor::scalar(PointKind::Padding as i64));
    let real = kinds.not_equal(padding).reshape([prompts, count, 1]);
    w.stage("points", real.select(features, builder.scalar(0.0)) + table.gather(kinds))
}

/// Position features of the embedding's grid: `[1, side * side, width]`.
pub(crate) fn dense_positions<'g>(w: &Scope<'g>, side: usize, width: usize) -> Value<'g> {
    w.stage("positions", grid_features(&w.at(POSITIONS), side, width))
}

/// Random features of the cells of a grid, `[1, side * side, width]`. Depends on weights alone, so it is computed once per model.
pub(crate) fn grid_features<'g>(w: &Scope<'g>, side: usize, width: usize) -> Value<'g> {
    let centre = |i: usize| (i as f32 + 0.5) / side as f32;
    let cells = (0..side * side).flat_map(|cell| [centre(cell % side), centre(cell / side)]);
    let grid =
        w.builder().computed(Tensor::from_vec([1, side * side, 2], cells.collect::<Vec<_>>()));
    position_features(grid, w, width)
}

/// Embedding of "no mask": `[1, 1, width]`, the same everywhere.
pub(crate) fn no_mask<'g>(w: &Scope<'g>, width: usize) -> Value<'g> {
    w.at("no_mask_embed").parameter("weight", [1, width]).reshape([1, 1, width])
}

/// Embedding of mask logits `[prompts, 4 side, 4 side, 1]`: `[prompts, side * side, width]`.
pub(crate) fn mask<'g>(logits: Value<'g>, w: &Scope<'g>, config: &DecoderConfig) -> Value<'g> {
    let outer = w;
    let w = &w.at("mask_downscaling");
    let halve =
        |outputs| Convolution { outputs, kernel: 2, stride: 2, padding: 0, bias: Bias::With };
    let x = halve(config.mask_channels).apply(logits, &w.at(0));
    let x = layer_norm(x, &w.at(1), CHANNEL_NORM_EPSILON).gelu();
    let x = halve(4 * config.mask_channels).apply(x, &w.at(3));
    let x = layer_norm(x, &w.at(4), CHANNEL_NORM_EPSILON).gelu();
    let widen =
        Convolution { outputs: config.width, kernel: 1, stride: 1, padding: 0, bias: Bias::With };
    let x = widen.apply(x, &w.at(6));
    let [prompts, height, width, channels] = x.dims();
    outer.stage("mask", x.reshape([prompts, height * width, channels]))
}
