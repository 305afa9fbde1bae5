//! Run-length encoding of masks in COCO's order: column by column, starting with a run of unset pixels.

mod coco;
mod runs;
mod scan;

pub use coco::RleError;
pub use scan::RowScanner;

use crate::{ImageError, Mask, Rect, Size};

/// A run-length encoded mask: lengths of unset, set, unset, … runs in column-major order. They sum to the number of pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rle {
    size: Size,
    counts: Vec<u32>,
}

/// Bounding box of the set pixels: first and last column and row, all inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// First column.
    pub left: usize,
    /// First row.
    pub top: usize,
    /// Last column.
    pub right: usize,
    /// Last row.
    pub bottom: usize,
}

impl Rle {
    /// The runs of a mask.
    pub fn from_mask(mask: &Mask) -> Result<Self, ImageError> {
        let mut scanner = RowScanner::new(mask.size())?;
        for row in mask.rows() {
            scanner.push(row.iter().map(|set| u8::from(*set)))?;
        }
        scanner.finish()
    }

    /// A mask from run lengths; an error if they do not sum to the number of pixels.
    pub fn from_counts(size: Size, counts: Vec<u32>) -> Result<Self, RleError> {
        let expected = size.pixels(1)?;
        let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        if total != expected as u64 {
            return Err(RleError::Total { size, expected, found: total });
        }
        Ok(Rle { size, counts })
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Run lengths: unset, set, unset, …
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Number of set pixels.
    pub fn area(&self) -> usize {
        self.counts.iter().skip(1).step_by(2).map(|count| *count as usize).sum()
    }

    /// Start and exclusive end of each run of set pixels, in column-major order.
    pub fn runs(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut position = 0;
        let spans = self.counts.iter().map(move |count| {
            let start = position;
            position += *count as usize;
            (start, position)
        });
        spans.skip(1).step_by(2).filter(|(start, end)| start < end)
    }

    /// The mask as a grid of pixels; an error if its memory cannot be allocated.
    pub fn to_mask(&self) -> Result<Mask, ImageError> {
        let Size { width, height } = self.size;
        let mut mask = Mask::empty(self.size)?;
        let pixels = mask.pixels_mut();
        for (start, end) in self.runs() {
            for position in start..end {
                pixels[position % height * width + position / height] = true;
            }
        }
        Ok(mask)
    }

    /// Bounding box of the set pixels; `None` for an empty mask.
    pub fn bounds(&self) -> Option<Bounds> {
        let height = self.size.height;
        self.runs()
            .map(|(start, end)| {
                let (left, right) = (start / height, (end - 1) / height);
                let (top, bottom) = (start % height, (end - 1) % height);
                // A run over two columns covers the bottom of the first and the top of the second.
                let (top, bottom) = if left < right { (0, height - 1) } else { (top, bottom) };
                Bounds { left, top, right, bottom }
            })
            .reduce(|a, b| Bounds {
                left: a.left.min(b.left),
                top: a.top.min(b.top),
                right: a.right.max(b.right),
                bottom: a.bottom.max(b.bottom),
            })
    }

    /// Meta's box: the corners are the first and the last pixel, inclusive; all 0 for an empty mask.
    pub fn inclusive_box(&self) -> Rect {
        let corners =
            |b: Bounds| Rect::new(b.left as f32, b.top as f32, b.right as f32, b.bottom as f32);
        self.bounds().map_or(Rect::default(), corners)
    }

    /// COCO's box: left, top, width and height in pixels; all 0 for an empty mask.
    pub fn coco_box(&self) -> [f64; 4] {
        self.bounds().map_or([0.0; 4], |b| {
            let (width, height) = (b.right - b.left + 1, b.bottom - b.top + 1);
            [b.left as f64, b.top as f64, width as f64, height as f64]
        })
    }

    /// Intersection over union of two masks of the same size; 0 if both are empty.
    pub fn iou(&self, other: &Rle) -> Result<f64, ImageError> {
        if self.size != other.size {
            return Err(ImageError::Mismatch { expected: self.size, found: other.size });
        }
        let intersection = self.intersection(other);
        let union = self.area() + other.area() - intersection;
        Ok(if union == 0 { 0.0 } else { intersection as f64 / union as f64 })
    }

    fn intersection(&self, other: &Rle) -> usize {
        let (mut ours, mut theirs) = (self.runs().peekable(), other.runs().peekable());
        let mut total = 0;
        while let (Some(a), Some(b)) = (ours.peek().copied(), theirs.peek().copied()) {
            total += a.1.min(b.1).saturating_sub(a.0.max(b.0));
            if a.1 <= b.1 {
                ours.next();
            } else {
                theirs.next();
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(rows: &[&str]) -> Mask {
        let pixels = rows.iter().flat_map(|row| row.bytes().map(|byte| byte == b'#')).collect();
        Mask::from_pixels(Size::new(rows[0].len(), rows.len()), pixels).unwrap()
    }

    #[test]
    fn runs_follow_the_columns() {
        let mask = mask(&[".#.", ".##"]);
        let rle = mask.to_rle().unwrap();
        assert_eq!(rle.counts(), [2, 2, 1, 1]);
        assert_eq!(rle.area(), 3);
        assert_eq!(rle.bounds(), Some(Bounds { left: 1, top: 0, right: 2, bottom: 1 }));
        assert_eq!(rle.inclusive_box(), Rect::new(1.0, 0.0, 2.0, 1.0));
        assert_eq!(rle.coco_box(), [1.0, 0.0, 2.0, 2.0]);
        assert_eq!(rle.to_mask().unwrap(), mask);
    }

    #[test]
    fn empty_and_full() {
        let empty = mask(&["..", ".."]).to_rle().unwrap();
        assert_eq!(empty.counts(), [4]);
        assert_eq!(empty.inclusive_box(), Rect::default());
        assert_eq!(empty.coco_box(), [0.0; 4]);
        assert_eq!(empty.iou(&empty), Ok(0.0));
        let full = mask(&["##", "##"]).to_rle().unwrap();
        assert_eq!(full.counts(), [0, 4]);
        assert_eq!(full.iou(&full), Ok(1.0));
        assert_eq!(full.iou(&empty), Ok(0.0));
        assert_eq!(full.iou(&mask(&["#.", "#."]).to_rle().unwrap()), Ok(0.5));
        assert!(full.iou(&mask(&["#"]).to_rle().unwrap()).is_err());
    }

    #[test]
    fn counts_that_do_not_sum_to_the_pixels_are_errors() {
        let size = Size::new(2, 2);
        let error = Rle::from_counts(size, vec![1, 2]).unwrap_err();
        assert_eq!(error, RleError::Total { size, expected: 4, found: 3 });
        assert!(Rle::from_counts(size, vec![u32::MAX; 4]).is_err());
        assert!(Rle::from_counts(Size::new(0, 2), vec![]).is_err());
        let padded = Rle::from_counts(size, vec![0, 1, 0, 1, 2]).unwrap();
        assert_eq!((padded.area(), padded.bounds().map(|b| b.bottom)), (2, Some(1)));
    }
}
