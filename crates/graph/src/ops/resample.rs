//! One axis of a picture resized by windows that are given.

use cutout_tensor::{DType, Shape, TensorType, Tolerance};

use super::checks::{countable, saturating_product};
use crate::cases::{CaseInput, integers, noise, values};
use crate::op::take;
use crate::{Case, Data, DenseTensor, OpDef, OpError, Real, Value};

/// Resizes axis 0 (rows) or 1 (columns) of a picture `x: [height, width, channels]`. Position `i` of the result is the weighted sum
/// of the positions from `starts[i]` on: `starts: i32[positions]`, `weights: [positions, taps]`. Positions before the first and
/// behind the last pixel are the first and the last.
///
/// - `weights: i32` with `bits` fractional bits, `x: u8`: the sums are rounded (half up) and clamped to `u8`. They have 32 bits and
///   wrap.
/// - `weights: f32`, `bits` 0: the result is `f32`. Products are summed in the order of the taps and not fused with their sums; bytes
///   count as fractions of 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Resample {
    /// The axis, 0 or 1.
    pub axis: usize,
    /// Fractional bits of whole weights, at most 30.
    pub bits: u32,
}

/// Most fractional bits: half a unit is an `i32`.
const MOST_BITS: u32 = 30;

/// Sizes of a [`Resample`] whose input is seen as `[outer, length, inner]`, and whose result as `[outer, positions, inner]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResampleSizes {
    /// Elements before the axis.
    pub outer: usize,
    /// Input positions.
    pub length: usize,
    /// Elements behind the axis.
    pub inner: usize,
    /// Output positions.
    pub positions: usize,
    /// Weights of each.
    pub taps: usize,
}

impl Resample {
    /// The sizes for a picture and weights of these shapes.
    pub fn sizes(&self, picture: &Shape, weights: &Shape) -> ResampleSizes {
        ResampleSizes {
            outer: picture[..self.axis].iter().product(),
            length: picture[self.axis],
            inner: picture[self.axis + 1..].iter().product(),
            positions: weights[0],
            taps: weights[1],
        }
    }

    /// Start value of whole sums: half a unit, so that the final shift rounds.
    pub fn half(&self) -> i32 {
        (1 << self.bits) >> 1
    }
}

/// The sums of all results, in their order. `term` adds to a sum: the input element and the weight are given by their places.
fn sums<S: Copy>(
    sizes: ResampleSizes,
    starts: &[i64],
    zero: S,
    term: impl Fn(S, usize, usize) -> S,
) -> Vec<S> {
    let ResampleSizes { outer, length, inner, positions, taps } = sizes;
    let mut sums = Vec::with_capacity(outer * positions * inner);
    for line in 0..outer * positions {
        let (outer, position) = (line / positions, line % positions);
        for channel in 0..inner {
            let add = |sum: S, tap: usize| {
                let from = starts[position].saturating_add(tap as i64).clamp(0, length as i64 - 1);
                let source = (outer * length + from as usize) * inner + channel;
                term(sum, source, position * taps + tap)
            };
            sums.push((0..taps).fold(zero, add));
        }
    }
    sums
}

impl<'g> Value<'g> {
    /// One axis of the picture resized; see [`Resample`].
    #[track_caller]
    pub fn resample(self, op: Resample, starts: Value<'g>, weights: Value<'g>) -> Value<'g> {
        self.apply(op, &[starts, weights])
    }
}

impl OpDef for Resample {
    const NAME: &'static str = "resample";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x, starts, weights] = take(inputs)?;
        if self.axis > 1 {
            return Err(OpError::Attribute(format!("axis {} is neither 0 nor 1", self.axis)));
        }
        let dtype = match (weights.dtype, x.dtype) {
            (DType::I32, DType::U8) if self.bits <= MOST_BITS => DType::U8,
            (DType::F32, DType::U8 | DType::F32) if self.bits == 0 => DType::F32,
            _ => {
                return Err(OpError::Shape(format!(
                    "{x} cannot be weighted with {weights} of {} fractional bits",
                    self.bits
                )));
            }
        };
        let (&[_, _, _], &[positions, _]) = (&x.shape[..], &weights.shape[..]) else {
            return Err(OpError::Shape(format!(
                "{x} is not [height, width, channels], or {weights} not [positions, taps]"
            )));
        };
        if *starts != TensorType::new(DType::I32, [positions]) {
            return Err(OpError::Shape(format!("starts must be i32[{positions}], got {starts}")));
        }
        if x.shape[self.axis] == 0 {
            return Err(OpError::Shape(format!("{x} has no pixels")));
        }
        let mut shape = x.shape.to_vec();
        shape[self.axis] = positions;
        countable(TensorType::new(dtype, shape))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let [x, starts, weights] = inputs else { panic!("inference checked the count") };
        let sizes = self.sizes(&x.shape, &weights.shape);
        let mut shape = x.shape.to_vec();
        shape[self.axis] = sizes.positions;
        let data = match (&weights.data, &x.data) {
            (Data::Int(weights), Data::Int(bytes)) => {
                let term = |sum: i64, source: usize, weight: usize| {
                    sum.wrapping_add(weights[weight].wrapping_mul(bytes[source]))
                };
                let sums = sums(sizes, starts.int(), i64::from(self.half()), term);
                let byte = |sum: i64| i64::from((sum as i32) >> self.bits).clamp(0, 255);
                Data::Int(sums.into_iter().map(byte).collect())
            }
            (Data::Real(weights), Data::Int(bytes)) => {
                let fraction = |byte: i64| T::of(byte as f64) / T::of(255.0);
                let term = |sum: T, source: usize, weight: usize| {
                    sum + weights[weight] * fraction(bytes[source])
                };
                Data::Real(sums(sizes, starts.int(), T::ZERO, term))
            }
            (Data::Real(weights), Data::Real(values)) => {
                let term =
                    |sum: T, source: usize, weight: usize| sum + weights[weight] * values[source];
                Data::Real(sums(sizes, starts.int(), T::ZERO, term))
            }
            _ => panic!("inference checked the types"),
        };
        DenseTensor { shape: Shape::from(shape), data }
    }

    fn flops(&self, inputs: &[&TensorType], output: &TensorType) -> u64 {
        let taps = inputs[2].shape.last_axis();
        saturating_product(&[2, taps, output.shape.elements()])
    }

    fn cases() -> Vec<Case> {
        let bytes = |shape: [usize; 3]| integers(shape, 0, 256).of(DType::U8);
        let starts = |starts: &[f64]| values(TensorType::new(DType::I32, [starts.len()]), starts);
        let fixed =
            |positions, taps, low, high| integers([positions, taps], low, high).of(DType::I32);
        let case = |name, [axis, bits]: [usize; 2], inputs: [CaseInput; 3]| {
            Case::new(name, Resample { axis, bits: bits as u32 }, inputs)
        };
        let exact =
            |name, attributes, inputs| case(name, attributes, inputs).within(Tolerance::Exact);
        let few = || starts(&[0.0, 1.0, 3.0, 3.0, 5.0]);
        let up: Vec<f64> = (0..37).map(|i| f64::from(i / 4 - 1)).collect();
        // Quarters: ties are rounded up.
        let quarters =
            values(TensorType::new(DType::I32, [5, 2]), &[1., 1., 2., 0., 3., 1., 4., 0., -1., 3.]);
        let wrapping = values(TensorType::new(DType::I32, [1, 2]), &[2147483647.0, 8421504.0]);
        let single = |positions, taps| noise([positions, taps]);
        vec![
            exact(
                "columns",
                [1, 22],
                [bytes([4, 9, 3]), few(), fixed(5, 4, -1_000_000, 2_000_000)],
            ),
            exact("rows", [0, 22], [bytes([9, 11, 3]), few(), fixed(5, 4, -1_000_000, 2_000_000)]),
            exact("columns_up", [1, 14], [bytes([5, 9, 3]), starts(&up), fixed(37, 3, 0, 10_000)]),
            exact("rows_up", [0, 14], [bytes([9, 41, 3]), starts(&up), fixed(37, 3, 0, 10_000)]),
            exact("ties", [1, 2], [bytes([31, 6, 3]), few(), quarters]),
            exact("no_fraction", [0, 0], [bytes([6, 3, 2]), few(), fixed(5, 2, -1, 2)]),
            exact("wrapping", [1, 20], [bytes([7, 2, 3]), starts(&[0.0]), wrapping]),
            exact("one_pixel", [0, 22], [bytes([1, 1, 3]), few(), fixed(5, 3, 0, 1_500_000)]),
            exact("no_taps", [1, 3], [bytes([2, 3, 3]), few(), fixed(5, 0, 0, 1)]),
            exact("no_positions", [1, 3], [bytes([2, 3, 3]), starts(&[]), fixed(0, 2, 0, 9)]),
            case("fractions", [1, 0], [bytes([5, 9, 3]), few(), single(5, 4)]),
            case("single_rows", [0, 0], [noise([9, 7, 3]), starts(&up), single(37, 5)]),
            case(
                "single_long",
                [1, 0],
                [noise([2, 1031, 1]), starts(&[0.0, 500.0]), single(2, 530)],
            ),
        ]
    }
}
