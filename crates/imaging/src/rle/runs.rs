//! Runs of set pixels as an [`Rle`], in a canvas that may be larger than the mask.

use std::ops::Range;

use cutout_tensor::memory;

use super::Rle;
use crate::{ImageError, Placement, Size};

/// Rows in a word of bits.
const WORD: usize = 32;

/// Collects runs of set pixels, given column by column from top to bottom.
pub(super) struct RunCollector {
    place: Placement,
    counts: Vec<u32>,
    /// Pixels in `counts`.
    end: usize,
}

impl RunCollector {
    /// For a mask of `size` at its place in the canvas.
    pub(super) fn new(size: Size, place: Placement) -> Result<Self, ImageError> {
        let pixels = place.canvas.pixels(1)?;
        let fits = |start: usize, length: usize, end: usize| {
            start.checked_add(length).is_some_and(|reached| reached <= end)
        };
        let inside = fits(place.x, size.width, place.canvas.width)
            && fits(place.y, size.height, place.canvas.height);
        if !inside || u32::try_from(pixels).is_err() {
            return Err(ImageError::Mismatch { expected: place.canvas, found: size });
        }
        Ok(RunCollector { place, counts: Vec::new(), end: 0 })
    }

    /// Adds the set pixels `rows` of a column of the mask.
    pub(super) fn push(&mut self, column: usize, rows: Range<usize>) -> Result<(), ImageError> {
        let Placement { canvas, x, y } = self.place;
        let first = (column + x) * canvas.height + y;
        let (start, stop) = (first + rows.start, first + rows.end);
        match self.counts.last_mut() {
            // The run continues from the end of the previous column.
            Some(last) if start == self.end => *last += (stop - start) as u32,
            Some(_) | None => {
                memory::push(&mut self.counts, (start - self.end) as u32)?;
                memory::push(&mut self.counts, (stop - start) as u32)?;
            }
        }
        self.end = stop;
        Ok(())
    }

    /// The mask: pixels after the last run are unset.
    pub(super) fn finish(mut self) -> Result<Rle, ImageError> {
        let size = self.place.canvas;
        let pixels = size.pixels(1)?;
        if self.end < pixels {
            memory::push(&mut self.counts, (pixels - self.end) as u32)?;
        }
        Ok(Rle { size, counts: self.counts })
    }
}

impl Rle {
    /// A mask from its bits, column by column, 32 rows to a word, row 0 in the lowest bit; bits below the last row do not count. With
    /// a `placement`, the runs are those of the larger image.
    pub fn from_column_bits(
        size: Size,
        words: &[i32],
        placement: Option<Placement>,
    ) -> Result<Self, ImageError> {
        size.pixels(1)?;
        let Size { width, height } = size;
        let in_column = height.div_ceil(WORD);
        let expected = width * in_column;
        if words.len() != expected {
            return Err(ImageError::Length { size, expected, found: words.len() });
        }
        let whole = Placement { canvas: size, x: 0, y: 0 };
        let mut runs = RunCollector::new(size, placement.unwrap_or(whole))?;
        // The bits of the last word that are rows.
        let last = u32::MAX >> (in_column * WORD - height);
        for (column, words) in words.chunks_exact(in_column).enumerate() {
            let (mut above, mut start) = (0, None);
            for (index, word) in words.iter().enumerate() {
                let used = if index + 1 == in_column { last } else { u32::MAX };
                let word = word.cast_unsigned() & used;
                // The rows that differ from the row above them.
                let mut changes = word ^ (word << 1 | above);
                above = word >> (WORD - 1);
                while changes != 0 {
                    let row = index * WORD + changes.trailing_zeros() as usize;
                    changes &= changes - 1;
                    match start.take() {
                        None => start = Some(row),
                        Some(start) => runs.push(column, start..row)?,
                    }
                }
            }
            if let Some(start) = start {
                runs.push(column, start..height)?;
            }
        }
        runs.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_become_runs() {
        // Two columns of 34 rows: the first set from row 31, the second down to row 0, with garbage below its last row.
        let words = [i32::MIN, 3, 1, -4];
        let size = Size::new(2, 34);
        let rle = Rle::from_column_bits(size, &words, None).unwrap();
        assert_eq!(rle.counts(), [31, 4, 33]);
        let placement = Placement { canvas: Size::new(4, 40), x: 1, y: 5 };
        let placed = Rle::from_column_bits(size, &words, Some(placement)).unwrap();
        assert_eq!(placed.counts(), [40 + 5 + 31, 3, 1 + 5, 1, 34 + 40]);
    }

    #[test]
    fn empty_and_full_columns() {
        let size = Size::new(3, 64);
        let none = Rle::from_column_bits(size, &[0; 6], None).unwrap();
        assert_eq!(none.counts(), [192]);
        let all = Rle::from_column_bits(size, &[-1; 6], None).unwrap();
        assert_eq!(all.counts(), [0, 192]);
    }

    #[test]
    fn wrong_lengths_and_places_are_errors() {
        let size = Size::new(3, 33);
        assert!(Rle::from_column_bits(size, &[0; 5], None).is_err());
        assert!(Rle::from_column_bits(Size::new(0, 33), &[], None).is_err());
        let outside = Placement { canvas: Size::new(4, 33), x: 2, y: 0 };
        assert!(Rle::from_column_bits(size, &[0; 6], Some(outside)).is_err());
    }
}
