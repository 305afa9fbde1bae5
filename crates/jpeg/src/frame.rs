//! Frame and scan headers, and the sizes that follow from them.

use crate::JpegError;
use crate::input::Fields;

/// Samples per side of a block.
pub(crate) const SIDE: usize = 8;

/// One block of coefficients, `[vertical frequency, horizontal frequency]`.
pub(crate) type Block = [i16; 64];

/// Most blocks in an interleaved unit.
pub(crate) const MOST_BLOCKS: usize = 10;

/// Position in a [`Block`] of the k-th coefficient of the file. Invalid k, which damaged files reach, give the last one.
pub(crate) const ZIGZAG: [u8; 128] = zigzag();

const fn zigzag() -> [u8; 128] {
    let mut order = [63; 128];
    let (mut row, mut column, mut k) = (0, 0, 0);
    while k < 64 {
        order[k] = (row * 8 + column) as u8;
        // Even diagonals go up, odd ones down.
        if (row + column) % 2 == 0 {
            if column == 7 {
                row += 1;
            } else if row == 0 {
                column += 1;
            } else {
                row -= 1;
                column += 1;
            }
        } else if row == 7 {
            column += 1;
        } else if column == 0 {
            row += 1;
        } else {
            row += 1;
            column -= 1;
        }
        k += 1;
    }
    order
}

/// How coefficients are distributed over scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    /// Every scan has whole blocks.
    Sequential,
    /// Scans refine each other.
    Progressive,
}

/// How coefficients are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Huffman,
    Arithmetic,
}

/// One colour channel.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    pub(crate) identifier: u8,
    /// Blocks per interleaved unit, horizontally and vertically.
    pub(crate) horizontal: usize,
    pub(crate) vertical: usize,
    /// Index of its quantisation table in the file.
    pub(crate) table: u8,
    /// Size in samples.
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Blocks with at least one sample of the image.
    pub(crate) block_columns: usize,
    pub(crate) block_rows: usize,
    /// Blocks of whole interleaved units.
    pub(crate) padded_columns: usize,
    pub(crate) padded_rows: usize,
    /// Quantisation, in the order of a [`Block`]; set by the first scan of the component, as later tables are for others.
    pub(crate) quantisation: Option<[u16; 64]>,
}

/// A frame header.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) process: Process,
    pub(crate) coding: Coding,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) components: Vec<Component>,
    /// Largest sampling factors.
    pub(crate) horizontal: usize,
    pub(crate) vertical: usize,
    /// Interleaved units per row and column.
    pub(crate) unit_columns: usize,
    pub(crate) unit_rows: usize,
}

impl Frame {
    /// Reads a frame header. `code` is its marker.
    pub(crate) fn read(code: u8, segment: &[u8]) -> Result<Self, JpegError> {
        let (process, coding) = kind(code)?;
        let mut fields = Fields(segment);
        let precision = fields.byte()?;
        let (height, width) = (usize::from(fields.word()?), usize::from(fields.word()?));
        let count = usize::from(fields.byte()?);
        if precision != 8 {
            let reason = format!("{precision} bits per sample; supported: 8");
            return Err(JpegError::unsupported(reason));
        }
        if width == 0 || height == 0 {
            return Err(JpegError::damaged("its width or height is 0"));
        }
        if !matches!(count, 1 | 3 | 4) {
            let reason = format!("{count} colour channels; supported: 1, 3 and 4");
            return Err(JpegError::unsupported(reason));
        }
        let mut components = Vec::with_capacity(count);
        for _ in 0..count {
            components.push(component(&mut fields)?);
        }
        if !fields.is_empty() {
            return Err(JpegError::damaged("the frame header is too long"));
        }
        let horizontal = components.iter().map(|component| component.horizontal).max();
        let vertical = components.iter().map(|component| component.vertical).max();
        let (horizontal, vertical) = (horizontal.unwrap_or(1), vertical.unwrap_or(1));
        let unit_columns = width.div_ceil(SIDE * horizontal);
        let unit_rows = height.div_ceil(SIDE * vertical);
        for component in &mut components {
            component.width = (width * component.horizontal).div_ceil(horizontal);
            component.height = (height * component.vertical).div_ceil(vertical);
            component.block_columns = component.width.div_ceil(SIDE);
            component.block_rows = component.height.div_ceil(SIDE);
            component.padded_columns = unit_columns * component.horizontal;
            component.padded_rows = unit_rows * component.vertical;
        }
        let frame = Frame {
            process,
            coding,
            width,
            height,
            components,
            horizontal,
            vertical,
            unit_columns,
            unit_rows,
        };
        frame.check_sampling()?;
        Ok(frame)
    }

    /// Channels must have a whole number of pixels per sample.
    fn check_sampling(&self) -> Result<(), JpegError> {
        for component in &self.components {
            if !self.horizontal.is_multiple_of(component.horizontal)
                || !self.vertical.is_multiple_of(component.vertical)
            {
                let factors = |of: &Component| format!("{}x{}", of.horizontal, of.vertical);
                let all: Vec<String> = self.components.iter().map(factors).collect();
                let reason = format!("fractional sampling factors {}", all.join(", "));
                return Err(JpegError::unsupported(reason));
            }
        }
        Ok(())
    }
}

fn kind(code: u8) -> Result<(Process, Coding), JpegError> {
    match code {
        0xc0 | 0xc1 => Ok((Process::Sequential, Coding::Huffman)),
        0xc2 => Ok((Process::Progressive, Coding::Huffman)),
        0xc9 => Ok((Process::Sequential, Coding::Arithmetic)),
        0xca => Ok((Process::Progressive, Coding::Arithmetic)),
        0xc3 | 0xcb => Err(JpegError::unsupported("lossless JPEG")),
        _ => Err(JpegError::unsupported(format!("hierarchical JPEG (frame type {code:#x})"))),
    }
}

fn component(fields: &mut Fields<'_>) -> Result<Component, JpegError> {
    let identifier = fields.byte()?;
    let (horizontal, vertical) = fields.halves()?;
    let table = fields.byte()?;
    if !(1..=4).contains(&horizontal) || !(1..=4).contains(&vertical) {
        let reason = format!("sampling factors {horizontal}x{vertical}; valid: 1 to 4");
        return Err(JpegError::damaged(reason));
    }
    Ok(Component {
        identifier,
        horizontal: usize::from(horizontal),
        vertical: usize::from(vertical),
        table,
        width: 0,
        height: 0,
        block_columns: 0,
        block_rows: 0,
        padded_columns: 0,
        padded_rows: 0,
        quantisation: None,
    })
}

/// A component of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanComponent {
    /// Index in [`Frame::components`].
    pub(crate) index: usize,
    pub(crate) dc_table: usize,
    pub(crate) ac_table: usize,
}

/// A scan header.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) components: Vec<ScanComponent>,
    /// First and last coefficient, in the order of the file.
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// Bits below those of the previous scan of these coefficients, 0 for a first scan; and below those of this one.
    pub(crate) high: u8,
    pub(crate) low: u8,
}

impl Scan {
    pub(crate) fn read(segment: &[u8], frame: &Frame) -> Result<Self, JpegError> {
        let mut fields = Fields(segment);
        let count = usize::from(fields.byte()?);
        if !(1..=4).contains(&count) || segment.len() != 2 * count + 4 {
            return Err(JpegError::damaged("a scan header has the wrong length"));
        }
        let mut components: Vec<ScanComponent> = Vec::with_capacity(count);
        for _ in 0..count {
            let identifier = fields.byte()?;
            let (dc_table, ac_table) = fields.halves()?;
            // Some files give the same identifier to all components.
            let free = |index: &usize| components.iter().all(|other| other.index != *index);
            let mut matching = (0..frame.components.len())
                .filter(|&index| frame.components[index].identifier == identifier);
            let Some(index) = matching.find(free) else {
                let reason = format!("a scan has the unknown or repeated component {identifier}");
                return Err(JpegError::damaged(reason));
            };
            let (dc_table, ac_table) = (usize::from(dc_table), usize::from(ac_table));
            components.push(ScanComponent { index, dc_table, ac_table });
        }
        let (first, last) = (usize::from(fields.byte()?), usize::from(fields.byte()?));
        let (high, low) = fields.halves()?;
        let scan = Scan { components, first, last, high, low };
        scan.check(frame)?;
        Ok(scan)
    }

    fn check(&self, frame: &Frame) -> Result<(), JpegError> {
        let blocks = |scanned: &ScanComponent| {
            let component = &frame.components[scanned.index];
            component.horizontal * component.vertical
        };
        if self.components.len() > 1
            && self.components.iter().map(blocks).sum::<usize>() > MOST_BLOCKS
        {
            return Err(JpegError::damaged("a scan interleaves more than 10 blocks"));
        }
        if frame.process == Process::Sequential {
            // Some encoders write zeros here; the values have no meaning.
            return Ok(());
        }
        let band = if self.first == 0 {
            self.last == 0
        } else {
            self.first <= self.last && self.last < 64 && self.components.len() == 1
        };
        let precision = self.low <= 13 && (self.high == 0 || self.high == self.low + 1);
        if band && precision {
            return Ok(());
        }
        let Scan { first, last, high, low, .. } = self;
        let reason =
            format!("invalid scan of coefficients {first} to {last}, bits {high} to {low}");
        Err(JpegError::damaged(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zigzag_visits_every_position_once() {
        assert_eq!(ZIGZAG[..10], [0, 1, 8, 16, 9, 2, 3, 10, 17, 24]);
        assert_eq!(ZIGZAG[56..66], [53, 60, 61, 54, 47, 55, 62, 63, 63, 63]);
        let mut seen = ZIGZAG[..64].to_vec();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..64));
    }
}
