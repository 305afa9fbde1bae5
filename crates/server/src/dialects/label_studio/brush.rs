//! Brush strokes: runs in a stream of bits, as Label Studio's editor packs them.

use cutout_imaging::Mask;

/// Bits of the counts of runs; a packet names one of them by index.
const COUNT_BITS: [u32; 4] = [3, 4, 8, 16];
/// Bits of a value.
const VALUE_BITS: u32 = 8;
/// Values of a pixel: red, green, blue and alpha, all equal.
const CHANNELS: usize = 4;

/// The mask as the bytes of the stream: the number of values, the sizes of the fields, then runs of 0 and 255.
pub(super) fn packed(mask: &Mask) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.push((CHANNELS * mask.pixels().len()) as u64, 32);
    bits.push(u64::from(VALUE_BITS - 1), 5);
    for count in COUNT_BITS {
        bits.push(u64::from(count - 1), 4);
    }
    for run in mask.pixels().chunk_by(|one, other| one == other) {
        let value = if run[0] { 255 } else { 0 };
        push_run(&mut bits, CHANNELS * run.len(), value);
    }
    bits.bytes
}

fn push_run(bits: &mut Bits, mut length: usize, value: u64) {
    let most = 1 << COUNT_BITS[3];
    while length > 0 {
        let now = length.min(most);
        let index = COUNT_BITS.iter().position(|bits| now <= 1 << bits).unwrap_or(3);
        bits.push(1, 1);
        bits.push(index as u64, 2);
        bits.push(now as u64 - 1, COUNT_BITS[index]);
        bits.push(value, VALUE_BITS);
        length -= now;
    }
}

/// Bits from the highest down, padded with zeros to whole bytes.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    /// Bits used in the last byte; 0 if it is full.
    used: u32,
}

impl Bits {
    fn push(&mut self, value: u64, count: u32) {
        for bit in (0..count).rev() {
            if self.used == 0 {
                self.bytes.push(0);
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= ((value >> bit & 1) as u8) << (7 - self.used);
            }
            self.used = (self.used + 1) % 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use cutout_imaging::Size;

    use super::*;

    /// Reads the stream as the editor does.
    fn unpacked(bytes: &[u8]) -> Vec<u8> {
        let mut place = 0;
        let mut read = |count: u32| {
            let mut value = 0usize;
            for _ in 0..count {
                value = value << 1 | usize::from(bytes[place / 8] >> (7 - place % 8) & 1);
                place += 1;
            }
            value
        };
        let total = read(32);
        let word = read(5) as u32 + 1;
        let sizes: [u32; 4] = std::array::from_fn(|_| read(4) as u32 + 1);
        let mut values = Vec::new();
        while values.len() < total {
            let is_run = read(1) == 1;
            let size = sizes[read(2)];
            let count = read(size) + 1;
            assert!(is_run);
            let value = read(word) as u8;
            values.extend(std::iter::repeat_n(value, count));
        }
        values
    }

    #[test]
    fn the_editor_reads_the_mask() {
        for (width, height) in [(1, 1), (7, 5), (300, 200)] {
            let pixels: Vec<bool> =
                (0..width * height).map(|i| i % 97 < 40 || i % 5 == 0).collect();
            let mask = Mask::from_pixels(Size::new(width, height), pixels.clone()).unwrap();
            let values = unpacked(&packed(&mask));
            let alpha: Vec<bool> = values.chunks(4).map(|pixel| pixel[3] == 255).collect();
            assert_eq!(alpha, pixels);
        }
        let full = Mask::from_pixels(Size::new(300, 200), vec![true; 60_000]).unwrap();
        assert!(unpacked(&packed(&full)).iter().all(|value| *value == 255));
        assert_eq!(unpacked(&packed(&full)).len(), 240_000);
    }
}
