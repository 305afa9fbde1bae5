//! Colours to RGB.

#[cfg(target_arch = "x86_64")]
mod sse2;

use crate::frame::Frame;
use crate::header::Header;

/// What the channels of a file stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colours {
    Grey,
    YCbCr,
    Rgb,
    /// Inks, stored as 255 less the amount of ink, as Adobe's programs do and Pillow assumes for all files.
    Cmyk,
    /// The same inks, the first three as YCbCr.
    Ycck,
}

impl Colours {
    /// As libjpeg guesses: by markers, then by the names of the components.
    pub(crate) fn of(header: &Header<'_>, frame: &Frame) -> Self {
        let names: Vec<u8> = frame.components.iter().map(|part| part.identifier).collect();
        match (frame.components.len(), header.adobe) {
            (1, _) => Colours::Grey,
            (4, None | Some(0)) => Colours::Cmyk,
            (4, Some(_)) => Colours::Ycck,
            (_, _) if header.has_jfif => Colours::YCbCr,
            (_, Some(0)) => Colours::Rgb,
            (_, None) if names == *b"RGB" => Colours::Rgb,
            (_, _) => Colours::YCbCr,
        }
    }

    /// Converts a row. `rows` has a row for each channel, at least as long as `rgb` has pixels.
    pub(crate) fn convert(self, rows: &[&[u8]], rgb: &mut [u8]) {
        match (self, rows) {
            (Colours::Grey, [grey, ..]) => {
                for (pixel, &value) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(*grey) {
                    *pixel = [value; 3];
                }
            }
            (Colours::YCbCr, [luma, blue, red, ..]) => from_ycc(luma, blue, red, rgb),
            (Colours::Rgb, [red, green, blue, ..]) => {
                for (index, pixel) in rgb.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                    *pixel = [red[index], green[index], blue[index]];
                }
            }
            (Colours::Cmyk, [cyan, magenta, yellow, black, ..]) => {
                for (index, pixel) in rgb.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                    let inks = [cyan[index], magenta[index], yellow[index]].map(|ink| 255 - ink);
                    *pixel = inks.map(|ink| uncovered(ink, black[index]));
                }
            }
            (Colours::Ycck, [luma, blue, red, black, ..]) => {
                // The conversion gives 255 less each ink, and these are stored as 255 less the ink.
                from_ycc(luma, blue, red, rgb);
                for (pixel, &black) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(*black) {
                    *pixel = pixel.map(|ink| uncovered(ink, black));
                }
            }
            // The number of channels follows from the colours.
            (_, _) => {}
        }
    }
}

/// Light that remains of `white` under an amount of `ink`, as Pillow rounds it.
fn uncovered(ink: u8, white: u8) -> u8 {
    let product = u32::from(ink) * u32::from(white) + 128;
    white.saturating_sub((((product >> 8) + product) >> 8) as u8)
}

fn from_ycc(luma: &[u8], blue: &[u8], red: &[u8], rgb: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code, reason = "functions with a target feature are unsafe to call")]
    if std::arch::is_x86_feature_detected!("ssse3") {
        // SAFETY: the processor has SSSE3.
        unsafe { sse2::from_ycc_by_shuffles(luma, blue, red, rgb) }
    } else {
        // SAFETY: every x86-64 processor has SSE2.
        unsafe { sse2::from_ycc(luma, blue, red, rgb) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    plain(luma, blue, red, rgb);
}

/// Constants in units of 2^-16.
const RED_BY_RED: i32 = 91881;
const GREEN_BY_RED: i32 = 46802;
const GREEN_BY_BLUE: i32 = 22554;
const BLUE_BY_BLUE: i32 = 116130;

/// The definition of the conversion.
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "the oracle of the vector code"))]
fn plain(luma: &[u8], blue: &[u8], red: &[u8], rgb: &mut [u8]) {
    const HALF: i32 = 1 << 15;
    let pixels = rgb.as_chunks_mut::<3>().0;
    for (((pixel, &y), &blue), &red) in pixels.iter_mut().zip(luma).zip(blue).zip(red) {
        let (y, blue, red) = (i32::from(y), i32::from(blue) - 128, i32::from(red) - 128);
        let green = (HALF - GREEN_BY_BLUE * blue - GREEN_BY_RED * red) >> 16;
        let colours = [
            y + ((RED_BY_RED * red + HALF) >> 16),
            y + green,
            y + ((BLUE_BY_BLUE * blue + HALF) >> 16),
        ];
        *pixel = colours.map(|colour| colour.clamp(0, 255) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_code_gives_the_same_bytes_as_the_definition() {
        // Every pair of chrominances with a few luminances, in rows of odd length.
        for y in [0u8, 1, 77, 128, 254, 255] {
            for blue in 0..=255u8 {
                let red: Vec<u8> = (0..=255).chain([3, 200, 9]).collect();
                let (luma, blue) = (vec![y; red.len()], vec![blue; red.len()]);
                let (mut found, mut expected) = (vec![0; 3 * red.len()], vec![0; 3 * red.len()]);
                plain(&luma, &blue, &red, &mut expected);
                from_ycc(&luma, &blue, &red, &mut found);
                assert_eq!(found, expected, "luma {y}, blue {}", blue[0]);
                #[cfg(target_arch = "x86_64")]
                #[expect(unsafe_code, reason = "see from_ycc")]
                // SAFETY: every x86-64 processor has SSE2.
                unsafe {
                    sse2::from_ycc(&luma, &blue, &red, &mut found);
                }
                assert_eq!(found, expected, "luma {y}, blue {}, without shuffles", blue[0]);
            }
        }
    }

    #[test]
    fn grey_and_primary_colours() {
        let mut rgb = [0; 9];
        plain(&[100, 76, 29], &[128, 85, 255], &[128, 255, 107], &mut rgb);
        assert_eq!(rgb, [100, 100, 100, 254, 0, 0, 0, 0, 254]);
        assert_eq!((uncovered(0, 200), uncovered(255, 200), uncovered(128, 255)), (200, 0, 127));
    }
}
