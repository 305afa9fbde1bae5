//! Transposed convolution of channel-last images.

use cutout_tensor::{TensorType, Tolerance};

use super::checks::{countable, expect_inputs, expect_positive, saturating_product};
use super::{Activation, Epilogue};
use crate::cases::noise;
use crate::op::{axes, expect_f32, expect_shape};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// Transposed convolution, as PyTorch's with one group and no output padding, then the epilogue.
///
/// `x: f32[batch, height, width, inputs]`, `weight: f32[inputs, outputs, kernel_height, kernel_width]`, then the
/// epilogue's inputs. Every input pixel adds its kernel to the output at `position * stride - padding`. Output
/// `f32[batch, output_height, output_width, outputs]` with
/// `output_height = (height - 1) * stride + kernel_height - 2 * padding`, at least 1. Only the batch may be empty.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct ConvTranspose2d {
    /// Step between the kernels of neighbouring inputs, `[vertical, horizontal]`.
    pub stride: [usize; 2],
    /// Pixels cut from each side of the output, `[vertical, horizontal]`.
    pub padding: [usize; 2],
    /// Scale, bias, activation and residual applied to the sums.
    pub epilogue: Epilogue,
}

impl ConvTranspose2d {
    /// A transposed convolution that is the same along both axes.
    pub const fn new(stride: usize, padding: usize) -> Self {
        ConvTranspose2d { stride: [stride; 2], padding: [padding; 2], epilogue: Epilogue::NONE }
    }

    /// Length of the output along an axis, or `None` when nothing is left. The length is not 0.
    fn output_length(&self, axis: usize, length: usize, kernel: usize) -> Option<usize> {
        let whole = (length - 1).checked_mul(self.stride[axis])?.checked_add(kernel)?;
        whole.checked_sub(self.padding[axis].checked_mul(2)?).filter(|&length| length > 0)
    }

    fn output_lengths(&self, image: [usize; 2], kernel: [usize; 2]) -> Result<[usize; 2], OpError> {
        let lengths = [0, 1].map(|axis| self.output_length(axis, image[axis], kernel[axis]));
        let [Some(height), Some(width)] = lengths else {
            let ConvTranspose2d { stride, padding, .. } = self;
            return Err(OpError::Shape(format!(
                "an image of {image:?} under a kernel of {kernel:?} has no output \
                 with stride {stride:?} and padding {padding:?}"
            )));
        };
        Ok([height, width])
    }

    /// The sum at `[image, y, x]` of the output: all inputs whose kernel covers it.
    fn sum_at<T: Real>(
        &self,
        x: &DenseTensor<T>,
        weight: &DenseTensor<T>,
        [image, top, left]: [usize; 3],
        output: usize,
    ) -> T {
        let &[_, height, width, _] = &x.shape[..] else { panic!("inference checked x") };
        let &[channels, outputs, kernel_height, kernel_width] = &weight.shape[..] else {
            panic!("inference checked the weight")
        };
        let mut sum = T::ZERO;
        for tap in 0..kernel_height * kernel_width {
            let (down, right) = (tap / kernel_width, tap % kernel_width);
            let row = self.source(0, top, down).filter(|&row| row < height);
            let column = self.source(1, left, right).filter(|&column| column < width);
            let (Some(row), Some(column)) = (row, column) else { continue };
            let pixel = ((image * height + row) * width + column) * channels;
            for i in 0..channels {
                let at = (i * outputs + output) * kernel_height * kernel_width + tap;
                sum += x.real()[pixel + i] * weight.real()[at];
            }
        }
        sum
    }

    /// Where along an axis the input lies that reaches output `position` by element `tap` of its kernel.
    fn source(&self, axis: usize, position: usize, tap: usize) -> Option<usize> {
        let offset = (position + self.padding[axis]).checked_sub(tap)?;
        offset.is_multiple_of(self.stride[axis]).then_some(offset / self.stride[axis])
    }
}

impl<'g> Value<'g> {
    /// Transposed convolution of `[batch, height, width, channels]`; see [`ConvTranspose2d`].
    #[track_caller]
    pub fn conv_transpose2d(self, weight: Value<'g>, op: ConvTranspose2d) -> Value<'g> {
        self.apply(op, &[weight])
    }
}

impl OpDef for ConvTranspose2d {
    const NAME: &'static str = "conv_transpose2d";

    fn epilogue_mut(&mut self) -> Option<&mut Epilogue> {
        Some(&mut self.epilogue)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        expect_positive("the vertical stride", self.stride[0])?;
        expect_positive("the horizontal stride", self.stride[1])?;
        expect_inputs(2 + self.epilogue.inputs(), inputs.len())?;
        let (x, weight) = (inputs[0], inputs[1]);
        expect_f32("x", x)?;
        expect_f32("weight", weight)?;
        let [batch, height, width, channels] = axes("x", x)?;
        let [_, outputs, kernel_height, kernel_width] = axes("weight", weight)?;
        expect_shape("weight", weight, &[channels, outputs, kernel_height, kernel_width])?;
        if weight.shape.contains(&0) || height == 0 || width == 0 {
            return Err(OpError::Shape(format!("image and kernel are empty: {x} and {weight}")));
        }
        let [output_height, output_width] =
            self.output_lengths([height, width], [kernel_height, kernel_width])?;
        let output = countable(TensorType::f32([batch, output_height, output_width, outputs]))?;
        self.epilogue.check(&inputs[2..], &output)?;
        Ok(output)
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let (x, weight) = (inputs[0], inputs[1]);
        let &[batch, height, width, _] = &x.shape[..] else { panic!("inference checked x") };
        let &[_, outputs, kernel_height, kernel_width] = &weight.shape[..] else {
            panic!("inference checked the weight")
        };
        let [output_height, output_width] = self
            .output_lengths([height, width], [kernel_height, kernel_width])
            .expect("inference checked the lengths");
        let mut values = Vec::with_capacity(batch * output_height * output_width * outputs);
        for pixel in 0..batch * output_height * output_width {
            let (line, column) = (pixel / output_width, pixel % output_width);
            let place = [line / output_height, line % output_height, column];
            values.extend((0..outputs).map(|output| self.sum_at(x, weight, place, output)));
        }
        let mut sums =
            DenseTensor::from_real([batch, output_height, output_width, outputs], values);
        self.epilogue.apply(&mut sums, &inputs[2..]);
        sums
    }

    /// Every input pixel times its whole kernel, also where padding cuts it.
    fn flops(&self, inputs: &[&TensorType], _: &TensorType) -> u64 {
        let weight = &inputs[1].shape;
        saturating_product(&[2, inputs[0].shape.elements(), weight[1], weight[2], weight[3]])
    }

    fn cases() -> Vec<Case> {
        let case = |name, op: ConvTranspose2d, x: [usize; 4], weight: [usize; 4]| {
            Case::new(name, op, [noise(x), noise(weight)])
        };
        let new = ConvTranspose2d::new;
        let uneven = ConvTranspose2d { stride: [1, 3], padding: [1, 0], ..new(1, 0) };
        let bias = Epilogue { bias: true, ..Epilogue::NONE };
        let every = Epilogue { scale: 0.5, activation: Activation::Gelu, residual: true, ..bias };
        let with = |epilogue| ConvTranspose2d { epilogue, ..new(2, 0) };
        let (x, weight) = ([2, 5, 6, 17], [17, 20, 2, 2]);
        vec![
            case("upscale", new(2, 0), [2, 5, 7, 33], [33, 20, 2, 2]),
            case("upscale_wide", new(2, 0), [1, 8, 9, 64], [64, 70, 2, 2]),
            case("overlapping", new(2, 1), [1, 5, 4, 6], [6, 9, 3, 3]),
            case("gaps", new(4, 0), [1, 3, 4, 5], [5, 3, 2, 3]),
            case("uneven", uneven, [2, 4, 3, 7], [7, 5, 3, 4]),
            case("pointwise", new(1, 0), [1, 4, 5, 9], [9, 8, 1, 1]),
            case("one_pixel", new(2, 0), [1, 1, 1, 4], [4, 5, 2, 2]),
            case("no_batch", new(2, 0), [0, 3, 3, 4], [4, 5, 2, 2]),
            Case::new("bias", with(bias), [noise(x), noise(weight), noise([20])]),
            Case::new(
                "everything",
                with(every),
                [noise(x), noise(weight), noise([20]), noise([2, 10, 12, 20])],
            )
            .within(Tolerance::FastMath),
        ]
    }
}

#[cfg(test)]
mod tests {
    use cutout_testing::Random;

    use super::*;
    use crate::ops::Conv2d;

    fn noise<const N: usize>(shape: [usize; N], seed: u64) -> DenseTensor<f64> {
        let mut random = Random::new(seed);
        let count = shape.iter().product();
        DenseTensor::from_real(shape, (0..count).map(|_| random.normal()).collect())
    }

    #[test]
    fn it_is_the_transpose_of_convolution() {
        for (stride, padding, size, small) in [(2, 0, [4, 6], [2, 3]), (2, 1, [7, 5], [4, 3])] {
            let kernel = if padding == 0 { 2 } else { 3 };
            let x = noise([1, size[0], size[1], 3], 1);
            let y = noise([1, small[0], small[1], 5], 2);
            let weight = noise([5, 3, kernel, kernel], 3);
            let forward = Conv2d::new(stride, padding).reference(&[&x, &weight]);
            let backward = ConvTranspose2d::new(stride, padding).reference(&[&y, &weight]);
            assert_eq!((&forward.shape, &backward.shape), (&y.shape, &x.shape));
            let dot = |a: &DenseTensor<f64>, b: &DenseTensor<f64>| -> f64 {
                a.real().iter().zip(b.real()).map(|(a, b)| a * b).sum()
            };
            assert!((dot(&forward, &y) - dot(&x, &backward)).abs() < 1e-10);
        }
    }

    #[test]
    fn attributes_and_shapes_that_do_not_fit_are_refused() {
        let refusal = |op: ConvTranspose2d, x: [usize; 4], weight: [usize; 4]| {
            let (x, weight) = (TensorType::f32(x), TensorType::f32(weight));
            op.infer(&[&x, &weight]).unwrap_err().to_string()
        };
        let (x, weight) = ([1, 2, 2, 4], [4, 3, 2, 2]);
        let new = ConvTranspose2d::new;
        assert_eq!(refusal(new(0, 0), x, weight), "the vertical stride must be at least 1, got 0");
        assert_eq!(
            refusal(new(1, 2), x, weight),
            "an image of [2, 2] under a kernel of [2, 2] has no output with stride [1, 1] and padding [2, 2]"
        );
        assert!(refusal(new(usize::MAX, 0), x, weight).contains("has no output"));
        assert!(refusal(new(1, usize::MAX), x, weight).contains("has no output"));
        assert!(refusal(new(usize::MAX / 2, 0), x, weight).contains("the output is too large"));
        assert!(refusal(new(2, 0), [1, 2, 0, 4], weight).contains("are empty"));
        assert!(
            refusal(new(2, 0), [1, 2, 2, 5], weight)
                .contains("weight must have shape [5, 3, 2, 2]")
        );
    }
}
