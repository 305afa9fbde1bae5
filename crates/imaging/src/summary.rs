//! Mask, area, bounds and stability of logits, computed in one pass over the upsampled rows.

use crate::{Bounds, ImageError, Rle, RowScanner, Size, Upsampler};

/// Threshold of a mask, and the offset of Meta's stability score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// Pixels with a logit above this are set.
    pub value: f32,
    /// The stability score compares the masks at `value + offset` and `value - offset`.
    pub offset: f32,
}

impl Default for Threshold {
    /// Threshold 0, offset 1.
    fn default() -> Self {
        Threshold { value: 0.0, offset: 1.0 }
    }
}

/// A mask at the size of the image, with the measures used by filters.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The mask.
    pub rle: Rle,
    /// Number of set pixels.
    pub area: usize,
    /// Bounds of the set pixels in the image or crop that was upsampled to; `None` for an empty mask.
    pub bounds: Option<Bounds>,
    /// Number of pixels above the threshold plus its offset.
    pub surely: usize,
    /// Number of pixels above the threshold minus its offset.
    pub possibly: usize,
}

impl Summary {
    fn new(rle: Rle, [surely, possibly]: [usize; 2], placement: Option<Placement>) -> Self {
        let (x, y) = placement.map_or((0, 0), |place| (place.x, place.y));
        let bounds = rle.bounds().map(|b| Bounds {
            left: b.left - x,
            top: b.top - y,
            right: b.right - x,
            bottom: b.bottom - y,
        });
        Summary { area: rle.area(), rle, bounds, surely, possibly }
    }

    /// Meta's stability score, `surely / possibly`; NaN if both are 0, as in Meta's code.
    pub fn stability(&self) -> f32 {
        self.surely as f32 / self.possibly as f32
    }
}

/// Position of a crop in a larger image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Size of the larger image.
    pub canvas: Size,
    /// Left edge of the crop.
    pub x: usize,
    /// Top edge of the crop.
    pub y: usize,
}

/// Upsamples and thresholds `logits`, f32 `[low.height, low.width]`, one row at a time. With a `placement`, the runs refer
/// to the larger image and the bounds to the crop.
pub fn summarize(
    upsampler: &Upsampler,
    logits: &[f32],
    threshold: Threshold,
    placement: Option<Placement>,
) -> Result<Summary, ImageError> {
    let mut scanner = RowScanner::new(upsampler.size())?;
    let (high, low) = (threshold.value + threshold.offset, threshold.value - threshold.offset);
    let (mut surely, mut possibly) = (0, 0);
    let mut scanned = Ok(());
    upsampler.for_each_row(logits, |_, row| {
        surely += count_above(row, high);
        possibly += count_above(row, low);
        if scanned.is_ok() {
            scanned = scanner.push(row.iter().map(|value| u8::from(*value > threshold.value)));
        }
    })?;
    scanned?;
    let rle = match placement {
        Some(Placement { canvas, x, y }) => scanner.finish_in(canvas, x, y)?,
        None => scanner.finish()?,
    };
    Ok(Summary::new(rle, [surely, possibly], placement))
}

/// The same of a mask that was resampled and thresholded elsewhere, of this size. `row`: the number of pixels above the threshold
/// plus its offset, the number above the threshold minus its offset, and the bits of [`Rle::from_column_bits`].
pub fn summarize_bits(
    size: Size,
    row: &[i32],
    placement: Option<Placement>,
) -> Result<Summary, ImageError> {
    let Some((counts, bits)) = row.split_first_chunk::<2>() else {
        return Err(ImageError::Length { size, expected: 2, found: row.len() });
    };
    let rle = Rle::from_column_bits(size, bits, placement)?;
    Ok(Summary::new(rle, counts.map(|count| count.cast_unsigned() as usize), placement))
}

/// The runs of the mask of `logits`, f32 `[low.height, low.width]`, above 0: those of [`summarize`] at threshold 0, without its
/// other measures, in time that depends on the size of the object more than of the image.
pub fn runs_above_zero(upsampler: &Upsampler, logits: &[f32]) -> Result<Rle, ImageError> {
    let mut scanner = RowScanner::new(upsampler.size())?;
    let mut scanned = Ok(());
    upsampler.above_zero(logits)?.for_each_row(0..upsampler.size().height, |y, x, row| {
        if scanned.is_ok() {
            scanner.skip_to(y);
            scanned = scanner.push_at(x, row.iter().map(|value| u8::from(*value > 0.0)));
        }
    });
    scanned?;
    scanner.finish()
}

fn count_above(row: &[f32], threshold: f32) -> usize {
    row.iter().map(|value| u32::from(*value > threshold)).sum::<u32>() as usize
}
