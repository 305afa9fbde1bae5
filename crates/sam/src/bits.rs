//! Masks as bits: the areas that two of them share are counted word by word.

use std::ops::Range;

/// The pixels of a mask whose logits are above 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BitMask {
    words: Vec<u64>,
    /// The words from the first to the last that is not 0.
    used: Range<usize>,
    area: u32,
}

/// What the shared area of two masks is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// The area of both together (IoU).
    Union,
    /// The smaller area of the two.
    Smaller,
}

impl BitMask {
    /// The mask of logits.
    pub(crate) fn of(logits: &[f32]) -> Self {
        let words: Vec<u64> = logits.chunks(u64::BITS as usize).map(word).collect();
        let area = words.iter().map(|word| word.count_ones()).sum();
        let first = words.iter().position(|word| *word != 0).unwrap_or(0);
        let end = words.iter().rposition(|word| *word != 0).map_or(first, |last| last + 1);
        BitMask { words, used: first..end, area }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.area == 0
    }

    /// The shared area as a share of `measure`: in f32, as Meta divides. Two empty masks share nothing.
    pub(crate) fn overlap(&self, other: &BitMask, measure: Measure) -> f32 {
        let end = self.used.end.min(other.used.end);
        let both = self.used.start.max(other.used.start).min(end)..end;
        let pairs = self.words[both.clone()].iter().zip(&other.words[both]);
        let shared: u32 = pairs.map(|(own, other)| (own & other).count_ones()).sum();
        let whole = match measure {
            Measure::Union => self.area + other.area - shared,
            Measure::Smaller => self.area.min(other.area),
        };
        shared as f32 / whole.max(1) as f32
    }
}

/// One bit for each of at most 64 logits, the first in the lowest.
fn word(logits: &[f32]) -> u64 {
    // Moves the lowest bits of eight bytes next to each other, into the highest byte.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let mut set = [0u8; u64::BITS as usize];
    set.iter_mut().zip(logits).for_each(|(set, logit)| *set = u8::from(*logit > 0.0));
    let (eights, _) = set.as_chunks::<8>();
    eights
        .iter()
        .rev()
        .fold(0, |word, eight| word << 8 | u64::from_le_bytes(*eight).wrapping_mul(GATHER) >> 56)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_has_its_place() {
        for length in [1, 7, 63, 64] {
            for position in 0..length {
                let mut logits = vec![-1.0; length];
                logits[position] = 1.0;
                assert_eq!(word(&logits), 1 << position);
                logits.iter_mut().for_each(|logit| *logit = -*logit);
                assert_eq!(word(&logits), (u64::MAX >> (64 - length)) ^ 1 << position);
            }
        }
    }

    #[test]
    fn overlaps_are_counted_across_words() {
        let left: Vec<f32> = (0..130).map(|i| if i < 100 { 1.0 } else { -1.0 }).collect();
        let right: Vec<f32> = (0..130).map(|i| if i >= 60 { 0.5 } else { 0.0 }).collect();
        let (left, right) = (BitMask::of(&left), BitMask::of(&right));
        assert_eq!((left.area, right.area), (100, 70));
        assert_eq!(left.overlap(&right, Measure::Union), 40.0 / 130.0);
        assert_eq!(left.overlap(&right, Measure::Smaller), 40.0 / 70.0);
        let apart: Vec<f32> = (0..130).map(|i| if i == 129 { 1.0 } else { -1.0 }).collect();
        assert_eq!(left.overlap(&BitMask::of(&apart), Measure::Smaller), 0.0);
        assert_eq!(right.overlap(&BitMask::of(&apart), Measure::Smaller), 1.0);
        let none = BitMask::of(&[-1.0; 130]);
        assert!(none.is_empty());
        assert_eq!(none.overlap(&none, Measure::Union), 0.0);
        assert_eq!(none.overlap(&left, Measure::Smaller), 0.0);
    }
}
