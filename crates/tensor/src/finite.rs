//! The search for NaN and infinity.

use half::{bf16, f16};

use crate::{DType, Element, Tensor, TensorError, memory};

/// Elements examined between two looks at the result: a block stays in the first-level cache.
const BLOCK: usize = 4096;

impl Tensor {
    /// Position, in row-major order, and value of the first element that is NaN or infinite. Integers are always finite.
    pub fn first_not_finite(&self) -> Result<Option<(usize, f64)>, TensorError> {
        match self.dtype() {
            DType::F32 => search(self, |value: f32| is_special32(value.to_bits())),
            DType::F16 => search(self, |value: f16| is_special16(value.to_bits(), 0x7bff)),
            DType::BF16 => search(self, |value: bf16| is_special16(value.to_bits(), 0x7f7f)),
            DType::I8 | DType::U8 | DType::I32 | DType::I64 | DType::Bool => Ok(None),
        }
    }

    /// An error if an element is NaN or infinite.
    pub fn expect_finite(&self) -> Result<(), TensorError> {
        match self.first_not_finite()? {
            Some((element, value)) => Err(TensorError::NotFinite { element, value }),
            None => Ok(()),
        }
    }
}

/// Numbers in single precision. NaN and infinity stay; a finite number beyond the range of `f32` is an error.
pub fn narrowed(
    numbers: impl ExactSizeIterator<Item = f64> + Clone,
) -> Result<Vec<f32>, TensorError> {
    let is_beyond = |value: f64| value.is_finite() && (value as f32).is_infinite();
    match numbers.clone().enumerate().find(|(_, value)| is_beyond(*value)) {
        Some((element, value)) => Err(TensorError::Range { element, value, dtype: DType::F32 }),
        None => Ok(memory::collected(numbers.len(), numbers.map(|value| value as f32))?),
    }
}

/// Whether all exponent bits are set. Signed comparison of the bits without the sign: one instruction per vector on every
/// instruction set.
fn is_special32(bits: u32) -> bool {
    (bits & 0x7fff_ffff) as i32 > 0x7f7f_ffff
}

/// The same for 16 bits; `largest` are the bits of the largest finite number.
fn is_special16(bits: u16, largest: i16) -> bool {
    (bits & 0x7fff) as i16 > largest
}

fn search<T: Element>(
    tensor: &Tensor,
    is_special: impl Fn(T) -> bool + Copy,
) -> Result<Option<(usize, f64)>, TensorError> {
    let copy;
    let values = match tensor.as_slice::<T>() {
        Ok(values) => values,
        Err(TensorError::NotContiguous { .. }) => {
            copy = tensor.to_vec::<T>()?;
            &copy[..]
        }
        Err(error) => return Err(error),
    };
    for (block, values) in values.chunks(BLOCK).enumerate() {
        // Without an exit in the inner loop it is vectorised.
        if !values.iter().fold(false, |found, &value| found | is_special(value)) {
            continue;
        }
        let found = values.iter().position(|&value| is_special(value));
        return Ok(found.map(|at| (block * BLOCK + at, values[at].to_f64())));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_and_infinity_are_found_in_every_float_type() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 7, BLOCK, BLOCK + 5, 2 * BLOCK - 1] {
                let mut values = vec![f32::MAX; 2 * BLOCK];
                values[0] = -f32::MAX;
                values[at] = bad;
                let tensor = Tensor::from_vec([2, BLOCK], values).unwrap();
                let (found, value) = tensor.first_not_finite().unwrap().unwrap();
                assert_eq!((found, value.is_nan()), (at, bad.is_nan()));
                assert!(matches!(tensor.expect_finite(), Err(TensorError::NotFinite { .. })));
            }
            let halves = vec![f16::MAX, f16::MIN, f16::from_f32(bad)];
            let halves = Tensor::from_vec([3], halves).unwrap();
            assert_eq!(halves.first_not_finite().unwrap().map(|(at, _)| at), Some(2));
            let halves = vec![bf16::MAX, bf16::from_f32(bad), bf16::MIN];
            let halves = Tensor::from_vec([3], halves).unwrap();
            assert_eq!(halves.first_not_finite().unwrap().map(|(at, _)| at), Some(1));
        }
        let finite = vec![f32::MAX, f32::MIN, 0.0, -0.0, f32::MIN_POSITIVE];
        assert_eq!(Tensor::from_vec([5], finite).unwrap().first_not_finite(), Ok(None));
        assert_eq!(Tensor::from_vec([1], vec![-1i32]).unwrap().first_not_finite(), Ok(None));
    }

    #[test]
    fn doubles_beyond_single_precision_are_errors() {
        let narrow = |numbers: &[f64]| narrowed(numbers.iter().copied());
        let found = narrow(&[0.1, f64::INFINITY, f64::NAN, f32::MAX.into()]).unwrap();
        assert_eq!(found[..2], [0.1, f32::INFINITY]);
        assert!(found[2].is_nan() && found[3] == f32::MAX);
        let error = narrow(&[1.0, -1e39]).unwrap_err();
        assert_eq!(error.to_string(), "element 1 is -1e39, beyond the range of f32");
    }

    #[test]
    fn strided_views_are_searched_in_their_own_order() {
        let values = vec![1.0, 2.0, f32::NAN, 4.0];
        let view = Tensor::from_vec([2, 2], values).unwrap().permute(&[1, 0]).unwrap();
        assert_eq!(view.first_not_finite().unwrap().map(|(at, _)| at), Some(1));
    }
}
