//! Attention of f32 numbers, heads of 256, each number as the sum of two bf16: `sm90/attention_split.cu`.

use cutout_graph::ops::Attention as Op;

use super::operand::{Tokens, count};
use crate::launch::{Argument, KernelName, Launch, Place};
use crate::lower::Target;
use crate::variants::Family;

/// The kernel.
pub(super) const NAME: &str = "attention_split_256";

/// Channels of a head.
pub const WIDTH: usize = 256;

/// Queries of a block, and keys that it takes at a time.
const QUERIES: usize = 64;
const KEYS: usize = 32;

/// Fewer keys are not worth laying out.
const FEWEST_KEYS: usize = 256;

/// Most parts that are joined.
const MOST_PARTS: usize = 128;

/// Shared memory: queries, and two tiles of keys and of values, in two parts each.
const SHARED_BYTES: usize = 1024 + 2 * WIDTH * 2 * (QUERIES + 4 * KEYS);

/// Attention over contiguous channels.
#[derive(Clone, Copy, Debug)]
pub struct SplitAttention<'a> {
    /// The op.
    pub op: &'a Op,
    /// Pictures.
    pub batch: usize,
    /// Queries and keys of a picture.
    pub tokens: [usize; 2],
    /// Queries, keys and values in f32.
    pub operands: [Tokens; 3],
    /// The result in f32, contiguous.
    pub output: Place,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
struct Parameters {
    queries: i32,
    keys: i32,
    heads: i32,
    parts: i32,
    strides: [i64; 6],
    scale: f32,
    unused: u32,
}

impl SplitAttention<'_> {
    /// Whether a kernel takes it.
    pub fn fits(&self, target: Target) -> bool {
        let op = self.op;
        let plain = op.windows.is_none()
            && op.rope.is_none()
            && op.bias.is_none()
            && !op.has_padding()
            && !op.key_mask
            && !op.causal;
        let aligned = |tokens: &Tokens| {
            tokens.place.offset.is_multiple_of(16)
                && tokens.token.is_multiple_of(4)
                && tokens.picture.is_multiple_of(4)
        };
        plain
            && target.family == Family::Sm90a
            && SHARED_BYTES <= target.shared_bytes
            && self.tokens[0] > 0
            && self.tokens[1] >= FEWEST_KEYS
            && self.operands.iter().all(aligned)
            && self.output.offset.is_multiple_of(8)
    }

    /// Parts that the keys are split into: as many as there are multiprocessors for, each with whole tiles of keys.
    pub fn parts(&self, target: Target) -> usize {
        let blocks = self.batch * self.op.heads * self.tokens[0].div_ceil(QUERIES);
        let tiles = self.tokens[1].div_ceil(KEYS);
        let wanted = (target.multiprocessors / blocks.max(1)).clamp(1, MOST_PARTS.min(tiles));
        tiles.div_ceil(tiles.div_ceil(wanted))
    }

    /// The launch; parts, if there are several, go to `partial`.
    pub fn launch(&self, partial: Option<Place>, target: Target) -> Option<Launch> {
        let [queries, keys] = self.tokens;
        let parts = self.parts(target);
        let strides = self.operands.map(|tokens| [tokens.picture as i64, tokens.token as i64]);
        let parameters = Parameters {
            queries: count(queries)?,
            keys: count(keys)?,
            heads: count(self.op.heads)?,
            parts: count(parts)?,
            strides: [
                strides[0][0],
                strides[0][1],
                strides[1][0],
                strides[1][1],
                strides[2][0],
                strides[2][1],
            ],
            scale: self.op.scale,
            unused: 0,
        };
        let [query, key, value] = self.operands.map(|tokens| Argument::Read(tokens.place));
        let blocks = [queries.div_ceil(QUERIES) * parts, self.op.heads, self.batch];
        let [x, y, z] = blocks.map(|blocks| u32::try_from(blocks).ok());
        Some(Launch {
            kernel: KernelName::from(NAME),
            grid: [x?, y.filter(|&y| y <= 65535)?, z.filter(|&z| z <= 65535)?],
            block: 384,
            shared_bytes: u32::try_from(SHARED_BYTES).ok()?,
            arguments: vec![
                query,
                key,
                value,
                Argument::Write(self.output),
                partial.map_or(Argument::Null, Argument::Write),
                Argument::of(&parameters),
            ],
        })
    }
}
