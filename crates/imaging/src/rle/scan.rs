//! Column-major run-length encoding of a mask that is given row by row.

use cutout_tensor::memory;

use super::Rle;
use super::runs::RunCollector;
use crate::{ImageError, Placement, Size};

/// Encodes rows as an [`Rle`]. Keeps one row and the positions where a column changes.
pub struct RowScanner {
    size: Size,
    /// The previous row, 0 or 1 per pixel.
    above: Vec<u8>,
    row: Vec<u8>,
    rows: usize,
    /// (column, row) of each pixel that differs from the one above it, in row-major order. Pixels above row 0 are unset.
    changes: Vec<Change>,
}

/// Column and row.
type Change = (u32, u32);

/// Pixels compared in one step.
const WORD: usize = 8;

impl RowScanner {
    /// A scanner for a mask of this size.
    pub fn new(size: Size) -> Result<Self, ImageError> {
        let pixels = size.pixels(1)?;
        if u32::try_from(pixels).is_err() {
            return Err(ImageError::TooLarge(size));
        }
        // Padded to whole words.
        let length = size.width.next_multiple_of(WORD);
        let (above, row) = (memory::zeroed(length)?, memory::zeroed(length)?);
        Ok(RowScanner { size, above, row, rows: 0, changes: Vec::new() })
    }

    /// Adds the next row: `width` values of 0 or 1. Rows beyond the height are ignored; missing pixels are unset.
    pub fn push(&mut self, row: impl Iterator<Item = u8>) -> Result<(), ImageError> {
        self.push_at(0, row)
    }

    /// Leaves out the unset rows above row `y`, as long as no row has been pushed.
    pub(crate) fn skip_to(&mut self, y: usize) {
        if self.rows == 0 {
            self.rows = y.min(self.size.height);
        }
    }

    /// Adds the next row, whose pixels before column `x` are unset; as [`RowScanner::push`].
    pub(crate) fn push_at(
        &mut self,
        x: usize,
        row: impl Iterator<Item = u8>,
    ) -> Result<(), ImageError> {
        if self.rows == self.size.height {
            return Ok(());
        }
        let width = self.size.width;
        self.row[..width].fill(0);
        let pixels = self.row[..width].iter_mut().skip(x);
        pixels.zip(row).for_each(|(pixel, value)| *pixel = value);
        let y = self.rows as u32;
        let words = self.row.chunks_exact(WORD).zip(self.above.chunks_exact(WORD)).enumerate();
        for (i, (new, old)) in words {
            if new == old {
                continue;
            }
            for (j, (new, old)) in new.iter().zip(old).enumerate() {
                if new != old {
                    memory::push(&mut self.changes, ((i * WORD + j) as u32, y))?;
                }
            }
        }
        std::mem::swap(&mut self.row, &mut self.above);
        self.rows += 1;
        Ok(())
    }

    /// The runs of all rows pushed; missing rows are unset.
    pub fn finish(self) -> Result<Rle, ImageError> {
        let size = self.size;
        self.finish_in(size, 0, 0)
    }

    /// The runs of a larger mask of size `canvas`, with the top left corner of this one at (`x`, `y`).
    pub fn finish_in(mut self, canvas: Size, x: usize, y: usize) -> Result<Rle, ImageError> {
        let mut runs = RunCollector::new(self.size, Placement { canvas, x, y })?;
        self.push_end()?;
        for ((column, start), (_, end)) in self.column_runs()? {
            runs.push(column as usize, start as usize..end as usize)?;
        }
        runs.finish()
    }

    /// Ends the runs that reach the last row.
    fn push_end(&mut self) -> Result<(), ImageError> {
        let y = self.rows as u32;
        let reaching = self.above.iter().enumerate().filter(|(_, pixel)| **pixel != 0);
        for (x, _) in reaching {
            memory::push(&mut self.changes, (x as u32, y))?;
        }
        Ok(())
    }

    /// Start and exclusive end of each run, column by column: the changes, sorted by column and paired.
    fn column_runs(&self) -> Result<impl Iterator<Item = (Change, Change)>, ImageError> {
        let mut starts = memory::zeroed::<usize>(self.size.width + 1)?;
        for (x, _) in &self.changes {
            starts[*x as usize + 1] += 1;
        }
        for x in 0..self.size.width {
            starts[x + 1] += starts[x];
        }
        let mut sorted = memory::copied(&self.changes)?;
        for change in &self.changes {
            let next = &mut starts[change.0 as usize];
            sorted[*next] = *change;
            *next += 1;
        }
        Ok((0..sorted.len() / 2).map(move |i| (sorted[2 * i], sorted[2 * i + 1])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_placed_in_a_larger_one() {
        let mut scanner = RowScanner::new(Size::new(2, 2)).unwrap();
        scanner.push([1, 1].into_iter()).unwrap();
        scanner.push([1, 0].into_iter()).unwrap();
        let rle = scanner.finish_in(Size::new(4, 3), 1, 1).unwrap();
        // Columns: ..., .##, .#., ...
        assert_eq!(rle.counts(), [4, 2, 1, 1, 4]);
        assert!(
            RowScanner::new(Size::new(2, 2)).unwrap().finish_in(Size::new(4, 3), 3, 0).is_err()
        );
    }

    #[test]
    fn missing_rows_are_unset() {
        let mut scanner = RowScanner::new(Size::new(1, 3)).unwrap();
        scanner.push([1].into_iter()).unwrap();
        assert_eq!(scanner.finish().unwrap().counts(), [0, 1, 2]);
    }
}
