//! From the one grid of a plain ViT to three levels.

use cutout_graph::{Scope, Value};

use crate::layers::{Bias, Convolution, upscale};

/// Levels `[1, 4 grid, 4 grid, embedding]`, `[1, 2 grid, 2 grid, embedding]` and `[1, grid, grid, embedding]` of features
/// `[1, grid, grid, width]`: upscaled, then a 1×1 and a 3×3 convolution without a norm.
///
/// Checkpoints hold a fourth, coarser level that nothing reads.
pub(crate) fn simple_pyramid<'g>(x: Value<'g>, w: &Scope<'g>, embedding: usize) -> [Value<'g>; 3] {
    let width = x.shape().last_axis();
    let finest = upscale(x, &w.at("0.dconv_2x2_0"), width / 2).gelu();
    let finest = upscale(finest, &w.at("0.dconv_2x2_1"), width / 4);
    let fine = upscale(x, &w.at("1.dconv_2x2"), width / 2);
    let narrow =
        Convolution { outputs: embedding, kernel: 1, stride: 1, padding: 0, bias: Bias::With };
    let mix = Convolution { kernel: 3, padding: 1, ..narrow };
    let level = |index: usize, x| {
        let w = &w.at(index);
        mix.apply(narrow.apply(x, &w.at("conv_1x1")), &w.at("conv_3x3"))
    };
    [level(0, finest), level(1, fine), level(2, x)]
}
