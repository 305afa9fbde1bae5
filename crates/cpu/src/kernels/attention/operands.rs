//! The inputs of an attention, as rows of checked length.

use cutout_graph::Layout;
use cutout_graph::ops::AttentionInputs;

use crate::execute::Inputs;

/// A head of an image of the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadIndex {
    pub(super) image: usize,
    pub(super) head: usize,
}

/// Queries, keys or values: `f32[batch, tokens, heads * width]` with contiguous channels.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'a> {
    data: &'a [f32],
    image_stride: usize,
    token_stride: usize,
    width: usize,
}

impl<'a> Tokens<'a> {
    fn new(data: &'a [f32], layout: &Layout, heads: usize) -> Self {
        let [image_stride, token_stride] = [layout.strides[0], layout.strides[1]];
        Tokens { data, image_stride, token_stride, width: layout.shape[2] / heads }
    }

    /// The channels of a token in one head.
    #[inline(always)]
    pub(super) fn row(&self, index: HeadIndex, token: usize) -> &'a [f32] {
        let start = index.image * self.image_stride + token * self.token_stride;
        &self.data[start + index.head * self.width..][..self.width]
    }

    /// Elements from one token to the next.
    pub(super) fn stride(&self) -> usize {
        self.token_stride
    }
}

/// Row or column biases: `f32[batch, queries, heads, length]`, contiguous along the last axis.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    data: &'a [f32],
    /// Strides of batch, queries and heads.
    strides: [usize; 3],
    length: usize,
}

impl<'a> Lines<'a> {
    fn new(data: &'a [f32], layout: &Layout) -> Self {
        let strides = [layout.strides[0], layout.strides[1], layout.strides[2]];
        Lines { data, strides, length: layout.shape[3] }
    }

    /// The biases of one query.
    pub(super) fn line(&self, index: HeadIndex, query: usize) -> &'a [f32] {
        let [image, token, head] = self.strides;
        let start = index.image * image + query * token + index.head * head;
        &self.data[start..][..self.length]
    }
}

/// Cosines and sines, `f32[positions, pairs]` each.
#[derive(Clone, Copy)]
pub(super) struct Rotations<'a> {
    cos: &'a [f32],
    sin: &'a [f32],
    positions: usize,
    /// Pairs of channels of a head.
    pub(super) pairs: usize,
}

impl<'a> Rotations<'a> {
    /// Cosines and sines of the token at `index`.
    pub(super) fn rows(&self, index: usize) -> [&'a [f32]; 2] {
        let start = index % self.positions * self.pairs;
        [&self.cos[start..][..self.pairs], &self.sin[start..][..self.pairs]]
    }
}

/// A vector `f32[heads * width]`.
#[derive(Clone, Copy)]
pub(super) struct Channels<'a> {
    data: &'a [f32],
    width: usize,
}

impl<'a> Channels<'a> {
    /// The channels of one head.
    pub(super) fn head(&self, head: usize) -> &'a [f32] {
        &self.data[head * self.width..][..self.width]
    }
}

/// All inputs of a run.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a> {
    pub(super) query: Tokens<'a>,
    pub(super) key: Tokens<'a>,
    pub(super) value: Tokens<'a>,
    mask: Option<(&'a [u8], usize)>,
    /// Row biases and column biases.
    pub(super) bias: Option<[Lines<'a>; 2]>,
    /// Rotations of queries and of keys.
    pub(super) rope: Option<[Rotations<'a>; 2]>,
    /// Key and value of positions beyond the grid.
    pub(super) padding: Option<[Channels<'a>; 2]>,
}

impl<'a> Operands<'a> {
    /// The inputs at the positions `names`.
    pub(super) fn new(
        names: &AttentionInputs<usize>,
        inputs: &Inputs<'a>,
        heads: usize,
    ) -> Operands<'a> {
        let tokens = |index| Tokens::new(inputs.f32(index), inputs.layout(index), heads);
        let lines = |index| Lines::new(inputs.f32(index), inputs.layout(index));
        let rotations = |cos, sin| {
            let shape = &inputs.layout(cos).shape;
            let [positions, pairs] = [shape[0], shape[1]];
            Rotations { cos: inputs.f32(cos), sin: inputs.f32(sin), positions, pairs }
        };
        let channels = |index| {
            let data = inputs.f32(index);
            Channels { data, width: data.len() / heads }
        };
        Operands {
            query: tokens(names.query),
            key: tokens(names.key),
            value: tokens(names.value),
            mask: names.key_mask.map(|index| (inputs.bytes(index), inputs.layout(index).shape[1])),
            bias: names.bias.map(|pair| pair.map(lines)),
            rope: names.rope.map(|[cos, sin, key_cos, key_sin]| {
                [rotations(cos, sin), rotations(key_cos, key_sin)]
            }),
            padding: names.padding.map(|pair| pair.map(channels)),
        }
    }

    /// Whether keys can be masked.
    pub(super) fn has_mask(&self) -> bool {
        self.mask.is_some()
    }

    /// Whether a key of an image is unmasked.
    #[inline(always)]
    pub(super) fn takes_part(&self, image: usize, key: usize) -> bool {
        self.mask.is_none_or(|(mask, keys)| mask[image * keys + key] != 0)
    }
}
