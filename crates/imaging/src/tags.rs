//! Text labels drawn on images.

use cutout_tensor::memory;
use font8x8::{BASIC_FONTS, GREEK_FONTS, HIRAGANA_FONTS, LATIN_FONTS, UnicodeFonts};

use crate::{Image, ImageError, Size};

/// Width and height of a glyph in pixels, before scaling.
const LETTER: usize = 8;

/// A text label at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag<'a> {
    /// The text. Characters without a glyph are drawn as `?`.
    pub text: &'a str,
    /// Left edge of the text.
    pub x: usize,
    /// The label is drawn above this row, below it if there is no room, and further down if other labels are in the way.
    pub y: usize,
    /// Background colour. The text is black or white, whichever has more contrast.
    pub colour: [u8; 3],
}

/// The image with labels drawn on it. Labels do not overlap as long as there is room. The font scales with the image; text
/// beyond its width is cut off.
pub fn tagged(image: &Image, tags: &[Tag<'_>]) -> Result<Image, ImageError> {
    let size = image.size();
    let mut pixels = memory::copied(image.as_rgb())?;
    let scale = 1 + size.width.max(size.height) / 1000;
    let mut plates: Vec<Plate> = Vec::new();
    for tag in tags {
        let plate = Plate::new(tag, size, scale).beside(&plates);
        plate.draw(&mut pixels);
        plates.push(plate);
    }
    Image::from_rgb(size, pixels)
}

/// Whether the font has a glyph for a character.
pub fn has_letter(character: char) -> bool {
    !character.is_control() && glyph(character).is_some()
}

/// Background rectangle of a label, with its text.
struct Plate {
    letters: Vec<[u8; LETTER]>,
    colour: [u8; 3],
    left: usize,
    top: usize,
    scale: usize,
    size: Size,
}

impl Plate {
    fn new(tag: &Tag<'_>, size: Size, scale: usize) -> Self {
        let letters: Vec<[u8; LETTER]> = tag.text.chars().map(letter).collect();
        let (width, height) = ((LETTER * letters.len() + 2) * scale, (LETTER + 2) * scale);
        let left = tag.x.min(size.width.saturating_sub(width));
        let top = tag.y.checked_sub(height).unwrap_or(tag.y);
        let top = top.min(size.height.saturating_sub(height));
        Plate { letters, colour: tag.colour, left, top, scale, size }
    }

    fn height(&self) -> usize {
        (LETTER + 2) * self.scale
    }

    fn width(&self) -> usize {
        (LETTER * self.letters.len() + 2) * self.scale
    }

    /// Moves the plate in steps of its height to the first free position, downward, then upward. Keeps the position if none
    /// is free.
    fn beside(mut self, others: &[Plate]) -> Self {
        let (wanted, height) = (self.top, self.height());
        let room = self.size.height.saturating_sub(height);
        let below = (wanted..=room).step_by(height);
        let above = (1..=wanted / height).map(|lines| wanted - lines * height);
        for top in below.chain(above) {
            self.top = top;
            if !others.iter().any(|other| self.meets(other)) {
                return self;
            }
        }
        self.top = wanted;
        self
    }

    fn meets(&self, other: &Plate) -> bool {
        let apart = |a: usize, long: usize, b: usize, other: usize| a + long <= b || b + other <= a;
        !apart(self.left, self.width(), other.left, other.width())
            && !apart(self.top, self.height(), other.top, other.height())
    }

    fn draw(&self, pixels: &mut [u8]) {
        let [red, green, blue] = self.colour.map(u32::from);
        // Luma weights in thousandths.
        let is_bright = 299 * red + 587 * green + 114 * blue > 128_000;
        let ink = if is_bright { [0; 3] } else { [255; 3] };
        for down in 0..self.height() {
            for across in 0..self.width() {
                let (x, y) = (self.left + across, self.top + down);
                if x >= self.size.width || y >= self.size.height {
                    continue;
                }
                let colour = if self.is_ink(across, down) { ink } else { self.colour };
                pixels[3 * (y * self.size.width + x)..][..3].copy_from_slice(&colour);
            }
        }
    }

    /// Whether a glyph covers a pixel of the plate. The margin is one scaled pixel.
    fn is_ink(&self, across: usize, down: usize) -> bool {
        let inside = |place: usize| (place / self.scale).checked_sub(1);
        let (Some(column), Some(row)) = (inside(across), inside(down)) else { return false };
        let Some(letter) = self.letters.get(column / LETTER) else { return false };
        letter.get(row).is_some_and(|bits| bits >> (column % LETTER) & 1 == 1)
    }
}

/// Rows of a glyph, leftmost pixel in the lowest bit; those of `?` if the font lacks the character.
fn letter(letter: char) -> [u8; LETTER] {
    glyph(letter).or_else(|| glyph('?')).unwrap_or_default()
}

/// Rows of a glyph; `None` if the font lacks the character.
fn glyph(letter: char) -> Option<[u8; LETTER]> {
    BASIC_FONTS
        .get(letter)
        .or_else(|| LATIN_FONTS.get(letter))
        .or_else(|| GREEK_FONTS.get(letter))
        .or_else(|| HIRAGANA_FONTS.get(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The image as text: `#` for ink, `.` for the plate, a space elsewhere.
    fn drawn(size: Size, tag: Tag<'_>) -> Vec<String> {
        let image = Image::filled(size, [9; 3]).unwrap();
        let image = tagged(&image, &[tag]).unwrap();
        let sign = |x, y| match image.pixel(x, y).unwrap() {
            [9, 9, 9] => ' ',
            [0, 0, 0] | [255, 255, 255] => '#',
            _ => '.',
        };
        (0..size.height).map(|y| (0..size.width).map(|x| sign(x, y)).collect()).collect()
    }

    #[test]
    fn a_label_is_drawn_above_its_position() {
        let tag = Tag { text: "l-", x: 2, y: 12, colour: [200, 220, 90] };
        let lines = drawn(Size::new(21, 13), tag);
        let expected = [
            "                     ",
            "                     ",
            "  ..................",
            "  ..###.............",
            "  ...##.............",
            "  ...##.............",
            "  ...##....######...",
        ];
        for (line, expected) in lines.iter().zip(expected) {
            assert_eq!(line.trim_end(), expected.trim_end(), "{lines:#?}");
        }
        assert_eq!(lines[12].trim(), "");
    }

    #[test]
    fn labels_do_not_overlap() {
        let tag = |x, y, shade| Tag { text: "ab", x, y, colour: [shade, 0, 0] };
        let image = Image::filled(Size::new(60, 40), [9; 3]).unwrap();
        let visible = |tags: &[Tag<'_>]| -> Vec<usize> {
            let drawn = tagged(&image, tags).unwrap();
            let count = |shade| {
                let pixels = drawn.as_rgb().chunks(3);
                pixels.filter(|pixel| pixel[0] == shade && pixel[1] == 0).count()
            };
            tags.iter().map(|tag| count(tag.colour[0])).collect()
        };
        let alone = visible(&[tag(3, 12, 50)])[0];
        assert!(alone > 50);
        // At the same position, half overlapping, and at the bottom, where the only free rows are above.
        assert_eq!(visible(&[tag(3, 12, 50), tag(3, 12, 60), tag(9, 15, 70)]), [alone; 3]);
        assert_eq!(visible(&[tag(3, 40, 50), tag(3, 40, 60), tag(3, 40, 70)]), [alone; 3]);
        // Side by side, labels keep their row; on a full image the last one is drawn on top.
        let line = tagged(&image, &[tag(3, 12, 50), tag(40, 12, 60)]).unwrap();
        assert_eq!(line.pixel(40, 2), Some([60, 0, 0]));
        let many: Vec<Tag<'_>> = (0..5).map(|index| tag(3, 12, 50 + index)).collect();
        assert_eq!(visible(&many), [0, alone, alone, 0, alone]);
    }

    #[test]
    fn the_font_has_latin_greek_and_hiragana() {
        assert!("cat é β の #1?".chars().all(has_letter));
        assert!(!"猫к🐈\u{1}\u{7f}".chars().any(has_letter));
    }

    #[test]
    fn labels_stay_inside_the_image() {
        let long = Tag { text: "a long phrase 日本 🐈", x: 30, y: 3, colour: [30, 20, 90] };
        let lines = drawn(Size::new(40, 12), long);
        assert!(lines.iter().all(|line| line.chars().count() == 40));
        assert!(lines[3].starts_with('.'), "{lines:#?}");
        let nothing = drawn(Size::new(5, 4), Tag { text: "", x: 99, y: 99, colour: [1, 2, 3] });
        assert_eq!(nothing.len(), 4);
    }
}
