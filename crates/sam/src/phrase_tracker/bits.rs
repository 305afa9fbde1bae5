//! Masks as bits: the areas that two of them share are counted word by word.

/// The pixels of a mask whose logits are above 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BitMask {
    words: Vec<u64>,
    area: u32,
}

/// What the shared area of two masks is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// The area of both together (IoU).
    Union,
    /// The smaller area of the two.
    Smaller,
}

impl BitMask {
    /// The mask of logits.
    pub(super) fn of(logits: &[f32]) -> Self {
        let word = |chunk: &[f32]| {
            let bit = |(index, logit): (usize, &f32)| u64::from(*logit > 0.0) << index;
            chunk.iter().enumerate().map(bit).sum()
        };
        let words: Vec<u64> = logits.chunks(u64::BITS as usize).map(word).collect();
        let area = words.iter().map(|word| word.count_ones()).sum();
        BitMask { words, area }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.area == 0
    }

    /// The shared area as a share of `measure`: in f32, as Meta divides. Two empty masks share nothing.
    pub(super) fn overlap(&self, other: &BitMask, measure: Measure) -> f32 {
        let pairs = self.words.iter().zip(&other.words);
        let shared: u32 = pairs.map(|(own, other)| (own & other).count_ones()).sum();
        let whole = match measure {
            Measure::Union => self.area + other.area - shared,
            Measure::Smaller => self.area.min(other.area),
        };
        shared as f32 / whole.max(1) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_counted_across_words() {
        let left: Vec<f32> = (0..130).map(|i| if i < 100 { 1.0 } else { -1.0 }).collect();
        let right: Vec<f32> = (0..130).map(|i| if i >= 60 { 0.5 } else { 0.0 }).collect();
        let (left, right) = (BitMask::of(&left), BitMask::of(&right));
        assert_eq!((left.area, right.area), (100, 70));
        assert_eq!(left.overlap(&right, Measure::Union), 40.0 / 130.0);
        assert_eq!(left.overlap(&right, Measure::Smaller), 40.0 / 70.0);
        let none = BitMask::of(&[-1.0; 130]);
        assert!(none.is_empty());
        assert_eq!(none.overlap(&none, Measure::Union), 0.0);
        assert_eq!(none.overlap(&left, Measure::Smaller), 0.0);
    }
}
