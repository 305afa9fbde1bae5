//! From the encoder's channels to the embedding's.

use cutout_graph::{Scope, Value};

use crate::components::layers::{Bias, Convolution, layer_norm};

/// Epsilon of every `LayerNorm2d`.
pub(crate) const CHANNEL_NORM_EPSILON: f32 = 1e-6;

/// A 1×1 and a 3×3 convolution, each followed by a norm over channels: `[1, grid, grid, width]` to
/// `[1, grid, grid, embedding]`.
pub(crate) fn neck<'g>(x: Value<'g>, w: &Scope<'g>, embedding: usize) -> Value<'g> {
    let narrow =
        Convolution { outputs: embedding, kernel: 1, stride: 1, padding: 0, bias: Bias::Without };
    let x = w.stage("0", narrow.apply(x, &w.at(0)));
    let x = layer_norm(x, &w.at(1), CHANNEL_NORM_EPSILON);
    let mix = Convolution { kernel: 3, padding: 1, ..narrow };
    let x = w.stage("2", mix.apply(x, &w.at(2)));
    layer_norm(x, &w.at(3), CHANNEL_NORM_EPSILON)
}
