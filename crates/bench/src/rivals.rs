//! The crates our products are measured against.

#[cfg(feature = "rivals")]
mod crates;

/// How the rivals are set up, for the page.
pub(crate) const CONFIGURATION: [&str; 5] = [
    "`faer` (feature `nightly`: `pulp`'s AVX-512) and `gemm` (feature `x86-v4`: AVX-512): rayon, as many threads; the weight as a \
     checkpoint stores it, `[columns, depth]`; neither can pack it beforehand",
    "`rten-gemm`: rayon, as many threads; weights packed beforehand; its AVX-512 kernel",
    "`matrixmultiply` (feature `threading`; AVX-512 by default): its own threads, as many, at most 4; the weight as a checkpoint \
     stores it",
    "`rten-gemm int8`: its VNNI kernel on rows that were quantised beforehand, weights packed beforehand, 32-bit sums as the \
     result: unlike ours it neither quantises, scales nor adds a bias",
    "all read and write the same buffers as ours, in huge pages",
];

/// A product in single precision: `left [rows, depth] · weight [columns, depth]ᵀ`.
#[derive(Clone, Copy)]
pub(crate) struct FloatOperands<'a> {
    pub(crate) rows: usize,
    pub(crate) depth: usize,
    pub(crate) columns: usize,
    pub(crate) left: &'a [f32],
    pub(crate) weight: &'a [f32],
}

/// The same in bytes. A left byte stands for the number it is above 128.
#[cfg_attr(not(feature = "rivals"), expect(dead_code, reason = "only rivals read it"))]
#[derive(Clone, Copy)]
pub(crate) struct ByteOperands<'a> {
    pub(crate) rows: usize,
    pub(crate) depth: usize,
    pub(crate) columns: usize,
    pub(crate) left: &'a [u8],
    pub(crate) weight: &'a [i8],
}

type Multiply<'a, T> = dyn FnMut(&mut [T]) + 'a;

/// Another implementation of a product, writing `[rows, columns]` sums of type `T`.
pub(crate) struct Rival<'a, T> {
    pub(crate) name: String,
    pub(crate) multiply: Box<Multiply<'a, T>>,
}

#[cfg(feature = "rivals")]
pub(crate) use crates::{byte_rivals, float_rivals, prepare};

/// Sizes the thread pools of the rivals.
#[cfg(not(feature = "rivals"))]
pub(crate) fn prepare(_threads: usize) -> anyhow::Result<()> {
    Ok(())
}

/// The rivals in single precision.
#[cfg(not(feature = "rivals"))]
pub(crate) fn float_rivals<'a>(_: &FloatOperands<'a>, _threads: usize) -> Vec<Rival<'a, f32>> {
    Vec::new()
}

/// The rivals in bytes.
#[cfg(not(feature = "rivals"))]
pub(crate) fn byte_rivals<'a>(_: &ByteOperands<'a>) -> Vec<Rival<'a, i32>> {
    Vec::new()
}
