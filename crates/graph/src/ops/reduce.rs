//! Sum, mean, maximum and minimum over axes.

use cutout_tensor::{Shape, TensorType, Tolerance};

use super::checks::countable;
use crate::cases::noise;
use crate::dense::{ravel, unravel};
use crate::op::{expect_axis, expect_f32, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Reduced, Value};

/// The function that reduces many elements to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub enum ReduceKind {
    /// Their sum; 0 for none.
    Sum,
    /// Their mean.
    Mean,
    /// The largest; `NaN` if one is.
    Maximum,
    /// The smallest; `NaN` if one is.
    Minimum,
}

/// One number for all elements along some axes of `x: f32`; the other axes stay.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Reduce {
    /// Which function.
    pub kind: ReduceKind,
    /// The axes, each once, in any order. Without axes every element is reduced alone.
    pub axes: Vec<usize>,
    /// Whether the axes stay, with length one.
    pub keep: bool,
}

impl Reduce {
    /// The input's shape with the reduced axes set to one.
    fn kept(&self, x: &Shape) -> Shape {
        let length = |(axis, &length)| if self.axes.contains(&axis) { 1 } else { length };
        x.iter().enumerate().map(length).collect()
    }

    /// Shape of the result.
    fn shape(&self, x: &Shape) -> Shape {
        if self.keep {
            return self.kept(x);
        }
        let stays = |(axis, _): &(usize, &usize)| !self.axes.contains(axis);
        x.iter().enumerate().filter(stays).map(|(_, &length)| length).collect()
    }
}

impl<'g> Value<'g> {
    /// Sums over axes.
    #[track_caller]
    pub fn sum(self, axes: impl Into<Vec<usize>>, reduced: Reduced) -> Value<'g> {
        self.reduce(ReduceKind::Sum, axes.into(), reduced)
    }

    /// Means over axes.
    #[track_caller]
    pub fn mean(self, axes: impl Into<Vec<usize>>, reduced: Reduced) -> Value<'g> {
        self.reduce(ReduceKind::Mean, axes.into(), reduced)
    }

    /// Largest elements over axes.
    #[track_caller]
    pub fn max(self, axes: impl Into<Vec<usize>>, reduced: Reduced) -> Value<'g> {
        self.reduce(ReduceKind::Maximum, axes.into(), reduced)
    }

    /// Smallest elements over axes.
    #[track_caller]
    pub fn min(self, axes: impl Into<Vec<usize>>, reduced: Reduced) -> Value<'g> {
        self.reduce(ReduceKind::Minimum, axes.into(), reduced)
    }

    #[track_caller]
    fn reduce(self, kind: ReduceKind, axes: Vec<usize>, reduced: Reduced) -> Value<'g> {
        self.apply(Reduce { kind, axes, keep: reduced == Reduced::Keep }, &[])
    }
}

impl OpDef for Reduce {
    const NAME: &'static str = "reduce";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x] = take(inputs)?;
        expect_f32("x", x)?;
        for (i, &axis) in self.axes.iter().enumerate() {
            expect_axis(axis, x)?;
            if self.axes[..i].contains(&axis) {
                return Err(OpError::Attribute(format!("axis {axis} is given twice")));
            }
        }
        let nothing = self.axes.iter().any(|&axis| x.shape[axis] == 0);
        if nothing && self.kind != ReduceKind::Sum {
            let message = format!("{:?} over nothing: axes {:?} of {x}", self.kind, self.axes);
            return Err(OpError::Shape(message));
        }
        countable(TensorType::f32(self.shape(&x.shape)))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let x = inputs[0];
        let kept = self.kept(&x.shape);
        let start = match self.kind {
            ReduceKind::Sum | ReduceKind::Mean => T::ZERO,
            ReduceKind::Maximum => T::LOWEST,
            ReduceKind::Minimum => -T::LOWEST,
        };
        let mut results = vec![start; kept.elements()];
        for (i, &value) in x.real().iter().enumerate() {
            let mut index = unravel(i, &x.shape);
            self.axes.iter().for_each(|&axis| index[axis] = 0);
            let result = &mut results[ravel(&index, &kept)];
            *result = match self.kind {
                ReduceKind::Sum | ReduceKind::Mean => *result + value,
                ReduceKind::Maximum => result.maximum(value),
                ReduceKind::Minimum => result.minimum(value),
            };
        }
        if self.kind == ReduceKind::Mean {
            let lengths = self.axes.iter().map(|&axis| x.shape[axis] as f64);
            let count = T::of(lengths.product());
            results.iter_mut().for_each(|result| *result = *result / count);
        }
        DenseTensor::from_real(self.shape(&x.shape), results)
    }

    fn flops(&self, inputs: &[&TensorType], _: &TensorType) -> u64 {
        inputs[0].shape.elements() as u64
    }

    fn cases() -> Vec<Case> {
        use ReduceKind::{Maximum, Mean, Minimum, Sum};
        let case = |name, kind, axes: &[usize], keep, shape: &[usize]| {
            let tolerance = match kind {
                Sum | Mean => Tolerance::Rounding,
                Maximum | Minimum => Tolerance::Exact,
            };
            let op = Reduce { kind, axes: axes.to_vec(), keep };
            Case::new(name, op, [noise(shape)]).within(tolerance)
        };
        vec![
            case("sum_last", Sum, &[2], false, &[2, 5, 37]),
            case("sum_first", Sum, &[0], false, &[19, 5]),
            case("sum_all", Sum, &[0, 1], false, &[19, 37]),
            case("sum_long", Sum, &[1], true, &[2, 1031]),
            case("sum_nothing", Sum, &[1], false, &[3, 0]),
            case("mean_pixels", Mean, &[1, 2], true, &[2, 5, 7, 3]),
            case("mean_apart", Mean, &[3, 0], false, &[3, 2, 5, 4]),
            case("maximum_apart", Maximum, &[2, 4], false, &[2, 3, 4, 5, 6]),
            case("maximum_middle", Maximum, &[1], true, &[3, 17, 5]),
            case("minimum_last", Minimum, &[1], false, &[5, 19]),
            case("minimum_all", Minimum, &[1, 0], true, &[5, 19]),
            case("mean_of_no_rows", Mean, &[1], false, &[0, 4]),
        ]
    }
}
