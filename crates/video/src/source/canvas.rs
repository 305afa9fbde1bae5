//! The canvas of an animation, on which the patches of its frames are composed.

use cutout_imaging::{Image, ImageError, Size};

/// How a patch is combined with the canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blend {
    /// Replaces the canvas, including alpha.
    Replace,
    /// Alpha-blends over the canvas.
    Over,
}

/// What happens to the area of a patch before the next one is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dispose {
    /// The area is kept.
    Keep,
    /// The area is cleared.
    Clear,
    /// The pixels below the patch are restored.
    Restore,
}

/// A rectangle of the canvas, in pixels. It may exceed the canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) left: usize,
    pub(super) top: usize,
    pub(super) size: Size,
}

/// A frame as stored in the file.
pub(super) struct Patch {
    pub(super) area: Area,
    /// u8 `[height, width, 4]`, not premultiplied by alpha.
    pub(super) pixels: Vec<u8>,
    pub(super) blend: Blend,
    pub(super) dispose: Dispose,
}

/// The composed image, as a viewer shows it.
pub(super) struct Canvas {
    size: Size,
    /// u8 `[height, width, 4]`; initially black and transparent.
    pixels: Vec<u8>,
    /// Disposal to do before the next patch.
    pending: Option<(Area, Dispose)>,
    /// Saved rows below the last patch, if they will be restored.
    below: Vec<u8>,
}

impl Canvas {
    pub(super) fn new(size: Size) -> Result<Self, ImageError> {
        let pixels = vec![0; 4 * size.pixels(4)?];
        Ok(Canvas { size, pixels, pending: None, below: Vec::new() })
    }

    /// Draws the next patch and returns the whole image. Alpha is dropped, as for still images.
    ///
    /// Returns an error if the length of `patch.pixels` does not match its area.
    pub(super) fn show(&mut self, patch: &Patch) -> Result<Image, ImageError> {
        let size = patch.area.size;
        let (expected, found) = (4 * size.pixels(4)?, patch.pixels.len());
        if expected != found {
            return Err(ImageError::Length { size, expected, found });
        }
        self.dispose();
        if patch.dispose == Dispose::Restore {
            self.below.clear();
            for (start, end) in self.rows(patch.area) {
                self.below.extend(&self.pixels[start..end]);
            }
        }
        let rows: Vec<(usize, usize)> = self.rows(patch.area).collect();
        for ((start, end), source) in
            rows.into_iter().zip(patch.pixels.chunks_exact(4 * size.width))
        {
            let target = &mut self.pixels[start..end];
            match patch.blend {
                Blend::Replace => target.copy_from_slice(&source[..end - start]),
                Blend::Over => blend_row(target, source),
            }
        }
        self.pending = Some((patch.area, patch.dispose));
        let rgb = self.pixels.chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]);
        Image::from_rgb(self.size, rgb.collect())
    }

    /// Does the pending disposal of the last patch.
    fn dispose(&mut self) {
        let Some((area, dispose)) = self.pending.take() else { return };
        let mut below = self.below.as_slice();
        let rows: Vec<(usize, usize)> = self.rows(area).collect();
        for (start, end) in rows {
            match dispose {
                Dispose::Keep => {}
                Dispose::Clear => self.pixels[start..end].fill(0),
                Dispose::Restore => {
                    let (row, rest) = below.split_at(end - start);
                    self.pixels[start..end].copy_from_slice(row);
                    below = rest;
                }
            }
        }
    }

    /// Byte range (start, end) of each row of an area, clipped to the canvas.
    fn rows(&self, area: Area) -> impl Iterator<Item = (usize, usize)> + use<> {
        let Size { width, height } = self.size;
        let (left, top) = (area.left.min(width), area.top.min(height));
        let right = area.left.saturating_add(area.size.width).min(width);
        let bottom = area.top.saturating_add(area.size.height).min(height);
        let rows = if left < right { top..bottom } else { 0..0 };
        rows.map(move |y| (4 * (y * width + left), 4 * (y * width + right)))
    }
}

/// Porter-Duff `over` of a row of pixels that are not premultiplied by alpha. `source` may be longer than `target`.
fn blend_row(target: &mut [u8], source: &[u8]) {
    for (below, above) in target.chunks_exact_mut(4).zip(source.chunks_exact(4)) {
        match above[3] {
            0 => {}
            255 => below.copy_from_slice(above),
            alpha => {
                // Weights of both colours in units of 1 / 255².
                let (over, under) =
                    (u32::from(alpha) * 255, u32::from(below[3]) * u32::from(255 - alpha));
                let total = over + under;
                for (below, above) in below[..3].iter_mut().zip(above) {
                    let sum = u32::from(*above) * over + u32::from(*below) * under;
                    *below = ((sum + total / 2) / total) as u8;
                }
                below[3] = ((total + 127) / 255) as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(
        area: (usize, usize, usize, usize),
        pixel: [u8; 4],
        blend: Blend,
        dispose: Dispose,
    ) -> Patch {
        let (left, top, width, height) = area;
        let area = Area { left, top, size: Size::new(width, height) };
        Patch { area, pixels: pixel.repeat(width * height), blend, dispose }
    }

    fn reds(image: &Image) -> Vec<u8> {
        image.as_rgb().iter().step_by(3).copied().collect()
    }

    #[test]
    fn patches_are_disposed_of() {
        use {Blend::Over, Dispose::Clear, Dispose::Keep, Dispose::Restore};
        let mut canvas = Canvas::new(Size::new(4, 1)).unwrap();
        let mut show = |area, red, dispose| {
            reds(&canvas.show(&patch(area, [red, 0, 0, 255], Over, dispose)).unwrap())
        };
        assert_eq!(show((0, 0, 4, 1), 1, Keep), [1, 1, 1, 1]);
        assert_eq!(show((1, 0, 2, 1), 2, Clear), [1, 2, 2, 1]);
        // This patch restores the cleared area, not the patch before it.
        assert_eq!(show((1, 0, 1, 1), 3, Restore), [1, 3, 0, 1]);
        assert_eq!(show((3, 0, 1, 1), 4, Restore), [1, 0, 0, 4]);
        assert_eq!(show((0, 0, 1, 1), 5, Keep), [5, 0, 0, 1]);
        // A patch beyond the canvas is clipped.
        assert_eq!(show((3, 0, 5, 3), 6, Restore), [5, 0, 0, 6]);
        assert_eq!(show((9, 9, 1, 1), 7, Clear), [5, 0, 0, 1]);
        assert_eq!(show((2, 0, 1, 1), 8, Keep), [5, 0, 8, 1]);
    }

    #[test]
    fn transparent_patches_are_blended() {
        let mut canvas = Canvas::new(Size::new(1, 1)).unwrap();
        let mut show = |pixel, blend| {
            reds(&canvas.show(&patch((0, 0, 1, 1), pixel, blend, Dispose::Keep)).unwrap())[0]
        };
        assert_eq!(show([200, 0, 0, 255], Blend::Over), 200);
        assert_eq!(show([100, 0, 0, 0], Blend::Over), 200);
        assert_eq!(show([100, 0, 0, 51], Blend::Over), 180);
        // Half-transparent over half-transparent: weights of two thirds and one third.
        assert_eq!(show([90, 0, 0, 128], Blend::Replace), 90);
        assert_eq!(show([0, 0, 0, 127], Blend::Over), 30);
        assert_eq!(show([7, 0, 0, 0], Blend::Replace), 7);
        assert_eq!(show([9, 0, 0, 1], Blend::Over), 9);
    }

    #[test]
    fn patches_of_the_wrong_length_are_errors() {
        let mut canvas = Canvas::new(Size::new(2, 2)).unwrap();
        let mut wrong = patch((0, 0, 2, 2), [0; 4], Blend::Over, Dispose::Keep);
        wrong.pixels.pop();
        assert!(matches!(canvas.show(&wrong), Err(ImageError::Length { .. })));
        assert!(Canvas::new(Size::new(0, 1)).is_err());
    }
}
