//! Tracks that lose most of their pixels to others are not remembered.

use std::ops::Range;

use cutout_imaging::{AboveZero, ImageError, Size, Upsampler};
use cutout_parallel::Pool;
use cutout_tensor::memory;

/// Rows that one thread looks at: few enough for its cache.
const BAND: usize = 32;

/// Share of its area that a mask must keep where others have higher logits.
const LEAST_SHARE: f32 = 0.3;

/// What the pixels of a mask say at the resolution of the memory encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    /// Pixels above 0.
    whole: u32,
    /// Those among them in which no other mask has a higher logit; the first of equals has them.
    won: u32,
}

impl Area {
    /// Whether the mask gives way to the others.
    pub(super) fn shrinks(self) -> bool {
        (self.won as f32 / self.whole.max(1) as f32) < LEAST_SHARE
    }

    pub(super) fn is_empty(self) -> bool {
        self.whole == 0
    }
}

/// The areas of masks `f32[side, side]`, upsampled to `high` by `high` pixels.
pub(super) fn areas<'a>(
    masks: &[&'a [f32]],
    [side, high]: [usize; 2],
    pool: &Pool,
) -> Result<Vec<Area>, ImageError> {
    let upsampler = Upsampler::direct(Size::square(side), Size::square(high))?;
    let bands: Vec<Range<usize>> =
        (0..high).step_by(BAND).map(|y| y..(y + BAND).min(high)).collect();
    let above = |mask: &&'a [f32]| upsampler.above_zero(mask);
    let masks: Vec<AboveZero<'_>> = masks.iter().map(above).collect::<Result<_, _>>()?;
    let parts = pool.map(&bands, |rows| areas_in(rows, &masks, high));
    let mut found = vec![Area { whole: 0, won: 0 }; masks.len()];
    for part in parts {
        for (area, part) in found.iter_mut().zip(part?) {
            *area = Area { whole: area.whole + part.whole, won: area.won + part.won };
        }
    }
    Ok(found)
}

/// The areas in some rows.
fn areas_in(
    rows: &Range<usize>,
    masks: &[AboveZero<'_>],
    width: usize,
) -> Result<Vec<Area>, ImageError> {
    let mut best = memory::zeroed::<f32>(rows.len() * width)?;
    let mut winner = memory::zeroed::<u32>(rows.len() * width)?;
    let mut found = vec![Area { whole: 0, won: 0 }; masks.len()];
    for (index, mask) in masks.iter().enumerate() {
        mask.for_each_row(rows.clone(), |y, x, row| {
            let start = (y - rows.start) * width + x;
            let best = &mut best[start..][..row.len()];
            let winner = &mut winner[start..][..row.len()];
            found[index].whole += row.iter().map(|logit| u32::from(*logit > 0.0)).sum::<u32>();
            for ((logit, best), winner) in row.iter().zip(best).zip(winner) {
                // Only pixels above 0 count, so that 0 is a floor for all masks.
                let wins = *logit > *best;
                *best = if wins { *logit } else { *best };
                *winner = if wins { index as u32 + 1 } else { *winner };
            }
        });
    }
    winner.iter().filter(|winner| **winner > 0).for_each(|winner| {
        found[*winner as usize - 1].won += 1;
    });
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_below_another_shrinks() {
        // Two columns, three columns of which two are covered, and nothing.
        let strong = [5.0, 5.0, -5.0, -5.0].repeat(4);
        let weak = [1.0, 1.0, 1.0, -5.0].repeat(4);
        let none = [-1.0; 16];
        let pool = Pool::new(2);
        let found = areas(&[&strong, &weak, &none], [4, 4], &pool).unwrap();
        assert_eq!(found[0], Area { whole: 8, won: 8 });
        assert_eq!(found[1], Area { whole: 12, won: 4 });
        assert!(!found[0].shrinks() && !found[1].shrinks());
        assert!(found[2].is_empty() && found[2].shrinks());
        let covered = [1.0, 1.0, -1.0, -5.0].repeat(4);
        assert!(areas(&[&strong, &covered], [4, 8], &pool).unwrap()[1].shrinks());
        // Equal masks: the first has the pixels.
        let twice = areas(&[&strong, &strong], [4, 4], &pool).unwrap();
        assert_eq!((twice[0].won, twice[1].won), (8, 0));
        // More rows than one band: half of them.
        let large = areas(&[&strong], [4, 3 * BAND], &pool).unwrap();
        assert_eq!(large[0].whole as usize, 9 * BAND * BAND / 2);
    }
}
