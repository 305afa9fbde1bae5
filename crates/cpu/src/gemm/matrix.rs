//! A weight packed for products in one of the precisions.

use std::sync::OnceLock;

use cutout_graph::Packed;
use cutout_parallel::{AlignedBuffer, Pool};
use cutout_tensor::{DType, LazyTensor, Tensor, TensorError};
use half::{bf16, f16};

use crate::gemm::half_precision::{HalfUnit, PackedHalf, Rounded, gemm_half};
use crate::gemm::int8::{ByteUnit, PackedInt8, gemm_int8};
use crate::gemm::{Epilogue, LeftSource, Output, PackedWeights, WeightData, WeightView, gemm};
use crate::memory::zeroed;
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// The instructions and the precision that a kernel multiplies with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arithmetic {
    /// The instruction set.
    pub isa: Isa,
    /// What multiplies bf16 numbers; `None` for products in `f32`.
    pub half: Option<HalfUnit>,
    /// What multiplies bytes.
    pub bytes: ByteUnit,
    /// Whether attention multiplies bytes.
    pub byte_attention: bool,
    /// Which convolutions multiply bytes.
    pub byte_convolutions: ByteConvolutions,
    /// Whether large products in `f32` may use Strassen's algorithm.
    pub strassen: bool,
}

impl Arithmetic {
    /// Products in `f32`.
    pub fn single(isa: Isa) -> Arithmetic {
        Arithmetic {
            isa,
            half: None,
            bytes: ByteUnit::Vectors,
            byte_attention: false,
            byte_convolutions: ByteConvolutions::None,
            strassen: true,
        }
    }

    /// Name for packed forms of weights that are floats: their layout differs.
    pub fn name(self) -> String {
        match self.half {
            None if self.strassen => self.isa.name().to_owned(),
            None => format!("{} plain", self.isa.name()),
            Some(unit) => format!("{} bf16 {}", self.isa.name(), unit.name()),
        }
    }
}

/// Convolutions that multiply bytes, of those whose weights are known when a program is compiled. Depthwise ones never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteConvolutions {
    /// None.
    None,
    /// Those that take less time.
    Faster,
    /// All, for tests.
    All,
}

/// A weight `[outputs, depth]`, packed.
#[derive(Debug)]
pub enum Matrix {
    /// For products in `f32`.
    Single(PackedWeights),
    /// Rounded to bf16, for products of rounded rows in `f32`.
    Widened(PackedWeights),
    /// For products of bf16 numbers.
    Half(PackedHalf),
    /// Quantised with one scale per output; the rows of the left operand are quantised as they are read.
    Bytes(PackedInt8),
}

impl Matrix {
    /// Packs a weight of any float type, whose first axes have `outputs` elements together. For products in bf16 it is read some
    /// rows at a time, on all threads.
    pub fn pack(
        pool: &Pool,
        arithmetic: Arithmetic,
        weight: &LazyTensor,
        outputs: usize,
    ) -> Result<Matrix, TensorError> {
        let Arithmetic { isa, half, strassen, .. } = arithmetic;
        let depth = weight.ty().shape.elements() / outputs.max(1);
        let single = |data| {
            let view = WeightView::output_major(data, outputs, depth);
            let packed = PackedWeights::pack(pool, isa, &view)?;
            Ok::<_, TensorError>(if strassen { packed } else { packed.apart() })
        };
        let Some(unit) = half else {
            let weight = weight.tensor()?.to_contiguous()?;
            return Ok(Matrix::Single(single(weight_data(&weight)?)?));
        };
        let rounded = rounded(pool, isa, weight)?;
        Ok(match unit {
            HalfUnit::Widened => Matrix::Widened(single(WeightData::Bf16(&rounded))?),
            HalfUnit::Tiles | HalfUnit::TileTwin | HalfUnit::Dots => {
                Matrix::Half(PackedHalf::pack(pool, (isa, unit), &rounded, [outputs, depth])?)
            }
        })
    }

    /// Quantises and packs a weight as [`Matrix::pack`] takes it.
    ///
    /// Fails if an element is not finite. Panics if the depth is beyond [`int8::MAX_DEPTH`](crate::gemm::int8::MAX_DEPTH).
    pub fn quantize(
        pool: &Pool,
        arithmetic: Arithmetic,
        weight: &Tensor,
        outputs: usize,
    ) -> Result<Matrix, TensorError> {
        let depth = weight.ty().shape.elements() / outputs.max(1);
        let matrix = weight.to_contiguous()?.reshape([outputs, depth])?;
        let path = (arithmetic.isa, arithmetic.bytes);
        Ok(Matrix::Bytes(PackedInt8::quantize(pool, path, &matrix.into())?))
    }

    /// Columns of the product.
    pub fn outputs(&self) -> usize {
        match self {
            Matrix::Single(weights) | Matrix::Widened(weights) => weights.outputs(),
            Matrix::Half(weights) => weights.outputs(),
            Matrix::Bytes(weights) => weights.outputs(),
        }
    }

    /// Length of the sums.
    pub fn depth(&self) -> usize {
        match self {
            Matrix::Single(weights) | Matrix::Widened(weights) => weights.depth(),
            Matrix::Half(weights) => weights.depth(),
            Matrix::Bytes(weights) => weights.depth(),
        }
    }

    /// `output = activation(scale * left · selfᵀ + bias) + residual`; see [`gemm`].
    pub fn multiply(
        &self,
        pool: &Pool,
        left: &dyn LeftSource,
        epilogue: &Epilogue<'_>,
        output: Output<'_>,
    ) {
        match self {
            Matrix::Single(weights) => gemm(pool, left, weights, epilogue, output),
            Matrix::Widened(weights) => gemm(pool, &Rounded(left), weights, epilogue, output),
            Matrix::Half(weights) => gemm_half(pool, left, weights, epilogue, output),
            Matrix::Bytes(weights) => gemm_int8(pool, left, weights, epilogue, output),
        }
    }
}

impl Packed for Matrix {
    fn bytes(&self) -> usize {
        match self {
            Matrix::Single(weights) | Matrix::Widened(weights) => weights.bytes(),
            Matrix::Half(weights) => weights.bytes(),
            Matrix::Bytes(weights) => weights.bytes(),
        }
    }
}

/// Elements that a task rounds.
const TASK: usize = 1 << 16;

/// The elements rounded to bf16, to nearest even.
fn rounded(pool: &Pool, isa: Isa, weight: &LazyTensor) -> Result<AlignedBuffer<bf16>, TensorError> {
    let shape = &weight.ty().shape;
    let count = shape.first().copied().unwrap_or(0);
    let row = shape.iter().skip(1).product::<usize>().max(1);
    let rows = (TASK / row).max(1);
    let mut rounded = zeroed(shape.elements())?;
    let problem = OnceLock::new();
    pool.for_chunks(&mut rounded, rows * row, &|task, out: &mut [bf16]| {
        let range = task * rows..count.min((task + 1) * rows);
        let part = weight.rows(range).and_then(|part| part.to_contiguous());
        let done = part.and_then(|part| {
            round(isa, weight_data(&part)?, out);
            Ok(())
        });
        if let Err(error) = done {
            problem.get_or_init(|| error);
        }
    });
    problem.into_inner().map_or(Ok(rounded), Err)
}

/// Rounds elements to bf16.
fn round(isa: Isa, data: WeightData<'_>, out: &mut [bf16]) {
    match data {
        WeightData::F32(data) => dispatch(isa, Round { data, out }),
        WeightData::F16(data) => {
            out.iter_mut().zip(data).for_each(|(out, x)| *out = bf16::from_f32(x.to_f32()));
        }
        WeightData::Bf16(data) => out.copy_from_slice(data),
    }
}

/// Rounds single precision to bf16, bit for bit as [`bf16::from_f32`], in operations that every processor has vectors of.
struct Round<'a> {
    data: &'a [f32],
    out: &'a mut [bf16],
}

impl Kernel for Round<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        for (out, x) in self.out.iter_mut().zip(self.data) {
            let bits = x.to_bits();
            let nearest = bits.wrapping_add(0x7FFF + (bits >> 16 & 1));
            // A quiet NaN has this bit; rounding could carry out of the mantissa.
            let bits = if x.is_nan() { bits | 0x40_0000 } else { nearest };
            *out = bf16::from_bits((bits >> 16) as u16);
        }
    }
}

/// The elements of a contiguous float tensor.
pub(crate) fn weight_data(tensor: &Tensor) -> Result<WeightData<'_>, TensorError> {
    match tensor.dtype() {
        DType::F32 => Ok(WeightData::F32(tensor.as_slice::<f32>()?)),
        DType::F16 => Ok(WeightData::F16(tensor.as_slice::<f16>()?)),
        DType::BF16 => Ok(WeightData::Bf16(tensor.as_slice::<bf16>()?)),
        found @ (DType::I8 | DType::U8 | DType::I32 | DType::I64 | DType::Bool) => {
            Err(TensorError::Type { expected: DType::F32, found })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_rounded_as_single_numbers_are() {
        let bits = (0..=u16::MAX).flat_map(|high| {
            [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF].map(|low| u32::from(high) << 16 | low)
        });
        let data: Vec<f32> = bits.map(f32::from_bits).collect();
        let expected: Vec<u16> = data.iter().map(|&x| bf16::from_f32(x).to_bits()).collect();
        let weight: LazyTensor = Tensor::from_vec([3, data.len() / 3], data).unwrap().into();
        for isa in Isa::available() {
            for threads in [1, 3] {
                let found = rounded(&Pool::new(threads), isa, &weight).unwrap();
                assert!(found.iter().map(|x| x.to_bits()).eq(expected.iter().copied()), "{isa:?}");
            }
        }
    }
}
