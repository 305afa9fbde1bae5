//! Rows of the left operand as words of four bytes in scratch memory: pairs of bf16 numbers or groups of bytes.

use crate::gemm::left::row_stride;
use crate::tiles::{ROW_BYTES, SUM_ROWS};

/// Words of a cache line, and of a row of a tile.
pub(super) const LINE: usize = ROW_BYTES / 4;

/// Order of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// One row after the other, each in cache lines of its own.
    Rows { stride: usize },
    /// As tile registers read them, so that every load is of consecutive cache lines: `[panel of SUM_ROWS][line][row][LINE]`.
    Tiles,
}

/// Rows of the same number of words, padded to whole cache lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct WordRows {
    lines: usize,
    order: Order,
}

impl WordRows {
    /// One row after the other.
    pub(super) fn in_rows(words: usize) -> WordRows {
        WordRows { lines: words.div_ceil(LINE), order: Order::Rows { stride: row_stride(words) } }
    }

    /// In tiles; `words` are whole lines.
    pub(super) fn in_tiles(words: usize) -> WordRows {
        assert!(words.is_multiple_of(LINE), "rows of tiles have whole lines");
        WordRows { lines: words / LINE, order: Order::Tiles }
    }

    /// Words from one row to the next, where one follows the other.
    pub(super) fn stride(&self) -> usize {
        match self.order {
            Order::Rows { stride } => stride,
            Order::Tiles => 0,
        }
    }

    /// Words that `rows` rows take.
    pub(super) fn length(&self, rows: usize) -> usize {
        match self.order {
            Order::Rows { stride } => rows * stride,
            Order::Tiles => rows.next_multiple_of(SUM_ROWS) * self.lines * LINE,
        }
    }

    /// The lines of a row in memory of at least [`WordRows::length`] words.
    #[inline(always)]
    pub(super) fn row<'m>(
        &self,
        memory: &'m mut [f32],
        row: usize,
    ) -> impl Iterator<Item = &'m mut [f32]> + use<'m> {
        let (start, apart) = match self.order {
            Order::Rows { stride } => (row * stride, 1),
            Order::Tiles => {
                let (panel, row) = (row / SUM_ROWS, row % SUM_ROWS);
                ((panel * SUM_ROWS * self.lines + row) * LINE, SUM_ROWS)
            }
        };
        let memory = match self.lines {
            0 => &mut [],
            lines => &mut memory[start..][..((lines - 1) * apart + 1) * LINE],
        };
        memory.chunks_exact_mut(LINE).step_by(apart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_words_share_a_place() {
        for layout in [WordRows::in_rows(35), WordRows::in_tiles(48), WordRows::in_rows(0)] {
            let rows = 2 * SUM_ROWS + 5;
            let mut memory = vec![0.0f32; layout.length(rows)];
            for row in 0..rows {
                assert_eq!(layout.row(&mut memory, row).count(), layout.lines);
                for word in layout.row(&mut memory, row).flatten() {
                    assert_eq!(*word, 0.0);
                    *word = 1.0;
                }
            }
        }
    }

    #[test]
    fn tiles_are_consecutive_rows_of_cache_lines() {
        let layout = WordRows::in_tiles(2 * LINE);
        let mut memory = vec![0.0f32; layout.length(SUM_ROWS + 1)];
        layout.row(&mut memory, 3).nth(1).unwrap()[2] = 1.0;
        layout.row(&mut memory, SUM_ROWS).next().unwrap()[0] = 2.0;
        assert_eq!(memory[(SUM_ROWS + 3) * LINE + 2], 1.0);
        assert_eq!(memory[2 * SUM_ROWS * LINE], 2.0);
    }
}
