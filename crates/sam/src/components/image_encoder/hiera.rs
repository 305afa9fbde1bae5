//! Hiera, the image encoder of SAM 2: four stages of shrinking grids, attention in windows.

use cutout_graph::ops::{Attention, AttentionInputs, ResizeMode, Windows};
use cutout_graph::{Scope, Value};

use crate::components::layers::{
    Bias, Convolution, Mlp, MlpActivation, MlpNames, layer_norm, linear,
};
use crate::model::config::HieraConfig;

/// Channels between the layers of a block's MLP, as a multiple of the block's.
const MLP_RATIO: usize = 4;

/// Configuration of one block.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Output channels.
    outputs: usize,
    heads: usize,
    /// Side of its windows, in tokens that enter it; `None` for global attention.
    window: Option<usize>,
    /// Whether it is the first block of a stage and halves the grid.
    pools: bool,
    epsilon: f32,
}

impl HieraConfig {
    /// The blocks of each stage in order, with their numbers.
    fn blocks(&self) -> [Vec<(usize, Block)>; 4] {
        let mut numbers = 0..;
        [0, 1, 2, 3].map(|stage| {
            let numbered = numbers.by_ref().take(self.stages[stage]).enumerate();
            numbered.map(|(place, number)| (number, self.block(stage, place, number))).collect()
        })
    }

    fn block(&self, stage: usize, place: usize, number: usize) -> Block {
        let pools = stage > 0 && place == 0;
        let window = self.windows[if pools { stage - 1 } else { stage }];
        Block {
            outputs: self.width << stage,
            heads: self.heads << stage,
            window: (!self.global_blocks.contains(&number)).then_some(window),
            pools,
            epsilon: self.norm_epsilon,
        }
    }
}

/// Encodes normalised pixels `[1, size, size, 3]` into the results of the stages, each `[1, grid, grid, channels]`.
pub(crate) fn hiera<'g>(pixels: Value<'g>, w: &Scope<'g>, config: &HieraConfig) -> [Value<'g>; 4] {
    let patches =
        Convolution { outputs: config.width, kernel: 7, stride: 4, padding: 3, bias: Bias::With };
    let mut x = patches.apply(pixels, &w.at("patch_embed.proj")) + positions(w, config);
    config.blocks().map(|blocks| {
        for (number, block) in blocks {
            let w = &w.at("blocks").at(number);
            x = w.stage("", block.apply(x, w));
        }
        x
    })
}

/// Positions `[1, grid, grid, width]`: one small embedding stretched over the image, another repeated in every window.
fn positions<'g>(w: &Scope<'g>, config: &HieraConfig) -> Value<'g> {
    let (grid, width) = (config.first_grid(), config.width);
    let (side, window) = (config.position_grid, config.windows[0]);
    let stretched = w.parameter("pos_embed", [1, width, side, side]);
    let stretched = stretched.permute([0, 2, 3, 1]).resize(ResizeMode::Bicubic, [grid, grid]);
    let repeated = w.parameter("pos_embed_window", [1, width, window, window]);
    let count = grid / window.max(1);
    let repeated = repeated
        .permute([0, 2, 3, 1])
        .reshape([1, 1, window, 1, window, width])
        .broadcast([1, count, window, count, window, width])
        .reshape([1, grid, grid, width]);
    stretched + repeated
}

impl Block {
    /// The block applied to `[1, height, width, channels]`: attention, then MLP, each added to its input. Where the
    /// channels change, the input of attention is replaced by a projection of itself, normalised and pooled.
    fn apply<'g>(self, x: Value<'g>, w: &Scope<'g>) -> Value<'g> {
        let normed = layer_norm(x, &w.at("norm1"), self.epsilon);
        let kept = if self.pools { pool(linear(normed, &w.at("proj"), self.outputs)) } else { x };
        let x = kept + self.attention(normed, &w.at("attn"));
        let normed = layer_norm(x, &w.at("norm2"), self.epsilon);
        let mlp = Mlp {
            hidden: MLP_RATIO * self.outputs,
            activation: MlpActivation::Gelu,
            names: MlpNames::Layers,
        };
        x + mlp.apply(normed, &w.at("mlp"))
    }

    /// Attention inside windows, or over the whole grid, with pooled queries where the grid is halved.
    ///
    /// Meta pads windows with zeros after the norm, so a padded key is the key bias and a padded value the value bias:
    /// they exist here only as these two rows. Queries are pooled inside their window and never see padding.
    fn attention<'g>(self, x: Value<'g>, w: &Scope<'g>) -> Value<'g> {
        let [batch, height, width, _] = x.dims();
        let outputs = self.outputs;
        let bias = w.at("qkv").parameter("bias", [3 * outputs]);
        let [query, key, value] = linear(x, &w.at("qkv"), 3 * outputs).split(3);
        let query = if self.pools { pool(query) } else { query };
        let [_, query_height, query_width, _] = query.dims();
        let stride = if self.pools { 2 } else { 1 };
        let windows = self.window.map(|side| Windows {
            query_grid: [query_height, query_width],
            key_grid: [height, width],
            query_window: [side / stride; 2],
            key_window: [side; 2],
        });
        let scale = 1.0 / ((outputs / self.heads.max(1)) as f32).sqrt();
        let op = Attention { windows, ..Attention::new(self.heads, scale) };
        let [_, padding_key, padding_value] = bias.split(0);
        let tokens = |x: Value<'g>, count| x.reshape([batch, count, outputs]);
        let inputs = AttentionInputs {
            padding: op.has_padding().then_some([padding_key, padding_value]),
            ..AttentionInputs::new(
                tokens(query, query_height * query_width),
                tokens(key, height * width),
                tokens(value, height * width),
            )
        };
        let mixed = inputs.attend(op).reshape([batch, query_height, query_width, outputs]);
        linear(mixed, &w.at("proj"), outputs)
    }
}

/// 2×2 max pooling with stride 2.
fn pool(x: Value<'_>) -> Value<'_> {
    x.max_pool2d([2, 2], [2, 2], [0, 0])
}
