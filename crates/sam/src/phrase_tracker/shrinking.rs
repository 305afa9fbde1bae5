//! Tracks that lose most of their pixels to others are not remembered.

use cutout_imaging::{ImageError, Size, Upsampler};
use cutout_tensor::memory;

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
pub(super) fn areas(masks: &[&[f32]], side: usize, high: usize) -> Result<Vec<Area>, ImageError> {
    let upsampler = Upsampler::direct(Size::square(side), Size::square(high))?;
    let mut best = memory::zeroed::<f32>(high * high)?;
    let mut winner = memory::zeroed::<u32>(high * high)?;
    let mut found = vec![Area { whole: 0, won: 0 }; masks.len()];
    for (index, mask) in masks.iter().enumerate() {
        upsampler.for_each_row(mask, |y, row| {
            let kept = best[y * high..][..high].iter_mut().zip(&mut winner[y * high..][..high]);
            for (logit, (best, winner)) in row.iter().zip(kept) {
                found[index].whole += u32::from(*logit > 0.0);
                // Only pixels above 0 count, so that 0 is a floor for all masks.
                if *logit > *best {
                    (*best, *winner) = (*logit, index as u32 + 1);
                }
            }
        })?;
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
        let found = areas(&[&strong, &weak, &none], 4, 4).unwrap();
        assert_eq!(found[0], Area { whole: 8, won: 8 });
        assert_eq!(found[1], Area { whole: 12, won: 4 });
        assert!(!found[0].shrinks() && !found[1].shrinks());
        assert!(found[2].is_empty() && found[2].shrinks());
        let covered = [1.0, 1.0, -1.0, -5.0].repeat(4);
        assert!(areas(&[&strong, &covered], 4, 8).unwrap()[1].shrinks());
        // Equal masks: the first has the pixels.
        let twice = areas(&[&strong, &strong], 4, 4).unwrap();
        assert_eq!((twice[0].won, twice[1].won), (8, 0));
    }
}
