//! Huffman-coded scans that refine each other.

use crate::bits::{BitReader, Restarts, Window};
use crate::entropy::{Entropy, ScanEnd};
use crate::frame::{Block, Scan, ZIGZAG};
use crate::huffman::HuffmanTable;
use crate::input::Input;

/// What a progressive scan adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// The high bits of DC coefficients, and one more bit of them.
    DcFirst,
    DcRefine,
    /// The high bits of a band of AC coefficients, and one more bit of them.
    AcFirst,
    AcRefine,
}

impl Pass {
    pub(crate) fn of(scan: &Scan) -> Self {
        match (scan.first, scan.high) {
            (0, 0) => Pass::DcFirst,
            (0, _) => Pass::DcRefine,
            (_, 0) => Pass::AcFirst,
            (_, _) => Pass::AcRefine,
        }
    }
}

/// The coefficients of a scan.
#[derive(Clone, Copy)]
pub(crate) struct Band {
    pub(crate) pass: Pass,
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// Bits that later scans add.
    pub(crate) low: u8,
}

pub(crate) struct Progressive<'a, 't> {
    bits: BitReader<'a>,
    restarts: Restarts,
    band: Band,
    /// By component, a table of DC or AC codes; none for [`Pass::DcRefine`].
    slots: Vec<Option<&'t HuffmanTable>>,
    predictions: [i32; 4],
    /// Further blocks without new coefficients.
    empty_blocks: u32,
    faults: u32,
}

impl<'a, 't> Progressive<'a, 't> {
    pub(crate) fn new(
        input: Input<'a>,
        restarts: Restarts,
        band: Band,
        slots: Vec<Option<&'t HuffmanTable>>,
    ) -> Self {
        Progressive {
            bits: BitReader::new(input),
            restarts,
            band,
            slots,
            predictions: [0; 4],
            empty_blocks: 0,
            faults: 0,
        }
    }

    /// Zeros and size that the next code stands for; an invalid code stands for none.
    #[inline(always)]
    fn symbol(&mut self, window: &mut Window, table: &HuffmanTable) -> (usize, u32) {
        let symbol = window.symbol(table);
        self.faults += u32::from(symbol.is_none());
        let symbol = symbol.unwrap_or(0);
        (usize::from(symbol >> 4), u32::from(symbol & 15))
    }

    fn dc_first(&mut self, slot: usize, table: &HuffmanTable, block: &mut Block) {
        let mut window = self.bits.refilled(self.bits.window);
        // The table was checked to have sizes below 16 only.
        let (_, size) = self.symbol(&mut window, table);
        let prediction = &mut self.predictions[slot & 3];
        *prediction = prediction.wrapping_add(window.value(size));
        block[0] = (*prediction << self.band.low) as i16;
        self.bits.window = window;
    }

    fn dc_refine(&mut self, block: &mut Block) {
        let mut window = self.bits.refilled(self.bits.window);
        if window.bit() {
            block[0] |= 1 << self.band.low;
        }
        self.bits.window = window;
    }

    /// Length of a run of blocks that begins with this one: 2^`exponent` and as many bits.
    #[inline(always)]
    fn run(&mut self, window: &mut Window, exponent: usize) -> u32 {
        *window = self.bits.refilled(*window);
        (1 << exponent) + window.take(exponent as u32)
    }

    #[inline(always)]
    fn ac_first(&mut self, table: &HuffmanTable, block: &mut Block) {
        if self.empty_blocks > 0 {
            self.empty_blocks -= 1;
            return;
        }
        let Band { first, last, low, .. } = self.band;
        let mut window = self.bits.window;
        let mut k = first;
        while k <= last {
            window = self.bits.refilled(window);
            let (zeros, value) = match window.short_value(table) {
                Some(found) => found,
                None => {
                    let (zeros, size) = self.symbol(&mut window, table);
                    (zeros, window.value(size))
                }
            };
            if value != 0 {
                k += zeros;
                block[usize::from(ZIGZAG[k & 127] & 63)] = (value << low) as i16;
                k += 1;
            } else if zeros == 15 {
                k += 16;
            } else {
                self.empty_blocks = self.run(&mut window, zeros) - 1;
                break;
            }
        }
        self.bits.window = window;
    }

    #[inline(always)]
    fn ac_refine(&mut self, table: &HuffmanTable, block: &mut Block) {
        let Band { first, last, low, .. } = self.band;
        let mut window = self.bits.window;
        let mut k = first;
        if self.empty_blocks == 0 {
            while k <= last {
                window = self.bits.refilled(window);
                let (zeros, size) = self.symbol(&mut window, table);
                if size == 0 && zeros != 15 {
                    self.empty_blocks = self.run(&mut window, zeros);
                    break;
                }
                // A new coefficient is 1 or -1 in the place of the bit.
                self.faults += u32::from(size > 1);
                let value = match size {
                    0 => 0,
                    _ if window.bit() => 1 << low,
                    _ => -1i16 << low,
                };
                k = self.correct(&mut window, block, k, zeros);
                if value != 0 {
                    block[usize::from(ZIGZAG[k & 127] & 63)] = value;
                }
                k += 1;
            }
        }
        if self.empty_blocks > 0 {
            self.correct(&mut window, block, k, usize::MAX);
            self.empty_blocks -= 1;
        }
        self.bits.window = window;
    }

    /// Reads a correction bit for each known coefficient from `k` on, up to the end of the band or the zero after
    /// `zeros` others. Returns where it stopped.
    #[inline(always)]
    fn correct(
        &mut self,
        window: &mut Window,
        block: &mut Block,
        mut k: usize,
        mut zeros: usize,
    ) -> usize {
        let Band { last, low, .. } = self.band;
        while k <= last {
            let known = &mut block[usize::from(ZIGZAG[k & 127] & 63)];
            if *known == 0 {
                if zeros == 0 {
                    break;
                }
                zeros -= 1;
            } else {
                *window = self.bits.refilled(*window);
                if window.bit() {
                    *known = corrected(*known, low);
                }
            }
            k += 1;
        }
        k
    }
}

/// A coefficient with one more bit, unless damaged data has set it already.
#[inline(always)]
fn corrected(known: i16, low: u8) -> i16 {
    let step = 1i16 << low;
    if known & step != 0 {
        known
    } else {
        known.wrapping_add(if known >= 0 { step } else { -step })
    }
}

impl<'a> Entropy<'a> for Progressive<'a, '_> {
    fn begin_unit(&mut self) -> bool {
        if self.restarts.is_due() {
            let expected = self.bits.restart(&mut self.restarts);
            self.faults += u32::from(!expected);
            self.predictions = [0; 4];
            self.empty_blocks = 0;
        }
        !self.bits.is_exhausted()
    }

    fn block(&mut self, slot: usize, block: &mut Block) {
        match (self.band.pass, self.slots[slot]) {
            (Pass::DcFirst, Some(table)) => self.dc_first(slot, table, block),
            (Pass::AcFirst, Some(table)) => self.ac_first(table, block),
            (Pass::AcRefine, Some(table)) => self.ac_refine(table, block),
            (Pass::DcRefine, _) => self.dc_refine(block),
            (Pass::DcFirst | Pass::AcFirst | Pass::AcRefine, None) => {}
        }
    }

    fn is_exhausted(&self) -> bool {
        self.bits.is_exhausted()
    }

    fn finish(self) -> ScanEnd<'a> {
        let faults = self.faults + u32::from(self.bits.is_exhausted());
        let (input, marker) = self.bits.finish();
        ScanEnd { input, marker, faults }
    }
}
