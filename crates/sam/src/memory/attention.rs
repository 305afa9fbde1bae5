//! The current frame attends to the memories of earlier ones.
//!
//! Keys are projected once per memory and kept. What time adds to a memory before its projection is the same for all its
//! cells, so it is projected by itself and added to the kept keys. With one head (all of Meta's models) values need no
//! projection at all: a weighted mean of projections is the projection of the weighted mean, so memories themselves are the
//! values, four times narrower, and the projection is folded into the one behind the attention.

use cutout_graph::ops::{Attention, AttentionInputs, AttentionRope, axial_rope_tables};
use cutout_graph::{Builder, Scope, Value};

use super::positions::{distance_positions, grid_positions};
use crate::config::MemoryConfig;
use crate::layers::{Mlp, MlpActivation, MlpNames, layer_norm, linear, same_batch};

/// Epsilon of the norms: PyTorch's default.
const NORM_EPSILON: f32 = 1e-5;

/// How much of its position the current frame takes along.
const POSITION_SCALE: f32 = 0.1;

/// Base of the rotations' frequencies.
const ROPE_THETA: f64 = 10_000.0;

/// Memory attention of one model.
#[derive(Clone, Copy)]
pub(crate) struct MemoryAttention<'a> {
    pub(crate) config: &'a MemoryConfig,
    /// Channels of the image.
    pub(crate) width: usize,
    /// Side of the embedding's grid.
    pub(crate) grid: usize,
}

/// All memories that a frame attends to.
pub(crate) struct Bank<'g> {
    /// The frames, for each layer.
    pub(crate) layers: Vec<FrameOperands<'g>>,
    /// Which row of the temporal table each frame has, `i64[objects, frames]`.
    pub(crate) ages: Value<'g>,
    /// Object pointers, if there are any.
    pub(crate) pointers: Option<Pointers<'g>>,
}

/// The frames' keys and values in one layer.
pub(crate) struct FrameOperands<'g> {
    /// Each `[objects, grid * grid, width]`, without what time adds.
    pub(crate) keys: Vec<Value<'g>>,
    /// Each `[objects, grid * grid, width]`, or with one head the memories, `[objects, grid * grid, memory width]`.
    pub(crate) values: Vec<Value<'g>>,
}

/// Object pointers as memories.
#[derive(Clone, Copy)]
pub(crate) struct Pointers<'g> {
    /// Tokens of a memory's width, `[objects, tokens, memory width]`.
    pub(crate) tokens: Value<'g>,
    /// The same with their positions in time.
    pub(crate) placed: Value<'g>,
}

impl MemoryAttention<'_> {
    /// Whether memories serve as values without being projected.
    pub(crate) fn keeps_memories(self) -> bool {
        self.config.heads == 1
    }

    /// The keys of a memory `[objects, grid * grid, memory width]` in each layer, without what time adds.
    pub(crate) fn keys<'g>(self, memory: Value<'g>, w: &Scope<'g>) -> Vec<Value<'g>> {
        let placed = memory + grid_positions(w.builder(), self.grid, self.config.width);
        self.each_layer(w, |w| linear(placed, &w.at("cross_attn_image.k_proj"), self.width))
    }

    /// The values of a memory in each layer, where they are projected.
    pub(crate) fn values<'g>(self, memory: Value<'g>, w: &Scope<'g>) -> Vec<Value<'g>> {
        self.each_layer(w, |w| linear(memory, &w.at("cross_attn_image.v_proj"), self.width))
    }

    fn each_layer<'g>(
        self,
        w: &Scope<'g>,
        make: impl Fn(&Scope<'g>) -> Value<'g>,
    ) -> Vec<Value<'g>> {
        let layers = w.at("memory_attention.layers");
        (0..self.config.layers).map(|layer| make(&layers.at(layer))).collect()
    }

    /// Pointers `[objects, count, width]` cut into tokens of a memory's width. SAM 2.1 places them in time, by distances
    /// `[objects, count]`.
    pub(crate) fn pointers<'g>(
        self,
        pointers: Value<'g>,
        distances: Option<Value<'g>>,
        w: &Scope<'g>,
    ) -> Pointers<'g> {
        let [objects, count, width] = pointers.dims();
        let narrow = self.config.width;
        let parts = width / narrow;
        let tokens = pointers.reshape([objects, count * parts, narrow]);
        let Some(distances) = distances else { return Pointers { tokens, placed: tokens } };
        let places = distance_positions(distances, width);
        let places = linear(places, &w.at("obj_ptr_tpos_proj"), narrow)
            .reshape([objects, count, 1, narrow])
            .broadcast([objects, count, parts, narrow])
            .reshape([objects, count * parts, narrow]);
        Pointers { tokens, placed: tokens + places }
    }

    /// The top level of the current frame `[1, grid, grid, width]` with what the bank knows of each object:
    /// `[objects, grid, grid, width]`.
    pub(crate) fn attend<'g>(self, image: Value<'g>, bank: &Bank<'g>, w: &Scope<'g>) -> Value<'g> {
        let (cells, width) = (self.grid * self.grid, self.width);
        let rope = self.rotation(w.builder());
        let place = grid_positions(w.builder(), self.grid, width) * POSITION_SCALE;
        let mut x = image.reshape([1, cells, width]) + place;
        let MemoryConfig { frames, width: narrow, .. } = *self.config;
        let times = w.parameter("maskmem_tpos_enc", [frames, 1, 1, narrow]);
        let times = times.reshape([frames, narrow]);
        let w = &w.at("memory_attention");
        for layer in 0..self.config.layers {
            let w = &w.at("layers").at(layer);
            x = self.attend_to_itself(x, rope, w);
            let operands = self.operands(bank, layer, times, &w.at("cross_attn_image"));
            x = self.attend_to_memories(x, operands, rope, w);
            let mlp = Mlp {
                hidden: self.config.mlp_width,
                activation: MlpActivation::Relu,
                names: MlpNames::Linear,
            };
            x = w.stage("", x + mlp.apply(layer_norm(x, &w.at("norm3"), NORM_EPSILON), w));
        }
        let x = layer_norm(x, &w.at("norm"), NORM_EPSILON);
        let [objects, ..] = x.dims::<3>();
        x.reshape([objects, self.grid, self.grid, width])
    }

    /// Cosines and sines of the grid's rotations.
    fn rotation(self, builder: &Builder) -> [Value<'_>; 2] {
        let head_width = self.width / self.config.heads.max(1);
        let tables = axial_rope_tables([self.grid; 2], head_width, ROPE_THETA, 1.0);
        let cos = tables.as_ref().map(|(cos, _)| cos.clone()).map_err(Clone::clone);
        [builder.computed(cos), builder.computed(tables.map(|(_, sin)| sin))]
    }

    /// The attention op, with `key_tail` keys that have no place on the grid.
    fn op(self, key_tail: usize) -> Attention {
        let heads = self.config.heads;
        let scale = 1.0 / ((self.width / heads.max(1)) as f32).sqrt();
        Attention { rope: Some(AttentionRope { key_tail }), ..Attention::new(heads, scale) }
    }

    fn attend_to_itself<'g>(
        self,
        x: Value<'g>,
        [cos, sin]: [Value<'g>; 2],
        w: &Scope<'g>,
    ) -> Value<'g> {
        let normed = layer_norm(x, &w.at("norm1"), NORM_EPSILON);
        let w = &w.at("self_attn");
        let [query, key, value] =
            ["q_proj", "k_proj", "v_proj"].map(|name| linear(normed, &w.at(name), self.width));
        let inputs = AttentionInputs {
            rope: Some([cos, sin, cos, sin]),
            ..AttentionInputs::new(query, key, value)
        };
        x + linear(inputs.attend(self.op(0)), &w.at("out_proj"), self.width)
    }

    /// The keys and values of all memories in one layer: frames, then pointers.
    fn operands<'g>(
        self,
        bank: &Bank<'g>,
        layer: usize,
        times: Value<'g>,
        w: &Scope<'g>,
    ) -> Operands<'g> {
        let FrameOperands { keys, values } = &bank.layers[layer];
        let weight = w.at("k_proj").parameter("weight", [self.width, self.config.width]);
        let times = times.linear(weight).gather(bank.ages); // [objects, frames, width]
        let placed = keys.iter().enumerate();
        let placed = placed.map(|(frame, &key)| key + times.slice(1, frame..frame + 1));
        let mut keys: Vec<Value<'g>> = placed.collect();
        let mut values = values.clone();
        let mut tail = 0;
        if let Some(pointers) = bank.pointers {
            let [_, tokens, _] = pointers.tokens.dims();
            tail = tokens;
            keys.push(linear(pointers.placed, &w.at("k_proj"), self.width));
            values.push(if self.keeps_memories() {
                pointers.tokens
            } else {
                linear(pointers.tokens, &w.at("v_proj"), self.width)
            });
        }
        Operands { key: Value::concat(&keys, 1), value: Value::concat(&values, 1), tail }
    }

    fn attend_to_memories<'g>(
        self,
        x: Value<'g>,
        Operands { key, value, tail }: Operands<'g>,
        [cos, sin]: [Value<'g>; 2],
        w: &Scope<'g>,
    ) -> Value<'g> {
        let normed = layer_norm(x, &w.at("norm2"), NORM_EPSILON);
        let w = &w.at("cross_attn_image");
        let query = linear(normed, &w.at("q_proj"), self.width);
        let [query, key, value] = same_batch([query, key, value]);
        let inputs = AttentionInputs {
            rope: Some([cos, sin, cos, sin]),
            ..AttentionInputs::new(query, key, value)
        };
        let mixed = inputs.attend(self.op(tail));
        if self.keeps_memories() {
            x + self.project_twice(mixed, w)
        } else {
            x + linear(mixed, &w.at("out_proj"), self.width)
        }
    }

    /// The projection of values and the one behind the attention, as one.
    fn project_twice<'g>(self, mixed: Value<'g>, w: &Scope<'g>) -> Value<'g> {
        let (width, narrow) = (self.width, self.config.width);
        let first = &w.at("v_proj");
        let second = w.at("out_proj").parameter("weight", [width, width]);
        let weight = second.matmul(first.parameter("weight", [width, narrow]));
        let bias = first.parameter("bias", [width]).reshape([1, width]).linear(second);
        let bias = bias.reshape([width]) + w.at("out_proj").parameter("bias", [width]);
        mixed.linear(weight) + bias
    }
}

/// What queries meet in one layer.
struct Operands<'g> {
    /// `[objects, tokens, width]`.
    key: Value<'g>,
    /// `[objects, tokens, width or memory width]`.
    value: Value<'g>,
    /// Tokens at the end that have no place on the grid.
    tail: usize,
}
