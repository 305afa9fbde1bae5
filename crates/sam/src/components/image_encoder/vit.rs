//! The ViT of SAM 1: windowed and global attention with decomposed relative positions.

use cutout_graph::ops::{Attention, AttentionInputs, BiasForm, SeparableBias, Windows};
use cutout_graph::{Scope, Value};
use cutout_tensor::Tensor;

use crate::components::layers::{
    Bias, Convolution, Mlp, MlpActivation, MlpNames, layer_norm, linear,
};
use crate::model::config::VitConfig;

/// Encodes normalised, padded pixels `[batch, size, size, 3]` into features `[batch, grid, grid, width]`.
pub(crate) fn vit<'g>(pixels: Value<'g>, w: &Scope<'g>, config: &VitConfig) -> Value<'g> {
    let grid = config.grid();
    let [batch, ..] = pixels.dims::<4>();
    let patches = Convolution {
        outputs: config.width,
        kernel: config.patch,
        stride: config.patch,
        padding: 0,
        bias: Bias::With,
    };
    let mut x = patches.apply(pixels, &w.at("patch_embed.proj"));
    x = x + w.parameter("pos_embed", [1, grid, grid, config.width]);
    x = x.reshape([batch, grid * grid, config.width]);
    let mlp =
        Mlp { hidden: config.mlp_width, activation: MlpActivation::Gelu, names: MlpNames::Lin };
    for index in 0..config.depth {
        let w = &w.at("blocks").at(index);
        let attend = |x| attention(x, &w.at("attn"), config, config.is_global(index));
        x = w.stage("", Block { mlp, norm_epsilon: config.norm_epsilon }.apply(x, w, attend));
    }
    x.reshape([batch, grid, grid, config.width])
}

/// Pre-norm transformer block over tokens `[batch, tokens, width]`: attention, then MLP, each added to its input.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) mlp: Mlp,
    pub(super) norm_epsilon: f32,
}

impl Block {
    /// The block applied to `x`, with an attention that is given normalised tokens.
    pub(super) fn apply<'g>(
        self,
        x: Value<'g>,
        w: &Scope<'g>,
        attend: impl FnOnce(Value<'g>) -> Value<'g>,
    ) -> Value<'g> {
        let x = x + attend(layer_norm(x, &w.at("norm1"), self.norm_epsilon));
        let normed = layer_norm(x, &w.at("norm2"), self.norm_epsilon);
        x + self.mlp.apply(normed, &w.at("mlp"))
    }
}

/// Windows of `side` by `side` tokens, the same for queries and keys, of a grid.
pub(super) fn square_windows(grid: usize, side: usize) -> Windows {
    Windows {
        query_grid: [grid, grid],
        key_grid: [grid, grid],
        query_window: [side, side],
        key_window: [side, side],
    }
}

/// Attention inside windows, or over the whole grid if `global`.
///
/// Meta pads windows with zeros after the norm, so a padded key is the key bias and a padded value the value bias:
/// they exist here only as these two rows.
fn attention<'g>(x: Value<'g>, w: &Scope<'g>, config: &VitConfig, global: bool) -> Value<'g> {
    let width = config.width;
    let grid = config.grid();
    let side = if global { grid } else { config.window };
    let bias = w.at("qkv").parameter("bias", [3 * width]);
    let [query, key, value] = linear(x, &w.at("qkv"), 3 * width).split(2);
    let op = Attention {
        bias: Some(SeparableBias { form: BiasForm::Relative, grid: [side, side] }),
        windows: (!global).then(|| square_windows(grid, side)),
        ..Attention::new(config.heads, 1.0 / (config.head_width() as f32).sqrt())
    };
    let [_, padding_key, padding_value] = bias.split(0);
    let inputs = AttentionInputs {
        bias: Some([
            relative_positions(
                query,
                w.parameter("rel_pos_h", [2 * side - 1, config.head_width()]),
            ),
            relative_positions(
                query,
                w.parameter("rel_pos_w", [2 * side - 1, config.head_width()]),
            ),
        ]),
        padding: op.has_padding().then_some([padding_key, padding_value]),
        ..AttentionInputs::new(query, key, value)
    };
    linear(inputs.attend(op), &w.at("proj"), width)
}

/// Products of every (unscaled) query with every relative position, `[batch, tokens, heads, 2 side - 1]`.
///
/// Meta's table runs over `query - key`, the attention's bias over `key - query`: the table is reversed.
fn relative_positions<'g>(query: Value<'g>, table: Value<'g>) -> Value<'g> {
    let [positions, head_width] = table.dims();
    let [batch, tokens, width] = query.dims();
    let reversed: Vec<i64> = (0..positions as i64).rev().collect();
    let order = query.builder().computed(Tensor::from_vec([positions], reversed));
    query.reshape([batch, tokens, width / head_width, head_width]).linear(table.gather(order))
}
