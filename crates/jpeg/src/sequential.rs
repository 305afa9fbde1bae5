//! Huffman-coded scans with whole blocks.

use crate::bits::{BitReader, Restarts};
use crate::entropy::{Entropy, ScanEnd};
use crate::frame::{Block, ZIGZAG};
use crate::huffman::HuffmanTable;
use crate::input::Input;

/// Tables of a component of a scan.
#[derive(Clone, Copy)]
pub(crate) struct SlotTables<'t> {
    pub(crate) dc: &'t HuffmanTable,
    pub(crate) ac: &'t HuffmanTable,
}

pub(crate) struct Sequential<'a, 't> {
    bits: BitReader<'a>,
    restarts: Restarts,
    slots: Vec<SlotTables<'t>>,
    /// The last DC coefficient of each component.
    predictions: [i32; 4],
    faults: u32,
}

impl<'a, 't> Sequential<'a, 't> {
    pub(crate) fn new(input: Input<'a>, restarts: Restarts, slots: Vec<SlotTables<'t>>) -> Self {
        let bits = BitReader::new(input);
        Sequential { bits, restarts, slots, predictions: [0; 4], faults: 0 }
    }

    /// The symbol, or 0 in place of an invalid code.
    #[inline(always)]
    fn known(&mut self, symbol: Option<u8>) -> u8 {
        self.faults += u32::from(symbol.is_none());
        symbol.unwrap_or(0)
    }
}

impl<'a> Entropy<'a> for Sequential<'a, '_> {
    #[inline(always)]
    fn begin_unit(&mut self) -> bool {
        if self.restarts.is_due() {
            let expected = self.bits.restart(&mut self.restarts);
            self.faults += u32::from(!expected);
            self.predictions = [0; 4];
        }
        !self.bits.is_exhausted()
    }

    #[inline(always)]
    fn block(&mut self, slot: usize, block: &mut Block) {
        let SlotTables { dc, ac } = self.slots[slot];
        let mut window = self.bits.refilled(self.bits.window);
        let size = self.known(window.symbol(dc));
        let prediction = &mut self.predictions[slot & 3];
        *prediction = prediction.wrapping_add(window.value(u32::from(size)));
        block[0] = *prediction as i16;
        let mut k = 1;
        while k < 64 {
            window = self.bits.refilled(window);
            let (zeros, value) = match window.short_value(ac) {
                Some(found) => found,
                None => {
                    let symbol = self.known(window.symbol(ac));
                    (usize::from(symbol >> 4), window.value(u32::from(symbol & 15)))
                }
            };
            if value != 0 {
                k += zeros;
                block[usize::from(ZIGZAG[k & 127] & 63)] = value as i16;
                k += 1;
            } else if zeros == 15 {
                k += 16;
            } else {
                break;
            }
        }
        self.bits.window = window;
    }

    #[inline(always)]
    fn is_exhausted(&self) -> bool {
        self.bits.is_exhausted()
    }

    fn finish(self) -> ScanEnd<'a> {
        let faults = self.faults + u32::from(self.bits.is_exhausted());
        let (input, marker) = self.bits.finish();
        ScanEnd { input, marker, faults }
    }
}
