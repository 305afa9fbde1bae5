//! Masks at the size of a picture, as bits, from low-resolution logits.

use cutout_tensor::{DType, TensorType, Tolerance};

use super::checks::{countable, expect_positive, saturating_product};
use crate::cases::{CaseInput, noise, values};
use crate::op::{axes, expect_f32, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// Resamples logits to the size of a picture and compares them with a threshold: `f32[masks, low_height, low_width]` →
/// `i32[masks, 2 + width * ceil(height / 32)]`.
///
/// A mask's row starts with the number of pixels above `threshold + offset` and the number above `threshold - offset`. The bits of
/// `value > threshold` follow, column by column, 32 rows to a word, row 0 in the lowest bit; unused bits are 0. NaN is above
/// nothing.
///
/// Each resampling is PyTorch's `interpolate(mode="bilinear", align_corners=False)` with positions and weights in single precision,
/// horizontally and then vertically: see [`MaskBits::stages`].
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct MaskBits {
    /// The square of the model, if logits are resampled to it first; `None` for one resampling to `size`.
    pub through: Option<ModelSquare>,
    /// Height and width of the picture, at least 1.
    pub size: [usize; 2],
    /// Pixels with a logit above this are set.
    pub threshold: f32,
    /// Distance of the thresholds of the two counts.
    pub offset: f32,
}

/// The input of a model, with the picture at its top left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ModelSquare {
    /// Height and width that logits are resampled to first.
    pub size: [usize; 2],
    /// Height and width of the part that is kept, without the padding.
    pub content: [usize; 2],
}

/// Two input positions and the weight of the second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BilinearTap {
    /// The first position.
    pub first: usize,
    /// The second position.
    pub second: usize,
    /// Weight of the second position, 0 to 1.
    pub weight: f32,
}

/// One bilinear resampling: a tap for each output row and for each output column.
#[derive(Clone, Debug, PartialEq)]
pub struct BilinearStage {
    /// Taps of the rows.
    pub rows: Vec<BilinearTap>,
    /// Taps of the columns.
    pub columns: Vec<BilinearTap>,
}

/// Rows in a word of bits.
const WORD: usize = 32;

/// Most pixels of a picture: a count of them is an `i32`.
const MOST_PIXELS: usize = i32::MAX as usize;

impl MaskBits {
    /// The resamplings of logits of this height and width, in order.
    pub fn stages(&self, [height, width]: [usize; 2]) -> Vec<BilinearStage> {
        let stage = |from: [usize; 2], to: [usize; 2], kept: [usize; 2]| BilinearStage {
            rows: taps(from[0], to[0], kept[0]),
            columns: taps(from[1], to[1], kept[1]),
        };
        match self.through {
            None => vec![stage([height, width], self.size, self.size)],
            Some(ModelSquare { size, content }) => {
                vec![stage([height, width], size, content), stage(content, self.size, self.size)]
            }
        }
    }

    /// The thresholds of the first count, of the second, and of the bits.
    pub fn thresholds(&self) -> [f32; 3] {
        [self.threshold + self.offset, self.threshold - self.offset, self.threshold]
    }

    /// Words of one column.
    pub fn words(&self) -> usize {
        self.size[0].div_ceil(WORD)
    }
}

/// The taps of the first `kept` of `output` positions.
fn taps(input: usize, output: usize, kept: usize) -> Vec<BilinearTap> {
    let (scale, last) = (input as f32 / output as f32, input - 1);
    let tap = |i: usize| {
        let position = (scale * (i as f32 + 0.5) - 0.5).max(0.0);
        let first = (position as usize).min(last);
        let weight = (position - first as f32).clamp(0.0, 1.0);
        BilinearTap { first, second: first.saturating_add(1).min(last), weight }
    };
    (0..kept).map(tap).collect()
}

fn mixed<T: Real>(first: T, second: T, weight: f32) -> T {
    let weight = T::of(f64::from(weight));
    (T::ONE - weight) * first + weight * second
}

/// An image of this width after one resampling.
fn resampled<T: Real>(image: &[T], width: usize, stage: &BilinearStage) -> Vec<T> {
    let mut values = Vec::with_capacity(stage.rows.len() * stage.columns.len());
    for row in &stage.rows {
        for column in &stage.columns {
            let across = |y: usize| {
                let line = &image[y * width..][..width];
                mixed(line[column.first], line[column.second], column.weight)
            };
            values.push(mixed(across(row.first), across(row.second), row.weight));
        }
    }
    values
}

fn checked_size(what: &str, [height, width]: [usize; 2]) -> Result<(), OpError> {
    expect_positive(what, height.min(width))?;
    if height.checked_mul(width).is_some_and(|pixels| pixels <= MOST_PIXELS) {
        return Ok(());
    }
    let message = format!("{what} has more than {MOST_PIXELS} pixels: {height} by {width}");
    Err(OpError::Attribute(message))
}

impl<'g> Value<'g> {
    /// Masks at the size of a picture, as bits; see [`MaskBits`].
    #[track_caller]
    pub fn mask_bits(self, op: MaskBits) -> Value<'g> {
        self.apply(op, &[])
    }
}

impl OpDef for MaskBits {
    const NAME: &'static str = "mask_bits";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x] = take(inputs)?;
        expect_f32("x", x)?;
        let [masks, height, width] = axes("x", x)?;
        if height == 0 || width == 0 {
            return Err(OpError::Shape(format!("{x} has no pixels")));
        }
        checked_size("the picture", self.size)?;
        if let Some(ModelSquare { size, content }) = self.through {
            checked_size("the model's square", size)?;
            checked_size("the content of the model's square", content)?;
            if content[0] > size[0] || content[1] > size[1] {
                let message = format!("content {content:?} is larger than its square {size:?}");
                return Err(OpError::Attribute(message));
            }
        }
        if self.thresholds().iter().any(|threshold| threshold.is_nan()) {
            let message = format!("thresholds must be numbers, got {:?}", self.thresholds());
            return Err(OpError::Attribute(message));
        }
        let length = 2 + self.size[1] * self.words();
        countable(TensorType::new(DType::I32, [masks, length]))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let x = inputs[0];
        let &[masks, low_height, low_width] = &x.shape[..] else {
            panic!("inference checked the rank")
        };
        let [height, width] = self.size;
        let length = 2 + width * self.words();
        let mut found = Vec::new();
        for mask in 0..masks {
            let pixels = low_height * low_width;
            let mut image = x.real()[mask * pixels..][..pixels].to_vec();
            let mut image_width = low_width;
            for stage in self.stages([low_height, low_width]) {
                image = resampled(&image, image_width, &stage);
                image_width = stage.columns.len();
            }
            let [sure, possible, threshold] = self.thresholds().map(|t| T::of(f64::from(t)));
            let mut row = vec![0u32; length];
            for (i, &value) in image.iter().enumerate() {
                let (y, x) = (i / width, i % width);
                row[0] += u32::from(value > sure);
                row[1] += u32::from(value > possible);
                let word = 2 + x * height.div_ceil(WORD) + y / WORD;
                row[word] |= u32::from(value > threshold) << (y % WORD);
            }
            found.extend(row.into_iter().map(|word| i64::from(word.cast_signed())));
        }
        DenseTensor::from_int([masks, length], found)
    }

    fn flops(&self, inputs: &[&TensorType], _: &TensorType) -> u64 {
        let masks = inputs[0].shape[0];
        let resampling = |[height, width]: [usize; 2]| saturating_product(&[9, height, width]);
        let first = self.through.map_or(0, |square| resampling(square.content));
        saturating_product(&[masks]).saturating_mul(first.saturating_add(resampling(self.size)))
    }

    fn cases() -> Vec<Case> {
        let plain = |size| MaskBits { through: None, size, threshold: 0.0, offset: 0.5 };
        let through = |size, square, content| MaskBits {
            through: Some(ModelSquare { size: square, content }),
            ..plain(size)
        };
        let case =
            |name, op: MaskBits, x: CaseInput| Case::new(name, op, [x]).within(Tolerance::Exact);
        let special = [f64::NAN, 2.0, f64::INFINITY, -3.0, f64::NEG_INFINITY, 1.0, 4.0, 5.0, 6.0];
        let threshold = MaskBits { threshold: 0.3, offset: 0.25, ..plain([33, 40]) };
        vec![
            case("up", plain([41, 37]), noise([2, 5, 7])),
            case("whole_words", plain([64, 33]), noise([1, 4, 4])),
            case("wide", plain([33, 1031]), noise([1, 16, 300])),
            case("down", plain([9, 5]), noise([2, 40, 37])),
            case("same", plain([5, 7]), noise([2, 5, 7])),
            case("from_one_pixel", plain([35, 2]), noise([3, 1, 1])),
            case("to_one_pixel", plain([1, 1]), noise([2, 5, 7])),
            case("threshold", threshold, noise([2, 9, 8])),
            case("through_up", through([50, 36], [24, 24], [24, 17]), noise([2, 6, 6])),
            case("through_down", through([7, 12], [24, 24], [13, 24]), noise([3, 6, 5])),
            case("through_shrinking", through([70, 9], [8, 10], [5, 10]), noise([1, 17, 19])),
            case("not_finite", plain([40, 8]), values(TensorType::f32([1, 3, 3]), &special)),
            case("no_masks", plain([4, 4]), noise([0, 3, 3])),
        ]
    }
}
