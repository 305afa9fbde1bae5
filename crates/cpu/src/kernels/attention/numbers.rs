//! The numbers that products multiply.
//!
//! An operand is an array of words of 32 bits. A word holds the elements of one step of a sum: one `f32`, two bf16 numbers or four bytes.

use crate::simd::Simd;

/// What a word of an operand holds.
pub(super) trait Word: Copy {
    /// Elements of a word.
    const ELEMENTS: usize;

    /// Adds the product of a word in each lane of `element`, the operand that is broadcast, and of `column`.
    fn add_product<S: Simd>(simd: S, sum: S::F, element: S::F, column: S::F) -> S::F;
}

/// An `f32`.
#[derive(Clone, Copy)]
pub(super) struct Single;

/// Two bf16 numbers.
#[derive(Clone, Copy)]
pub(super) struct Pair;

/// Four bytes: signed in the operand that is broadcast, unsigned in the other. Sums are the bits of an `i32`.
#[derive(Clone, Copy)]
pub(super) struct Bytes;

impl Word for Single {
    const ELEMENTS: usize = 1;

    #[inline(always)]
    fn add_product<S: Simd>(simd: S, sum: S::F, element: S::F, column: S::F) -> S::F {
        simd.fma(element, column, sum)
    }
}

impl Word for Pair {
    const ELEMENTS: usize = 2;

    #[inline(always)]
    fn add_product<S: Simd>(simd: S, sum: S::F, element: S::F, column: S::F) -> S::F {
        simd.dot2(sum, simd.bits(element), simd.bits(column))
    }
}

impl Word for Bytes {
    const ELEMENTS: usize = 4;

    #[inline(always)]
    fn add_product<S: Simd>(simd: S, sum: S::F, element: S::F, column: S::F) -> S::F {
        let (sum, element, column) = (simd.bits(sum), simd.bits(element), simd.bits(column));
        simd.from_bits(simd.dot4_unsigned(sum, column, element))
    }
}
