//! Arithmetic on two elements, with NumPy's broadcasting.

use cutout_tensor::{TensorType, Tolerance};

use super::checks::countable;
use crate::cases::{bools, noise, uniform};
use crate::dense::broadcast_position;
use crate::op::{expect_bool, expect_f32, take};
use crate::ops::{Operand, Step};
use crate::{Case, DenseTensor, OpDef, OpError, Real};

/// Which function of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub enum BinaryKind {
    /// Sum.
    Add,
    /// Difference.
    Subtract,
    /// Product.
    Multiply,
    /// Quotient.
    Divide,
    /// The larger; `NaN` if either is.
    Maximum,
    /// The smaller; `NaN` if either is.
    Minimum,
    /// The first to the power of the second.
    Power,
    /// Both, of two `bool`.
    And,
    /// Either, of two `bool`.
    Or,
}

impl BinaryKind {
    /// Every function.
    pub const ALL: &[BinaryKind] = &[
        BinaryKind::Add,
        BinaryKind::Subtract,
        BinaryKind::Multiply,
        BinaryKind::Divide,
        BinaryKind::Maximum,
        BinaryKind::Minimum,
        BinaryKind::Power,
        BinaryKind::And,
        BinaryKind::Or,
    ];

    /// Whether it works on truth values instead of floats.
    pub const fn is_logical(self) -> bool {
        matches!(self, BinaryKind::And | BinaryKind::Or)
    }

    /// Name in printed graphs.
    pub const fn name(self) -> &'static str {
        match self {
            BinaryKind::Add => "add",
            BinaryKind::Subtract => "subtract",
            BinaryKind::Multiply => "multiply",
            BinaryKind::Divide => "divide",
            BinaryKind::Maximum => "maximum",
            BinaryKind::Minimum => "minimum",
            BinaryKind::Power => "power",
            BinaryKind::And => "and",
            BinaryKind::Or => "or",
        }
    }

    /// The function on floats; the logical ones are defined on truth values only.
    pub fn apply<T: Real>(self, a: T, b: T) -> T {
        match self {
            BinaryKind::Add => a + b,
            BinaryKind::Subtract => a - b,
            BinaryKind::Multiply => a * b,
            BinaryKind::Divide => a / b,
            BinaryKind::Maximum => a.maximum(b),
            BinaryKind::Minimum => a.minimum(b),
            BinaryKind::Power => a.pow(b),
            BinaryKind::And | BinaryKind::Or => panic!("inference gives it only truth values"),
        }
    }
}

/// One function of the elements of two tensors that broadcast to a common shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Binary {
    /// Which function.
    pub kind: BinaryKind,
}

impl OpDef for Binary {
    const NAME: &'static str = "binary";

    fn steps(&self) -> Option<Vec<Step>> {
        Some(vec![Step::Binary(self.kind, Operand::Input(0), Operand::Input(1))])
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [a, b] = take(inputs)?;
        for (name, ty) in [("a", a), ("b", b)] {
            if self.kind.is_logical() { expect_bool(name, ty)? } else { expect_f32(name, ty)? }
        }
        match a.shape.broadcast(&b.shape) {
            Some(shape) => countable(TensorType::new(a.dtype, shape)),
            None => Err(OpError::Shape(format!("{a} and {b} do not broadcast"))),
        }
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let [a, b] = [inputs[0], inputs[1]];
        let shape = a.shape.broadcast(&b.shape).expect("inference has checked the shapes");
        let at = |i, x: &DenseTensor<T>| broadcast_position(i, &x.shape, &shape);
        let count = shape.elements();
        if self.kind.is_logical() {
            let both = (0..count).map(|i| {
                let (x, y) = (a.bool()[at(i, a)], b.bool()[at(i, b)]);
                if self.kind == BinaryKind::And { x && y } else { x || y }
            });
            return DenseTensor::from_bool(shape.clone(), both.collect());
        }
        let values = (0..count).map(|i| self.kind.apply(a.real()[at(i, a)], b.real()[at(i, b)]));
        DenseTensor::from_real(shape.clone(), values.collect())
    }

    fn cases() -> Vec<Case> {
        let mut cases: Vec<Case> = BinaryKind::ALL
            .iter()
            .map(|&kind| {
                let inputs = match kind {
                    BinaryKind::Divide | BinaryKind::Power => {
                        [uniform([3, 37], 0.3, 4.0), uniform([3, 37], 0.5, 3.0)]
                    }
                    BinaryKind::And | BinaryKind::Or => [bools([3, 37]), bools([3, 37])],
                    BinaryKind::Add
                    | BinaryKind::Subtract
                    | BinaryKind::Multiply
                    | BinaryKind::Maximum
                    | BinaryKind::Minimum => [noise([3, 37]), noise([3, 37])],
                };
                let case = Case::new(kind.name(), Binary { kind }, inputs);
                if kind == BinaryKind::Power { case.within(Tolerance::FastMath) } else { case }
            })
            .collect();
        let add = Binary { kind: BinaryKind::Add };
        let subtract = Binary { kind: BinaryKind::Subtract };
        cases.extend([
            Case::new("scalar_right", subtract, [noise([5, 19]), noise([])]),
            Case::new("scalar_left", subtract, [noise([]), noise([5, 19])]),
            Case::new("row", subtract, [noise([2, 5, 19]), noise([19])]),
            Case::new("column", subtract, [noise([2, 5, 19]), noise([5, 1])]),
            Case::new("both_ways", subtract, [noise([2, 1, 19]), noise([3, 1])]),
            Case::new("middle_axis", subtract, [noise([2, 1, 3, 8]), noise([2, 5, 1, 8])]),
            Case::new("empty", add, [noise([0, 4]), noise([4])]),
        ]);
        cases
    }
}
