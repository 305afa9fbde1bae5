//! Memory attention: the current frame attends to the memories of other frames.
//!
//! Keys are projected once per memory and cached. The temporal position is the same for all cells of a memory, so it is
//! projected separately and added to the cached keys. With one head (SAM 2 and 3) values need no projection at
//! all: a weighted mean of projections is the projection of the weighted mean, so memories themselves are the values,
//! four times narrower, and the projection is folded into the output projection.
//!
//! In SAM 3.1 queries and keys are sums of two projections, of the memory and of the image: the frame on which a memory was
//! made is compared with the current frame. Positions are added to keys after the projection.

use cutout_graph::ops::{Attention, AttentionInputs, AttentionRope, axial_rope_tables};
use cutout_graph::{Builder, Scope, Value, ports};
use cutout_tensor::DType;

use crate::components::layers::{Mlp, MlpActivation, MlpNames, layer_norm, linear, same_batch};
use crate::components::positions::{distance_positions, grid_positions};
use crate::model::config::{MemoryConfig, MemoryForm};

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
    /// The memory of one frame: of one object, in SAM 3.1 of a bucket of objects.
    pub struct FrameMemory {
        /// `bf16[1, grid * grid, memory width]`.
        memory,
        /// Top level of that frame, `f32[1, grid, grid, width]`: SAM 3.1.
        image: optional,
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
        /// Object pointers, `f32[1, width]` each; in SAM 3.1 those of all slots of a bucket, `f32[1, slots * width]`.
        pointers: list,
    }
}

impl<V> FrameMemory<V> {
    /// A memory without cached keys.
    pub(crate) fn plain(memory: V, image: Option<V>) -> Self {
        FrameMemory { memory, image, keys: Vec::new(), values: Vec::new() }
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
    /// Their positions in time, if they have any.
    places: Option<Value<'g>>,
}

/// What a layer projects for one of its two attentions.
#[derive(Clone, Copy)]
enum Attending {
    /// The frame to itself.
    Own,
    /// The frame to its memories.
    Memories,
    /// The frame as an image to those of its memories.
    Images,
}

impl MemoryAttention<'_> {
    /// Whether memories serve as values without being projected.
    pub(crate) fn uses_memories_as_values(self) -> bool {
        self.config.heads == 1
    }

    /// Weights of a projection (`q`, `k`, `v` or `out`) in a layer.
    fn projection<'g>(self, w: &Scope<'g>, of: Attending, name: &str) -> Scope<'g> {
        let joined = |attention: &str| w.at(format!("{attention}_{name}_proj"));
        match (self.config.form, of) {
            (MemoryForm::Sam3_1, Attending::Own) => joined("self_attn"),
            (MemoryForm::Sam3_1, Attending::Memories) => joined("cross_attn"),
            (_, Attending::Images) => joined("image_cross_attn"),
            (_, Attending::Own) => w.at("self_attn").at(format!("{name}_proj")),
            (_, Attending::Memories) => w.at("cross_attn_image").at(format!("{name}_proj")),
        }
    }

    fn project_to_width<'g>(
        self,
        x: Value<'g>,
        w: &Scope<'g>,
        of: Attending,
        name: &str,
    ) -> Value<'g> {
        linear(x, &self.projection(w, of, name), self.width)
    }

    /// The image of a frame as tokens, `[1, grid * grid, width]`.
    fn image_tokens<'g>(self, image: Value<'g>) -> Value<'g> {
        image.reshape([1, self.grid * self.grid, self.width])
    }

    /// Memories `bf16[objects, grid * grid, memory width]` with their keys, and their values where they are projected.
    pub(crate) fn project<'g>(
        self,
        memory: Value<'g>,
        image: Option<Value<'g>>,
        w: &Scope<'g>,
    ) -> FrameMemory<Value<'g>> {
        let layers = w.at(self.config.form.attention()).at("layers");
        let each = |make: &dyn Fn(&Scope<'g>) -> Value<'g>| -> Vec<Value<'g>> {
            (0..self.config.layers).map(|layer| make(&layers.at(layer))).collect()
        };
        let exact = memory.cast(DType::F32);
        let positions = self.memory_positions(w);
        let keys = each(&|w| self.frame_key(exact, image, positions, w));
        let values = if self.uses_memories_as_values() {
            Vec::new()
        } else {
            each(&|w| self.project_to_width(exact, w, Attending::Memories, "v"))
        };
        FrameMemory { memory, image, keys, values }
    }

    /// The key of a memory in a layer, without its position in time.
    fn frame_key<'g>(
        self,
        memory: Value<'g>,
        image: Option<Value<'g>>,
        positions: Value<'g>,
        w: &Scope<'g>,
    ) -> Value<'g> {
        let key = |x| self.project_to_width(x, w, Attending::Memories, "k");
        match image {
            None => key(memory + positions),
            Some(image) => {
                let image = self.image_tokens(image);
                let image = self.project_to_width(image, w, Attending::Images, "k");
                key(memory) + (image + positions)
            }
        }
    }

    /// Positions of a memory's cells, `[1, grid * grid, memory width]`.
    fn memory_positions<'g>(self, w: &Scope<'g>) -> Value<'g> {
        grid_positions(w.builder(), self.grid, self.config.width)
    }

    /// Pointers cut into tokens of a memory's width: those of a bucket become a token for each slot. From SAM 2.1 on they are
    /// placed in time, by their distances.
    fn pointers<'g>(self, bank: &Bank<Value<'g>>, w: &Scope<'g>) -> Option<PointerTokens<'g>> {
        let all: Vec<Value<'g>> =
            bank.objects.iter().flat_map(|object| object.pointers.iter().copied()).collect();
        if all.is_empty() {
            return None;
        }
        let (objects, narrow) = (bank.objects.len(), self.config.width);
        let count = all.len() / objects;
        let parts = self.config.pointer_width(self.width) / narrow;
        let tokens = Value::concat(&all, 0).reshape([objects, count * parts, narrow]);
        let Some(distances) = bank.distances else {
            return Some(PointerTokens { tokens, places: None });
        };
        let places = distance_positions(distances, self.width);
        let places = linear(places, &w.at("obj_ptr_tpos_proj"), narrow)
            .reshape([objects, count, 1, narrow])
            .broadcast([objects, count, parts, narrow])
            .reshape([objects, count * parts, narrow]);
        Some(PointerTokens { tokens, places: Some(places) })
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
        let image = image.reshape([1, cells, width]);
        let mut x = image + place;
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
            let memories =
                LayerBank { bank, memories: &memories, positions, pointers, index: layer };
            let operands = CrossAttentionOperands {
                image,
                key: self.layer_keys(memories, times, w),
                value: self.layer_values(memories, w),
                tail: pointers.map_or(0, |pointers| pointers.tokens.dims::<3>()[1]),
            };
            x = self.memory_cross_attention(x, operands, rope, w);
            x = w.stage("", x + self.mlp().apply(layer_norm(x, &w.at("norm3"), NORM_EPSILON), w));
        }
        let x = layer_norm(x, &w.at("norm"), NORM_EPSILON);
        let [objects, ..] = x.dims::<3>();
        x.reshape([objects, self.grid, self.grid, width])
    }

    fn mlp(self) -> Mlp {
        let activation = match self.config.form {
            MemoryForm::Sam2 | MemoryForm::Sam2_1 | MemoryForm::Sam3 => MlpActivation::Relu,
            MemoryForm::Sam3_1 => MlpActivation::Gelu,
        };
        Mlp { hidden: self.config.mlp_width, activation, names: MlpNames::Linear }
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
        let [query, key, value] =
            ["q", "k", "v"].map(|name| self.project_to_width(normed, w, Attending::Own, name));
        let inputs = AttentionInputs {
            rope: Some([cos, sin, cos, sin]),
            ..AttentionInputs::new(query, key, value)
        };
        x + self.project_to_width(inputs.attend(self.op(0)), w, Attending::Own, "out")
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
        let times = match self.config.form {
            MemoryForm::Sam2 | MemoryForm::Sam2_1 | MemoryForm::Sam3 => {
                let key = self.projection(w, Attending::Memories, "k");
                times.linear(key.parameter("weight", [self.width, self.config.width]))
            }
            MemoryForm::Sam3_1 => times,
        };
        let times = times.gather(layer.bank.ages); // [objects, frames, width]
        let frame = |object: usize, frame: usize| {
            let own = &layer.bank.objects[object].frames[frame];
            let key = match own.keys.get(layer.index) {
                Some(key) => *key,
                None => {
                    self.frame_key(layer.memories[object][frame], own.image, layer.positions, w)
                }
            };
            key + times.slice(0, object..object + 1).slice(1, frame..frame + 1)
        };
        layer.joined(frame, layer.pointers.map(|pointers| self.pointer_keys(pointers, w)))
    }

    /// The keys of pointers in a layer. As images they are 0, of which a projection leaves its bias.
    fn pointer_keys<'g>(self, pointers: PointerTokens<'g>, w: &Scope<'g>) -> Value<'g> {
        let PointerTokens { tokens, places } = pointers;
        let key = |x| self.project_to_width(x, w, Attending::Memories, "k");
        match self.config.form {
            MemoryForm::Sam2 | MemoryForm::Sam2_1 | MemoryForm::Sam3 => {
                key(places.map_or(tokens, |places| tokens + places))
            }
            MemoryForm::Sam3_1 => {
                let image = self.projection(w, Attending::Images, "k");
                let keys = key(tokens) + image.parameter("bias", [self.width]);
                places.map_or(keys, |places| keys + places)
            }
        }
    }

    /// The values of all memories in one layer, `[objects, tokens, width or memory width]`: frames, then pointers.
    fn layer_values<'g>(self, layer: LayerBank<'_, 'g>, w: &Scope<'g>) -> Value<'g> {
        let projected = |x| match self.uses_memories_as_values() {
            true => x,
            false => self.project_to_width(x, w, Attending::Memories, "v"),
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
        CrossAttentionOperands { image, key, value, tail }: CrossAttentionOperands<'g>,
        [cos, sin]: [Value<'g>; 2],
        w: &Scope<'g>,
    ) -> Value<'g> {
        let normed = layer_norm(x, &w.at("norm2"), NORM_EPSILON);
        let query = self.project_to_width(normed, w, Attending::Memories, "q");
        let query = match self.config.form {
            MemoryForm::Sam2 | MemoryForm::Sam2_1 | MemoryForm::Sam3 => query,
            MemoryForm::Sam3_1 => query + self.project_to_width(image, w, Attending::Images, "q"),
        };
        let [query, key, value] = same_batch([query, key, value]);
        let inputs = AttentionInputs {
            rope: Some([cos, sin, cos, sin]),
            ..AttentionInputs::new(query, key, value)
        };
        let mixed = inputs.attend(self.op(tail));
        if self.uses_memories_as_values() {
            x + self.project_values_and_output(mixed, w)
        } else {
            x + self.project_to_width(mixed, w, Attending::Memories, "out")
        }
    }

    /// Applies the value projection and the output projection as one product.
    fn project_values_and_output<'g>(self, mixed: Value<'g>, w: &Scope<'g>) -> Value<'g> {
        let (width, narrow) = (self.width, self.config.width);
        let first = &self.projection(w, Attending::Memories, "v");
        let output = &self.projection(w, Attending::Memories, "out");
        let second = output.parameter("weight", [width, width]);
        let weight = second.matmul(first.parameter("weight", [width, narrow]));
        let bias = first.parameter("bias", [width]).reshape([1, width]).linear(second);
        let bias = bias.reshape([width]) + output.parameter("bias", [width]);
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
    /// The current frame, `[1, grid * grid, width]`.
    image: Value<'g>,
    /// `[objects, tokens, width]`.
    key: Value<'g>,
    /// `[objects, tokens, width or memory width]`.
    value: Value<'g>,
    /// Pointer tokens at the end, which get no rotary position.
    tail: usize,
}
