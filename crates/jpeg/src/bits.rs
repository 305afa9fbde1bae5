//! Bits of the compressed data, and restart markers.

use crate::huffman::{HuffmanTable, Symbol, extend};
use crate::input::{Input, marker};

/// The next bits of the data. Small enough for registers: loops over symbols work on a copy.
#[derive(Clone, Copy, Default)]
pub(crate) struct Window {
    /// The next bits, first one on top.
    buffer: u64,
    /// Valid bits of `buffer`; those below are 0 or copies of what follows.
    count: u32,
}

/// Reads bits up to the next marker. Beyond it all bits are 0.
pub(crate) struct BitReader<'a> {
    input: Input<'a>,
    /// The bytes that may be read: of the file, or up to the marker that was found.
    data: &'a [u8],
    /// The marker that ends the data, once it was found.
    marker: Option<u8>,
    pub(crate) window: Window,
    /// Number of bits at the end of the window that are padding zeros after the end of the data.
    padding: u32,
    /// Whether bits beyond the data were used.
    overrun: bool,
}

/// Most bits of a code and its value.
const ENOUGH: u32 = 32;

/// Bits that an invalid code takes.
const INVALID_LENGTH: u32 = 17;

impl Window {
    #[inline(always)]
    fn skip(&mut self, bits: u32) {
        self.buffer <<= bits;
        self.count = self.count.wrapping_sub(bits);
    }

    /// The next bit. There must be one.
    #[inline(always)]
    pub(crate) fn bit(&mut self) -> bool {
        let bit = self.buffer >> 63 == 1;
        self.skip(1);
        bit
    }

    /// The next `size` bits, at most 15. There must be enough.
    #[inline(always)]
    pub(crate) fn take(&mut self, size: u32) -> u32 {
        // Two shifts, because one by 64 is not defined.
        let bits = (self.buffer >> 1 >> (63 - size)) as u32;
        self.skip(size);
        bits
    }

    /// The next `size` bits as a signed value.
    #[inline(always)]
    pub(crate) fn value(&mut self, size: u32) -> i32 {
        extend(self.take(size), size)
    }

    /// The next symbol; `None` if no code matches. There must be enough bits; enough for its value remain.
    #[inline(always)]
    pub(crate) fn symbol(&mut self, table: &HuffmanTable) -> Option<u8> {
        match table.symbol(self.buffer) {
            Symbol::Found { symbol, length } => {
                self.skip(length);
                Some(symbol)
            }
            Symbol::Invalid => {
                self.skip(INVALID_LENGTH);
                None
            }
        }
    }

    /// The next AC coefficient, if its code and value are short: zeros before it, value.
    #[inline(always)]
    pub(crate) fn short_value(&mut self, table: &HuffmanTable) -> Option<(usize, i32)> {
        let entry = table.value(self.buffer);
        if entry == 0 {
            return None;
        }
        self.skip(entry as u32 & 255);
        Some(((entry >> 8 & 255) as usize, entry >> 16))
    }
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(input: Input<'a>) -> Self {
        BitReader {
            data: input.bytes,
            input,
            marker: None,
            window: Window::default(),
            padding: 0,
            overrun: false,
        }
    }

    /// The position after the data, and the marker that was found there.
    pub(crate) fn finish(self) -> (Input<'a>, Option<u8>) {
        (self.input, self.marker)
    }

    /// The window with at least 32 bits, enough for a code and its value.
    #[inline(always)]
    pub(crate) fn refilled(&mut self, window: Window) -> Window {
        if window.count >= ENOUGH {
            return window;
        }
        let next = self.data.get(self.input.position..).and_then(|rest| rest.first_chunk::<8>());
        if let Some(&next) = next {
            let word = u64::from_be_bytes(next);
            if !has_ones(word) {
                let bytes = (63 - window.count) >> 3;
                self.input.position += bytes as usize;
                return Window {
                    buffer: window.buffer | word >> window.count,
                    count: window.count + 8 * bytes,
                };
            }
        }
        self.fill_bytes(window)
    }

    #[cold]
    #[inline(never)]
    fn fill_bytes(&mut self, mut window: Window) -> Window {
        while window.count <= 56 {
            let Some(byte) = self.data_byte() else {
                return self.padded(window);
            };
            window.buffer |= u64::from(byte) << (56 - window.count);
            window.count += 8;
        }
        window
    }

    fn padded(&mut self, window: Window) -> Window {
        self.overrun |= window.count < self.padding;
        let missing = 63 - window.count;
        self.padding = self.padding.min(window.count) + missing;
        Window { count: window.count + missing, ..window }
    }

    /// The next byte of the data; `None` at a marker and at the end of the file.
    fn data_byte(&mut self) -> Option<u8> {
        if self.marker.is_some() {
            return None;
        }
        let rest = self.input.bytes.get(self.input.position..).unwrap_or_default();
        match rest {
            [0xff, ..] | [] => {}
            [byte, ..] => {
                self.input.position += 1;
                return Some(*byte);
            }
        }
        let code = rest.iter().position(|&byte| byte != 0xff);
        self.input.position += code.map_or(rest.len(), |length| length + 1);
        match code.map(|length| rest[length]) {
            Some(0) => return Some(0xff),
            Some(found) => self.marker = Some(found),
            None => {
                self.input.ended = true;
                self.marker = Some(marker::END_OF_IMAGE);
            }
        }
        self.data = &self.input.bytes[..self.input.position];
        None
    }

    /// Whether bits beyond the data were used.
    #[inline(always)]
    pub(crate) fn is_exhausted(&self) -> bool {
        self.overrun || self.window.count < self.padding
    }

    /// Drops the rest of the segment and passes the restart marker. Returns whether that marker was as expected.
    pub(crate) fn restart(&mut self, restarts: &mut Restarts) -> bool {
        let (marker, wrong) = restarts.pass(&mut self.input, self.marker);
        // Without data up to the next marker the segment stays empty.
        self.overrun = marker.is_some() && self.is_exhausted();
        self.marker = marker;
        self.data = match marker {
            Some(_) => &self.input.bytes[..self.input.position],
            None => self.input.bytes,
        };
        (self.window, self.padding) = (Window::default(), 0);
        !wrong
    }
}

/// Whether a byte of `word` is 0xFF.
#[inline(always)]
fn has_ones(word: u64) -> bool {
    const LOWEST: u64 = 0x0101_0101_0101_0101;
    (!word).wrapping_sub(LOWEST) & word & (LOWEST << 7) != 0
}

/// Counts units up to the next restart marker.
pub(crate) struct Restarts {
    interval: u32,
    left: u32,
    /// Number of the next marker, 0 to 7.
    next: u8,
}

impl Restarts {
    pub(crate) fn new(interval: u16) -> Self {
        Restarts { interval: interval.into(), left: interval.into(), next: 0 }
    }

    /// Counts a unit; returns whether a restart marker comes before it.
    #[inline(always)]
    pub(crate) fn is_due(&mut self) -> bool {
        if self.interval == 0 {
            return false;
        }
        let due = self.left == 0;
        if due {
            self.left = self.interval;
        }
        self.left -= 1;
        due
    }

    /// Finds the restart marker. `found` is a marker that was read already. Returns the marker that ends the data before
    /// the restart, if the expected one is missing, and whether anything was wrong.
    pub(crate) fn pass(&mut self, input: &mut Input<'_>, found: Option<u8>) -> (Option<u8>, bool) {
        let expected = self.next;
        self.next = (self.next + 1) & 7;
        let found = found.unwrap_or_else(|| input.next_marker());
        if found == marker::RESTART_0 + expected {
            return (None, false);
        }
        (resynchronise(input, found, expected), true)
    }
}

/// Decides what to do about a wrong marker in place of restart marker `expected`: read on behind it (`None`), or treat
/// the data as missing up to that marker.
fn resynchronise(input: &mut Input<'_>, mut found: u8, expected: u8) -> Option<u8> {
    loop {
        let ahead = found.wrapping_sub(marker::RESTART_0 + expected) & 7;
        match found {
            // Not a marker: search on.
            0..0xc0 => {}
            marker::RESTART_0..=marker::RESTART_7 => match ahead {
                // One of the next two: the expected one is lost.
                1 | 2 => return Some(found),
                // One of the previous two markers: the expected one is still ahead.
                6 | 7 => {}
                _ => return None,
            },
            _ => return Some(found),
        }
        found = input.next_marker();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &[u8]) -> BitReader<'_> {
        BitReader::new(Input::new(bytes))
    }

    #[test]
    fn stuffed_zeros_are_dropped_and_markers_end_the_data() {
        let mut bits = reader(&[0x12, 0xff, 0x00, 0x34, 0xff, 0xff, 0xd9, 0x56]);
        let mut read = |size| {
            bits.window = bits.refilled(bits.window);
            (bits.window.take(size), bits.is_exhausted())
        };
        assert_eq!([read(8), read(8), read(8)], [0x12, 0xff, 0x34].map(|byte| (byte, false)));
        assert_eq!(read(1), (0, true));
        assert!(bits.is_exhausted());
        let (input, marker) = bits.finish();
        assert_eq!((input.position, marker), (7, Some(0xd9)));
    }

    #[test]
    fn bits_are_the_same_by_words_and_by_bytes() {
        let bytes: Vec<u8> = (0..200u32).map(|i| ((i * i * 31) >> 3) as u8).collect();
        let data: Vec<u8> = bytes
            .iter()
            .flat_map(|&byte| if byte == 255 { vec![255, 0] } else { vec![byte] })
            .collect();
        let mut bits = reader(&data);
        for (index, byte) in bytes.iter().enumerate() {
            for bit in 0..8 {
                bits.window = bits.refilled(bits.window);
                let found = bits.window.bit();
                assert_eq!(found, byte >> (7 - bit) & 1 == 1, "bit {bit} of byte {index}");
            }
        }
        assert!(!bits.is_exhausted());
        bits.window = bits.refilled(bits.window);
        assert!(!bits.window.bit());
        assert!(bits.is_exhausted());
    }

    #[test]
    fn lost_restart_markers_leave_a_segment_empty() {
        let mut input = Input::new(&[0xff, 0xd0, 7, 0xff, 0xd2, 0xff, 0xd3]);
        let mut restarts = Restarts::new(1);
        assert_eq!(restarts.pass(&mut input, None), (None, false));
        assert_eq!(restarts.pass(&mut input, None), (Some(0xd2), true));
        assert_eq!(restarts.pass(&mut input, Some(0xd2)), (None, false));
        assert_eq!(restarts.pass(&mut input, None), (None, false));
        assert_eq!(restarts.pass(&mut input, None), (Some(marker::END_OF_IMAGE), true));
    }
}
