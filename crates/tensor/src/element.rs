//! The element types a tensor can hold.

use std::fmt;

use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};

/// Type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE single precision: the type all arithmetic is done in.
    F32,
    /// IEEE half precision, for storage.
    F16,
    /// The upper half of an `F32`, for storage.
    BF16,
    /// Signed byte: quantised weights.
    I8,
    /// Unsigned byte: pixels and quantised activations.
    U8,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer: indices.
    I64,
    /// One byte, 0 or 1.
    Bool,
}

impl DType {
    /// Every element type, in declaration order.
    pub const ALL: [DType; 8] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::U8,
        DType::I32,
        DType::I64,
        DType::Bool,
    ];

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// Name in printed graphs, profiles and messages.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::Bool => "bool",
        }
    }

    /// Whether the elements are floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16)
    }

    /// Whether the elements are whole numbers (`Bool` is not).
    pub const fn is_integer(self) -> bool {
        matches!(self, DType::I8 | DType::U8 | DType::I32 | DType::I64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that is the element type of a tensor.
pub trait Element: NoUninit + CheckedBitPattern + Send + Sync + 'static {
    /// The corresponding element type.
    const DTYPE: DType;
    /// The value as `f64`; exact except for `i64` beyond 53 bits.
    fn to_f64(self) -> f64;
    /// The nearest value of this type. Integers truncate and saturate; `bool` is `value != 0.0`.
    fn from_f64(value: f64) -> Self;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident, |$x:ident| $to:expr, |$y:ident| $from:expr;)*) => {$(
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            fn to_f64(self) -> f64 { let $x = self; $to }
            fn from_f64($y: f64) -> Self { $from }
        }
    )*};
}

// `half` looks at the upper half of an f64 only; by way of f32 all bits count.
elements! {
    f32 => F32, |x| f64::from(x), |y| y as f32;
    f16 => F16, |x| x.to_f64(), |y| f16::from_f32(y as f32);
    bf16 => BF16, |x| x.to_f64(), |y| bf16::from_f32(y as f32);
    i8 => I8, |x| f64::from(x), |y| y as i8;
    u8 => U8, |x| f64::from(x), |y| y as u8;
    i32 => I32, |x| f64::from(x), |y| y as i32;
    i64 => I64, |x| x as f64, |y| y as i64;
    bool => Bool, |x| f64::from(u8::from(x)), |y| y != 0.0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_to_halves_sees_the_last_bit() {
        // Just above the middle between two neighbours.
        let last = 2f64.powi(-23);
        let rounded = <bf16 as Element>::from_f64(1.0 + 2f64.powi(-8) + last);
        assert_eq!(Element::to_f64(rounded), 1.0 + 2f64.powi(-7));
        let rounded = <f16 as Element>::from_f64(1.0 + 2f64.powi(-11) + last);
        assert_eq!(Element::to_f64(rounded), 1.0 + 2f64.powi(-10));
    }
}
