//! Forms in which kernels read weights.

use std::sync::Arc;

use cutout_graph::{CompileError, DeviceWeights, Packed, StaticTensor};
use cutout_tensor::{DType, Tensor, TensorError, TensorType};
use half::{bf16, f16};

use crate::driver::{Context, DeviceError, Memory};

/// How a weight lies in device memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Contiguous, in this element type.
    Plain(DType),
    /// `[N, K]` row by row, each row with zeros behind it to `padded` elements.
    Matrix {
        /// Element type.
        dtype: DType,
        /// Elements of a row.
        padded: usize,
    },
    /// `[outputs, inputs, height, width]` as the matrix `[outputs, (height, width, inputs)]`, rows padded.
    ConvMatrix {
        /// Element type.
        dtype: DType,
        /// Elements of a row.
        padded: usize,
    },
    /// `[outputs, inputs, height, width]` as `f32[height, width, inputs, outputs]`.
    ConvTaps,
    /// `f32` elements this many times over.
    Repeated(usize),
    /// `[inputs, outputs, height, width]` as the matrix `[(height, width, outputs), inputs]`, rows padded.
    TransposedMatrix {
        /// Element type.
        dtype: DType,
        /// Elements of a row.
        padded: usize,
    },
    /// A matrix of f32 rows as sums of two bf16 numbers: of each row all high parts, then all low parts, each in the order that
    /// `sm90/gemm_split.cu` reads them in.
    Split {
        /// The matrix, in f32.
        of: Box<Form>,
        /// Elements of its rows, a multiple of 16.
        padded: usize,
    },
}

impl Form {
    /// Bytes of a weight of type `ty` in this form.
    pub fn bytes(&self, ty: &TensorType) -> usize {
        let elements = ty.shape.elements();
        let axis = |index: usize| ty.shape.get(index).copied().unwrap_or(1);
        match self {
            Form::Plain(dtype) => elements * dtype.size(),
            Form::Matrix { dtype, padded } | Form::ConvMatrix { dtype, padded } => {
                axis(0) * padded * dtype.size()
            }
            Form::ConvTaps => elements * DType::F32.size(),
            Form::Repeated(times) => elements * times * DType::F32.size(),
            Form::TransposedMatrix { dtype, padded } => {
                axis(1) * axis(2) * axis(3) * padded * dtype.size()
            }
            // Two halves for each number.
            Form::Split { of, .. } => of.bytes(ty),
        }
    }

    /// Name of the form in the cache of weights.
    fn name(&self) -> String {
        format!("{self:?}")
    }

    /// The bytes of a weight in this form.
    pub(crate) fn pack(&self, tensor: &Tensor) -> Result<Vec<u8>, TensorError> {
        match *self {
            Form::Split { ref of, padded } => Ok(split_rows(&of.pack(tensor)?, padded)),
            Form::Plain(dtype) => encoded(tensor, dtype),
            Form::Matrix { dtype, padded } => padded_rows(tensor, dtype, padded),
            Form::ConvMatrix { dtype, padded } => {
                padded_rows(&tensor.permute(&[0, 2, 3, 1])?, dtype, padded)
            }
            Form::ConvTaps => encoded(&tensor.permute(&[2, 3, 1, 0])?, DType::F32),
            Form::Repeated(times) => Ok(encoded(tensor, DType::F32)?.repeat(times)),
            Form::TransposedMatrix { dtype, padded } => {
                let rows = tensor.permute(&[2, 3, 1, 0])?.to_contiguous()?;
                let shape = rows.shape().to_vec();
                let rows = rows.reshape(vec![shape[0] * shape[1] * shape[2], shape[3]])?;
                padded_rows(&rows, dtype, padded)
            }
        }
    }
}

/// The elements in row-major order, in another element type.
fn encoded(tensor: &Tensor, dtype: DType) -> Result<Vec<u8>, TensorError> {
    let tensor = tensor.to_contiguous()?;
    if tensor.dtype() == dtype {
        return Ok(tensor.as_bytes()?.to_vec());
    }
    // Saturating instead of becoming infinite, as values that kernels store.
    if dtype == DType::F16 && tensor.dtype() == DType::F32 {
        let half =
            |&x: &f32| f16::from_f32(if x.is_nan() { x } else { x.clamp(-65504.0, 65504.0) });
        let halves: Vec<f16> = tensor.as_slice::<f32>()?.iter().map(half).collect();
        return Ok(bytemuck::cast_slice(&halves).to_vec());
    }
    if dtype == DType::BF16 && tensor.dtype() == DType::F32 {
        let halves: Vec<bf16> =
            tensor.as_slice::<f32>()?.iter().map(|&x| bf16::from_f32(x)).collect();
        return Ok(bytemuck::cast_slice(&halves).to_vec());
    }
    Ok(tensor.cast(dtype)?.to_contiguous()?.as_bytes()?.to_vec())
}

/// Rows along the first axis, each with zeros behind it.
fn padded_rows(tensor: &Tensor, dtype: DType, padded: usize) -> Result<Vec<u8>, TensorError> {
    let rows = tensor.shape().first().copied().unwrap_or(1);
    let bytes = encoded(tensor, dtype)?;
    let row = bytes.len() / rows.max(1);
    let width = padded * dtype.size();
    if row == width || row == 0 {
        return Ok(if row == 0 { vec![0; rows * width] } else { bytes });
    }
    let mut out = vec![0; rows * width];
    for (to, from) in out.chunks_exact_mut(width).zip(bytes.chunks_exact(row)) {
        to[..row].copy_from_slice(from);
    }
    Ok(out)
}

/// Place of each of 16 neighbours in the order in which a fragment of the tensor cores has them, for threads that read four at once.
const FRAGMENT_ORDER: [usize; 16] = [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15];

/// Rows of f32 numbers as [`Form::Split`] has them.
fn split_rows(bytes: &[u8], padded: usize) -> Vec<u8> {
    let values: Vec<f32> = bytemuck::pod_collect_to_vec(bytes);
    let mut halves = Vec::with_capacity(2 * values.len());
    let high = |x: f32| bf16::from_f32(x);
    let low = |x: f32| bf16::from_f32(x - high(x).to_f32());
    for row in values.chunks_exact(padded) {
        let ordered = || row.chunks_exact(16).flat_map(|of| FRAGMENT_ORDER.map(|at| of[at]));
        halves.extend(ordered().map(high));
        halves.extend(ordered().map(low));
    }
    bytemuck::cast_slice(&halves).to_vec()
}

/// A weight in device memory.
pub(crate) struct DeviceWeight(Memory);

impl DeviceWeight {
    pub(crate) fn address(&self) -> u64 {
        self.0.address()
    }
}

impl Packed for DeviceWeight {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// Bytes in memory of their own on the card.
pub(crate) fn upload(context: &Arc<Context>, bytes: &[u8]) -> Result<Memory, DeviceError> {
    let memory = context.allocate(bytes.len())?;
    context.copy_in(memory.address(), bytes)?;
    Ok(memory)
}

/// A weight in a form, uploaded once for all programs of the same weights.
pub(crate) fn prepared(
    context: &Arc<Context>,
    weights: &DeviceWeights<'_>,
    (known, form): (&StaticTensor, &Form),
    failed: &dyn Fn(DeviceError) -> CompileError,
) -> Result<Arc<DeviceWeight>, CompileError> {
    let mut failure = None;
    let uploaded = weights.prepared(known, &form.name(), |tensor| {
        let bytes = form.pack(tensor)?;
        upload(context, &bytes).map(DeviceWeight).map_err(|error| {
            let message = error.to_string();
            failure = Some(error);
            TensorError::Shape(message)
        })
    });
    match failure {
        Some(error @ DeviceError::OutOfMemory { .. }) => Err(failed(error)),
        Some(error) => Err(device_error(&known.name(), &error)),
        None => uploaded,
    }
}

/// A failure of the card while a program is compiled.
pub(crate) fn device_error(what: &str, error: &DeviceError) -> CompileError {
    CompileError::Device { what: what.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_have_the_bytes_they_say() {
        let values: Vec<f32> = (0..2 * 3 * 2 * 5).map(|i| i as f32).collect();
        let tensor = Tensor::from_vec([2, 3, 2, 5], values).unwrap();
        for form in [
            Form::Plain(DType::F32),
            Form::Plain(DType::F16),
            Form::Matrix { dtype: DType::F16, padded: 32 },
            Form::ConvMatrix { dtype: DType::BF16, padded: 32 },
            Form::ConvTaps,
            Form::TransposedMatrix { dtype: DType::F32, padded: 8 },
            Form::Split {
                of: Box::new(Form::Matrix { dtype: DType::F32, padded: 32 }),
                padded: 32,
            },
        ] {
            assert_eq!(form.pack(&tensor).unwrap().len(), form.bytes(tensor.ty()), "{form:?}");
        }
        let taps = Form::ConvMatrix { dtype: DType::F32, padded: 30 }.pack(&tensor).unwrap();
        let taps: &[f32] = bytemuck::cast_slice(&taps);
        // Output 0: taps in order, of each the three inputs, which lie 10 apart.
        assert_eq!(taps[..6], [0.0, 10.0, 20.0, 1.0, 11.0, 21.0]);
    }

    #[test]
    fn two_halves_make_a_number() {
        let values: Vec<f32> = (0..64).map(|i| 1.0 + (i as f32 * 0.37).sin() / 3.0).collect();
        let tensor = Tensor::from_vec([2, 32], values.clone()).unwrap();
        let of = Box::new(Form::Matrix { dtype: DType::F32, padded: 32 });
        let split = Form::Split { of, padded: 32 }.pack(&tensor).unwrap();
        let halves: &[bf16] = bytemuck::cast_slice(&split);
        // Row 1: the high parts of 32 numbers, then the low ones. Its third pair has numbers 8 and 9.
        let (high, low) = halves[64..].split_at(32);
        for (place, number) in [(0, 0), (4, 8), (5, 9), (8, 2), (15, 15), (16, 16), (24, 18)] {
            let (sum, value) = (high[place].to_f32() + low[place].to_f32(), values[32 + number]);
            assert!((sum - value).abs() <= value.abs() / 65536.0, "{number}: {sum} for {value}");
        }
    }
}
