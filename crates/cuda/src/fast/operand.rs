//! Operands in device memory, and tensor maps of them.

use cutout_tensor::DType;

use crate::launch::{Place, Swizzle, TensorMap};

/// Halves of a row that one 128-byte line of shared memory holds.
pub(super) const LINE: usize = 64;

/// A matrix: rows of neighbouring elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matrix {
    /// From the first element on.
    pub place: Place,
    /// Element type in memory.
    pub stored: DType,
    /// Rows.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl Matrix {
    /// A matrix whose rows follow each other.
    pub fn dense(place: Place, stored: DType, [rows, columns]: [usize; 2]) -> Self {
        Matrix { place, stored, rows, columns, stride: columns }
    }

    /// Whether TMA can read or write it: 16-byte multiples, and inside its place.
    pub(super) fn takes_tma(&self) -> bool {
        let size = self.stored.size();
        let elements = (self.rows.max(1) - 1) * self.stride + self.columns;
        self.place.offset.is_multiple_of(16)
            && (self.stride * size).is_multiple_of(16)
            && self.rows > 0
            && self.columns > 0
            && elements * size <= self.place.bytes
    }

    /// A map whose box has `rows` rows of `columns` elements.
    pub(super) fn map(&self, [rows, columns]: [usize; 2], swizzle: Swizzle) -> TensorMap {
        TensorMap {
            place: self.place,
            writes: false,
            element: self.stored,
            dims: vec![self.columns as u64, self.rows as u64],
            strides: vec![(self.stride * self.stored.size()) as u64],
            box_dims: vec![columns as u32, rows as u32],
            swizzle,
        }
    }
}

/// Tokens of one or several pictures: `[pictures, tokens, channels]`, with neighbouring channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tokens {
    /// From the first element on.
    pub place: Place,
    /// Elements from one picture to the next.
    pub picture: usize,
    /// Elements from one token to the next.
    pub token: usize,
}

impl Tokens {
    /// Whether 16-byte pieces of it are aligned.
    pub(super) fn is_aligned(&self) -> bool {
        self.place.offset.is_multiple_of(16)
            && self.token.is_multiple_of(8)
            && self.picture.is_multiple_of(8)
    }

    /// Whether the pictures follow each other without a gap.
    pub(super) fn is_dense(&self, pictures: usize, tokens: usize) -> bool {
        pictures == 1 || self.picture == tokens * self.token
    }
}

/// Tokens on a grid, as tensor maps see them: axes (channel, x, y, picture).
#[derive(Clone, Copy)]
pub(super) struct Grid {
    pub(super) tokens: Tokens,
    pub(super) stored: DType,
    pub(super) pictures: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
}

impl Grid {
    /// A map whose box has `y` rows of `x` tokens of `channels` channels.
    pub(super) fn map(&self, channels: usize, [y, x]: [usize; 2]) -> TensorMap {
        let size = self.stored.size();
        let bytes = |elements: usize| (elements * size) as u64;
        let token = self.tokens.token;
        TensorMap {
            place: self.tokens.place,
            writes: false,
            element: self.stored,
            dims: [self.channels, self.width, self.height, self.pictures]
                .map(|n| n as u64)
                .to_vec(),
            strides: vec![
                bytes(token),
                bytes(token * self.width),
                // One picture has no stride of its own; TMA wants a valid one all the same.
                bytes(if self.pictures == 1 {
                    token * self.width * self.height
                } else {
                    self.tokens.picture
                }),
            ],
            box_dims: [channels, x, y, 1].map(|n| n as u32).to_vec(),
            swizzle: swizzle_of(channels * size),
        }
    }
}

/// The swizzle of rows of `bytes` bytes.
pub(super) fn swizzle_of(bytes: usize) -> Swizzle {
    match bytes {
        128 => Swizzle::Bytes128,
        64 => Swizzle::Bytes64,
        32 => Swizzle::Bytes32,
        _ => Swizzle::None,
    }
}

/// Name of a half precision type in kernel names; `None` for other types.
pub(super) fn half_name(stored: DType) -> Option<&'static str> {
    if stored == DType::F16 {
        Some("f16")
    } else if stored == DType::BF16 {
        Some("bf16")
    } else {
        None
    }
}

/// A count as kernels take it.
pub(super) fn count(value: usize) -> Option<i32> {
    i32::try_from(value).ok()
}
