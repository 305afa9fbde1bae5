//! Rows of a table by index.

use cutout_tensor::{DType, Shape, TensorType, Tolerance};

use super::checks::countable;
use crate::cases::{integers, noise};
use crate::op::{expect_f32, expect_integer, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// `table[indices[..]]`: `table: f32[n, ..row]`, `indices: integer[..]` → `f32[..indices, ..row]`.
/// Every index must be in `0..n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Gather;

/// Shape of the result.
fn shape(table: &Shape, indices: &Shape) -> Shape {
    indices.iter().chain(&table[1..]).copied().collect()
}

impl<'g> Value<'g> {
    /// The rows of this table that `indices` name; see [`Gather`].
    #[track_caller]
    pub fn gather(self, indices: Value<'g>) -> Value<'g> {
        self.apply(Gather, &[indices])
    }
}

impl OpDef for Gather {
    const NAME: &'static str = "gather";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [table, indices] = take(inputs)?;
        expect_f32("table", table)?;
        expect_integer("indices", indices)?;
        if table.rank() == 0 {
            return Err(OpError::Shape("a scalar is no table".into()));
        }
        countable(TensorType::f32(shape(&table.shape, &indices.shape)))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let [table, indices] = [inputs[0], inputs[1]];
        let width = Shape::new(&table.shape[1..]).elements();
        table.gather(shape(&table.shape, &indices.shape), |i| {
            indices.int()[i / width] as usize * width + i % width
        })
    }

    fn check_values<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> Result<(), String> {
        let rows = inputs[0].shape[0];
        let inside = |&index: &i64| usize::try_from(index).is_ok_and(|index| index < rows);
        match inputs[1].int().iter().position(|index| !inside(index)) {
            None => Ok(()),
            Some(at) => {
                let index = inputs[1].int()[at];
                Err(format!("index {index} at element {at} is outside a table of {rows} rows"))
            }
        }
    }

    fn flops(&self, _: &[&TensorType], _: &TensorType) -> u64 {
        0
    }

    fn cases() -> Vec<Case> {
        let case = |name, table, indices| {
            Case::new(name, Gather, [table, indices]).within(Tolerance::Exact)
        };
        vec![
            case("tokens", noise([50, 17]), integers([2, 9], 0, 50)),
            case("one", noise([5, 3]), integers([], 0, 5)),
            case("numbers", noise([19]), integers([3, 5], 0, 19)),
            case("images", noise([4, 3, 2, 5]), integers([7], 0, 4)),
            case("small_indices", noise([9, 4]), integers([6], 0, 9).of(DType::I32)),
            case("bytes", noise([200, 2]), integers([6], 0, 200).of(DType::U8)),
            case("no_indices", noise([5, 3]), integers([0], 0, 5)),
            case("empty_rows", noise([5, 0]), integers([4], 0, 5)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_index_outside_is_reported() {
        let table = DenseTensor::from_real([2, 1], vec![1.0f32, 2.0]);
        let check = |indices: &[i64]| {
            Gather
                .check_values(&[&table, &DenseTensor::from_int([indices.len()], indices.to_vec())])
        };
        assert_eq!(check(&[0, 1]), Ok(()));
        assert_eq!(
            check(&[1, 2, -1]),
            Err("index 2 at element 1 is outside a table of 2 rows".into())
        );
        assert_eq!(check(&[-1]), Err("index -1 at element 0 is outside a table of 2 rows".into()));
    }
}
