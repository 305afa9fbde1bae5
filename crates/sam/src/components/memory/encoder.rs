//! The memory encoder.

use cutout_graph::ops::{Conv2d, ResizeMode};
use cutout_graph::{Scope, Value};

use crate::components::image_encoder::CHANNEL_NORM_EPSILON;
use crate::components::layers::{Bias, Convolution, layer_norm, linear};
use crate::model::config::MemoryConfig;

/// Mask logits enter as probabilities stretched to -10..10.
const MASK_SCALE: f32 = 20.0;

/// Convolutions that each halve the mask, down to the embedding's grid.
const HALVINGS: usize = 4;

/// Where the mask of a memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MaskSource {
    /// Predicted by the model: probabilities are kept.
    Predicted,
    /// Result of a prompt: the mask is binarised.
    Prompted,
}

/// Inputs of the memory encoder.
#[derive(Clone, Copy)]
pub(crate) struct MemoryEncoderInputs<'g> {
    /// The pyramid's top level, `[1, grid, grid, width]`.
    pub(crate) image: Value<'g>,
    /// Low-resolution mask logits, `[objects, 4 grid, 4 grid, 1]`.
    pub(crate) logits: Value<'g>,
    /// Object scores, `[objects]`, for SAM 2.1, which marks hidden objects.
    pub(crate) score: Option<Value<'g>>,
}

/// Memories of objects, `[objects, grid * grid, memory width]`. `w` is the root of the weights.
pub(crate) fn memory_encoder<'g>(
    remembered: MemoryEncoderInputs<'g>,
    source: MaskSource,
    w: &Scope<'g>,
    config: &MemoryConfig,
) -> Value<'g> {
    let MemoryEncoderInputs { image, logits, score } = remembered;
    let [objects, ..] = logits.dims::<4>();
    let [_, grid, _, width] = image.dims();
    let root = w;
    let w = &w.at("memory_encoder");
    let mask = certainty(logits.resize(ResizeMode::Bilinear, [16 * grid; 2]), source);
    let down = &w.at("mask_downsampler");
    let mask = down.stage("", downsampled(mask, &down.at("encoder"), width));
    let mut x = pointwise(width).apply(image, &w.at("pix_feat_proj")) + mask;
    for layer in 0..config.fuser_layers {
        let w = &w.at("fuser.layers").at(layer);
        x = w.stage("", mix(x, w));
    }
    let memory = pointwise(config.width).apply(x, &w.at("out_proj"));
    let memory = memory.reshape([objects, grid * grid, config.width]);
    let Some(score) = score else { return memory };
    let zero = w.builder().scalar(0.0);
    let hidden = root.parameter("no_obj_embed_spatial", [1, config.width]);
    memory + score.greater(zero).reshape([objects, 1, 1]).select(zero, hidden)
}

/// Mask input of the memory encoder, -10 to 10.
fn certainty(logits: Value<'_>, source: MaskSource) -> Value<'_> {
    let number = |value| logits.builder().scalar(value);
    match source {
        MaskSource::Predicted => logits.sigmoid() * MASK_SCALE - MASK_SCALE / 2.0,
        MaskSource::Prompted => {
            let inside = logits.greater(number(0.0));
            inside.select(number(MASK_SCALE / 2.0), number(-MASK_SCALE / 2.0))
        }
    }
}

/// A 1×1 convolution.
fn pointwise(outputs: usize) -> Convolution {
    Convolution { outputs, kernel: 1, stride: 1, padding: 0, bias: Bias::With }
}

/// A mask `[objects, 16 grid, 16 grid, 1]` in the embedding's grid: each step halves it and has four times the channels.
fn downsampled<'g>(mask: Value<'g>, w: &Scope<'g>, outputs: usize) -> Value<'g> {
    let mut x = mask;
    for step in 0..HALVINGS {
        let channels = 4 * x.shape().last_axis();
        let halve =
            Convolution { outputs: channels, kernel: 3, stride: 2, padding: 1, bias: Bias::With };
        x = halve.apply(x, &w.at(3 * step));
        x = layer_norm(x, &w.at(3 * step + 1), CHANNEL_NORM_EPSILON).gelu();
    }
    pointwise(outputs).apply(x, &w.at(3 * HALVINGS))
}

/// A ConvNeXt block over `[objects, grid, grid, width]`: each channel over its neighbourhood, then all channels of a cell.
/// Its scale per channel is folded into its last layer.
fn mix<'g>(x: Value<'g>, w: &Scope<'g>) -> Value<'g> {
    let width = x.shape().last_axis();
    let spatial = &w.at("dwconv");
    let kernel = spatial.parameter("weight", [width, 1, 7, 7]);
    let depthwise = Conv2d { groups: width, ..Conv2d::new(1, 3) };
    let inner = x.conv2d(kernel, depthwise) + spatial.parameter("bias", [width]);
    let inner = layer_norm(inner, &w.at("norm"), CHANNEL_NORM_EPSILON);
    let inner = linear(inner, &w.at("pwconv1"), 4 * width).gelu();
    let last = &w.at("pwconv2");
    let scale = w.parameter("gamma", [width]);
    let weight = last.parameter("weight", [width, 4 * width]) * scale.reshape([width, 1]);
    x + (inner.linear(weight) + last.parameter("bias", [width]) * scale)
}
