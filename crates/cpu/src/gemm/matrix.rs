//! A weight packed for products in one of the precisions.

use cutout_graph::Packed;
use cutout_parallel::{AlignedBuffer, Pool};
use cutout_tensor::{DType, Tensor, TensorError};
use half::{bf16, f16};

use crate::gemm::half_precision::{HalfUnit, PackedHalf, Rounded, gemm_half};
use crate::gemm::int8::ByteUnit;
use crate::gemm::{Epilogue, LeftSource, Output, PackedWeights, WeightData, WeightView, gemm};
use crate::memory::zeroed;
use crate::simd::Isa;

/// The instructions and the precision that a kernel multiplies with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arithmetic {
    /// The instruction set.
    pub isa: Isa,
    /// What multiplies bf16 numbers; `None` for products in `f32`.
    pub half: Option<HalfUnit>,
    /// What multiplies bytes, in layers whose weights are bytes.
    pub bytes: ByteUnit,
    /// Whether large products in `f32` may use Strassen's algorithm.
    pub strassen: bool,
}

impl Arithmetic {
    /// Products in `f32`.
    pub fn single(isa: Isa) -> Arithmetic {
        Arithmetic { isa, half: None, bytes: ByteUnit::Vectors, strassen: true }
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

/// A weight `[outputs, depth]`, packed.
#[derive(Debug)]
pub enum Matrix {
    /// For products in `f32`.
    Single(PackedWeights),
    /// Rounded to bf16, for products of rounded rows in `f32`.
    Widened(PackedWeights),
    /// For products of bf16 numbers.
    Half(PackedHalf),
}

impl Matrix {
    /// Packs a weight of any float type, whose first axes have `outputs` elements together.
    pub fn pack(
        pool: &Pool,
        arithmetic: Arithmetic,
        weight: &Tensor,
        outputs: usize,
    ) -> Result<Matrix, TensorError> {
        let Arithmetic { isa, half, strassen, .. } = arithmetic;
        let weight = weight.to_contiguous()?;
        let data = weight_data(&weight)?;
        let depth = data.len() / outputs.max(1);
        let single = |data| {
            let view = WeightView::output_major(data, outputs, depth);
            let packed = PackedWeights::pack(pool, isa, &view)?;
            Ok::<_, TensorError>(if strassen { packed } else { packed.apart() })
        };
        let Some(unit) = half else { return Ok(Matrix::Single(single(data)?)) };
        let rounded = rounded(data)?;
        Ok(match unit {
            HalfUnit::Widened => Matrix::Widened(single(WeightData::Bf16(&rounded))?),
            HalfUnit::Tiles | HalfUnit::TileTwin | HalfUnit::Dots => {
                Matrix::Half(PackedHalf::pack(pool, (isa, unit), &rounded, [outputs, depth])?)
            }
        })
    }

    /// Columns of the product.
    pub fn outputs(&self) -> usize {
        match self {
            Matrix::Single(weights) | Matrix::Widened(weights) => weights.outputs(),
            Matrix::Half(weights) => weights.outputs(),
        }
    }

    /// Length of the sums.
    pub fn depth(&self) -> usize {
        match self {
            Matrix::Single(weights) | Matrix::Widened(weights) => weights.depth(),
            Matrix::Half(weights) => weights.depth(),
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
        }
    }
}

impl Packed for Matrix {
    fn bytes(&self) -> usize {
        match self {
            Matrix::Single(weights) | Matrix::Widened(weights) => weights.bytes(),
            Matrix::Half(weights) => weights.bytes(),
        }
    }
}

/// The elements rounded to bf16, to nearest even.
fn rounded(data: WeightData<'_>) -> Result<AlignedBuffer<bf16>, TensorError> {
    let mut rounded = zeroed(data.len())?;
    match data {
        WeightData::F32(data) => {
            rounded.iter_mut().zip(data).for_each(|(out, &x)| *out = bf16::from_f32(x));
        }
        WeightData::F16(data) => {
            rounded.iter_mut().zip(data).for_each(|(out, x)| *out = bf16::from_f32(x.to_f32()));
        }
        WeightData::Bf16(data) => rounded.copy_from_slice(data),
    }
    Ok(rounded)
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
