//! Rows of subsampled channels at the width and height of the image.

use crate::frame::{Component, Frame};

/// How the rows of a channel become rows of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upsampling {
    /// Not subsampled.
    None,
    /// Twice the width, by interpolation.
    Wide,
    /// Twice the height, by interpolation.
    Tall,
    /// Twice the width and height, by interpolation.
    WideTall,
    /// Any factors, by repetition.
    Repeat { across: usize, down: usize },
}

impl Upsampling {
    /// As libjpeg chooses: channels of one or two columns are not interpolated horizontally.
    pub(crate) fn of(component: &Component, frame: &Frame) -> Self {
        let across = frame.horizontal / component.horizontal;
        let down = frame.vertical / component.vertical;
        match (across, down) {
            (1, 1) => Upsampling::None,
            (2, 1) if component.width > 2 => Upsampling::Wide,
            (1, 2) => Upsampling::Tall,
            (2, 2) if component.width > 2 => Upsampling::WideTall,
            _ => Upsampling::Repeat { across, down },
        }
    }

    /// Whether rows above and below are used.
    pub(crate) fn needs_context(self) -> bool {
        match self {
            Upsampling::Tall | Upsampling::WideTall => true,
            Upsampling::None | Upsampling::Wide | Upsampling::Repeat { .. } => false,
        }
    }

    /// The row of samples nearest to row `y` of the image, and the next nearest.
    pub(crate) fn sources(self, y: usize, height: usize) -> (usize, usize) {
        match self {
            Upsampling::None | Upsampling::Wide => (y, y),
            Upsampling::Tall | Upsampling::WideTall => {
                let near = y / 2;
                let far = if y.is_multiple_of(2) { near.saturating_sub(1) } else { near + 1 };
                (near, far.min(height - 1))
            }
            Upsampling::Repeat { down, .. } => (y / down, y / down),
        }
    }
}

/// Sums of two rows, for [`wide_tall`].
pub(crate) type Sums = Vec<u16>;

/// Interpolates horizontally: 3/4 of the nearer sample and 1/4 of the next. Halves are rounded down at even pixels and up
/// at odd ones. `out` has twice the length of `row`, which is at least 2.
pub(crate) fn wide(row: &[u8], out: &mut [u8]) {
    let last = row.len() - 1;
    let triple = |value: u8| 3 * u16::from(value);
    let pairs = out.as_chunks_mut::<2>().0;
    pairs[0] = [row[0], ((triple(row[0]) + u16::from(row[1]) + 2) >> 2) as u8];
    let around = row.iter().zip(&row[1..]).zip(&row[2..]);
    for (pair, ((&before, &value), &after)) in pairs[1..last].iter_mut().zip(around) {
        let even = (triple(value) + u16::from(before) + 1) >> 2;
        let odd = (triple(value) + u16::from(after) + 2) >> 2;
        *pair = [even as u8, odd as u8];
    }
    pairs[last] = [((triple(row[last]) + u16::from(row[last - 1]) + 1) >> 2) as u8, row[last]];
}

/// Interpolates vertically. `y` is the row of the image, whose last bit decides the rounding of halves.
pub(crate) fn tall(near: &[u8], far: &[u8], y: usize, out: &mut [u8]) {
    let bias = if y.is_multiple_of(2) { 1 } else { 2 };
    for ((out, &near), &far) in out.iter_mut().zip(near).zip(far) {
        *out = ((3 * u16::from(near) + u16::from(far) + bias) >> 2) as u8;
    }
}

/// Interpolates in both directions: 9/16, 3/16, 3/16 and 1/16.
pub(crate) fn wide_tall(near: &[u8], far: &[u8], sums: &mut Sums, out: &mut [u8]) {
    let last = near.len() - 1;
    sums.clear();
    sums.extend(near.iter().zip(far).map(|(&near, &far)| 3 * u16::from(near) + u16::from(far)));
    let pairs = out.as_chunks_mut::<2>().0;
    pairs[0] = [((4 * sums[0] + 8) >> 4) as u8, ((3 * sums[0] + sums[1] + 7) >> 4) as u8];
    let around = sums.iter().zip(&sums[1..]).zip(&sums[2..]);
    for (pair, ((&before, &value), &after)) in pairs[1..last].iter_mut().zip(around) {
        *pair = [((3 * value + before + 8) >> 4) as u8, ((3 * value + after + 7) >> 4) as u8];
    }
    let (value, before) = (sums[last], sums[last - 1]);
    pairs[last] = [((3 * value + before + 8) >> 4) as u8, ((4 * value + 7) >> 4) as u8];
}

/// Repeats each sample `across` times.
pub(crate) fn repeat(row: &[u8], across: usize, out: &mut [u8]) {
    for (copies, &value) in out.chunks_mut(across).zip(row) {
        copies.fill(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolation_of_a_constant_is_constant() {
        for value in [0, 1, 127, 254, 255] {
            let row = [value; 5];
            let mut out = [9; 10];
            wide(&row, &mut out);
            assert_eq!(out, [value; 10]);
            wide_tall(&row, &row, &mut Vec::new(), &mut out);
            assert_eq!(out, [value; 10]);
            tall(&row, &row, 1, &mut out[..5]);
            assert_eq!(out[..5], [value; 5]);
        }
    }

    #[test]
    fn halves_are_rounded_up_and_down_in_turn() {
        let mut out = [0; 6];
        wide(&[0, 2, 4], &mut out);
        assert_eq!(out, [0, 1, 1, 3, 3, 4]);
        tall(&[2, 2], &[0, 4], 0, &mut out[..2]);
        tall(&[2, 2], &[0, 4], 1, &mut out[2..4]);
        assert_eq!(out[..4], [1, 2, 2, 3]);
        wide_tall(&[8, 0, 0], &[0, 0, 0], &mut Vec::new(), &mut out);
        assert_eq!(out, [6, 4, 2, 0, 0, 0]);
        repeat(&[1, 2], 4, &mut out);
        assert_eq!(out, [1, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn rows_beyond_the_image_are_copies_of_its_first_and_last() {
        let rows: Vec<_> = (0..6).map(|y| Upsampling::WideTall.sources(y, 3)).collect();
        assert_eq!(rows, [(0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]);
    }
}
