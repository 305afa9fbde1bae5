//! Comparison of two elements, with NumPy's broadcasting.

use cutout_tensor::{DType, TensorType, Tolerance};

use super::checks::countable;
use crate::cases::{integers, noise, values};
use crate::dense::broadcast_position;
use crate::op::{broadcast_all, take};
use crate::{Case, Data, DenseTensor, OpDef, OpError, Real};

/// Which comparison; all but `NotEqual` are false for `NaN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub enum CompareKind {
    /// The same number.
    Equal,
    /// Another number, or `NaN`.
    NotEqual,
    /// The first is smaller.
    Less,
    /// The first is not larger.
    LessEqual,
    /// The first is larger.
    Greater,
    /// The first is not smaller.
    GreaterEqual,
}

impl CompareKind {
    /// Every comparison.
    pub const ALL: &[CompareKind] = &[
        CompareKind::Equal,
        CompareKind::NotEqual,
        CompareKind::Less,
        CompareKind::LessEqual,
        CompareKind::Greater,
        CompareKind::GreaterEqual,
    ];

    /// Name in printed graphs.
    pub const fn name(self) -> &'static str {
        match self {
            CompareKind::Equal => "equal",
            CompareKind::NotEqual => "not_equal",
            CompareKind::Less => "less",
            CompareKind::LessEqual => "less_equal",
            CompareKind::Greater => "greater",
            CompareKind::GreaterEqual => "greater_equal",
        }
    }

    /// The comparison itself.
    pub fn apply<X: PartialOrd>(self, a: X, b: X) -> bool {
        match self {
            CompareKind::Equal => a == b,
            CompareKind::NotEqual => a != b,
            CompareKind::Less => a < b,
            CompareKind::LessEqual => a <= b,
            CompareKind::Greater => a > b,
            CompareKind::GreaterEqual => a >= b,
        }
    }
}

/// Whether each pair of elements compares so: `f32`, or integers of one type, that broadcast to a common shape → `bool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Compare {
    /// Which comparison.
    pub kind: CompareKind,
}

impl OpDef for Compare {
    const NAME: &'static str = "compare";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [a, b] = take(inputs)?;
        if a.dtype != DType::F32 && !a.dtype.is_integer() {
            let expected = "f32 or an integer type";
            return Err(OpError::Type { input: "a", expected, found: a.clone() });
        }
        if b.dtype != a.dtype {
            let expected = "of the element type of a";
            return Err(OpError::Type { input: "b", expected, found: b.clone() });
        }
        countable(TensorType::new(DType::Bool, broadcast_all(inputs)?))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let [a, b] = [inputs[0], inputs[1]];
        let shape = a.shape.broadcast(&b.shape).expect("inference has checked the shapes");
        let at = |i, x: &DenseTensor<T>| broadcast_position(i, &x.shape, &shape);
        let positions = (0..shape.elements()).map(|i| (at(i, a), at(i, b)));
        let results = match &a.data {
            Data::Real(a) => positions.map(|(i, j)| self.kind.apply(a[i], b.real()[j])).collect(),
            Data::Int(a) => positions.map(|(i, j)| self.kind.apply(a[i], b.int()[j])).collect(),
            Data::Bool(_) => panic!("inference refuses truth values"),
        };
        DenseTensor::from_bool(shape.clone(), results)
    }

    fn cases() -> Vec<Case> {
        let case = |name, kind, inputs: [_; 2]| {
            Case::new(name, Compare { kind }, inputs).within(Tolerance::Exact)
        };
        let kind = |&kind: &CompareKind| {
            case(kind.name(), kind, [integers([5, 7], -3, 3), integers([5, 7], -3, 3)])
        };
        let mut cases: Vec<Case> = CompareKind::ALL.iter().map(kind).collect();
        let special =
            values(TensorType::f32([5]), &[f64::NAN, 0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY]);
        let column = || special.clone().reshaped([5, 1]);
        cases.extend([
            case("floats", CompareKind::Greater, [noise([3, 37]), noise([3, 37])]),
            case("threshold", CompareKind::Greater, [noise([2, 5, 7]), noise([])]),
            case("both_ways", CompareKind::LessEqual, [noise([2, 1, 5]), noise([3, 1])]),
            case("special_less", CompareKind::LessEqual, [column(), special.clone()]),
            case("special_other", CompareKind::NotEqual, [column(), special.clone()]),
            case("empty", CompareKind::Less, [noise([0, 4]), noise([4])]),
        ]);
        cases
    }
}
