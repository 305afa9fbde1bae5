//! Resampling of images to another size.

use cutout_tensor::{Shape, TensorType, Tolerance};

use super::checks::countable;
use crate::cases::noise;
use crate::op::{axes, expect_f32, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// Interpolation between pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub enum ResizeMode {
    /// The pixel at `floor(i * scale)`, computed in single precision as PyTorch does for images in single precision
    /// (its `nearest`, not `nearest-exact`).
    Nearest,
    /// Bilinear.
    Bilinear,
    /// Bicubic, by cubic convolution over four neighbours; `a = -0.75`, with antialiasing `a = -0.5`.
    Bicubic,
}

/// `x: f32[batch, height, width, channels]` in another height and width, as PyTorch's
/// `interpolate(size=size, align_corners=False)`: pixel `i` of the result lies at `(i + 0.5) * scale - 0.5` of the
/// input, `scale = in / out`, and the border is repeated.
///
/// With antialiasing, the filter is widened by `scale` when shrinking, and its weights inside the image are normalised
/// to sum to one. [`Resize::taps`] has the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Resize {
    /// Interpolation between pixels.
    pub mode: ResizeMode,
    /// Whether shrinking averages all covered pixels; not with `Nearest`.
    pub antialias: bool,
    /// New height and width, at least 1.
    pub size: [usize; 2],
}

/// An input position and its weight.
pub type Tap = (usize, f64);

impl Resize {
    /// For each of `output` positions along one direction, the positions among `input` it reads, with their weights.
    /// The weights are double precision whatever the arithmetic: they are computed once, not per pixel.
    pub fn taps(&self, input: usize, output: usize) -> Vec<Vec<Tap>> {
        let scale = input as f64 / output as f64;
        (0..output)
            .map(|i| match (self.mode, self.antialias) {
                (ResizeMode::Nearest, _) => vec![(nearest(i, input, output), 1.0)],
                (ResizeMode::Bilinear, false) => bilinear(i, input, scale),
                (ResizeMode::Bicubic, false) => bicubic(i, input, scale),
                (ResizeMode::Bilinear, true) => widened(i, input, scale, (1.0, tent)),
                (ResizeMode::Bicubic, true) => widened(i, input, scale, (2.0, |x| cubic(x, -0.5))),
            })
            .collect()
    }
}

fn nearest(i: usize, input: usize, output: usize) -> usize {
    let scale = input as f32 / output as f32;
    ((i as f32 * scale).floor() as usize).min(input - 1)
}

fn bilinear(i: usize, input: usize, scale: f64) -> Vec<Tap> {
    let source = ((i as f64 + 0.5) * scale - 0.5).max(0.0);
    let low = (source.floor() as usize).min(input - 1);
    let fraction = (source - low as f64).clamp(0.0, 1.0);
    vec![(low, 1.0 - fraction), ((low + 1).min(input - 1), fraction)]
}

fn bicubic(i: usize, input: usize, scale: f64) -> Vec<Tap> {
    let source = (i as f64 + 0.5) * scale - 0.5;
    let tap = |offset: f64| {
        let position = source.floor() + offset;
        (position.clamp(0.0, (input - 1) as f64) as usize, cubic(source - position, -0.75))
    };
    [-1.0, 0.0, 1.0, 2.0].map(tap).to_vec()
}

/// Taps of a filter (its radius and shape) widened by `scale` where it shrinks.
fn widened(i: usize, input: usize, scale: f64, filter: (f64, fn(f64) -> f64)) -> Vec<Tap> {
    let (radius, shape) = filter;
    let width = scale.max(1.0);
    let center = scale * (i as f64 + 0.5);
    let first = (center - radius * width + 0.5).max(0.0) as usize;
    let end = ((center + radius * width + 0.5) as usize).min(input);
    let weight = |position: usize| shape((position as f64 - center + 0.5) / width);
    let total: f64 = (first..end).map(weight).sum();
    (first..end).map(|position| (position, weight(position) / total)).collect()
}

/// 1 at 0, falling in straight lines to 0 at distance 1.
fn tent(x: f64) -> f64 {
    (1.0 - x.abs()).max(0.0)
}

/// Keys' cubic convolution: 1 at 0, 0 at distances 1 and 2, slope `a` at 1.
fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}

/// The channels of one new pixel, from an image `[height, width, channels]`.
fn mixed<T: Real>(
    image: &[T],
    [width, channels]: [usize; 2],
    rows: &[Tap],
    columns: &[Tap],
) -> Vec<T> {
    let mut sums = vec![T::ZERO; channels];
    for &(row, row_weight) in rows {
        for &(column, column_weight) in columns {
            let pixel = &image[(row * width + column) * channels..][..channels];
            let weight = T::of(row_weight * column_weight);
            for (sum, &value) in sums.iter_mut().zip(pixel) {
                *sum += value * weight;
            }
        }
    }
    sums
}

impl<'g> Value<'g> {
    /// The image in another height and width; see [`Resize`].
    #[track_caller]
    pub fn resize(self, mode: ResizeMode, size: [usize; 2]) -> Value<'g> {
        self.apply(Resize { mode, antialias: false, size }, &[])
    }

    /// The image in another height and width, averaging all pixels that shrinking covers; see [`Resize`].
    #[track_caller]
    pub fn resize_antialiased(self, mode: ResizeMode, size: [usize; 2]) -> Value<'g> {
        self.apply(Resize { mode, antialias: true, size }, &[])
    }
}

impl OpDef for Resize {
    const NAME: &'static str = "resize";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x] = take(inputs)?;
        expect_f32("x", x)?;
        let [batch, height, width, channels] = axes("x", x)?;
        let [new_height, new_width] = self.size;
        if new_height == 0 || new_width == 0 {
            return Err(OpError::Attribute(format!("the new size is empty: {:?}", self.size)));
        }
        if self.antialias && self.mode == ResizeMode::Nearest {
            return Err(OpError::Attribute("nearest cannot be antialiased".into()));
        }
        if height == 0 || width == 0 {
            return Err(OpError::Shape(format!("{x} has no pixels")));
        }
        countable(TensorType::f32([batch, new_height, new_width, channels]))
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let x = inputs[0];
        let &[batch, height, width, channels] = &x.shape[..] else {
            panic!("inference checked the rank")
        };
        let shape = Shape::from([batch, self.size[0], self.size[1], channels]);
        if shape.elements() == 0 {
            return DenseTensor::from_real(shape, Vec::new());
        }
        let rows = self.taps(height, self.size[0]);
        let columns = self.taps(width, self.size[1]);
        let mut values = Vec::with_capacity(shape.elements());
        for image in x.real().chunks_exact(height * width * channels) {
            for rows in &rows {
                for columns in &columns {
                    values.extend(mixed(image, [width, channels], rows, columns));
                }
            }
        }
        DenseTensor::from_real(shape, values)
    }

    fn flops(&self, inputs: &[&TensorType], output: &TensorType) -> u64 {
        let taps = |direction: usize| {
            let shrink = inputs[0].shape[direction + 1].div_ceil(self.size[direction].max(1));
            let widened = if self.antialias { shrink.max(1) as u64 } else { 1 };
            match self.mode {
                ResizeMode::Nearest => 1,
                ResizeMode::Bilinear => widened.saturating_mul(2),
                ResizeMode::Bicubic => widened.saturating_mul(4),
            }
        };
        let sums = taps(0).saturating_mul(taps(1)).saturating_mul(2);
        sums.saturating_mul(output.shape.elements() as u64)
    }

    fn cases() -> Vec<Case> {
        use ResizeMode::{Bicubic, Bilinear, Nearest};
        let case = |name, mode, antialias, size, shape: [usize; 4]| {
            let tolerance = match mode {
                Nearest => Tolerance::Exact,
                Bilinear | Bicubic => Tolerance::Rounding,
            };
            Case::new(name, Resize { mode, antialias, size }, [noise(shape)]).within(tolerance)
        };
        vec![
            case("nearest_double", Nearest, false, [10, 6], [2, 5, 3, 4]),
            case("nearest_up", Nearest, false, [41, 17], [1, 13, 5, 2]),
            case("nearest_down", Nearest, false, [5, 7], [1, 13, 9, 3]),
            // Here `i * scale` is not the same pixel in single precision, in double precision and without rounding.
            case("nearest_rounded", Nearest, false, [22, 46], [1, 26, 14, 1]),
            case("bilinear_double", Bilinear, false, [10, 6], [2, 5, 3, 4]),
            case("bilinear_up", Bilinear, false, [16, 11], [1, 5, 7, 17]),
            case("bilinear_down", Bilinear, false, [4, 3], [1, 13, 9, 3]),
            case("bilinear_same", Bilinear, false, [5, 7], [1, 5, 7, 3]),
            case("bilinear_one_pixel", Bilinear, false, [3, 4], [1, 1, 1, 5]),
            case("bicubic_up", Bicubic, false, [16, 11], [1, 5, 7, 3]),
            case("bicubic_down", Bicubic, false, [4, 3], [2, 13, 9, 3]),
            case("bilinear_antialias_down", Bilinear, true, [4, 5], [1, 13, 17, 3]),
            case("bilinear_antialias_mixed", Bilinear, true, [19, 3], [1, 7, 11, 2]),
            case("bicubic_antialias_down", Bicubic, true, [4, 5], [1, 13, 17, 3]),
            case("bicubic_antialias_up", Bicubic, true, [9, 20], [2, 5, 7, 3]),
            case("no_batch", Bilinear, false, [4, 4], [0, 2, 2, 3]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_image_stays_constant() {
        use ResizeMode::{Bicubic, Bilinear, Nearest};
        let kinds = [(Nearest, false), (Bilinear, false), (Bicubic, false)];
        for (mode, antialias) in kinds.into_iter().chain([(Bilinear, true), (Bicubic, true)]) {
            for (input, output) in [(1, 1), (1, 9), (9, 1), (7, 5), (5, 7), (64, 3), (3, 64)] {
                let resize = Resize { mode, antialias, size: [output, output] };
                for taps in resize.taps(input, output) {
                    let total: f64 = taps.iter().map(|(_, weight)| weight).sum();
                    assert!((total - 1.0).abs() < 1e-12, "{resize:?} of {input}: {taps:?}");
                    assert!(taps.iter().all(|&(position, _)| position < input));
                }
            }
        }
    }
}
