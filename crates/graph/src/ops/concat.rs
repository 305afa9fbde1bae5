//! Concatenation along an axis.

use cutout_tensor::{DType, TensorType, Tolerance};

use super::checks::countable;
use crate::cases::{bools, integers, noise};
use crate::op::expect_axis;
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// Concatenation along an axis of one or more inputs of one element type (any) that agree on all other axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Concat {
    /// The axis they are joined along.
    pub axis: usize,
}

impl<'g> Value<'g> {
    /// Concatenation of the parts along an axis.
    ///
    /// # Panics
    /// Without parts, as the result would have no type.
    #[track_caller]
    pub fn concat(parts: &[Value<'g>], axis: usize) -> Value<'g> {
        let (first, others) = parts.split_first().expect("concat is given at least one part");
        first.apply(Concat { axis }, others)
    }
}

impl OpDef for Concat {
    const NAME: &'static str = "concat";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let Some((&first, rest)) = inputs.split_first() else {
            return Err(OpError::Arity { expected: 1, found: 0 });
        };
        expect_axis(self.axis, first)?;
        let mut result = first.clone();
        for &part in rest {
            if part.dtype != first.dtype {
                let expected = "of the first part's element type";
                return Err(OpError::Type { input: "every part", expected, found: part.clone() });
            }
            let fits = part.rank() == first.rank()
                && (0..first.rank())
                    .all(|axis| axis == self.axis || part.shape[axis] == first.shape[axis]);
            let length =
                fits.then(|| result.shape[self.axis].checked_add(part.shape[self.axis])).flatten();
            let Some(length) = length else {
                let message = format!("{part} does not continue {first} along axis {}", self.axis);
                return Err(OpError::Shape(message));
            };
            result.shape[self.axis] = length;
        }
        countable(result)
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let mut shape = inputs[0].shape.clone();
        shape[self.axis] = inputs.iter().map(|part| part.shape[self.axis]).sum();
        // For one index of the axes before, the elements of each part are contiguous.
        let run = |part: &&DenseTensor<T>| part.shape[self.axis..].iter().product();
        let runs: Vec<usize> = inputs.iter().map(run).collect();
        let line: usize = runs.iter().sum();
        DenseTensor::choose(inputs, shape, |i| {
            let (mut part, mut position) = (0, i % line);
            while position >= runs[part] {
                position -= runs[part];
                part += 1;
            }
            (part, i / line * runs[part] + position)
        })
    }

    fn flops(&self, _: &[&TensorType], _: &TensorType) -> u64 {
        0
    }

    fn cases() -> Vec<Case> {
        let case = |name, axis, inputs: Vec<_>| {
            Case::new(name, Concat { axis }, inputs).within(Tolerance::Exact)
        };
        let half = |shape: [usize; 2]| noise(shape).of(DType::BF16);
        vec![
            case("one", 0, vec![noise([3, 5])]),
            case("rows", 0, vec![noise([3, 5]), noise([2, 5])]),
            case("channels", 2, vec![noise([2, 3, 5]), noise([2, 3, 1]), noise([2, 3, 17])]),
            case("middle", 1, vec![noise([2, 3, 5]), noise([2, 4, 5])]),
            case("with_empty", 1, vec![noise([2, 0]), noise([2, 3]), noise([2, 0])]),
            case("all_empty", 0, vec![noise([0, 3]), noise([0, 3])]),
            case("integers", 0, vec![integers([3], -9, 9), integers([4], -9, 9)]),
            case("halves", 1, vec![half([3, 5]), half([3, 2])]),
            case("bools", 0, vec![bools([3, 2]), bools([1, 2])]),
        ]
    }
}
