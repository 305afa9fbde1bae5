//! Arithmetic-coded scans (annex D of the standard, and sections F.1.4 and G.1.3).

use crate::bits::Restarts;
use crate::entropy::{Entropy, ScanEnd};
use crate::frame::{Block, Scan, ZIGZAG};
use crate::input::{Input, marker};
use crate::progressive::Pass;

/// Conditioning of the statistics, by table.
#[derive(Clone, Copy)]
pub(crate) struct Conditioning {
    /// Bounds of small DC differences, as exponents.
    pub(crate) dc_bounds: [(u8, u8); 16],
    /// Last AC coefficient that is counted as a low frequency.
    pub(crate) ac_bound: [u8; 16],
}

impl Default for Conditioning {
    fn default() -> Self {
        Conditioning { dc_bounds: [(0, 1); 16], ac_bound: [5; 16] }
    }
}

/// A probability estimate: index in [`STATES`], and the more probable decision.
#[derive(Clone, Copy, Default)]
struct Estimate {
    state: u8,
    likely: bool,
}

/// The estimate of decisions without statistics, which stays at one half.
const EVEN: Estimate = Estimate { state: 113, likely: false };

/// Decodes binary decisions.
struct Decisions<'a> {
    input: Input<'a>,
    marker: Option<u8>,
    /// Offset in the interval, followed by bits not yet used.
    code: u64,
    /// Size of the interval.
    interval: u32,
    /// Bits not yet used; negative before the first two bytes.
    spare: i32,
}

impl Decisions<'_> {
    /// The next byte; 0 beyond the marker that ends the data.
    fn byte(&mut self) -> u8 {
        if self.marker.is_some() {
            return 0;
        }
        let rest = self.input.bytes.get(self.input.position..).unwrap_or_default();
        match rest {
            [0xff, ..] | [] => {}
            [byte, ..] => {
                self.input.position += 1;
                return *byte;
            }
        }
        let code = rest.iter().position(|&byte| byte != 0xff);
        self.input.position += code.map_or(rest.len(), |length| length + 1);
        match code.map(|length| rest[length]) {
            Some(0) => return 0xff,
            Some(found) => self.marker = Some(found),
            None => {
                self.input.ended = true;
                self.marker = Some(marker::END_OF_IMAGE);
            }
        }
        0
    }

    /// Starts with fresh data.
    fn reset(&mut self) {
        (self.code, self.interval, self.spare) = (0, 0, -16);
    }

    fn normalise(&mut self) {
        while self.interval < 0x8000 {
            self.spare -= 1;
            if self.spare < 0 {
                self.fetch();
            }
            self.interval <<= 1;
        }
    }

    /// Adds a byte to the code; the first two start the decoder.
    fn fetch(&mut self) {
        self.code = self.code << 8 | u64::from(self.byte());
        self.spare += 8;
        if self.spare < 0 {
            self.spare += 1;
            if self.spare == 0 {
                self.interval = 0x8000;
            }
        }
    }

    /// Refines a coefficient with the estimates of its place. Returns whether it is not zero afterwards.
    fn refine(&mut self, known: &mut i16, estimates: &mut [Estimate], low: u8) -> bool {
        if *known != 0 {
            if self.decide(&mut estimates[2]) {
                *known = known.wrapping_add(if *known < 0 { -1i16 << low } else { 1 << low });
            }
        } else if self.decide(&mut estimates[1]) {
            let negative = self.decide(&mut EVEN.clone());
            *known = if negative { -1i16 << low } else { 1 << low };
        }
        *known != 0
    }

    fn decide(&mut self, estimate: &mut Estimate) -> bool {
        self.normalise();
        let (size, after_unlikely, after_likely, switch) =
            STATES[usize::from(estimate.state & 127)];
        let size = u32::from(size);
        self.interval -= size;
        let split = u64::from(self.interval) << self.spare;
        let is_likely = if self.code >= split {
            self.code -= split;
            let likely = self.interval < size;
            self.interval = size;
            likely
        } else if self.interval >= 0x8000 {
            return estimate.likely;
        } else {
            self.interval >= size
        };
        let decision = estimate.likely == is_likely;
        if is_likely {
            estimate.state = after_likely;
        } else {
            estimate.state = after_unlikely;
            estimate.likely ^= switch;
        }
        decision
    }
}

pub(crate) struct Arithmetic<'a> {
    decisions: Decisions<'a>,
    restarts: Restarts,
    /// `None` for scans with whole blocks.
    pass: Option<Pass>,
    scan: Scan,
    conditioning: Conditioning,
    dc: Box<[[Estimate; 64]; 16]>,
    ac: Box<[[Estimate; 256]; 16]>,
    predictions: [i32; 4],
    /// Where the estimates of the next DC difference of a component are, by the size of the last one.
    contexts: [usize; 4],
    /// Whether the rest of the segment is invalid.
    failed: bool,
    faults: u32,
}

impl<'a> Arithmetic<'a> {
    pub(crate) fn new(
        input: Input<'a>,
        restarts: Restarts,
        scan: Scan,
        pass: Option<Pass>,
        conditioning: Conditioning,
    ) -> Self {
        let decisions = Decisions { input, marker: None, code: 0, interval: 0, spare: -16 };
        Arithmetic {
            decisions,
            restarts,
            pass,
            scan,
            conditioning,
            dc: Box::new([[Estimate::default(); 64]; 16]),
            ac: Box::new([[Estimate::default(); 256]; 16]),
            predictions: [0; 4],
            contexts: [0; 4],
            failed: false,
            faults: 0,
        }
    }

    fn fail(&mut self) {
        self.failed = true;
        self.faults += 1;
    }

    /// Magnitude less one of a value, whose size in bits is coded from `first` in the estimates on. `None` if invalid.
    fn magnitude(
        decisions: &mut Decisions<'_>,
        estimates: &mut [Estimate],
        first: usize,
        mut size: i32,
    ) -> Option<(i32, usize)> {
        let mut place = first;
        while decisions.decide(&mut estimates[place]) {
            size <<= 1;
            if size == 0x8000 {
                return None;
            }
            place += 1;
        }
        Some((size, place))
    }

    /// Adds the bits below the leading one, `size`.
    fn low_bits(decisions: &mut Decisions<'_>, estimate: &mut Estimate, size: i32) -> i32 {
        let (mut value, mut bit) = (size, size >> 1);
        while bit > 0 {
            if decisions.decide(estimate) {
                value |= bit;
            }
            bit >>= 1;
        }
        value
    }

    /// Decodes the difference of a DC coefficient and adds it to the prediction.
    fn dc(&mut self, slot: usize) -> Option<i32> {
        let table = self.scan.components[slot].dc_table & 15;
        let (decisions, estimates) = (&mut self.decisions, &mut self.dc[table]);
        let context = self.contexts[slot];
        if !decisions.decide(&mut estimates[context]) {
            self.contexts[slot] = 0;
            return Some(self.predictions[slot]);
        }
        let negative = decisions.decide(&mut estimates[context + 1]);
        let mut place = context + 2 + usize::from(negative);
        let mut size = i32::from(decisions.decide(&mut estimates[place]));
        if size != 0 {
            (size, place) = Self::magnitude(decisions, estimates, 20, size)?;
        }
        let (lower, upper) = self.conditioning.dc_bounds[table];
        let signed = usize::from(negative) * 4;
        self.contexts[slot] = if size < (1 << lower) >> 1 {
            0
        } else if size > (1 << upper) >> 1 {
            12 + signed
        } else {
            4 + signed
        };
        let magnitude = Self::low_bits(decisions, &mut estimates[place + 14], size) + 1;
        let difference = if negative { -magnitude } else { magnitude };
        let prediction = &mut self.predictions[slot];
        *prediction = prediction.wrapping_add(difference) & 0xffff;
        Some(*prediction)
    }

    /// Decodes AC coefficients `first` to `last`. `None` if the data is invalid.
    fn ac(&mut self, slot: usize, (first, last): (usize, usize), block: &mut Block) -> Option<()> {
        let table = self.scan.components[slot].ac_table & 15;
        let low = if self.pass.is_some() { self.scan.low } else { 0 };
        let (decisions, estimates) = (&mut self.decisions, &mut self.ac[table]);
        let mut k = first;
        while k <= last {
            if decisions.decide(&mut estimates[3 * (k - 1)]) {
                break;
            }
            while !decisions.decide(&mut estimates[3 * (k - 1) + 1]) {
                k += 1;
                if k > last {
                    return None;
                }
            }
            let negative = decisions.decide(&mut EVEN.clone());
            let mut place = 3 * (k - 1) + 2;
            let mut size = i32::from(decisions.decide(&mut estimates[place]));
            if size != 0 && decisions.decide(&mut estimates[place]) {
                let bound = usize::from(self.conditioning.ac_bound[table]);
                let start = if k <= bound { 189 } else { 217 };
                (size, place) = Self::magnitude(decisions, estimates, start, size << 1)?;
            }
            let estimate = &mut estimates[(place + 14) & 255];
            let magnitude = Self::low_bits(decisions, estimate, size) + 1;
            let value = if negative { -magnitude } else { magnitude };
            block[usize::from(ZIGZAG[k & 127] & 63)] = (value << low) as i16;
            k += 1;
        }
        Some(())
    }

    fn ac_refine(&mut self, block: &mut Block) -> Option<()> {
        let table = self.scan.components[0].ac_table & 15;
        let (decisions, estimates) = (&mut self.decisions, &mut self.ac[table]);
        let Scan { first, last, low, .. } = self.scan;
        let place = |k: usize| usize::from(ZIGZAG[k & 127] & 63);
        let known_end = (1..=last).rev().find(|&k| block[place(k)] != 0).unwrap_or(0);
        let mut k = first;
        while k <= last {
            if k > known_end && decisions.decide(&mut estimates[3 * (k - 1)]) {
                break;
            }
            while !decisions.refine(&mut block[place(k)], &mut estimates[3 * (k - 1)..], low) {
                k += 1;
                if k > last {
                    return None;
                }
            }
            k += 1;
        }
        Some(())
    }

    fn decode(&mut self, slot: usize, block: &mut Block) -> Option<()> {
        match self.pass {
            None => {
                block[0] = self.dc(slot)? as i16;
                self.ac(slot, (1, 63), block)
            }
            Some(Pass::DcFirst) => {
                block[0] = (self.dc(slot)? << self.scan.low) as i16;
                Some(())
            }
            Some(Pass::DcRefine) => {
                if self.decisions.decide(&mut EVEN.clone()) {
                    block[0] |= 1 << self.scan.low;
                }
                Some(())
            }
            Some(Pass::AcFirst) => self.ac(slot, (self.scan.first, self.scan.last), block),
            Some(Pass::AcRefine) => self.ac_refine(block),
        }
    }
}

impl<'a> Entropy<'a> for Arithmetic<'a> {
    fn begin_unit(&mut self) -> bool {
        if self.restarts.is_due() {
            let found = self.decisions.marker.take();
            let (marker, wrong) = self.restarts.pass(&mut self.decisions.input, found);
            self.decisions.marker = marker;
            self.faults += u32::from(wrong);
            self.decisions.reset();
            self.dc.fill([Estimate::default(); 64]);
            self.ac.fill([Estimate::default(); 256]);
            (self.predictions, self.contexts) = ([0; 4], [0; 4]);
            self.failed = false;
        }
        !self.failed
    }

    fn block(&mut self, slot: usize, block: &mut Block) {
        if !self.failed && self.decode(slot, block).is_none() {
            self.fail();
        }
    }

    fn is_exhausted(&self) -> bool {
        // Beyond the end there are zeros, which are valid data.
        false
    }

    fn finish(self) -> ScanEnd<'a> {
        let Decisions { input, marker, .. } = self.decisions;
        ScanEnd { input, marker, faults: self.faults }
    }
}

/// Table D.3 of the standard: size of the less probable interval, next state after the less and after the more probable
/// decision, whether the former exchanges the two. The last state is for [`EVEN`].
#[rustfmt::skip]
const STATES: [(u16, u8, u8, bool); 114] = [
    (0x5a1d, 1, 1, true), (0x2586, 14, 2, false), (0x1114, 16, 3, false), (0x080b, 18, 4, false),
    (0x03d8, 20, 5, false), (0x01da, 23, 6, false), (0x00e5, 25, 7, false), (0x006f, 28, 8, false),
    (0x0036, 30, 9, false), (0x001a, 33, 10, false), (0x000d, 35, 11, false), (0x0006, 9, 12, false),
    (0x0003, 10, 13, false), (0x0001, 12, 13, false), (0x5a7f, 15, 15, true), (0x3f25, 36, 16, false),
    (0x2cf2, 38, 17, false), (0x207c, 39, 18, false), (0x17b9, 40, 19, false), (0x1182, 42, 20, false),
    (0x0cef, 43, 21, false), (0x09a1, 45, 22, false), (0x072f, 46, 23, false), (0x055c, 48, 24, false),
    (0x0406, 49, 25, false), (0x0303, 51, 26, false), (0x0240, 52, 27, false), (0x01b1, 54, 28, false),
    (0x0144, 56, 29, false), (0x00f5, 57, 30, false), (0x00b7, 59, 31, false), (0x008a, 60, 32, false),
    (0x0068, 62, 33, false), (0x004e, 63, 34, false), (0x003b, 32, 35, false), (0x002c, 33, 9, false),
    (0x5ae1, 37, 37, true), (0x484c, 64, 38, false), (0x3a0d, 65, 39, false), (0x2ef1, 67, 40, false),
    (0x261f, 68, 41, false), (0x1f33, 69, 42, false), (0x19a8, 70, 43, false), (0x1518, 72, 44, false),
    (0x1177, 73, 45, false), (0x0e74, 74, 46, false), (0x0bfb, 75, 47, false), (0x09f8, 77, 48, false),
    (0x0861, 78, 49, false), (0x0706, 79, 50, false), (0x05cd, 48, 51, false), (0x04de, 50, 52, false),
    (0x040f, 50, 53, false), (0x0363, 51, 54, false), (0x02d4, 52, 55, false), (0x025c, 53, 56, false),
    (0x01f8, 54, 57, false), (0x01a4, 55, 58, false), (0x0160, 56, 59, false), (0x0125, 57, 60, false),
    (0x00f6, 58, 61, false), (0x00cb, 59, 62, false), (0x00ab, 61, 63, false), (0x008f, 61, 32, false),
    (0x5b12, 65, 65, true), (0x4d04, 80, 66, false), (0x412c, 81, 67, false), (0x37d8, 82, 68, false),
    (0x2fe8, 83, 69, false), (0x293c, 84, 70, false), (0x2379, 86, 71, false), (0x1edf, 87, 72, false),
    (0x1aa9, 87, 73, false), (0x174e, 72, 74, false), (0x1424, 72, 75, false), (0x119c, 74, 76, false),
    (0x0f6b, 74, 77, false), (0x0d51, 75, 78, false), (0x0bb6, 77, 79, false), (0x0a40, 77, 48, false),
    (0x5832, 80, 81, true), (0x4d1c, 88, 82, false), (0x438e, 89, 83, false), (0x3bdd, 90, 84, false),
    (0x34ee, 91, 85, false), (0x2eae, 92, 86, false), (0x299a, 93, 87, false), (0x2516, 86, 71, false),
    (0x5570, 88, 89, true), (0x4ca9, 95, 90, false), (0x44d9, 96, 91, false), (0x3e22, 97, 92, false),
    (0x3824, 99, 93, false), (0x32b4, 99, 94, false), (0x2e17, 93, 86, false), (0x56a8, 95, 96, true),
    (0x4f46, 101, 97, false), (0x47e5, 102, 98, false), (0x41cf, 103, 99, false), (0x3c3d, 104, 100, false),
    (0x375e, 99, 93, false), (0x5231, 105, 102, false), (0x4c0f, 106, 103, false), (0x4639, 107, 104, false),
    (0x415e, 103, 99, false), (0x5627, 105, 106, true), (0x50e7, 108, 107, false), (0x4b85, 109, 103, false),
    (0x5597, 110, 109, false), (0x504f, 111, 107, false), (0x5a10, 110, 111, true), (0x5522, 112, 109, false),
    (0x59eb, 112, 111, true), (0x5a1d, 113, 113, false),
];
