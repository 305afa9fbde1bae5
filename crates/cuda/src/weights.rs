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
        }
    }

    /// Name of the form in the cache of weights.
    fn name(&self) -> String {
        format!("{self:?}")
    }

    /// The bytes of a weight in this form.
    pub(crate) fn pack(&self, tensor: &Tensor) -> Result<Vec<u8>, TensorError> {
        match *self {
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
    CompileError::Unsupported { op: what.to_owned(), reason: error.to_string() }
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
        ] {
            assert_eq!(form.pack(&tensor).unwrap().len(), form.bytes(tensor.ty()), "{form:?}");
        }
        let taps = Form::ConvMatrix { dtype: DType::F32, padded: 30 }.pack(&tensor).unwrap();
        let taps: &[f32] = bytemuck::cast_slice(&taps);
        // Output 0: taps in order, of each the three inputs, which lie 10 apart.
        assert_eq!(taps[..6], [0.0, 10.0, 20.0, 1.0, 11.0, 21.0]);
    }
}
