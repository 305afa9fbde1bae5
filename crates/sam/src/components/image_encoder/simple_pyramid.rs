//! Three pyramid levels from the single grid of a ViT.

use cutout_graph::ops::Conv2d;
use cutout_graph::{Scope, Value};

use crate::components::layers::{Bias, Convolution, upscale};

/// A 1×1 convolution; `outputs` is set by each use.
const NARROW: Convolution =
    Convolution { outputs: 0, kernel: 1, stride: 1, padding: 0, bias: Bias::With };

/// Levels `[1, 4 grid, 4 grid, embedding]`, `[1, 2 grid, 2 grid, embedding]` and `[1, grid, grid, embedding]` of features
/// `[1, grid, grid, width]`: upscaled, then a 1×1 and a 3×3 convolution without a norm.
///
/// Checkpoints hold a fourth, coarser level that nothing reads.
pub(crate) fn simple_pyramid<'g>(x: Value<'g>, w: &Scope<'g>, embedding: usize) -> [Value<'g>; 3] {
    let [finest, fine] = upscaled(x, w);
    let level = |index: usize, x| Level { w: w.at(index), embedding }.apply(x);
    [level(0, finest), level(1, fine), level(2, x)]
}

/// The levels of [`simple_pyramid`] with the mask decoder's projections of the two fine ones, to `embedding / 8` and
/// `embedding / 4` channels.
pub(crate) fn projected_pyramid<'g>(
    x: Value<'g>,
    w: &Scope<'g>,
    decoder: &Scope<'g>,
    embedding: usize,
) -> [Value<'g>; 3] {
    let [finest, fine] = upscaled(x, w);
    let level = |index: usize| Level { w: w.at(index), embedding };
    [
        level(0).project(finest, &decoder.at("conv_s0"), embedding / 8),
        level(1).project(fine, &decoder.at("conv_s1"), embedding / 4),
        level(2).apply(x),
    ]
}

/// The features in four times and twice the resolution.
fn upscaled<'g>(x: Value<'g>, w: &Scope<'g>) -> [Value<'g>; 2] {
    let width = x.shape().last_axis();
    let finest = upscale(x, &w.at("0.dconv_2x2_0"), width / 2).gelu();
    let finest = upscale(finest, &w.at("0.dconv_2x2_1"), width / 4);
    [finest, upscale(x, &w.at("1.dconv_2x2"), width / 2)]
}

/// The two convolutions of a level.
struct Level<'g> {
    w: Scope<'g>,
    embedding: usize,
}

impl<'g> Level<'g> {
    fn narrow(&self, x: Value<'g>) -> Value<'g> {
        Convolution { outputs: self.embedding, ..NARROW }.apply(x, &self.w.at("conv_1x1"))
    }

    fn apply(&self, x: Value<'g>) -> Value<'g> {
        let mix = Convolution { outputs: self.embedding, kernel: 3, padding: 1, ..NARROW };
        mix.apply(self.narrow(x), &self.w.at("conv_3x3"))
    }

    /// The level followed by a 1×1 convolution, with the weights of both convolutions multiplied into one.
    fn project(&self, x: Value<'g>, next: &Scope<'g>, outputs: usize) -> Value<'g> {
        let width = self.embedding;
        let mix = &self.w.at("conv_3x3");
        let second = next.parameter("weight", [outputs, width, 1, 1]).reshape([outputs, width]);
        let first = mix.parameter("weight", [width, width, 3, 3]).reshape([width, width * 9]);
        let weight = second.matmul(first).reshape([outputs, width, 3, 3]);
        let bias = mix.parameter("bias", [width]).reshape([1, width]).linear(second);
        let bias = bias.reshape([outputs]) + next.parameter("bias", [outputs]);
        self.narrow(x).conv2d(weight, Conv2d::new(1, 1)) + bias
    }
}
