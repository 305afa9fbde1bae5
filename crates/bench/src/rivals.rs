//! The crates our products are measured against.

#[cfg(feature = "rivals")]
mod crates;

/// Versions and settings of the rivals, for the page.
pub(crate) const CONFIGURATION: [&str; 5] = [
    "`faer` (feature `nightly`) and `gemm` (feature `x86-v4`), both with AVX-512: rayon, as many threads as ours; neither can pack \
     weights beforehand, so they get them transposed beforehand, `[depth, columns]`, which suits them best overall",
    "`rten-gemm`, its AVX-512 kernel: rayon, as many threads; weights packed beforehand",
    "`matrixmultiply` (feature `threading`), its AVX-512 kernel: its own threads, as many, but at most 4; weights transposed \
     beforehand",
    "`rten-gemm int8`, its VNNI kernel: weights packed and rows quantised beforehand, 32-bit sums as the result: unlike ours it \
     neither quantises nor scales nor adds a bias",
    "in f32 all read and write the same buffers, in huge pages",
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

/// The same in bytes. Left bytes are unsigned with an offset of 128.
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

/// Sets the size of the rivals' thread pools.
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
