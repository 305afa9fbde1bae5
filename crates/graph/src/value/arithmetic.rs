//! The arithmetic of values: functions of one and two elements, comparisons, operators.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::Value;
use crate::ops::{Binary, BinaryKind, Compare, CompareKind, Unary, UnaryKind};

impl<'g> Value<'g> {
    #[track_caller]
    fn unary(self, kind: UnaryKind) -> Value<'g> {
        self.apply(Unary { kind }, &[])
    }

    #[track_caller]
    fn binary(self, kind: BinaryKind, other: Value<'g>) -> Value<'g> {
        self.apply(Binary { kind }, &[other])
    }
}

macro_rules! compare_methods {
    ($($(#[$doc:meta])* $method:ident => $kind:ident;)*) => {
        impl<'g> Value<'g> {
            $($(#[$doc])* #[track_caller] pub fn $method(self, other: Value<'g>) -> Value<'g> {
                self.apply(Compare { kind: CompareKind::$kind }, &[other])
            })*
        }
    };
}

compare_methods! {
    /// Whether elements are the same number.
    equal => Equal;
    /// Whether elements are not the same number.
    not_equal => NotEqual;
    /// Whether elements are smaller than the other's.
    less => Less;
    /// Whether elements are not larger than the other's.
    less_equal => LessEqual;
    /// Whether elements are larger than the other's.
    greater => Greater;
    /// Whether elements are not smaller than the other's.
    greater_equal => GreaterEqual;
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $method:ident => $kind:ident;)*) => {
        impl<'g> Value<'g> {
            $($(#[$doc])* #[track_caller] pub fn $method(self) -> Value<'g> { self.unary(UnaryKind::$kind) })*
        }
    };
}

unary_methods! {
    /// Absolute value.
    abs => Abs;
    /// Cosine of radians.
    cos => Cos;
    /// Error function.
    erf => Erf;
    /// e to the power.
    exp => Exp;
    /// Largest whole number not above.
    floor => Floor;
    /// Exact (error function) GELU.
    gelu => Gelu;
    /// Natural logarithm.
    log => Log;
    /// Logarithm to base two.
    log2 => Log2;
    /// Logical negation.
    logical_not => Not;
    /// One over.
    reciprocal => Reciprocal;
    /// The larger of the value and 0.
    relu => Relu;
    /// Nearest whole number, halves to even.
    round => Round;
    /// `1 / (1 + exp(-x))`.
    sigmoid => Sigmoid;
    /// -1, 0 or 1.
    sign => Sign;
    /// `x * sigmoid(x)`.
    silu => Silu;
    /// Sine of radians.
    sin => Sin;
    /// Square root.
    sqrt => Sqrt;
    /// Hyperbolic tangent.
    tanh => Tanh;
}

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $method:ident => $kind:ident;)*) => {
        impl<'g> Value<'g> {
            $($(#[$doc])* #[track_caller] pub fn $method(self, other: Value<'g>) -> Value<'g> {
                self.binary(BinaryKind::$kind, other)
            })*
        }
    };
}

binary_methods! {
    /// The larger of two elements.
    maximum => Maximum;
    /// The smaller of two elements.
    minimum => Minimum;
    /// To the power of another tensor's elements.
    power => Power;
    /// Both, of two `bool`.
    and => And;
    /// Either, of two `bool`.
    or => Or;
}

macro_rules! operators {
    ($($trait:ident $method:ident $kind:ident;)*) => {$(
        impl<'g> $trait for Value<'g> {
            type Output = Value<'g>;
            #[track_caller]
            fn $method(self, other: Value<'g>) -> Value<'g> {
                self.binary(BinaryKind::$kind, other)
            }
        }
        impl<'g> $trait<f32> for Value<'g> {
            type Output = Value<'g>;
            #[track_caller]
            fn $method(self, other: f32) -> Value<'g> {
                self.binary(BinaryKind::$kind, self.builder.scalar(other))
            }
        }
        impl<'g> $trait<Value<'g>> for f32 {
            type Output = Value<'g>;
            #[track_caller]
            fn $method(self, other: Value<'g>) -> Value<'g> {
                other.builder.scalar(self).binary(BinaryKind::$kind, other)
            }
        }
    )*};
}

operators! {
    Add add Add;
    Sub sub Subtract;
    Mul mul Multiply;
    Div div Divide;
}

impl<'g> Neg for Value<'g> {
    type Output = Value<'g>;
    #[track_caller]
    fn neg(self) -> Value<'g> {
        self.unary(UnaryKind::Negate)
    }
}
