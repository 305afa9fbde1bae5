//! The axes in another order.

use cutout_tensor::{DType, Shape, TensorType, Tolerance};

use crate::cases::{bools, integers, noise};
use crate::dense::{ravel, unravel};
use crate::op::{ViewRule, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// The same elements with the axes in another order: axis `i` of the result is axis `axes[i]` of `x`.
/// Any element type.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Permute {
    /// For each axis of the result, the axis of the input it is.
    pub axes: Vec<usize>,
}

impl<'g> Value<'g> {
    /// The axes in another order: axis `i` of the result is axis `axes[i]`.
    #[track_caller]
    pub fn permute(self, axes: impl Into<Vec<usize>>) -> Value<'g> {
        self.apply(Permute { axes: axes.into() }, &[])
    }

    /// The last two axes exchanged.
    #[track_caller]
    pub fn transposed(self) -> Value<'g> {
        let ty = self.ty();
        let Some(last) = ty.rank().checked_sub(1).filter(|&last| last > 0) else {
            return self.builder().fail(format!("transposed needs two axes, got {ty}"));
        };
        let mut axes: Vec<usize> = (0..=last).collect();
        axes.swap(last - 1, last);
        self.permute(axes)
    }
}

impl OpDef for Permute {
    const NAME: &'static str = "permute";
    const VIEW: Option<ViewRule<Self>> = Some(|op, layout| Some(layout.permute(&op.axes)));

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x] = take(inputs)?;
        let mut seen = vec![false; x.rank()];
        let valid = self.axes.len() == seen.len()
            && self
                .axes
                .iter()
                .all(|&axis| axis < seen.len() && !std::mem::replace(&mut seen[axis], true));
        if !valid {
            let axes = &self.axes;
            return Err(OpError::Attribute(format!("{axes:?} is no permutation of {x}")));
        }
        let shape: Shape = self.axes.iter().map(|&axis| x.shape[axis]).collect();
        Ok(TensorType::new(x.dtype, shape))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let x = inputs[0];
        let shape: Shape = self.axes.iter().map(|&axis| x.shape[axis]).collect();
        x.gather(shape.clone(), |i| {
            let mut index = vec![0; self.axes.len()];
            for (&axis, position) in self.axes.iter().zip(unravel(i, &shape)) {
                index[axis] = position;
            }
            ravel(&index, &x.shape)
        })
    }

    fn flops(&self, _: &[&TensorType], _: &TensorType) -> u64 {
        0
    }

    fn cases() -> Vec<Case> {
        let case = |name, axes: &[usize], input| {
            Case::new(name, Permute { axes: axes.to_vec() }, [input]).within(Tolerance::Exact)
        };
        vec![
            case("transpose", &[1, 0], noise([37, 19])),
            case("heads", &[2, 0, 3, 1, 4], noise([2, 5, 3, 4, 7])),
            case("rotate", &[1, 2, 0], noise([3, 5, 9])),
            case("identity", &[0, 1], noise([3, 4])),
            case("scalar", &[], noise([])),
            case("integers", &[1, 0], integers([3, 5], -9, 9)),
            case("halves", &[1, 0], noise([3, 5]).of(DType::F16)),
            case("bools", &[2, 1, 0], bools([2, 3, 5])),
            case("empty", &[2, 0, 1], noise([3, 0, 2])),
        ]
    }
}
