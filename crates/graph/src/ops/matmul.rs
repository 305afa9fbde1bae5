//! Matrix product of two values.

use cutout_tensor::{Shape, TensorType, Tolerance};

use super::checks::{countable, expect_inputs, saturating_product};
use super::{Activation, Epilogue};
use crate::cases::noise;
use crate::dense::{broadcast_position, multiply, transposed};
use crate::op::{expect_f32, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// `a · b` over the last two axes: `a: f32[.., M, K]` and `b: f32[.., K, N]` give `f32[.., M, N]`. The leading axes
/// broadcast as NumPy's; both have at least two axes. `K` may be 0: the sums are then 0. Then the epilogue.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct MatMul {
    /// Whether `b` is stored as `f32[.., N, K]`, so that the product is `a · bᵀ`.
    pub transpose_right: bool,
    /// Scale, bias, activation and residual applied to the sums.
    pub epilogue: Epilogue,
}

/// The lengths of one product and the leading axes of both operands and the output.
struct Sizes {
    transpose_right: bool,
    rows: usize,
    depth: usize,
    columns: usize,
    left: Shape,
    right: Shape,
    batch: Shape,
}

impl MatMul {
    /// `a · b`.
    pub const PLAIN: MatMul = MatMul { transpose_right: false, epilogue: Epilogue::NONE };
    /// `a · bᵀ`.
    pub const TRANSPOSED: MatMul = MatMul { transpose_right: true, epilogue: Epilogue::NONE };

    fn sizes(&self, a: &Shape, b: &Shape) -> Option<Sizes> {
        let (left, &[rows, depth]) = a.split_last_chunk::<2>()?;
        let (right, &[first, second]) = b.split_last_chunk::<2>()?;
        let transpose_right = self.transpose_right;
        let (own_depth, columns) = if transpose_right { (second, first) } else { (first, second) };
        let (left, right) = (Shape::from(left), Shape::from(right));
        let batch = left.broadcast(&right)?;
        (own_depth == depth).then_some(Sizes {
            transpose_right,
            rows,
            depth,
            columns,
            left,
            right,
            batch,
        })
    }
}

impl<'g> Value<'g> {
    /// Matrix product over the last two axes; see [`MatMul`].
    #[track_caller]
    pub fn matmul(self, right: Value<'g>) -> Value<'g> {
        self.apply(MatMul::PLAIN, &[right])
    }

    /// Matrix product with the transpose of `right: [.., N, K]`; see [`MatMul`].
    #[track_caller]
    pub fn matmul_transposed(self, right: Value<'g>) -> Value<'g> {
        self.apply(MatMul::TRANSPOSED, &[right])
    }
}

impl OpDef for MatMul {
    const NAME: &'static str = "matmul";

    fn epilogue_mut(&mut self) -> Option<&mut Epilogue> {
        Some(&mut self.epilogue)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        expect_inputs(2 + self.epilogue.inputs(), inputs.len())?;
        let [a, b] = take(&inputs[..2])?;
        expect_f32("a", a)?;
        expect_f32("b", b)?;
        let Some(sizes) = self.sizes(&a.shape, &b.shape) else {
            let wanted = if self.transpose_right {
                "[.., M, K] · [.., N, K]ᵀ"
            } else {
                "[.., M, K] · [.., K, N]"
            };
            return Err(OpError::Shape(format!("{a} and {b} do not fit {wanted}")));
        };
        let matrix = [sizes.rows, sizes.columns];
        let output = TensorType::f32(sizes.batch.iter().copied().chain(matrix).collect::<Shape>());
        self.epilogue.check(&inputs[2..], &output)?;
        countable(output)
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let (a, b) = (inputs[0].real(), inputs[1].real());
        let sizes = self.sizes(&inputs[0].shape, &inputs[1].shape).expect("inference checked them");
        let Sizes { rows, depth, columns, left, right, batch, transpose_right } = &sizes;
        let mut values = Vec::new();
        let matrices = if *rows == 0 || *columns == 0 { 0 } else { batch.elements() };
        for image in 0..matrices {
            if *depth == 0 {
                values.resize(values.len() + rows * columns, T::ZERO);
                continue;
            }
            let a = &a[broadcast_position(image, left, batch) * rows * depth..][..rows * depth];
            let b_start = broadcast_position(image, right, batch) * depth * columns;
            let b = &b[b_start..][..depth * columns];
            match transpose_right {
                true => multiply(a, &transposed(b, *depth), *columns, &mut values),
                false => multiply(a, b, *columns, &mut values),
            }
        }
        let shape: Shape = batch.iter().copied().chain([*rows, *columns]).collect();
        let mut sums = DenseTensor::from_real(shape, values);
        self.epilogue.apply(&mut sums, &inputs[2..]);
        sums
    }

    fn flops(&self, inputs: &[&TensorType], output: &TensorType) -> u64 {
        saturating_product(&[2, output.shape.elements(), inputs[0].shape.last_axis()])
    }

    fn cases() -> Vec<Case> {
        let case =
            |name, a: &[usize], b: &[usize]| Case::new(name, MatMul::PLAIN, [noise(a), noise(b)]);
        let transposed = |name, a: &[usize], b: &[usize]| {
            Case::new(name, MatMul::TRANSPOSED, [noise(a), noise(b)])
        };
        let residual = Epilogue { residual: true, ..Epilogue::NONE };
        let every =
            Epilogue { scale: 0.5, bias: true, activation: Activation::Gelu, residual: true };
        vec![
            case("matrices", &[5, 7], &[7, 3]),
            case("wider_than_tiles", &[70, 129], &[129, 131]),
            case("batch", &[2, 3, 9, 17], &[2, 3, 17, 11]),
            case("one_right_matrix", &[4, 9, 17], &[17, 33]),
            case("one_left_matrix", &[9, 17], &[4, 17, 33]),
            case("broadcast_both_ways", &[2, 1, 5, 6], &[3, 6, 4]),
            case("one_row", &[1, 300], &[300, 65]),
            case("one_column", &[65, 300], &[300, 1]),
            case("no_depth", &[2, 3, 0], &[2, 0, 4]),
            case("no_batch", &[0, 3, 5], &[5, 4]),
            transposed("transposed", &[2, 19, 33], &[2, 70, 33]),
            transposed("transposed_masks", &[1, 4, 32], &[2, 1025, 32]),
            Case::new(
                "residual",
                MatMul { epilogue: residual, ..MatMul::PLAIN },
                [noise([3, 20, 31]), noise([3, 31, 65]), noise([3, 20, 65])],
            ),
            Case::new(
                "deep_residual",
                MatMul { epilogue: residual, ..MatMul::TRANSPOSED },
                [noise([2, 7, 1100]), noise([33, 1100]), noise([2, 7, 33])],
            ),
            Case::new(
                "everything",
                MatMul { epilogue: every, ..MatMul::PLAIN },
                [noise([2, 1, 5, 6]), noise([3, 6, 40]), noise([40]), noise([2, 3, 5, 40])],
            )
            .within(Tolerance::FastMath),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_by_hand() {
        let a = DenseTensor::from_real([1, 2], vec![2.0, 3.0]);
        let b = DenseTensor::from_real([2, 2], vec![5.0, 7.0, 11.0, 13.0]);
        let product =
            |transpose_right| MatMul { transpose_right, ..MatMul::PLAIN }.reference(&[&a, &b]);
        assert_eq!(product(false).real(), [43.0, 53.0]);
        assert_eq!(product(true).real(), [31.0, 61.0]);
    }

    #[test]
    fn operands_that_do_not_fit_are_refused() {
        let infer = |transpose_right, a: &[usize], b: &[usize]| {
            let (a, b) = (TensorType::f32(a), TensorType::f32(b));
            MatMul { transpose_right, ..MatMul::PLAIN }.infer(&[&a, &b])
        };
        assert!(infer(false, &[2, 3], &[3, 4]).is_ok());
        let wrong = infer(true, &[2, 3], &[3, 4]).unwrap_err().to_string();
        assert_eq!(wrong, "f32[2, 3] and f32[3, 4] do not fit [.., M, K] · [.., N, K]ᵀ");
        assert!(infer(false, &[3], &[3, 4]).is_err());
        assert!(infer(false, &[2, 2, 3], &[3, 3, 4]).is_err());
        assert!(infer(false, &[1 << 40, 1], &[1, 1 << 40]).is_err());
    }
}
