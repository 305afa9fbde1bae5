//! Checks and counts that several ops share.

use cutout_tensor::TensorType;

use crate::OpError;

/// The output type, or an error if such a tensor of doubles would exceed the address space.
pub(super) fn countable(output: TensorType) -> Result<TensorType, OpError> {
    if output.shape.elements() <= isize::MAX as usize / size_of::<f64>() {
        return Ok(output);
    }
    Err(OpError::Shape(format!("the output is too large: {output}")))
}

/// Checks an attribute that counts something: at least 1.
pub(super) fn expect_positive(attribute: &str, value: usize) -> Result<(), OpError> {
    if value > 0 {
        return Ok(());
    }
    Err(OpError::Attribute(format!("{attribute} must be at least 1, got 0")))
}

/// Checks the epsilon of a normalisation: finite and not negative.
pub(super) fn expect_epsilon(epsilon: f32) -> Result<(), OpError> {
    if epsilon.is_finite() && epsilon >= 0.0 {
        return Ok(());
    }
    Err(OpError::Attribute(format!("epsilon must be finite and not negative, got {epsilon}")))
}

/// Checks the number of inputs of an op whose number depends on its attributes.
pub(super) fn expect_inputs(expected: usize, found: usize) -> Result<(), OpError> {
    if expected == found { Ok(()) } else { Err(OpError::Arity { expected, found }) }
}

/// Product of counts, at most `u64::MAX`.
pub(super) fn saturating_product(factors: &[usize]) -> u64 {
    factors.iter().fold(1, |product: u64, &factor| product.saturating_mul(factor as u64))
}
