//! Max pooling of images.

use cutout_tensor::{Shape, TensorType, Tolerance};

use super::checks::countable;
use crate::cases::noise;
use crate::dense::{ravel, unravel};
use crate::op::{axes, expect_f32, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// The largest value of each window: `x: f32[batch, height, width, channels]` →
/// `f32[batch, out_height, out_width, channels]` with `out = (in + 2 * padding - kernel) / stride + 1`, rounded down.
/// Padding counts as minus infinity and is at most half of the kernel, as in PyTorch; a `NaN` is the largest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MaxPool2d {
    /// Height and width of a window, at least 1.
    pub kernel: [usize; 2],
    /// Distance between windows, at least 1.
    pub stride: [usize; 2],
    /// Pixels added on each of the four sides.
    pub padding: [usize; 2],
}

impl MaxPool2d {
    /// Number of windows along one direction (0: vertical, 1: horizontal), if there is at least one.
    fn windows(&self, direction: usize, length: usize) -> Option<usize> {
        let padded = length.checked_add(self.padding[direction].checked_mul(2)?)?;
        Some(padded.checked_sub(self.kernel[direction])? / self.stride[direction] + 1)
    }

    /// The pixels that window `window` covers along one direction.
    fn covered(&self, direction: usize, window: usize, length: usize) -> std::ops::Range<usize> {
        let start = window * self.stride[direction]; // in padded pixels
        let end = start + self.kernel[direction];
        let padding = self.padding[direction];
        start.saturating_sub(padding)..end.saturating_sub(padding).min(length)
    }
}

impl<'g> Value<'g> {
    /// The largest pixel of each window; see [`MaxPool2d`].
    #[track_caller]
    pub fn max_pool2d(
        self,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
    ) -> Value<'g> {
        self.apply(MaxPool2d { kernel, stride, padding }, &[])
    }
}

impl OpDef for MaxPool2d {
    const NAME: &'static str = "max_pool2d";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x] = take(inputs)?;
        expect_f32("x", x)?;
        let [batch, height, width, channels] = axes("x", x)?;
        for direction in 0..2 {
            let (kernel, stride) = (self.kernel[direction], self.stride[direction]);
            if kernel == 0 || stride == 0 || self.padding[direction] > kernel / 2 {
                let message = "needs kernel >= 1, stride >= 1 and padding <= kernel / 2";
                return Err(OpError::Attribute(format!("{message}, got {self:?}")));
            }
        }
        let windows = (self.windows(0, height), self.windows(1, width));
        match windows {
            (Some(rows), Some(columns)) if height > 0 && width > 0 => {
                countable(TensorType::f32([batch, rows, columns, channels]))
            }
            (_, _) => Err(OpError::Shape(format!("{x} is smaller than {self:?}"))),
        }
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let x = inputs[0];
        let &[batch, height, width, channels] = &x.shape[..] else {
            panic!("inference checked the rank")
        };
        let count = "inference found a window";
        let rows = self.windows(0, height).expect(count);
        let columns = self.windows(1, width).expect(count);
        let shape = Shape::from([batch, rows, columns, channels]);
        let mut values = vec![T::LOWEST; shape.elements()];
        for (i, largest) in values.iter_mut().enumerate() {
            let index = unravel(i, &shape);
            for y in self.covered(0, index[1], height) {
                for x_position in self.covered(1, index[2], width) {
                    let at = ravel(&[index[0], y, x_position, index[3]], &x.shape);
                    *largest = largest.maximum(x.real()[at]);
                }
            }
        }
        DenseTensor::from_real(shape, values)
    }

    fn flops(&self, _: &[&TensorType], output: &TensorType) -> u64 {
        let window = (self.kernel[0] as u64).saturating_mul(self.kernel[1] as u64);
        window.saturating_mul(output.shape.elements() as u64)
    }

    fn cases() -> Vec<Case> {
        let case = |name, kernel, stride, padding, shape: [usize; 4]| {
            let op = MaxPool2d { kernel, stride, padding };
            Case::new(name, op, [noise(shape)]).within(Tolerance::Exact)
        };
        vec![
            case("halve", [2, 2], [2, 2], [0, 0], [2, 8, 6, 5]),
            case("odd_size", [2, 2], [2, 2], [0, 0], [1, 7, 9, 3]),
            case("overlapping", [3, 3], [2, 2], [1, 1], [1, 9, 8, 17]),
            case("padded", [3, 3], [1, 1], [1, 1], [2, 4, 5, 3]),
            case("uneven", [3, 2], [1, 3], [1, 0], [1, 6, 7, 4]),
            case("whole_image", [5, 4], [1, 1], [0, 0], [2, 5, 4, 3]),
            case("no_batch", [2, 2], [2, 2], [0, 0], [0, 4, 4, 3]),
        ]
    }
}
