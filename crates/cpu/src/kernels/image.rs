//! Shapes, strides and partial loads shared by the kernels of channel-last images.

use cutout_graph::Layout;

use crate::simd::Simd;

/// Output elements of a task of a memory-bound kernel, so that small images stay on one thread.
pub(crate) const TASK_ELEMENTS: usize = 1 << 14;

/// Lengths of `[batch, height, width, channels]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) batch: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
}

impl Image {
    /// Reads the four axes of a shape that inference checked.
    pub(crate) fn new(shape: &[usize]) -> Self {
        let &[batch, height, width, channels] = shape else { panic!("images have four axes") };
        Image { batch, height, width, channels }
    }

    /// Elements of one row of pixels.
    pub(crate) fn row(&self) -> usize {
        self.width * self.channels
    }

    /// Rows of all images together.
    pub(crate) fn rows(&self) -> usize {
        self.batch * self.height
    }

    /// Elements of one image.
    pub(crate) fn elements(&self) -> usize {
        self.height * self.row()
    }

    /// Rows of a task of a memory-bound kernel.
    pub(crate) fn rows_per_task(&self) -> usize {
        TASK_ELEMENTS.div_ceil(self.row().max(1)).min(self.rows()).max(1)
    }
}

/// Strides of an image whose channels are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strides {
    pub(crate) image: usize,
    pub(crate) row: usize,
    pub(crate) pixel: usize,
}

impl Strides {
    /// The strides of a layout `[batch, height, width, channels]`.
    pub(crate) fn new(layout: &Layout) -> Self {
        let &[image, row, pixel, channel] = &layout.strides[..] else {
            panic!("images have four axes")
        };
        assert!(channel == 1 || layout.shape.last_axis() <= 1, "channels are dense");
        Strides { image, row, pixel }
    }
}

/// The first `count` elements of `source`, zero in the other lanes. Panics if there are fewer.
#[inline(always)]
pub(crate) fn load_count<S: Simd>(simd: S, source: &[f32], count: usize) -> S::F {
    if count == S::LANES { simd.load(source) } else { simd.load_partial(&source[..count]) }
}

/// Writes the first `count` lanes. Panics if `target` is shorter.
#[inline(always)]
pub(crate) fn store_count<S: Simd>(simd: S, value: S::F, target: &mut [f32], count: usize) {
    if count == S::LANES {
        simd.store(value, target);
    } else {
        simd.store_partial(value, &mut target[..count]);
    }
}
