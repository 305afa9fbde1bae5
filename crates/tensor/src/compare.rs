//! Comparison of two tensors under a named tolerance.

use std::fmt;

use crate::{Tensor, TensorError};

/// Largest accepted difference between two results, named by the reason for which they differ.
///
/// An element passes when `|actual - expected| <= level * (|expected| + typical)`, where `typical` is the root mean
/// square of the expected tensor. `typical` leaves room for sums that cancel to almost zero; one very large element
/// hardly raises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tolerance {
    /// Equal values (`NaN` equals `NaN`): copies, indices, comparisons.
    Exact,
    /// The same arithmetic with sums in another order: 1e-5.
    Rounding,
    /// Polynomial approximations (`exp`, `erf`) on top of reordered sums: 4e-5.
    FastMath,
    /// A stage of a whole model against another implementation of it: 1e-4.
    Stage,
    /// Storage in half precision: 4e-3.
    HalfPrecision,
}

impl Tolerance {
    /// `level` in the inequality above.
    pub const fn level(self) -> f64 {
        match self {
            Tolerance::Exact => 0.0,
            Tolerance::Rounding => 1e-5,
            Tolerance::FastMath => 4e-5,
            Tolerance::Stage => 1e-4,
            Tolerance::HalfPrecision => 4e-3,
        }
    }
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Whether every element is within tolerance.
    pub within: bool,
    /// Row-major index of the element with the largest `|actual - expected|` relative to its tolerance.
    pub worst_index: usize,
    /// The actual value at `worst_index`.
    pub actual: f64,
    /// The expected value at `worst_index`.
    pub expected: f64,
    /// Largest absolute difference.
    pub largest: f64,
    /// Sum of squared differences over sum of squared expected values.
    pub normalised_square_error: f64,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at element {}: got {}, expected {}; largest difference {:.3e}, normalised square error {:.3e}",
            if self.within { "within tolerance, worst" } else { "outside tolerance, worst" },
            self.worst_index,
            self.actual,
            self.expected,
            self.largest,
            self.normalised_square_error
        )
    }
}

/// Compares two tensors of the same shape, element by element.
pub fn compare(
    actual: &Tensor,
    expected: &Tensor,
    tolerance: Tolerance,
) -> Result<Difference, TensorError> {
    if actual.shape() != expected.shape() {
        return Err(TensorError::Shape(format!(
            "cannot compare {} with {}",
            actual.ty(),
            expected.ty()
        )));
    }
    Ok(compare_values(&actual.to_f64_vec()?, &expected.to_f64_vec()?, tolerance))
}

fn compare_values(actual: &[f64], expected: &[f64], tolerance: Tolerance) -> Difference {
    let finite = expected.iter().filter(|value| value.is_finite());
    let squares: f64 = finite.clone().map(|value| value * value).sum();
    let typical = (squares / finite.count().max(1) as f64).sqrt();
    let mut result = Difference {
        within: true,
        worst_index: 0,
        actual: actual.first().copied().unwrap_or(0.0),
        expected: expected.first().copied().unwrap_or(0.0),
        largest: 0.0,
        normalised_square_error: 0.0,
    };
    let mut worst = -1.0;
    for (index, (&a, &e)) in actual.iter().zip(expected).enumerate() {
        let same = a == e || (a.is_nan() && e.is_nan());
        let distance = if same { 0.0 } else { (a - e).abs() };
        // Infinite against finite, or NaN against a number.
        let distance = if distance.is_nan() { f64::INFINITY } else { distance };
        let allowed = tolerance.level() * (e.abs() + typical);
        let excess = if distance == 0.0 { 0.0 } else { distance / allowed };
        result.within &= excess <= 1.0;
        result.largest = result.largest.max(distance);
        result.normalised_square_error += distance * distance;
        if excess > worst {
            worst = excess;
            (result.worst_index, result.actual, result.expected) = (index, a, e);
        }
    }
    if squares > 0.0 {
        result.normalised_square_error /= squares;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(actual: &[f64], expected: &[f64], tolerance: Tolerance) -> bool {
        compare_values(actual, expected, tolerance).within
    }

    #[test]
    fn one_large_element_does_not_loosen_the_tolerance_of_the_others() {
        assert!(check(&[1.0, f64::NAN], &[1.0, f64::NAN], Tolerance::Exact));
        assert!(!check(&[1.0 + 1e-12], &[1.0], Tolerance::Exact));
        assert!(check(&[1.0 + 1e-5], &[1.0], Tolerance::Rounding));
        assert!(!check(&[1.0 + 3e-5], &[1.0], Tolerance::Rounding));
        let expected: Vec<f64> = (0..10_000).map(|i| if i == 0 { 1e3 } else { 1.0 }).collect();
        let mut actual = expected.clone();
        actual[7] = 1.001;
        let difference = compare_values(&actual, &expected, Tolerance::Rounding);
        assert!(!difference.within);
        assert_eq!(difference.worst_index, 7);
    }

    #[test]
    fn infinity_and_nan_equal_only_themselves() {
        for tolerance in [Tolerance::Exact, Tolerance::Rounding, Tolerance::HalfPrecision] {
            assert!(!check(&[f64::NAN], &[1.0], tolerance));
            assert!(!check(&[1.0], &[f64::NAN], tolerance));
            assert!(!check(&[1.0], &[f64::INFINITY], tolerance));
            assert!(!check(&[f64::INFINITY], &[f64::NEG_INFINITY], tolerance));
            assert!(check(&[f64::INFINITY], &[f64::INFINITY], tolerance));
        }
    }
}
