//! Images of masks: overlays, cut-outs and label maps.

use cutout_tensor::memory;

use crate::{Image, ImageError, Mask, Rle, Size};

/// Colour of object `index`. Consecutive indices are far apart on the colour wheel.
pub fn distinct_colour(index: usize) -> [u8; 3] {
    // Multiples of the golden angle never coincide; brightness alternates once the wheel is filled.
    let hue = (index as f64 * 0.618_033_988_749_895 + 0.58).fract() * 6.0;
    let brightness = [255.0, 205.0, 160.0][index / 8 % 3];
    [5.0, 3.0, 1.0].map(|offset| {
        let place: f64 = (offset + hue) % 6.0;
        let share = place.min(4.0 - place).clamp(0.0, 1.0);
        (brightness * (1.0 - 0.85 * share)) as u8
    })
}

/// The image overlaid with every mask in the colour of [`overlay_colours`]; see [`overlay_with`].
pub fn overlay(image: &Image, masks: &[Rle]) -> Result<Image, ImageError> {
    let colours = overlay_colours(image, masks);
    overlay_with(image, &masks.iter().zip(colours).collect::<Vec<_>>())
}

/// Fewest colours to choose from.
const PALETTE: usize = 8;

/// A colour for each mask: of those left, the one farthest from what is under the mask.
pub fn overlay_colours(image: &Image, masks: &[Rle]) -> Vec<[u8; 3]> {
    let mut palette: Vec<[u8; 3]> = (0..masks.len().max(PALETTE)).map(distinct_colour).collect();
    let far = |colour: &[u8; 3], from: [u8; 3]| -> u32 {
        colour.iter().zip(from).map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum()
    };
    let colour = |mask| {
        let under = mean_colour(image, mask);
        let best = (0..palette.len()).max_by_key(|&index| far(&palette[index], under));
        best.map_or([255; 3], |index| palette.remove(index))
    };
    masks.iter().map(colour).collect()
}

/// Mean colour of the image under a mask; black if there is none.
fn mean_colour(image: &Image, mask: &Rle) -> [u8; 3] {
    let (mut sums, mut count) = ([0u64; 3], 0u64);
    for position in mask.runs().flat_map(|(start, end)| start..end) {
        let height = mask.size().height;
        if let Some(pixel) = image.pixel(position / height, position % height) {
            sums.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += u64::from(value));
            count += 1;
        }
    }
    sums.map(|sum| (sum / count.max(1)) as u8)
}

/// The image overlaid with every mask in its colour: half transparent inside; along the outline a white line and a dark one
/// beside it, one of which shows on any background. Large masks are drawn first, so that small ones stay visible.
pub fn overlay_with(image: &Image, masks: &[(&Rle, [u8; 3])]) -> Result<Image, ImageError> {
    let size = image.size();
    if let Some((other, _)) = masks.iter().find(|(mask, _)| mask.size() != size) {
        return Err(ImageError::Mismatch { expected: size, found: other.size() });
    }
    let mut order: Vec<&(&Rle, [u8; 3])> = masks.iter().collect();
    order.sort_by_key(|(mask, _)| std::cmp::Reverse(mask.area()));
    let mut pixels = memory::copied(image.as_rgb())?;
    let radius = 1 + size.width.max(size.height) / 1000;
    for (runs, colour) in order {
        let mask = runs.to_mask()?;
        for position in runs.runs().flat_map(|(start, end)| start..end) {
            let (x, y) = (position / size.height, position % size.height);
            let pixel = &mut pixels[3 * (y * size.width + x)..][..3];
            if is_edge(&mask, x, y, radius) {
                pixel.fill(255);
            } else if is_edge(&mask, x, y, 2 * radius) {
                pixel.copy_from_slice(&colour.map(|value| value / 3));
            } else {
                let mixed = pixel.iter_mut().zip(colour);
                mixed.for_each(|(value, colour)| *value = value.midpoint(*colour));
            }
        }
    }
    Image::from_rgb(size, pixels)
}

/// Whether a pixel at distance `radius` along an axis is unset. Pixels outside the image do not count.
fn is_edge(mask: &Mask, x: usize, y: usize, radius: usize) -> bool {
    let (right, below) = (mask.size().width - 1, mask.size().height - 1);
    !(mask.get(x.saturating_sub(radius), y)
        && mask.get((x + radius).min(right), y)
        && mask.get(x, y.saturating_sub(radius))
        && mask.get(x, (y + radius).min(below)))
}

/// The image with everything outside the mask transparent: u8 `[height, width, 4]`.
pub fn cut_out(image: &Image, mask: &Mask) -> Result<Vec<u8>, ImageError> {
    if mask.size() != image.size() {
        return Err(ImageError::Mismatch { expected: image.size(), found: mask.size() });
    }
    let pixels = image.as_rgb().chunks_exact(3).zip(mask.pixels());
    let rgba =
        |(rgb, set): (&[u8], &bool)| if *set { [rgb[0], rgb[1], rgb[2], 255] } else { [0; 4] };
    Ok(memory::collected(4 * mask.pixels().len(), pixels.flat_map(rgba))?)
}

/// Number of the mask of each pixel, from 1, 0 for none: u8 `[height, width]`. The last of overlapping masks is used. At most 255.
pub fn label_map(size: Size, masks: &[Rle]) -> Result<Vec<u8>, ImageError> {
    let mut labels = memory::zeroed(size.pixels(1)?)?;
    for (mask, label) in masks.iter().zip(1..=255u8) {
        if mask.size() != size {
            return Err(ImageError::Mismatch { expected: size, found: mask.size() });
        }
        for (start, end) in mask.runs() {
            for position in start..end {
                labels[position % size.height * size.width + position / size.height] = label;
            }
        }
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_differ() {
        let colours: Vec<[u8; 3]> = (0..24).map(distinct_colour).collect();
        for (i, a) in colours.iter().enumerate() {
            for b in &colours[..i] {
                let apart: i32 = a.iter().zip(b).map(|(a, b)| i32::from(a.abs_diff(*b))).sum();
                assert!(apart > 30, "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn a_mask_has_another_colour_than_what_is_under_it() {
        let size = Size::square(3);
        let mask = Mask::from_pixels(size, vec![true; 9]).unwrap().to_rle().unwrap();
        for under in (0..8).map(distinct_colour).chain([[0; 3], [255; 3], [128; 3]]) {
            let image = Image::filled(size, under).unwrap();
            let colours = overlay_colours(&image, &vec![mask.clone(); 10]);
            let first: u32 =
                colours[0].iter().zip(under).map(|(a, b)| u32::from(a.abs_diff(b))).sum();
            assert!(first > 200, "{:?} on {under:?}", colours[0]);
            let distinct: std::collections::HashSet<_> = colours.iter().collect();
            assert_eq!(distinct.len(), 10);
        }
    }

    #[test]
    fn overlays_and_cutouts() {
        let size = Size::square(5);
        let image = Image::filled(size, [100; 3]).unwrap();
        let inside = |i: usize| !i.is_multiple_of(5) && i > 4;
        let mask = Mask::from_pixels(size, (0..25).map(inside).collect()).unwrap();
        let drawn = overlay(&image, &[mask.to_rle().unwrap()]).unwrap();
        let [colour] = overlay_colours(&image, &[mask.to_rle().unwrap()])[..] else {
            panic!("one mask")
        };
        assert_eq!(drawn.pixel(0, 3), Some([100; 3]));
        assert_eq!(drawn.pixel(1, 3), Some([255; 3]));
        assert_eq!(drawn.pixel(2, 3), Some(colour.map(|value| value / 3)));
        assert_eq!(drawn.pixel(3, 3), Some(colour.map(|value| value.midpoint(100))));
        let rgba = cut_out(&image, &mask).unwrap();
        assert_eq!((&rgba[..4], &rgba[96..]), (&[0; 4][..], &[100, 100, 100, 255][..]));
        assert_eq!(
            label_map(size, &[mask.to_rle().unwrap()]).unwrap().iter().filter(|l| **l == 1).count(),
            16
        );
        let other = Mask::empty(Size::square(4)).unwrap();
        assert!(overlay(&image, &[other.to_rle().unwrap()]).is_err());
        assert!(cut_out(&image, &other).is_err());
        assert!(label_map(size, &[other.to_rle().unwrap()]).is_err());
    }
}
