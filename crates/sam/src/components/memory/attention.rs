//! Memory attention: the current frame attends to the memories of other frames.
//!
//! Keys are projected once per memory and cached. The temporal position is the same for all cells of a memory, so it is
//! projected separately and added to the cached keys. With one head (all of Meta's models) values need no projection at
//! all: a weighted mean of projections is the projection of the weighted mean, so memories themselves are the values,
//! four times narrower, and the projection is folded into the output projection.

use cutout_graph::ops::{Attention, AttentionInputs, AttentionRope, axial_rope_tables};
use cutout_graph::{Builder, Scope, Value, ports};
use cutout_tensor::DType;

use crate::components::layers::{Mlp, MlpActivation, MlpNames, layer_norm, linear, same_batch};
use crate::components::positions::{distance_positions, grid_positions};
use crate::model::config::MemoryConfig;

/// Epsilon of the norms: PyTorch's default.
const NORM_EPSILON: f32 = 1e-5;

/// Scale of the position embedding added to the current frame.
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

ports! {
    /// One object's memory of one frame.
    pub struct FrameMemory {
        /// `bf16[1, grid * grid, memory width]`.
        memory,
        /// Its keys in each layer, `f32[1, grid * grid, width]`, without temporal positions; empty if they are not
        /// cached.
        keys: list,
        /// Values in each layer; empty if not projected or not cached.
        values: list,
    }
}

ports! {
    /// Memories and pointers of one object.
    pub struct ObjectBank {
        /// Memories of frames.
        frames: list FrameMemory,
        /// Object pointers, `f32[1, width]` each.
        pointers: list,
    }
}

ports! {
    /// All memories that a frame attends to.
    pub struct Bank {
        /// Which row of the temporal table each memory has, `i64[objects, frames]`: 0 for the frame before this one, 1 for the
        /// one before that, the last row for every conditioning frame.
        ages,
        /// Temporal distance of each pointer, from 0 to 1, `f32[objects, pointers]`: SAM 2.1.
        distances: optional,
        /// The objects, each with as many frames and pointers.
        objects: list ObjectBank,
    }
}

/// Object pointers as memories.
#[derive(Clone, Copy)]
struct PointerTokens<'g> {
    /// Tokens of a memory's width, `[objects, tokens, memory width]`.
    tokens: Value<'g>,
    /// The same with their positions in time.
    with_positions: Value<'g>,
}

impl MemoryAttention<'_> {
    /// Whether memories serve as values without being projected.
    pub(crate) fn uses_memories_as_values(self) -> bool {
        self.config.heads == 1
    }

    /// Memories `bf16[objects, grid * grid, memory width]` with their keys, and their values where they are projected.
    pub(crate) fn project<'g>(self, memory: Value<'g>, w: &Scope<'g>) -> FrameMemory<Value<'g>> {
        let layers = w.at(self.config.form.attention()).at("layers");
        let each = |make: &dyn Fn(&Scope<'g>) -> Value<'g>| -> Vec<Value<'g>> {
            let layer = |layer| make(&layers.at(layer).at("cross_attn_image"));
            (0..self.config.layers).map(layer).collect()
        };
        let exact = memory.cast(DType::F32);
        let placed = exact + self.memory_positions(w);
        let keys = each(&|w| linear(placed, &w.at("k_proj"), self.width));
        let values = if self.uses_memories_as_values() {
            Vec::new()
        } else {
            each(&|w| linear(exact, &w.at("v_proj"), self.width))
        };
        FrameMemory { memory, keys, values }
    }

    /// Positions of a memory's cells, `[1, grid * grid, memory width]`.
    fn memory_positions<'g>(self, w: &Scope<'g>) -> Value<'g> {
        grid_positions(w.builder(), self.grid, self.config.width)
    }

    /// Pointers cut into tokens of a memory's width. SAM 2.1 places them in time, by their distances.
    fn pointers<'g>(self, bank: &Bank<Value<'g>>, w: &Scope<'g>) -> Option<PointerTokens<'g>> {
        let all: Vec<Value<'g>> =
            bank.objects.iter().flat_map(|object| object.pointers.iter().copied()).collect();
        if all.is_empty() {
            return None;
        }
        let (objects, width) = (bank.objects.len(), self.width);
        let count = all.len() / objects;
        let pointers = Value::concat(&all, 0).reshape([objects, count, width]);
        let narrow = self.config.width;
        let parts = width / narrow;
        let tokens = pointers.reshape([objects, count * parts, narrow]);
        let Some(distances) = bank.distances else {
            return Some(PointerTokens { tokens, with_positions: tokens });
        };
        let places = distance_positions(distances, width);
        let places = linear(places, &w.at("obj_ptr_tpos_proj"), narrow)
            .reshape([objects, count, 1, narrow])
            .broadcast([objects, count, parts, narrow])
            .reshape([objects, count * parts, narrow]);
        Some(PointerTokens { tokens, with_positions: tokens + places })
    }

    /// The top level of the current frame `[1, grid, grid, width]` after attention to the bank of each object:
    /// `[objects, grid, grid, width]`.
    pub(crate) fn attend<'g>(
        self,
        image: Value<'g>,
        bank: &Bank<Value<'g>>,
        w: &Scope<'g>,
    ) -> Value<'g> {
        let (cells, width) = (self.grid * self.grid, self.width);
        let rope = self.rotation(w.builder());
        let place = grid_positions(w.builder(), self.grid, width) * POSITION_SCALE;
        let mut x = image.reshape([1, cells, width]) + place;
        let MemoryConfig { frames, width: narrow, .. } = *self.config;
        let times = w.parameter("maskmem_tpos_enc", [frames, 1, 1, narrow]);
        let times = times.reshape([frames, narrow]);
        let pointers = self.pointers(bank, w);
        let memories = self.f32_memories(bank);
        let positions = self.memory_positions(w);
        let w = &w.at(self.config.form.attention());
        for layer in 0..self.config.layers {
            let w = &w.at("layers").at(layer);
            x = self.self_attention(x, rope, w);
            let cross = &w.at("cross_attn_image");
            let memories =
                LayerBank { bank, memories: &memories, positions, pointers, index: layer };
            let operands = CrossAttentionOperands {
                key: self.layer_keys(memories, times, cross),
                value: self.layer_values(memories, cross),
                tail: pointers.map_or(0, |pointers| pointers.tokens.dims::<3>()[1]),
            };
            x = self.memory_cross_attention(x, operands, rope, w);
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

    /// The attention op, with `key_tail` keys at the end without rotary position.
    fn op(self, key_tail: usize) -> Attention {
        let heads = self.config.heads;
        let scale = 1.0 / ((self.width / heads.max(1)) as f32).sqrt();
        Attention { rope: Some(AttentionRope { key_tail }), ..Attention::new(heads, scale) }
    }

    fn self_attention<'g>(
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

    /// The memories of each object, in single precision.
    fn f32_memories<'g>(self, bank: &Bank<Value<'g>>) -> Vec<Vec<Value<'g>>> {
        let exact = |frame: &FrameMemory<Value<'g>>| frame.memory.cast(DType::F32);
        bank.objects.iter().map(|object| object.frames.iter().map(exact).collect()).collect()
    }

    /// The keys of all memories in one layer, `[objects, tokens, width]`: frames, then pointers.
    fn layer_keys<'g>(
        self,
        layer: LayerBank<'_, 'g>,
        times: Value<'g>,
        w: &Scope<'g>,
    ) -> Value<'g> {
        let weight = w.at("k_proj").parameter("weight", [self.width, self.config.width]);
        let times = times.linear(weight).gather(layer.bank.ages); // [objects, frames, width]
        let frame = |object: usize, frame: usize| {
            let kept = layer.bank.objects[object].frames[frame].keys.get(layer.index);
            let key = match kept {
                Some(key) => *key,
                None => {
                    let placed = layer.memories[object][frame] + layer.positions;
                    linear(placed, &w.at("k_proj"), self.width)
                }
            };
            key + times.slice(0, object..object + 1).slice(1, frame..frame + 1)
        };
        let tail = layer
            .pointers
            .map(|pointers| linear(pointers.with_positions, &w.at("k_proj"), self.width));
        layer.joined(frame, tail)
    }

    /// The values of all memories in one layer, `[objects, tokens, width or memory width]`: frames, then pointers.
    fn layer_values<'g>(self, layer: LayerBank<'_, 'g>, w: &Scope<'g>) -> Value<'g> {
        let projected = |x| {
            if self.uses_memories_as_values() { x } else { linear(x, &w.at("v_proj"), self.width) }
        };
        let frame = |object: usize, frame: usize| {
            let kept = layer.bank.objects[object].frames[frame].values.get(layer.index);
            match kept {
                Some(value) => *value,
                None => projected(layer.memories[object][frame]),
            }
        };
        layer.joined(frame, layer.pointers.map(|pointers| projected(pointers.tokens)))
    }

    fn memory_cross_attention<'g>(
        self,
        x: Value<'g>,
        CrossAttentionOperands { key, value, tail }: CrossAttentionOperands<'g>,
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
        if self.uses_memories_as_values() {
            x + self.project_values_and_output(mixed, w)
        } else {
            x + linear(mixed, &w.at("out_proj"), self.width)
        }
    }

    /// Applies the value projection and the output projection as one product.
    fn project_values_and_output<'g>(self, mixed: Value<'g>, w: &Scope<'g>) -> Value<'g> {
        let (width, narrow) = (self.width, self.config.width);
        let first = &w.at("v_proj");
        let second = w.at("out_proj").parameter("weight", [width, width]);
        let weight = second.matmul(first.parameter("weight", [width, narrow]));
        let bias = first.parameter("bias", [width]).reshape([1, width]).linear(second);
        let bias = bias.reshape([width]) + w.at("out_proj").parameter("bias", [width]);
        mixed.linear(weight) + bias
    }
}

/// The bank as one layer reads it.
#[derive(Clone, Copy)]
struct LayerBank<'a, 'g> {
    bank: &'a Bank<Value<'g>>,
    /// The memories of each object, in single precision.
    memories: &'a [Vec<Value<'g>>],
    /// Positions of a memory's cells, for keys that are computed here.
    positions: Value<'g>,
    pointers: Option<PointerTokens<'g>>,
    /// Number of the layer.
    index: usize,
}

impl<'g> LayerBank<'_, 'g> {
    /// All frames of all objects, and `tail: [objects, tokens, width]` after the frames of each object, concatenated in
    /// one copy.
    fn joined(
        self,
        frame: impl Fn(usize, usize) -> Value<'g>,
        tail: Option<Value<'g>>,
    ) -> Value<'g> {
        let flat = |value: Value<'g>| {
            let [_, tokens, width] = value.dims();
            value.reshape([tokens, width])
        };
        let mut rows = Vec::new();
        for (object, memories) in self.memories.iter().enumerate() {
            rows.extend((0..memories.len()).map(|index| flat(frame(object, index))));
            rows.extend(tail.map(|tail| flat(tail.slice(0, object..object + 1))));
        }
        let all = Value::concat(&rows, 0);
        let [tokens, width] = all.dims();
        let objects = self.memories.len();
        all.reshape([objects, tokens / objects, width])
    }
}

/// Keys and values of cross-attention in one layer.
struct CrossAttentionOperands<'g> {
    /// `[objects, tokens, width]`.
    key: Value<'g>,
    /// `[objects, tokens, width or memory width]`.
    value: Value<'g>,
    /// Pointer tokens at the end, which get no rotary position.
    tail: usize,
}
