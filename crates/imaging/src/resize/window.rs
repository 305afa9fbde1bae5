//! Windows of a resize: the input pixels of each output pixel, and their weights.

/// Interpolation kernel of a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Triangle with a support of one pixel to each side.
    Bilinear,
    /// Keys' cubic with a = -0.5 and a support of two pixels to each side.
    Bicubic,
}

impl Filter {
    fn support(self) -> f64 {
        match self {
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        let x = x.abs();
        match self {
            Filter::Bilinear if x < 1.0 => 1.0 - x,
            Filter::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Filter::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5,
            Filter::Bilinear | Filter::Bicubic => 0.0,
        }
    }
}

/// One axis of a resize as tables, for devices that resize pictures themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowTable {
    /// The first input pixel of each output pixel.
    pub starts: Vec<i32>,
    /// Weights of the input pixels from there on, equally many for each output pixel: behind shorter windows there are zeros.
    pub weights: WindowWeights,
}

/// Weights of windows, `[output pixels, longest window]`.
#[derive(Clone, Debug, PartialEq)]
pub enum WindowWeights {
    /// Whole numbers with `bits` fractional bits: sums are rounded to bytes.
    Fixed {
        /// The weights.
        weights: Vec<i32>,
        /// Fractional bits.
        bits: u32,
    },
    /// Single precision, for bytes divided by 255.
    Single(Vec<f32>),
}

/// One axis of a resize: for each output pixel, a window of input pixels with weights that sum to 1.
pub(super) struct Windows<T> {
    /// First input pixel and number of input pixels of each output pixel.
    pub(super) spans: Vec<(usize, usize)>,
    /// Weights, `stride` per output pixel.
    weights: Vec<T>,
    stride: usize,
}

impl Windows<f64> {
    /// Windows for resizing `input` pixels to `output` pixels, computed in `f64` as Pillow does.
    pub(super) fn new(input: usize, output: usize, filter: Filter) -> Self {
        let scale = input as f64 / output as f64;
        let stretch = scale.max(1.0);
        let support = filter.support() * stretch;
        let stride = support.ceil() as usize * 2 + 1;
        let mut windows = Windows {
            spans: Vec::with_capacity(output),
            weights: vec![0.0; output * stride],
            stride,
        };
        for (i, weights) in windows.weights.chunks_exact_mut(stride).enumerate() {
            let center = (i as f64 + 0.5) * scale;
            // The cast truncates and clips negative numbers to 0.
            let start = (center - support + 0.5) as usize;
            let end = ((center + support + 0.5) as usize).min(input);
            let weights = &mut weights[..end - start];
            for (j, weight) in weights.iter_mut().enumerate() {
                *weight = filter.weight(((j + start) as f64 - center + 0.5) * (1.0 / stretch));
            }
            let total: f64 = weights.iter().sum();
            if total != 0.0 {
                weights.iter_mut().for_each(|weight| *weight /= total);
            }
            windows.spans.push((start, end - start));
        }
        windows
    }

    /// The windows with converted weights.
    pub(super) fn map<T>(self, convert: impl FnMut(f64) -> T) -> Windows<T> {
        let weights = self.weights.into_iter().map(convert).collect();
        Windows { spans: self.spans, weights, stride: self.stride }
    }

    pub(super) fn largest_weight(&self) -> f64 {
        self.weights.iter().copied().fold(0.0, f64::max)
    }
}

impl<T> Windows<T> {
    /// First input pixel of output pixel `i`, and the weights of its window.
    pub(super) fn get(&self, i: usize) -> (usize, &[T]) {
        let (start, length) = self.spans[i];
        (start, &self.weights[i * self.stride..][..length])
    }

    /// The windows as tables.
    pub(super) fn table(self, weights: impl FnOnce(Vec<T>) -> WindowWeights) -> WindowTable {
        // A picture that is larger than `i32::MAX` in one direction is beyond what decoders and devices take.
        let start = |(start, _): (usize, usize)| i32::try_from(start).unwrap_or(i32::MAX);
        let starts = self.spans.into_iter().map(start).collect();
        WindowTable { starts, weights: weights(self.weights) }
    }

    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }
}
