//! Tables and parameters of a file, segment by segment.

use crate::JpegError;
use crate::arithmetic::Conditioning;
use crate::frame::{Frame, Scan, ZIGZAG};
use crate::huffman::{HuffmanCode, HuffmanTable, standard};
use crate::input::{Fields, Input, marker};

/// What the segments read so far have set.
#[derive(Default)]
pub(crate) struct Header<'a> {
    pub(crate) frame: Option<Frame>,
    /// In the order of a block.
    pub(crate) quantisation: [Option<[u16; 64]>; 4],
    pub(crate) dc_codes: [Option<HuffmanCode>; 4],
    pub(crate) ac_codes: [Option<HuffmanCode>; 4],
    pub(crate) conditioning: Conditioning,
    pub(crate) restart_interval: u16,
    pub(crate) has_jfif: bool,
    /// The colour transform of an Adobe segment.
    pub(crate) adobe: Option<u8>,
    /// The EXIF block, without its name.
    pub(crate) exif: Option<&'a [u8]>,
}

/// Where the segments before a scan end.
pub(crate) enum Reached {
    Scan(Scan),
    EndOfImage,
}

impl<'a> Header<'a> {
    /// Reads segments up to the next scan header or the end. `found` is a marker that was read already.
    pub(crate) fn read(
        &mut self,
        input: &mut Input<'a>,
        mut found: Option<u8>,
    ) -> Result<Reached, JpegError> {
        loop {
            let code = found.take().unwrap_or_else(|| input.next_marker());
            match code {
                marker::END_OF_IMAGE => return Ok(Reached::EndOfImage),
                marker::START_OF_SCAN => {
                    let frame = self.frame.as_ref();
                    let frame = frame.ok_or_else(|| damaged("a scan precedes the frame header"))?;
                    return Ok(Reached::Scan(Scan::read(input.segment()?, frame)?));
                }
                // Without parameters.
                0x01 | marker::RESTART_0..=marker::RESTART_7 => {}
                marker::START_OF_IMAGE => return Err(damaged("it contains a second image")),
                _ => self.segment(code, input.segment()?)?,
            }
        }
    }

    fn segment(&mut self, code: u8, segment: &'a [u8]) -> Result<(), JpegError> {
        match code {
            0xc4 => self.huffman_codes(segment),
            0xcc => self.conditioning(segment),
            0xc8 => Err(JpegError::unsupported("a JPEG extension")),
            0xc0..=0xcf => {
                if self.frame.is_some() {
                    return Err(damaged("it has two frame headers"));
                }
                self.frame = Some(Frame::read(code, segment)?);
                Ok(())
            }
            0xdb => self.quantisation(segment),
            0xdd => match *segment {
                [high, low] => {
                    self.restart_interval = u16::from_be_bytes([high, low]);
                    Ok(())
                }
                _ => Err(damaged("the restart interval has the wrong length")),
            },
            0xe0..=0xef => {
                self.application(code, segment);
                Ok(())
            }
            // A number of lines, which is in the frame header too; a comment.
            0xdc | 0xfe => Ok(()),
            _ => Err(damaged(format!("unknown marker {code:#04x}"))),
        }
    }

    fn application(&mut self, code: u8, segment: &'a [u8]) {
        match code {
            0xe0 if segment.len() >= 14 && segment.starts_with(b"JFIF\0") => self.has_jfif = true,
            0xe1 if self.exif.is_none() => {
                self.exif = segment.strip_prefix(b"Exif\0\0");
            }
            0xee if segment.len() >= 12 && segment.starts_with(b"Adobe") => {
                self.adobe = Some(segment[11]);
            }
            _ => {}
        }
    }

    fn quantisation(&mut self, segment: &[u8]) -> Result<(), JpegError> {
        let mut fields = Fields(segment);
        while !fields.is_empty() {
            let (precision, index) = fields.halves()?;
            let wrong = || damaged(format!("quantisation table {index}; valid: 0 to 3"));
            let mut table = [0; 64];
            for &place in &ZIGZAG[..64] {
                let value = if precision == 0 { fields.byte()?.into() } else { fields.word()? };
                table[usize::from(place)] = value;
            }
            *self.quantisation.get_mut(usize::from(index)).ok_or_else(wrong)? = Some(table);
        }
        Ok(())
    }

    fn huffman_codes(&mut self, segment: &[u8]) -> Result<(), JpegError> {
        let mut fields = Fields(segment);
        while !fields.is_empty() {
            let (class, index) = fields.halves()?;
            let mut counts = [0; 16];
            counts.copy_from_slice(fields.take(16)?);
            let total = counts.iter().map(|&count| usize::from(count)).sum();
            if total > 256 {
                return Err(damaged("a Huffman table has more than 256 symbols"));
            }
            let symbols = fields.take(total)?.to_vec();
            let codes = match class {
                0 => &mut self.dc_codes,
                1 => &mut self.ac_codes,
                _ => return Err(damaged(format!("Huffman table of class {class}; valid: 0, 1"))),
            };
            let wrong = || damaged(format!("Huffman table {index}; valid: 0 to 3"));
            *codes.get_mut(usize::from(index)).ok_or_else(wrong)? =
                Some(HuffmanCode { counts, symbols });
        }
        Ok(())
    }

    fn conditioning(&mut self, segment: &[u8]) -> Result<(), JpegError> {
        let mut fields = Fields(segment);
        while !fields.is_empty() {
            let (class, index) = fields.halves()?;
            let value = fields.byte()?;
            match class {
                0 => {
                    let bounds = (value & 15, value >> 4);
                    if bounds.0 > bounds.1 {
                        return Err(damaged("invalid bounds of arithmetic coding"));
                    }
                    self.conditioning.dc_bounds[usize::from(index)] = bounds;
                }
                1 => self.conditioning.ac_bound[usize::from(index)] = value,
                _ => return Err(damaged(format!("arithmetic table of class {class}"))),
            }
        }
        Ok(())
    }

    /// Sets the standard Huffman tables where the file has none, as frames of videos do.
    pub(crate) fn set_missing_codes(&mut self) {
        for (index, [dc, ac]) in standard().into_iter().enumerate() {
            self.dc_codes[index].get_or_insert(dc);
            self.ac_codes[index].get_or_insert(ac);
        }
    }

    pub(crate) fn dc_table(&self, index: usize) -> Result<Box<HuffmanTable>, JpegError> {
        let code = self.dc_codes.get(index).and_then(Option::as_ref);
        let code = code.ok_or_else(|| missing_table(index))?;
        HuffmanTable::check_dc(code)?;
        HuffmanTable::new(code)
    }

    pub(crate) fn ac_table(&self, index: usize) -> Result<Box<HuffmanTable>, JpegError> {
        let code = self.ac_codes.get(index).and_then(Option::as_ref);
        HuffmanTable::new(code.ok_or_else(|| missing_table(index))?)
    }

    /// Gives the components of a scan their quantisation, unless an earlier scan did.
    pub(crate) fn quantise(&self, scan: &Scan, frame: &mut Frame) -> Result<(), JpegError> {
        for scanned in &scan.components {
            let component = &mut frame.components[scanned.index];
            let table = self.quantisation.get(usize::from(component.table)).copied().flatten();
            if component.quantisation.is_none() {
                let missing =
                    || damaged(format!("quantisation table {} is missing", component.table));
                component.quantisation = Some(table.ok_or_else(missing)?);
            }
        }
        Ok(())
    }
}

fn damaged(reason: impl Into<String>) -> JpegError {
    JpegError::damaged(reason)
}

fn missing_table(index: usize) -> JpegError {
    damaged(format!("Huffman table {index} is missing"))
}
