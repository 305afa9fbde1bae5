//! Convolution of channel-last images.

use cutout_tensor::{TensorType, Tolerance};

use super::checks::{countable, expect_inputs, expect_positive, saturating_product};
use super::{Activation, Epilogue};
use crate::cases::noise;
use crate::op::{axes, expect_f32, expect_shape};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// Convolution (cross-correlation, as PyTorch's) with zero padding, then the epilogue.
///
/// `x: f32[batch, height, width, inputs]`, `weight: f32[outputs, inputs / groups, kernel_height, kernel_width]` as
/// PyTorch keeps it, then the epilogue's inputs. Output `f32[batch, output_height, output_width, outputs]` with
/// `output_height = (before + height + after - kernel_height) / stride + 1`. Group `g` of the outputs sees group `g`
/// of the inputs; `groups = inputs` is a depthwise convolution. Only the batch may be empty.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Conv2d {
    /// Step between outputs, `[vertical, horizontal]`.
    pub stride: [usize; 2],
    /// Zeros `[before, after]` the image, vertically and horizontally.
    pub padding: [[usize; 2]; 2],
    /// Groups that inputs and outputs are split into.
    pub groups: usize,
    /// Scale, bias, activation and residual applied to the sums.
    pub epilogue: Epilogue,
}

impl Conv2d {
    /// A convolution in one group, the same along both axes and on all sides.
    pub const fn new(stride: usize, padding: usize) -> Self {
        Conv2d {
            stride: [stride; 2],
            padding: [[padding; 2]; 2],
            groups: 1,
            epilogue: Epilogue::NONE,
        }
    }

    /// Length of the output along an axis, or `None` when the kernel does not fit. The stride is not 0.
    fn output_length(&self, axis: usize, length: usize, kernel: usize) -> Option<usize> {
        let [before, after] = self.padding[axis];
        let padded = length.checked_add(before)?.checked_add(after)?;
        (padded.checked_sub(kernel)? / self.stride[axis]).checked_add(1)
    }

    fn output_lengths(&self, image: [usize; 2], kernel: [usize; 2]) -> Result<[usize; 2], OpError> {
        let lengths = [0, 1].map(|axis| self.output_length(axis, image[axis], kernel[axis]));
        let [Some(height), Some(width)] = lengths else {
            let padding = self.padding;
            return Err(OpError::Shape(format!(
                "a kernel of {kernel:?} does not fit an image of {image:?} padded by {padding:?}"
            )));
        };
        Ok([height, width])
    }

    fn check_attributes(&self) -> Result<(), OpError> {
        expect_positive("groups", self.groups)?;
        expect_positive("the vertical stride", self.stride[0])?;
        expect_positive("the horizontal stride", self.stride[1])
    }
}

impl<'g> Value<'g> {
    /// Convolution of `[batch, height, width, channels]`; see [`Conv2d`].
    #[track_caller]
    pub fn conv2d(self, weight: Value<'g>, op: Conv2d) -> Value<'g> {
        self.apply(op, &[weight])
    }
}

impl OpDef for Conv2d {
    const NAME: &'static str = "conv2d";

    fn epilogue_mut(&mut self) -> Option<&mut Epilogue> {
        Some(&mut self.epilogue)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        self.check_attributes()?;
        expect_inputs(2 + self.epilogue.inputs(), inputs.len())?;
        let (x, weight) = (inputs[0], inputs[1]);
        expect_f32("x", x)?;
        expect_f32("weight", weight)?;
        let [batch, height, width, channels] = axes("x", x)?;
        let [outputs, _, kernel_height, kernel_width] = axes("weight", weight)?;
        let groups = self.groups;
        if [channels, outputs].iter().any(|&count| count == 0 || !count.is_multiple_of(groups)) {
            return Err(OpError::Shape(format!(
                "{channels} inputs and {outputs} outputs do not split into {groups} groups"
            )));
        }
        expect_shape("weight", weight, &[outputs, channels / groups, kernel_height, kernel_width])?;
        if [height, width, kernel_height, kernel_width].contains(&0) {
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
        let &[outputs, _, kernel_height, kernel_width] = &weight.shape[..] else {
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

    fn flops(&self, inputs: &[&TensorType], output: &TensorType) -> u64 {
        let weight = &inputs[1].shape;
        saturating_product(&[2, output.shape.elements(), weight[1], weight[2], weight[3]])
    }

    fn cases() -> Vec<Case> {
        let mut cases = plain_cases();
        cases.extend(epilogue_cases());
        cases
    }
}

impl Conv2d {
    /// The sum over the kernel at `[image, y, x]` of the output.
    fn sum_at<T: Real>(
        &self,
        x: &DenseTensor<T>,
        weight: &DenseTensor<T>,
        [image, top, left]: [usize; 3],
        output: usize,
    ) -> T {
        let &[_, height, width, channels] = &x.shape[..] else { panic!("inference checked x") };
        let &[outputs, depth, kernel_height, kernel_width] = &weight.shape[..] else {
            panic!("inference checked the weight")
        };
        let first = output / (outputs / self.groups) * depth;
        let mut sum = T::ZERO;
        for tap in 0..kernel_height * kernel_width {
            let (down, right) = (tap / kernel_width, tap % kernel_width);
            let row = (top * self.stride[0] + down).checked_sub(self.padding[0][0]);
            let column = (left * self.stride[1] + right).checked_sub(self.padding[1][0]);
            let (Some(row), Some(column)) = (row, column) else { continue };
            if row >= height || column >= width {
                continue;
            }
            let pixel = ((image * height + row) * width + column) * channels + first;
            for i in 0..depth {
                let at = (output * depth + i) * kernel_height * kernel_width + tap;
                sum += x.real()[pixel + i] * weight.real()[at];
            }
        }
        sum
    }
}

fn case(name: &'static str, op: Conv2d, x: [usize; 4], weight: [usize; 4]) -> Case {
    Case::new(name, op, [noise(x), noise(weight)])
}

fn plain_cases() -> Vec<Case> {
    let grouped = |stride, padding, groups| Conv2d { groups, ..Conv2d::new(stride, padding) };
    let uneven = Conv2d { stride: [2, 1], padding: [[0, 1], [2, 3]], ..Conv2d::new(1, 0) };
    vec![
        case("pointwise", Conv2d::new(1, 0), [2, 5, 7, 33], [20, 33, 1, 1]),
        case("three_by_three", Conv2d::new(1, 1), [1, 9, 11, 17], [35, 17, 3, 3]),
        case("patches", Conv2d::new(4, 0), [2, 16, 12, 3], [70, 3, 4, 4]),
        case("patches_overlap", Conv2d::new(4, 3), [1, 33, 29, 3], [16, 3, 7, 7]),
        case("patches_drop_the_rest", Conv2d::new(4, 0), [1, 11, 10, 3], [8, 3, 4, 4]),
        case("stride_two", Conv2d::new(2, 1), [1, 10, 9, 8], [16, 8, 3, 3]),
        case("uneven", uneven, [1, 6, 5, 4], [7, 4, 3, 2]),
        case("depthwise", grouped(1, 3, 37), [2, 9, 8, 37], [37, 1, 7, 7]),
        case("depthwise_stride_two", grouped(2, 1, 16), [1, 9, 8, 16], [16, 1, 3, 3]),
        case("depthwise_multiplied", grouped(1, 1, 6), [1, 5, 6, 6], [12, 1, 3, 3]),
        case("groups", grouped(1, 1, 3), [1, 6, 7, 15], [9, 5, 3, 3]),
        case("one_pixel", Conv2d::new(1, 1), [1, 1, 1, 5], [4, 5, 3, 3]),
        case("no_batch", Conv2d::new(1, 1), [0, 4, 4, 5], [4, 5, 3, 3]),
    ]
}

fn epilogue_cases() -> Vec<Case> {
    let bias = Epilogue { bias: true, ..Epilogue::NONE };
    let every = Epilogue { scale: 0.5, activation: Activation::Gelu, residual: true, ..bias };
    let relu = Epilogue { activation: Activation::Relu, ..bias };
    let with = |epilogue| Conv2d { epilogue, ..Conv2d::new(1, 1) };
    let (x, weight) = ([2, 6, 7, 9], [20, 9, 3, 3]);
    let depthwise = Conv2d { groups: 20, ..with(every) };
    vec![
        Case::new("bias", with(bias), [noise(x), noise(weight), noise([20])]),
        Case::new("relu", with(relu), [noise(x), noise(weight), noise([20])]),
        Case::new(
            "everything",
            with(every),
            [noise(x), noise(weight), noise([20]), noise([2, 6, 7, 20])],
        )
        .within(Tolerance::FastMath),
        Case::new(
            "depthwise_everything",
            depthwise,
            [noise([1, 5, 4, 20]), noise([20, 1, 3, 3]), noise([20]), noise([1, 5, 4, 20])],
        )
        .within(Tolerance::FastMath),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(op: Conv2d, x: [usize; 4], weight: [usize; 4]) -> String {
        let (x, weight) = (TensorType::f32(x), TensorType::f32(weight));
        op.infer(&[&x, &weight]).unwrap_err().to_string()
    }

    #[test]
    fn attributes_and_shapes_that_do_not_fit_are_refused() {
        let ok = Conv2d::new(1, 0);
        let (x, weight) = ([1, 5, 6, 4], [2, 4, 3, 3]);
        assert_eq!(
            refusal(Conv2d { groups: 0, ..ok }, x, weight),
            "groups must be at least 1, got 0"
        );
        let still = Conv2d { stride: [1, 0], ..ok };
        assert_eq!(refusal(still, x, weight), "the horizontal stride must be at least 1, got 0");
        assert_eq!(
            refusal(Conv2d { groups: 3, ..ok }, x, weight),
            "4 inputs and 2 outputs do not split into 3 groups"
        );
        assert_eq!(
            refusal(Conv2d { groups: 2, ..ok }, x, weight),
            "weight must have shape [2, 2, 3, 3], got f32[2, 4, 3, 3]"
        );
        assert_eq!(
            refusal(ok, x, [2, 4, 3, 7]),
            "a kernel of [3, 7] does not fit an image of [5, 6] padded by [[0, 0], [0, 0]]"
        );
        let vast = Conv2d::new(1, usize::MAX);
        assert!(refusal(vast, x, weight).contains("does not fit an image"));
        let vast = Conv2d::new(1, usize::MAX / 4);
        assert!(refusal(vast, x, weight).contains("the output is too large"));
        assert!(refusal(ok, [1, 0, 6, 4], weight).contains("are empty"));
        assert!(refusal(ok, x, [2, 4, 0, 3]).contains("are empty"));
        assert!(refusal(ok, [1, 5, 6, 0], [2, 0, 3, 3]).contains("do not split"));
    }

    #[test]
    fn groups_are_convolutions_side_by_side() {
        let x = DenseTensor::from_real([1, 3, 3, 2], (0..18).map(f64::from).collect());
        let weight =
            DenseTensor::from_real([2, 1, 2, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let both = Conv2d { groups: 2, ..Conv2d::new(1, 0) }.reference(&[&x, &weight]);
        for channel in 0..2 {
            let own = x.gather([1, 3, 3, 1], |i| 2 * i + channel);
            let kernel = weight.gather([1, 1, 2, 2], |i| 4 * channel + i);
            let alone = Conv2d::new(1, 0).reference(&[&own, &kernel]);
            assert_eq!(both.gather([1, 2, 2, 1], |i| 2 * i + channel), alone);
        }
        // Pixels 0, 2, 6 and 8 of channel 0 under the kernel 1, 2, 3, 4.
        assert_eq!(both.real()[0], 0.0 + 2.0 * 2.0 + 6.0 * 3.0 + 8.0 * 4.0);
    }
}
