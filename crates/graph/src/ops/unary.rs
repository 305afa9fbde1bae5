//! Functions of one element.

use cutout_tensor::{TensorType, Tolerance};

use crate::cases::{noise, uniform};
use crate::op::{expect_bool, expect_f32, take};
use crate::ops::{Operand, Step};
use crate::{Case, Data, DenseTensor, OpDef, OpError, Real};

/// Declares each function once: variant, name, definition over [`Real`].
macro_rules! unary_kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal: |$x:ident| $body:expr;)*) => {
        /// Which function of one element.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
        pub enum UnaryKind { $($(#[$doc])* $kind),*, /** Logical negation of a `bool`. */ Not }

        impl UnaryKind {
            /// Every function.
            pub const ALL: &[UnaryKind] = &[$(UnaryKind::$kind),*, UnaryKind::Not];
            /// Name in printed graphs.
            pub const fn name(self) -> &'static str {
                match self { $(UnaryKind::$kind => $name),*, UnaryKind::Not => "not" }
            }
            /// The function itself; `Not` is defined on truth values only.
            pub fn apply<T: Real>(self, value: T) -> T {
                match self {
                    $(UnaryKind::$kind => { let $x = value; $body })*
                    UnaryKind::Not => panic!("inference gives `not` only truth values"),
                }
            }
        }
    };
}

unary_kinds! {
    /// Absolute value.
    Abs = "abs": |x| x.abs();
    /// Cosine of radians.
    Cos = "cos": |x| x.cos();
    /// Error function.
    Erf = "erf": |x| x.erf();
    /// e to the power.
    Exp = "exp": |x| x.exp();
    /// Largest whole number not above.
    Floor = "floor": |x| x.floor();
    /// `x * Φ(x)`, the exact (error function) form.
    Gelu = "gelu": |x| x * T::of(0.5) * (T::ONE + (x * T::of(std::f64::consts::FRAC_1_SQRT_2)).erf());
    /// Natural logarithm.
    Log = "log": |x| x.ln();
    /// Logarithm to base two.
    Log2 = "log2": |x| x.log2();
    /// Change of sign.
    Negate = "negate": |x| -x;
    /// One over.
    Reciprocal = "reciprocal": |x| T::ONE / x;
    /// The larger of the value and 0.
    Relu = "relu": |x| x.maximum(T::ZERO);
    /// Nearest whole number, halves to even.
    Round = "round": |x| x.round();
    /// `1 / (1 + exp(-x))`.
    Sigmoid = "sigmoid": |x| T::ONE / (T::ONE + (-x).exp());
    /// -1, 0 or 1.
    Sign = "sign": |x| if x > T::ZERO { T::ONE } else if x < T::ZERO { -T::ONE } else { x };
    /// `x * sigmoid(x)`.
    Silu = "silu": |x| x / (T::ONE + (-x).exp());
    /// Sine of radians.
    Sin = "sin": |x| x.sin();
    /// Square root.
    Sqrt = "sqrt": |x| x.sqrt();
    /// Hyperbolic tangent.
    Tanh = "tanh": |x| x.tanh();
}

/// One function applied to every element: `f32` for all but `not`, which takes `bool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Unary {
    /// Which function.
    pub kind: UnaryKind,
}

impl OpDef for Unary {
    const NAME: &'static str = "unary";

    fn steps(&self) -> Option<Vec<Step>> {
        Some(vec![Step::Unary(self.kind, Operand::Input(0))])
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x] = take(inputs)?;
        if self.kind == UnaryKind::Not {
            expect_bool("x", x)?
        } else {
            expect_f32("x", x)?
        }
        Ok(x.clone())
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let shape = inputs[0].shape.clone();
        match &inputs[0].data {
            Data::Bool(values) => {
                DenseTensor::from_bool(shape, values.iter().map(|&x| !x).collect())
            }
            Data::Real(values) => {
                DenseTensor::from_real(shape, values.iter().map(|&x| self.kind.apply(x)).collect())
            }
            Data::Int(_) => panic!("inference refuses integers"),
        }
    }

    fn cases() -> Vec<Case> {
        let case = |&kind: &UnaryKind| {
            let input = match kind {
                UnaryKind::Log | UnaryKind::Log2 | UnaryKind::Sqrt => uniform([3, 37], 0.01, 9.0),
                UnaryKind::Not => crate::cases::bools([3, 37]),
                UnaryKind::Reciprocal => uniform([3, 37], 0.2, 5.0),
                UnaryKind::Sin | UnaryKind::Cos => uniform([3, 37], -7.0, 7.0),
                UnaryKind::Exp | UnaryKind::Sigmoid | UnaryKind::Tanh | UnaryKind::Silu => {
                    uniform([3, 37], -12.0, 12.0)
                }
                UnaryKind::Abs
                | UnaryKind::Erf
                | UnaryKind::Floor
                | UnaryKind::Gelu
                | UnaryKind::Negate
                | UnaryKind::Relu
                | UnaryKind::Round
                | UnaryKind::Sign => noise([3, 37]),
            };
            Case::new(kind.name(), Unary { kind }, [input]).within(Tolerance::FastMath)
        };
        UnaryKind::ALL.iter().map(case).collect()
    }
}
