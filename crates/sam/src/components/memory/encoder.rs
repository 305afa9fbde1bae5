//! The memory encoder.

use cutout_graph::ops::{Conv2d, ResizeMode};
use cutout_graph::{Scope, Value};
use cutout_tensor::DType;

use crate::components::image_encoder::CHANNEL_NORM_EPSILON;
use crate::components::layers::{Bias, Convolution, layer_norm, linear};
use crate::model::config::{MemoryConfig, MemoryForm};

/// Mask logits enter as probabilities stretched to -10..10.
const MASK_SCALE: f32 = 20.0;

/// Largest logit of a pixel that belongs to another object.
pub(super) const LOST: f32 = -10.0;

/// Convolutions that each halve the mask, down to the embedding's grid.
const HALVINGS: usize = 4;

/// Where the mask of a memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MaskSource {
    /// Predicted by the model: probabilities are kept.
    Predicted,
    /// Predicted by the model and settled among objects: as [`MaskSource::Predicted`], enlarged in one step.
    Settled,
    /// Result of a prompt: the mask is binarised; in SAM 3, objects share no pixel.
    Prompted,
}

/// Inputs of the memory encoder.
#[derive(Clone, Copy)]
pub(crate) struct MemoryEncoderInputs<'g> {
    /// The pyramid's top level, `[1, grid, grid, width]`.
    pub(crate) image: Value<'g>,
    /// Low-resolution mask logits, `[objects, 4 grid, 4 grid, 1]`.
    pub(crate) logits: Value<'g>,
    /// Object scores, `[objects]`, for SAM 2.1 and later, which mark hidden objects.
    pub(crate) score: Option<Value<'g>>,
    /// Side of the model's input, to which logits are resized first: 16 grid but in SAM 3.
    pub(crate) side: usize,
}

/// Memories of objects, `[objects, grid * grid, memory width]`. `w` is [`MemoryForm::weights`].
pub(crate) fn memory_encoder<'g>(
    remembered: MemoryEncoderInputs<'g>,
    source: MaskSource,
    w: &Scope<'g>,
    config: &MemoryConfig,
) -> Value<'g> {
    let MemoryEncoderInputs { image, logits, score, side } = remembered;
    let [objects, ..] = logits.dims::<4>();
    let [_, grid, ..] = image.dims::<4>();
    let root = w;
    let w = &w.at(config.form.encoder());
    let side = if source == MaskSource::Settled { 16 * grid } else { side };
    let mask = logits.resize(ResizeMode::Bilinear, [side; 2]);
    let mask = match config.form {
        MemoryForm::Sam2 | MemoryForm::Sam2_1 => mask,
        MemoryForm::Sam3 | MemoryForm::Sam3_1 => separated(mask, source),
    };
    let mask = fitted(certainty(mask, source), grid);
    let memory = fused(image, mask, w, config);
    let Some(score) = score else { return memory };
    let zero = w.builder().scalar(0.0);
    let hidden = root.parameter("no_obj_embed_spatial", [1, config.width]);
    memory + score.greater(zero).reshape([objects, 1, 1]).select(zero, hidden)
}

/// Masks `[.., side, side, channels]` at sixteen times the resolution of the grid.
pub(super) fn fitted(mask: Value<'_>, grid: usize) -> Value<'_> {
    let [_, side, ..] = mask.dims::<4>();
    match 16 * grid {
        large if large == side => mask,
        large => mask.resize_antialiased(ResizeMode::Bilinear, [large; 2]),
    }
}

/// Memories `[masks, grid * grid, memory width]` of an image `[1, grid, grid, width]` and of masks
/// `[masks, 16 grid, 16 grid, channels]`. `w` is at the memory encoder.
pub(super) fn fused<'g>(
    image: Value<'g>,
    mask: Value<'g>,
    w: &Scope<'g>,
    config: &MemoryConfig,
) -> Value<'g> {
    let [masks, ..] = mask.dims::<4>();
    let [_, grid, _, width] = image.dims();
    let down = &w.at("mask_downsampler");
    let first = config.multiplex.as_ref().map_or(4, |multiplex| multiplex.mask_channels);
    let mask = down.stage("", downsampled(mask, &down.at("encoder"), first, width));
    let mut x = pointwise(width).apply(image, &w.at("pix_feat_proj")) + mask;
    for layer in 0..config.fuser_layers {
        let w = &w.at("fuser.layers").at(layer);
        x = w.stage("", mix(x, w, config.fuser_width));
    }
    // A memory as wide as the image is not projected.
    let memory = match config.width == width {
        true => x,
        false => pointwise(config.width).apply(x, &w.at("out_proj")),
    };
    memory.reshape([masks, grid * grid, config.width])
}

/// Prompted masks `[objects, side, side, 1]` of objects that share a frame: each pixel is left to the object with the largest
/// logit, the first of equal ones.
fn separated(logits: Value<'_>, source: MaskSource) -> Value<'_> {
    let [objects, side, ..] = logits.dims::<4>();
    if objects == 1 || source != MaskSource::Prompted {
        return logits;
    }
    let number = |value| logits.builder().scalar(value);
    let winner = logits.arg_max(0).cast(DType::F32).reshape([1, side, side, 1]);
    let object = |index: usize| {
        let own = logits.slice(0, index..index + 1);
        let away = winner - index as f32;
        (away * away).greater(number(0.0)).select(own.minimum(number(LOST)), own)
    };
    Value::concat(&(0..objects).map(object).collect::<Vec<_>>(), 0)
}

/// Mask input of the memory encoder, -10 to 10.
fn certainty(logits: Value<'_>, source: MaskSource) -> Value<'_> {
    let number = |value| logits.builder().scalar(value);
    match source {
        MaskSource::Predicted | MaskSource::Settled => {
            logits.sigmoid() * MASK_SCALE - MASK_SCALE / 2.0
        }
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

/// Masks `[masks, 16 grid, 16 grid, channels]` in the embedding's grid: each step halves them; the first has `first` channels,
/// the others four times as many as the one before.
fn downsampled<'g>(mask: Value<'g>, w: &Scope<'g>, first: usize, outputs: usize) -> Value<'g> {
    let mut x = mask;
    for step in 0..HALVINGS {
        let channels = first << (2 * step);
        let halve =
            Convolution { outputs: channels, kernel: 3, stride: 2, padding: 1, bias: Bias::With };
        x = halve.apply(x, &w.at(3 * step));
        x = layer_norm(x, &w.at(3 * step + 1), CHANNEL_NORM_EPSILON).gelu();
    }
    pointwise(outputs).apply(x, &w.at(3 * HALVINGS))
}

/// A ConvNeXt block over `[objects, grid, grid, width]`: each channel over its neighbourhood, then all channels of a cell.
/// Its scale per channel is folded into its last layer.
fn mix<'g>(x: Value<'g>, w: &Scope<'g>, hidden: usize) -> Value<'g> {
    let width = x.shape().last_axis();
    let spatial = &w.at("dwconv");
    let kernel = spatial.parameter("weight", [width, 1, 7, 7]);
    let depthwise = Conv2d { groups: width, ..Conv2d::new(1, 3) };
    let inner = x.conv2d(kernel, depthwise) + spatial.parameter("bias", [width]);
    let inner = layer_norm(inner, &w.at("norm"), CHANNEL_NORM_EPSILON);
    let inner = linear(inner, &w.at("pwconv1"), hidden).gelu();
    let last = &w.at("pwconv2");
    let scale = w.parameter("gamma", [width]);
    let weight = last.parameter("weight", [width, hidden]) * scale.reshape([width, 1]);
    x + (inner.linear(weight) + last.parameter("bias", [width]) * scale)
}
