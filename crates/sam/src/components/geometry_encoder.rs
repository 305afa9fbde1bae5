//! The geometry encoder: positive and negative box and point exemplars.

use cutout_graph::ops::RoiAlign;
use cutout_graph::{Scope, Value, ports};

use crate::components::fusion_encoder::{FusionLayer, KeysAndValues, NORM_EPSILON};
use crate::components::layers::{Bias, Convolution, layer_norm, linear};
use crate::components::positions::{grid_positions, sine_positions};
use crate::model::config::DetectorConfig;

/// Side of the grid that a box's pixels are averaged to.
const BOX_CELLS: usize = 7;

ports! {
    /// Boxes or points with their labels.
    pub struct LabelledCoordinates {
        /// `f32[count, 4]` (centre x, centre y, width, height) or `f32[count, 2]` (x, y), in 0..1.
        coordinates,
        /// `i64[count]`: 0 negative, 1 positive.
        labels,
    }
}

/// Exemplars.
pub(crate) struct Geometry<'g> {
    pub(crate) boxes: Option<LabelledCoordinates<Value<'g>>>,
    pub(crate) points: Option<LabelledCoordinates<Value<'g>>>,
}

/// Encodes points, then boxes, then the class token, which is always present: `[1, tokens, width]`. All tokens attend
/// to the image `[1, grid, grid, width]`.
pub(crate) fn geometry_encoder<'g>(
    geometry: Geometry<'g>,
    image: Value<'g>,
    w: &Scope<'g>,
    config: &DetectorConfig,
) -> Value<'g> {
    let [_, grid, _, width] = image.dims();
    let normed = layer_norm(image, &w.at("img_pre_norm"), NORM_EPSILON);
    let class = w.at("cls_embed").parameter("weight", [1, width]);
    let points = geometry.points.map(|points| point_tokens(points, normed, w));
    let boxes = geometry.boxes.map(|boxes| box_tokens(boxes, normed, w));
    let parts: Vec<Value<'g>> = points.into_iter().chain(boxes).chain([class]).collect();
    let tokens = Value::concat(&parts, 0);
    let [count, _] = tokens.dims();
    let tokens = w.stage("tokens", tokens.reshape([1, count, width]));
    let x = layer_norm(linear(tokens, &w.at("final_proj"), width), &w.at("norm"), NORM_EPSILON);
    let mut x = w.stage("norm", x);
    let values = image.reshape([1, grid * grid, width]);
    let keys = values + grid_positions(image.builder(), grid, width);
    for index in 0..config.geometry_depth {
        let layer = FusionLayer { w: w.at("encode").at(index), config };
        x = layer
            .cross_attention_and_mlp(layer.self_attention(x, None), KeysAndValues { keys, values });
        x = layer.w.stage("", x);
    }
    layer_norm(x, &w.at("encode_norm"), NORM_EPSILON)
}

/// Each label's embedding, `[count, width]`.
fn labels<'g>(labels: Value<'g>, w: &Scope<'g>, width: usize) -> Value<'g> {
    w.at("label_embed").parameter("weight", [2, width]).gather(labels)
}

/// Points `[count, width]`: coordinates, the image there, and x before y as sines, each projected.
fn point_tokens<'g>(
    points: LabelledCoordinates<Value<'g>>,
    image: Value<'g>,
    w: &Scope<'g>,
) -> Value<'g> {
    let [_, _, _, width] = image.dims();
    let [count, _] = points.coordinates.dims();
    let builder = image.builder();
    let direct = linear(points.coordinates, &w.at("points_direct_project"), width);
    let grid = points.coordinates * builder.scalar(2.0) - builder.scalar(1.0);
    let seen = image.grid_sample(grid.reshape([1, count, 1, 2])).reshape([count, width]);
    let seen = linear(seen, &w.at("points_pool_project"), width);
    let place = sine_positions(points.coordinates, width / 2).reshape([count, width]);
    let place = linear(place, &w.at("points_pos_enc_project"), width);
    labels(points.labels, w, width) + direct + seen + place
}

/// Boxes `[count, width]`: coordinates, the image in them, and the centre's y before its x as sines with height and width,
/// each projected.
fn box_tokens<'g>(
    boxes: LabelledCoordinates<Value<'g>>,
    image: Value<'g>,
    w: &Scope<'g>,
) -> Value<'g> {
    let [_, _, _, width] = image.dims();
    let [count, _] = boxes.coordinates.dims();
    let direct = linear(boxes.coordinates, &w.at("boxes_direct_project"), width);
    let pool =
        Convolution { outputs: width, kernel: BOX_CELLS, stride: 1, padding: 0, bias: Bias::With };
    let seen = pool.apply(box_pixels(boxes.coordinates, image), &w.at("boxes_pool_project"));
    let [x, y, box_width, box_height] = boxes.coordinates.split(1);
    let centre = sine_positions(Value::concat(&[y, x], 1), width / 2).reshape([count, width]);
    let place = Value::concat(&[centre, box_height, box_width], 1);
    let place = linear(place, &w.at("boxes_pos_enc_project"), width);
    labels(boxes.labels, w, width) + direct + seen.reshape([count, width]) + place
}

/// The image in each box `[count, 4]`, averaged to `[count, cells, cells, width]`.
fn box_pixels<'g>(boxes: Value<'g>, image: Value<'g>) -> Value<'g> {
    let [_, grid, _, _] = image.dims();
    let builder = image.builder();
    let corners = corners(boxes) * builder.scalar(grid as f32);
    // Prepends the image index of each box: 0.
    let numbered = corners.pad([0, 1], [0, 0], 0.0);
    let options = RoiAlign {
        output: [BOX_CELLS, BOX_CELLS],
        spatial_scale: 1.0,
        sampling_ratio: 0,
        aligned: false,
    };
    image.roi_align(numbered, options)
}

/// Boxes (centre x, centre y, width, height) as (left, top, right, bottom), along the last axis.
pub(crate) fn corners(boxes: Value<'_>) -> Value<'_> {
    let axis = boxes.shape().rank().saturating_sub(1);
    let [centre, size] = boxes.split(axis);
    let half = size * boxes.builder().scalar(0.5);
    Value::concat(&[centre - half, centre + half], axis)
}
