//! Huffman codes as lookup tables.

use crate::JpegError;

/// Bits of the lookup tables; longer codes are found by comparison.
pub(crate) const LOOKUP_BITS: u32 = 10;

/// A Huffman table as the file gives it.
#[derive(Clone)]
pub(crate) struct HuffmanCode {
    /// Codes of each length, 1 to 16 bits.
    pub(crate) counts: [u8; 16],
    /// Symbols, shortest code first.
    pub(crate) symbols: Vec<u8>,
}

/// A Huffman table for decoding.
pub(crate) struct HuffmanTable {
    /// By the next [`LOOKUP_BITS`] bits: code length in the high byte and symbol in the low one, or 0 for longer codes.
    lookup: [u16; 1 << LOOKUP_BITS],
    /// By the next [`LOOKUP_BITS`] bits, if they contain the code of an AC coefficient and its value: the value in the
    /// upper half, the zeros before it in the second byte, all its bits in the lowest. Otherwise 0.
    values: [i32; 1 << LOOKUP_BITS],
    /// By length, the first 16-bit string beyond the codes of that length; 0 if there are none.
    ends: [u32; 18],
    /// By length, what is added to a code to give the index of its symbol.
    offsets: [i32; 18],
    symbols: [u8; 256],
}

/// Symbol of a code, or that no code matches.
pub(crate) enum Symbol {
    Found { symbol: u8, length: u32 },
    Invalid,
}

impl HuffmanTable {
    pub(crate) fn new(code: &HuffmanCode) -> Result<Box<Self>, JpegError> {
        let mut table = Box::new(HuffmanTable {
            lookup: [0; 1 << LOOKUP_BITS],
            values: [0; 1 << LOOKUP_BITS],
            ends: [0; 18],
            offsets: [0; 18],
            symbols: [0; 256],
        });
        table.symbols[..code.symbols.len()].copy_from_slice(&code.symbols);
        let (mut next, mut index) = (0u32, 0usize);
        for length in 1..=16u32 {
            let count = u32::from(code.counts[length as usize - 1]);
            table.offsets[length as usize] = index as i32 - next as i32;
            for _ in 0..count {
                let symbol = code.symbols.get(index).copied().unwrap_or_default();
                table.insert(next, length, symbol);
                next += 1;
                index += 1;
            }
            // A code of ones only is not allowed.
            if count > 0 && next >= 1 << length {
                return Err(JpegError::damaged("a Huffman table has too many codes"));
            }
            if count > 0 {
                table.ends[length as usize] = next << (16 - length);
            }
            next <<= 1;
        }
        table.fill_values();
        Ok(table)
    }

    /// Fails if a symbol is not a valid size of a DC difference.
    pub(crate) fn check_dc(code: &HuffmanCode) -> Result<(), JpegError> {
        if code.symbols.iter().all(|&symbol| symbol < 16) {
            return Ok(());
        }
        Err(JpegError::damaged("a Huffman table for DC coefficients has an invalid symbol"))
    }

    fn insert(&mut self, code: u32, length: u32, symbol: u8) {
        if length > LOOKUP_BITS || code >= 1 << length {
            return;
        }
        let spare = LOOKUP_BITS - length;
        let start = (code << spare) as usize;
        self.lookup[start..start + (1 << spare)].fill((length << 8) as u16 | u16::from(symbol));
    }

    fn fill_values(&mut self) {
        for (bits, entry) in self.lookup.iter().enumerate() {
            let (length, symbol) = (u32::from(entry >> 8), u32::from(entry & 255));
            let (zeros, size) = (symbol >> 4, symbol & 15);
            let total = length + size;
            if length == 0 || total > LOOKUP_BITS {
                continue;
            }
            let after = (bits as u32) >> (LOOKUP_BITS - total) & ((1 << size) - 1);
            self.values[bits] = extend(after, size) << 16 | (zeros << 8) as i32 | total as i32;
        }
    }

    /// The entry of `values` for the bits on top of `buffer`.
    #[inline(always)]
    pub(crate) fn value(&self, buffer: u64) -> i32 {
        self.values[(buffer >> (64 - LOOKUP_BITS)) as usize]
    }

    /// The symbol whose code is on top of `buffer`.
    #[inline(always)]
    pub(crate) fn symbol(&self, buffer: u64) -> Symbol {
        let entry = self.lookup[(buffer >> (64 - LOOKUP_BITS)) as usize];
        if entry != 0 {
            return Symbol::Found { symbol: entry as u8, length: u32::from(entry >> 8) };
        }
        self.long_symbol((buffer >> 48) as u32)
    }

    #[inline(never)]
    fn long_symbol(&self, bits: u32) -> Symbol {
        for length in LOOKUP_BITS + 1..=16 {
            if bits < self.ends[length as usize] {
                let code = (bits >> (16 - length)) as i32;
                let index = code + self.offsets[length as usize];
                return Symbol::Found { symbol: self.symbols[(index & 255) as usize], length };
            }
        }
        Symbol::Invalid
    }
}

/// The signed value that `bits` of length `size` stand for.
#[inline(always)]
pub(crate) fn extend(bits: u32, size: u32) -> i32 {
    if size == 0 {
        return 0;
    }
    let bits = bits as i32;
    // A leading 0 means a negative value, offset by 2^size - 1.
    if bits < 1 << (size - 1) { bits - (1 << size) + 1 } else { bits }
}

/// The tables of annex K.3 of the standard, for files without tables: DC and AC of luminance, then of chrominance.
pub(crate) fn standard() -> [[HuffmanCode; 2]; 2] {
    let dc = |counts| HuffmanCode { counts, symbols: (0..12).collect() };
    [
        [
            dc([0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0]),
            standard_ac([0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125], &COMMON_IN_LUMINANCE),
        ],
        [
            dc([0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]),
            standard_ac([0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119], &COMMON_IN_CHROMINANCE),
        ],
    ]
}

/// A table whose shortest codes are for `common`, followed by all other symbols in ascending order.
fn standard_ac(counts: [u8; 16], common: &[u8]) -> HuffmanCode {
    let all = (0..16u8).flat_map(|zeros| (1..=10).map(move |size| zeros << 4 | size));
    let rest = all.filter(|symbol| !common.contains(symbol));
    HuffmanCode { counts, symbols: common.iter().copied().chain(rest).collect() }
}

#[rustfmt::skip]
const COMMON_IN_LUMINANCE: [u8; 37] = [
    0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22, 0x71, 0x14,
    0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52, 0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72, 0x82,
];

#[rustfmt::skip]
const COMMON_IN_CHROMINANCE: [u8; 43] = [
    0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71, 0x13, 0x22, 0x32,
    0x81, 0x08, 0x14, 0x42, 0x91, 0xa1, 0xb1, 0xc1, 0x09, 0x23, 0x33, 0x52, 0xf0, 0x15, 0x62, 0x72, 0xd1, 0x0a, 0x16,
    0x24, 0x34, 0xe1, 0x25, 0xf1,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_tables_have_a_code_for_every_symbol() {
        for [dc, ac] in standard() {
            for (code, symbols) in [(dc, 12), (ac, 162)] {
                assert_eq!(code.symbols.len(), symbols);
                assert_eq!(
                    code.counts.iter().map(|&count| usize::from(count)).sum::<usize>(),
                    symbols
                );
                assert!(HuffmanTable::new(&code).is_ok());
            }
        }
    }

    #[test]
    fn every_code_is_decoded_and_others_are_not() {
        let [[_, code], _] = standard();
        let table = HuffmanTable::new(&code).unwrap();
        let (mut next, mut index) = (0u64, 0);
        for length in 1..=16u32 {
            for _ in 0..code.counts[length as usize - 1] {
                let Symbol::Found { symbol, length: found } = table.symbol(next << (64 - length))
                else {
                    panic!("{next:b} of {length} bits is not found");
                };
                assert_eq!((symbol, found), (code.symbols[index], length));
                next += 1;
                index += 1;
            }
            next <<= 1;
        }
        assert!(matches!(table.symbol(u64::MAX), Symbol::Invalid));
    }

    #[test]
    fn signs_are_in_the_first_bit() {
        let values: Vec<i32> = (0..8).map(|bits| extend(bits, 3)).collect();
        assert_eq!(values, [-7, -6, -5, -4, 4, 5, 6, 7]);
        assert_eq!((extend(0, 1), extend(1, 1), extend(0, 0)), (-1, 1, 0));
    }

    #[test]
    fn codes_of_ones_only_are_rejected() {
        let mut counts = [0; 16];
        counts[0] = 2;
        assert!(HuffmanTable::new(&HuffmanCode { counts, symbols: vec![1, 2] }).is_err());
    }
}
