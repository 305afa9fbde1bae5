//! What is known of a mask after one pass over its rows.

use crate::{Bounds, ImageError, Rle, RowScanner, Size, Upsampler};

/// Where a mask begins, and how far to move that to see how sure the model is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// A pixel is set where its logit is above this.
    pub value: f32,
    /// Stability compares the masks at `value + offset` and `value - offset`.
    pub offset: f32,
}

impl Default for Threshold {
    /// 0, and 1 to both sides.
    fn default() -> Self {
        Threshold { value: 0.0, offset: 1.0 }
    }
}

/// A mask at the size of the picture, with the numbers that filters go by.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The mask.
    pub rle: Rle,
    /// Pixels set.
    pub area: usize,
    /// What they reach, in the picture or crop that was upsampled to; `None` for an empty mask.
    pub bounds: Option<Bounds>,
    /// Pixels above the threshold plus its offset.
    pub surely: usize,
    /// Pixels above the threshold minus its offset.
    pub possibly: usize,
}

impl Summary {
    /// `surely / possibly`, Meta's stability score; NaN where both are 0, as there.
    pub fn stability(&self) -> f32 {
        self.surely as f32 / self.possibly as f32
    }
}

/// Part of a larger picture: the crop's top left corner (`x`, `y`) and the size of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The whole picture.
    pub canvas: Size,
    /// Left side of the crop.
    pub x: usize,
    /// Upper side of the crop.
    pub y: usize,
}

/// Upsamples `logits`, f32 `[low.height, low.width]`, and thresholds them, one row at a time. With a `placement` the
/// runs are those of the whole picture; the bounds stay those of the crop.
pub fn summarize(
    upsampler: &Upsampler,
    logits: &[f32],
    threshold: Threshold,
    placement: Option<Placement>,
) -> Result<Summary, ImageError> {
    let mut scanner = RowScanner::new(upsampler.size())?;
    let (high, low) = (threshold.value + threshold.offset, threshold.value - threshold.offset);
    let (mut surely, mut possibly) = (0, 0);
    upsampler.for_each_row(logits, |_, row| {
        surely += count_above(row, high);
        possibly += count_above(row, low);
        scanner.push(row.iter().map(|value| u8::from(*value > threshold.value)));
    })?;
    let Some(Placement { canvas, x, y }) = placement else {
        let rle = scanner.finish();
        let (area, bounds) = (rle.area(), rle.bounds());
        return Ok(Summary { rle, area, bounds, surely, possibly });
    };
    let rle = scanner.finish_in(canvas, x, y)?;
    let bounds = rle.bounds().map(|b| Bounds {
        left: b.left - x,
        top: b.top - y,
        right: b.right - x,
        bottom: b.bottom - y,
    });
    Ok(Summary { area: rle.area(), rle, bounds, surely, possibly })
}

fn count_above(row: &[f32], threshold: f32) -> usize {
    row.iter().map(|value| u32::from(*value > threshold)).sum::<u32>() as usize
}
