//! The ViT of SAM 3: windowed and global attention with rotary positions.

use cutout_graph::ops::{Attention, AttentionInputs, AttentionRope, axial_rope_tables};
use cutout_graph::{Builder, Scope, Value};

use super::vit::{Block, square_windows};
use crate::components::layers::{
    Bias, Convolution, Mlp, MlpActivation, MlpNames, layer_norm, linear,
};
use crate::model::config::{PositionRows, PositionTable, VitConfig};

/// Base of the rotation's wavelengths.
const THETA: f64 = 1e4;

/// Encodes normalised pixels `[batch, size, size, 3]` into features `[batch, grid, grid, width]`.
pub(crate) fn rotary_vit<'g>(
    pixels: Value<'g>,
    w: &Scope<'g>,
    config: &VitConfig,
    positions: PositionTable,
) -> Value<'g> {
    let (grid, width) = (config.grid(), config.width);
    let [batch, ..] = pixels.dims::<4>();
    let patches = Convolution {
        outputs: width,
        kernel: config.patch,
        stride: config.patch,
        padding: 0,
        bias: Bias::Without,
    };
    let x = patches.apply(pixels, &w.at("patch_embed.proj"))
        + tiled_positions(w, positions, [grid, width]);
    let x =
        layer_norm(x.reshape([batch, grid * grid, width]), &w.at("ln_pre"), config.norm_epsilon);
    let mut x = w.stage("ln_pre", x);
    let mlp =
        Mlp { hidden: config.mlp_width, activation: MlpActivation::Gelu, names: MlpNames::Fc };
    let block = Block { mlp, norm_epsilon: config.norm_epsilon };
    let [local, global] = [AttentionSpan::Window, AttentionSpan::Image]
        .map(|span| RotaryAttention::new(pixels.builder(), config, span));
    for index in 0..config.depth {
        let w = &w.at("blocks").at(index);
        let attention = if config.is_global(index) { &global } else { &local };
        x = w.stage("", block.apply(x, w, |x| attention.attend(x, &w.at("attn"), config)));
    }
    x.reshape([batch, grid, grid, width])
}

/// The position table tiled over the grid: `[1, grid, grid, width]`.
fn tiled_positions<'g>(
    w: &Scope<'g>,
    table: PositionTable,
    [grid, width]: [usize; 2],
) -> Value<'g> {
    let side = table.grid;
    let first = match table.rows {
        PositionRows::ClassAndGrid => 1,
        PositionRows::Grid => 0,
    };
    let table = w.parameter("pos_embed", [1, first + side * side, width]);
    let table = table.slice(1, first..first + side * side).reshape([1, side, side, width]);
    let copies = grid.div_ceil(side.max(1)).max(1);
    let rows = Value::concat(&vec![table; copies], 1).slice(1, 0..grid);
    Value::concat(&vec![rows; copies], 2).slice(2, 0..grid)
}

/// Attention span of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AttentionSpan {
    Window,
    Image,
}

/// The attention of one kind of block, with its rotation.
struct RotaryAttention<'g> {
    op: Attention,
    cos: Value<'g>,
    sin: Value<'g>,
}

impl<'g> RotaryAttention<'g> {
    /// Windowed blocks use positions 0, 1, 2, …; global blocks scale positions to the range of a window.
    fn new(builder: &'g Builder, config: &VitConfig, span: AttentionSpan) -> Self {
        let (grid, window) = (config.grid(), config.window);
        let (side, scale, windows) = match span {
            AttentionSpan::Window => (window, 1.0, Some(square_windows(grid, window))),
            AttentionSpan::Image => (grid, window as f64 / grid as f64, None),
        };
        let tables = axial_rope_tables([side, side], config.head_width(), THETA, scale);
        let (cos, sin) = match tables {
            Ok((cos, sin)) => (Ok(cos), Ok(sin)),
            Err(error) => (Err(error.clone()), Err(error)),
        };
        let op = Attention {
            rope: Some(AttentionRope { key_tail: 0 }),
            windows,
            ..Attention::new(config.heads, 1.0 / (config.head_width() as f32).sqrt())
        };
        RotaryAttention { op, cos: builder.computed(cos), sin: builder.computed(sin) }
    }

    /// Attention over normalised tokens `[batch, tokens, width]`.
    fn attend(&self, x: Value<'g>, w: &Scope<'g>, config: &VitConfig) -> Value<'g> {
        let width = config.width;
        let [query, key, value] = linear(x, &w.at("qkv"), 3 * width).split(2);
        let [_, padding_key, padding_value] = w.at("qkv").parameter("bias", [3 * width]).split(0);
        let inputs = AttentionInputs {
            rope: Some([self.cos, self.sin, self.cos, self.sin]),
            padding: self.op.has_padding().then_some([padding_key, padding_value]),
            ..AttentionInputs::new(query, key, value)
        };
        linear(inputs.attend(self.op), &w.at("proj"), width)
    }
}
