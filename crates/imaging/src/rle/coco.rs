//! COCO's compressed run-length string: five bits per character; from the fourth count on, differences to two counts before.

use super::Rle;
use crate::{ImageError, Size};

/// Why run lengths are not a valid mask.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RleError {
    /// The size is invalid.
    #[error(transparent)]
    Size(#[from] ImageError),
    /// The counts do not sum to the number of pixels.
    #[error("{size} needs counts that sum to {expected}, got {found}")]
    Total {
        /// Size of the mask.
        size: Size,
        /// Number of pixels of the mask.
        expected: usize,
        /// Sum of the counts.
        found: u64,
    },
    /// A character that does not occur in COCO's strings.
    #[error("character {found:#04x} at position {position} is not part of a compressed mask")]
    Character {
        /// Position in the string.
        position: usize,
        /// The byte.
        found: u8,
    },
    /// The string ends inside a number.
    #[error("the compressed mask ends inside a number")]
    Truncated,
    /// A count that is negative or exceeds 32 bits.
    #[error("run {index} has the invalid length {found}")]
    Count {
        /// Index of the run.
        index: usize,
        /// Its decoded length.
        found: i64,
    },
}

impl Rle {
    /// The compressed string, as pycocotools writes it.
    pub fn to_coco_string(&self) -> String {
        let mut text = String::new();
        for (i, &count) in self.counts().iter().enumerate() {
            let before = if i > 2 { self.counts()[i - 2] } else { 0 };
            push_number(i64::from(count) - i64::from(before), &mut text);
        }
        text
    }

    /// Parses a compressed string of pycocotools.
    pub fn from_coco_string(size: Size, text: &str) -> Result<Self, RleError> {
        let mut counts: Vec<u32> = Vec::new();
        let mut position = 0;
        while position < text.len() {
            let index = counts.len();
            let before = if index > 2 { i64::from(counts[index - 2]) } else { 0 };
            let found = take_number(text.as_bytes(), &mut position)? + before;
            counts.push(u32::try_from(found).map_err(|_| RleError::Count { index, found })?);
        }
        Rle::from_counts(size, counts)
    }
}

fn push_number(mut number: i64, text: &mut String) {
    loop {
        let bits = (number & 0x1f) as u8;
        number >>= 5;
        // The sign bit of the last group is extended when the number is read.
        let more = if bits & 0x10 == 0 { number != 0 } else { number != -1 };
        text.push(char::from((bits | if more { 0x20 } else { 0 }) + 48));
        if !more {
            return;
        }
    }
}

fn take_number(bytes: &[u8], position: &mut usize) -> Result<i64, RleError> {
    let mut number = 0i64;
    // Seven groups hold 35 bits, enough for every count and every difference of counts.
    for group in 0..7 {
        let found = *bytes.get(*position).ok_or(RleError::Truncated)?;
        let bits = match found {
            48..=111 => i64::from(found - 48),
            _ => return Err(RleError::Character { position: *position, found }),
        };
        *position += 1;
        number |= (bits & 0x1f) << (5 * group);
        if bits & 0x20 == 0 {
            let negative = bits & 0x10 != 0;
            return Ok(if negative { number | (-1 << (5 * (group + 1))) } else { number });
        }
    }
    Err(RleError::Character { position: *position - 1, found: bytes[*position - 1] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for number in [0, 1, 15, 16, -1, -16, -17, 31, 32, 1000, -100_000, i64::from(u32::MAX)] {
            for number in [number, -number] {
                let mut text = String::new();
                push_number(number, &mut text);
                let mut position = 0;
                assert_eq!(take_number(text.as_bytes(), &mut position), Ok(number));
                assert_eq!(position, text.len());
            }
        }
    }

    #[test]
    fn invalid_strings_are_errors() {
        let size = Size::new(2, 2);
        let read = |text: &str| Rle::from_coco_string(size, text).unwrap_err();
        assert_eq!(read("P"), RleError::Truncated);
        assert_eq!(read("1 "), RleError::Character { position: 1, found: b' ' });
        assert_eq!(read("O"), RleError::Count { index: 0, found: -1 });
        assert!(matches!(read("oooooooooooo"), RleError::Character { position: 6, .. }));
        assert!(matches!(read("é"), RleError::Character { position: 0, .. }));
        assert!(matches!(read(""), RleError::Total { found: 0, .. }));
    }

    #[test]
    fn random_strings_never_panic() {
        let mut state = 0x5eed_u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..state % 12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push(char::from(44 + (state >> 33) as u8 % 72));
            }
            state = state.wrapping_add(0x9e37_79b9);
            let _ = Rle::from_coco_string(Size::new(3, 5), &text);
        }
    }
}
