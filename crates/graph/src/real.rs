//! The number type of reference definitions: `f32`, or `f64` to tell rounding from errors.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// A floating-point type that reference definitions compute in.
pub trait Real:
    Copy
    + Debug
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Minus infinity, the identity of `max`.
    const LOWEST: Self;

    /// The nearest value of this type.
    fn of(value: f64) -> Self;
    /// The value as a double.
    fn as_f64(self) -> f64;
    /// e to the power of the value.
    fn exp(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// Logarithm to base two.
    fn log2(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Sine of radians.
    fn sin(self) -> Self;
    /// Cosine of radians.
    fn cos(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;
    /// Error function.
    fn erf(self) -> Self;
    /// Absolute value.
    fn abs(self) -> Self;
    /// Largest whole number not above the value.
    fn floor(self) -> Self;
    /// Nearest whole number, halves to even.
    fn round(self) -> Self;
    /// The value to a power.
    fn pow(self, exponent: Self) -> Self;

    /// Whether it is not a number.
    fn is_nan(self) -> bool {
        self.as_f64().is_nan()
    }
    /// The larger value; `NaN` if either is.
    fn maximum(self, other: Self) -> Self {
        if self > other || self.is_nan() { self } else { other }
    }
    /// The smaller value; `NaN` if either is.
    fn minimum(self, other: Self) -> Self {
        if self < other || self.is_nan() { self } else { other }
    }
}

macro_rules! real {
    ($type:ident, $erf:path) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = $type::NEG_INFINITY;
            fn of(value: f64) -> Self {
                value as $type
            }
            fn as_f64(self) -> f64 {
                f64::from(self)
            }
            fn exp(self) -> Self {
                $type::exp(self)
            }
            fn ln(self) -> Self {
                $type::ln(self)
            }
            fn log2(self) -> Self {
                $type::log2(self)
            }
            fn sqrt(self) -> Self {
                $type::sqrt(self)
            }
            fn sin(self) -> Self {
                $type::sin(self)
            }
            fn cos(self) -> Self {
                $type::cos(self)
            }
            fn tanh(self) -> Self {
                $type::tanh(self)
            }
            fn erf(self) -> Self {
                $erf(self)
            }
            fn abs(self) -> Self {
                $type::abs(self)
            }
            fn floor(self) -> Self {
                $type::floor(self)
            }
            fn round(self) -> Self {
                $type::round_ties_even(self)
            }
            fn pow(self, exponent: Self) -> Self {
                $type::powf(self, exponent)
            }
        }
    };
}

real!(f32, libm::erff);
real!(f64, libm::erf);
