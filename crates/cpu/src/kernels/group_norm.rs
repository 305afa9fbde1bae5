//! Normalisation over groups of channels, channel-last.

use cutout_graph::{Layout, RunError};
use cutout_parallel::with_scratch;

use super::rows::{RowIn, RowKernel, RowOut, Rows, fill_scratch, padded, padded_copy};
use crate::execute::{Execute, Io};
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// Elements whose statistics one task computes.
const TASK: usize = 1 << 14;

/// Pixels whose channels are summed in single precision.
const MOST_PIXELS: usize = 256;

/// Normalises `[images, pixels, channels]` by the statistics of each image's groups of channels.
pub(crate) struct GroupNorm {
    rows: Rows,
    images: usize,
    pixels: usize,
    channels: usize,
    groups: usize,
    epsilon: f32,
}

impl GroupNorm {
    /// For a contiguous input with at least two axes; the channels, at least one, split evenly into groups.
    pub(crate) fn new(input: &Layout, groups: usize, epsilon: f32) -> Self {
        let (images, channels) = (input.shape[0], input.shape.last_axis());
        let pixels = input.shape[1..input.shape.rank() - 1].iter().product();
        GroupNorm { rows: Rows::new(input), images, pixels, channels, groups, epsilon }
    }

    fn pixels_per_task(&self) -> usize {
        (TASK / self.channels).clamp(1, MOST_PIXELS)
    }

    /// Mean and sum of squared deviations of each group over some pixels.
    fn statistics(&self, isa: Isa, pixels: &[f32], groups: &mut [Statistics]) {
        with_scratch(2 * self.channels, |scratch| {
            let (sums, means) = scratch.split_at_mut(self.channels);
            let width = self.channels / self.groups;
            let count = (pixels.len() / self.groups) as f64;
            sums.fill(0.0);
            dispatch(isa, Sums { pixels, sums });
            for (group, statistics) in groups.iter_mut().enumerate() {
                let own = group * width..(group + 1) * width;
                let sum: f64 = sums[own.clone()].iter().map(|&sum| f64::from(sum)).sum();
                *statistics = Statistics { count, mean: sum / count, squares: 0.0 };
                means[own].fill(statistics.mean as f32);
            }
            sums.fill(0.0);
            dispatch(isa, Squares { pixels, means, sums });
            for (sums, statistics) in sums.chunks_exact(width).zip(groups) {
                statistics.squares = sums.iter().map(|&sum| f64::from(sum)).sum();
            }
        });
    }
}

impl Execute for GroupNorm {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let (isa, x, weight, bias) = (io.isa, io.inputs.f32(0), io.inputs.f32(1), io.inputs.f32(2));
        let image = self.pixels * self.channels;
        if image == 0 {
            return Ok(());
        }
        let step = self.pixels_per_task() * self.channels;
        let tasks = image.div_ceil(step);
        let mut parts = vec![Statistics::default(); self.images * tasks * self.groups];
        io.pool.for_chunks(&mut parts, self.groups, &|task, groups| {
            let (start, first) = (task / tasks * image, task % tasks * step);
            let end = (first + step).min(image);
            self.statistics(isa, &x[start + first..start + end], groups);
        });
        let (mut means, mut scales) = (Vec::new(), Vec::new());
        let width = self.channels / self.groups;
        for parts in parts.chunks_exact(tasks * self.groups) {
            for (channel, &weight) in weight.iter().enumerate() {
                let own = parts.iter().skip(channel / width).step_by(self.groups);
                let all = own.fold(Statistics::default(), Statistics::with);
                let deviation = (all.squares / all.count + f64::from(self.epsilon)).sqrt();
                means.push(all.mean as f32);
                scales.push((f64::from(weight) / deviation) as f32);
            }
            means.resize(means.len().next_multiple_of(padded(1)), 0.0);
            scales.resize(means.len(), 0.0);
        }
        let kernel = NormPixel { norm: self, means, scales, bias: padded_copy(bias) };
        self.rows.run(&kernel, io);
        Ok(())
    }
}

/// Mean of some values, and the sum of squared deviations from it.
#[derive(Clone, Copy, Debug, Default)]
struct Statistics {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Statistics {
    /// The statistics of the union of both sets.
    fn with(self, other: &Statistics) -> Statistics {
        let count = self.count + other.count;
        let apart = other.mean - self.mean;
        Statistics {
            count,
            mean: self.mean + apart * other.count / count,
            squares: self.squares
                + other.squares
                + apart * apart * self.count * other.count / count,
        }
    }
}

/// Sums each channel.
struct Sums<'a> {
    pixels: &'a [f32],
    sums: &'a mut [f32],
}

impl Kernel for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for pixel in self.pixels.chunks_exact(self.sums.len()) {
            for (sum, &x) in self.sums.iter_mut().zip(pixel) {
                *sum += x;
            }
        }
    }
}

/// Sums the squared deviations of each channel from its group's mean.
struct Squares<'a> {
    pixels: &'a [f32],
    means: &'a [f32],
    sums: &'a mut [f32],
}

impl Kernel for Squares<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for pixel in self.pixels.chunks_exact(self.sums.len()) {
            for ((sum, &x), &mean) in self.sums.iter_mut().zip(pixel).zip(self.means) {
                *sum += (x - mean) * (x - mean);
            }
        }
    }
}

/// Normalises one pixel by the mean and scale of its image's channels. These and `bias` are padded to whole vectors.
struct NormPixel<'a> {
    norm: &'a GroupNorm,
    means: Vec<f32>,
    scales: Vec<f32>,
    bias: Vec<f32>,
}

impl RowKernel for NormPixel<'_> {
    type State = ();

    fn scratch(&self) -> usize {
        padded(self.norm.channels)
    }

    #[inline(always)]
    fn read<S: Simd>(&self, _: S, source: RowIn<'_>, scratch: &mut [f32]) {
        fill_scratch(source.values, 0.0, scratch);
    }

    #[inline(always)]
    fn write<S: Simd>(&self, simd: S, (): (), scratch: &mut [f32], mut out: RowOut<'_>) {
        let channels = padded(self.norm.channels);
        let image = out.row / self.norm.pixels * channels;
        let means = self.means[image..image + channels].chunks_exact(S::LANES);
        let scales = self.scales[image..image + channels].chunks_exact(S::LANES);
        let factors = means.zip(scales).zip(self.bias.chunks_exact(S::LANES));
        let values = scratch.chunks_exact(S::LANES).take(self.norm.channels.div_ceil(S::LANES));
        for (number, (value, ((mean, scale), bias))) in values.zip(factors).enumerate() {
            let distance = simd.sub(simd.load(value), simd.load(mean));
            let result = simd.fma(distance, simd.load(scale), simd.load(bias));
            out.put(simd, result, number * S::LANES);
        }
    }
}
