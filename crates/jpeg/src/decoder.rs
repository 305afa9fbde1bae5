//! Decoding a file from its first segment to its pixels: the order of steps.

use crate::JpegError;
use crate::arithmetic::Arithmetic;
use crate::bits::Restarts;
use crate::coefficients::Coefficients;
use crate::colour::Colours;
use crate::entropy::{Entropy, Layout, ScanEnd};
use crate::error::Damage;
use crate::frame::{Coding, Frame, MOST_BLOCKS, Process, Scan, ScanComponent};
use crate::header::{Header, Reached};
use crate::huffman::HuffmanTable;
use crate::input::Input;
use crate::output::Output;
use crate::progressive::{Band, Pass, Progressive};
use crate::sequential::{Sequential, SlotTables};
use crate::smoothing::Knowledge;

/// Most scans of a file. Encoders write about ten; each scan of a malicious file costs time for the whole picture.
pub const MOST_SCANS: usize = 100;

/// A file whose header has been read.
pub struct Decoder<'a> {
    header: Header<'a>,
    frame: Frame,
    input: Input<'a>,
    scan: Scan,
}

/// A decoded file.
pub struct Picture {
    /// Pixels from left to right.
    pub width: usize,
    /// Pixels from top to bottom.
    pub height: usize,
    /// u8 `[height, width, 3]`: red, green, blue.
    pub rgb: Vec<u8>,
    /// What is wrong with the file, if the picture is not as it was.
    pub damage: Option<Damage>,
}

/// Tables of a scan, by component.
type Tables = Vec<Option<Box<HuffmanTable>>>;

impl<'a> Decoder<'a> {
    /// Reads everything before the compressed data. Allocates nothing of the size of the picture.
    pub fn new(bytes: &'a [u8]) -> Result<Self, JpegError> {
        if !bytes.starts_with(&[0xff, 0xd8]) {
            return Err(JpegError::damaged("it does not start with a start-of-image marker"));
        }
        let mut input = Input::new(bytes);
        input.position = 2;
        let mut header = Header::default();
        let Reached::Scan(scan) = header.read(&mut input, None)? else {
            return Err(JpegError::damaged("it has no image data"));
        };
        let frame = header.frame.take();
        let frame = frame.ok_or_else(|| JpegError::damaged("it has no frame header"))?;
        Ok(Decoder { header, frame, input, scan })
    }

    /// Pixels from left to right, before any rotation that the EXIF block asks for.
    pub fn width(&self) -> usize {
        self.frame.width
    }

    /// Pixels from top to bottom.
    pub fn height(&self) -> usize {
        self.frame.height
    }

    /// The EXIF block, without its name.
    pub fn exif(&self) -> Option<&'a [u8]> {
        self.header.exif
    }

    /// Decodes the pixels.
    pub fn decode(mut self) -> Result<Picture, JpegError> {
        if self.frame.process == Process::Sequential {
            self.header.set_missing_codes();
        }
        let colours = Colours::of(&self.header, &self.frame);
        let in_one_scan = self.scan.components.len() == self.frame.components.len()
            && self.frame.process == Process::Sequential;
        if in_one_scan { self.decode_scan(colours) } else { self.decode_scans(colours) }
    }

    fn picture(&self, output: Output, damage: Damage) -> Picture {
        Picture {
            width: self.frame.width,
            height: self.frame.height,
            rgb: output.into_rgb(),
            damage: damage.any().then_some(damage),
        }
    }

    /// Decodes a file with one scan, a row of units at a time.
    fn decode_scan(mut self, colours: Colours) -> Result<Picture, JpegError> {
        self.quantise()?;
        let mut output = Output::new(&self.frame, colours)?;
        let layout = Layout::new(&self.frame, &self.scan);
        let restarts = Restarts::new(self.header.restart_interval);
        let end = match self.frame.coding {
            Coding::Huffman => {
                let (dc, ac) = (self.dc_tables()?, self.ac_tables()?);
                let pairs = dc.iter().flatten().zip(ac.iter().flatten());
                let slots = pairs.map(|(dc, ac)| SlotTables { dc, ac }).collect();
                let entropy = Sequential::new(self.input, restarts, slots);
                show_scan(&self.frame, &layout, entropy, &mut output)
            }
            Coding::Arithmetic => {
                let conditioning = self.header.conditioning;
                let entropy =
                    Arithmetic::new(self.input, restarts, self.scan.clone(), None, conditioning);
                show_scan(&self.frame, &layout, entropy, &mut output)
            }
        };
        // A missing end-of-image marker alone costs no pixel. With arithmetic coding it cannot be told from missing data.
        let is_missing = end.faults > 0 || self.frame.coding == Coding::Arithmetic;
        let ends_early = end.input.ended && is_missing;
        Ok(self.picture(output, Damage { ends_early, faults: end.faults }))
    }

    /// Decodes all scans, then shows the result.
    fn decode_scans(mut self, colours: Colours) -> Result<Picture, JpegError> {
        let mut coefficients = Coefficients::new(&self.frame)?;
        let mut knowledge = Knowledge::new(self.frame.components.len());
        let mut damage = Damage::default();
        for count in 1.. {
            if count > MOST_SCANS {
                let reason = format!("more than {MOST_SCANS} scans");
                return Err(JpegError::unsupported(reason));
            }
            self.quantise()?;
            let end = self.add_scan(&mut coefficients, &mut knowledge)?;
            damage.faults = damage.faults.saturating_add(end.faults);
            self.input = end.input;
            match self.next_scan(end.marker)? {
                Some(scan) => self.scan = scan,
                None => break,
            }
        }
        damage.ends_early = self.input.ended;
        let mut output = Output::new(&self.frame, colours)?;
        coefficients.show(&self.frame, &knowledge, &mut output);
        Ok(self.picture(output, damage))
    }

    /// The header of the next scan; `None` at the end of the image or of the file.
    fn next_scan(&mut self, marker: Option<u8>) -> Result<Option<Scan>, JpegError> {
        self.header.frame = Some(self.frame.clone());
        let reached = self.header.read(&mut self.input, marker);
        self.header.frame = None;
        match reached {
            Ok(Reached::Scan(scan)) => Ok(Some(scan)),
            Ok(Reached::EndOfImage) => Ok(None),
            // A file that is cut in the header of a scan shows the scans before it.
            Err(_) if self.input.ended => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn add_scan(
        &self,
        coefficients: &mut Coefficients,
        knowledge: &mut Knowledge,
    ) -> Result<ScanEnd<'a>, JpegError> {
        let scan = &self.scan;
        let layout = Layout::new(&self.frame, scan);
        let restarts = Restarts::new(self.header.restart_interval);
        let is_progressive = self.frame.process == Process::Progressive;
        let pass = is_progressive.then(|| Pass::of(scan));
        if is_progressive {
            let components: Vec<usize> = scan.components.iter().map(|part| part.index).collect();
            knowledge.add(&components, (scan.first, scan.last), scan.low);
        }
        if self.frame.coding == Coding::Arithmetic {
            let conditioning = self.header.conditioning;
            let mut entropy =
                Arithmetic::new(self.input, restarts, scan.clone(), pass, conditioning);
            knowledge.last_good_row = coefficients.add(&self.frame, &layout, &mut entropy);
            return Ok(entropy.finish());
        }
        let Some(pass) = pass else {
            let (dc, ac) = (self.dc_tables()?, self.ac_tables()?);
            let pairs = dc.iter().flatten().zip(ac.iter().flatten());
            let slots = pairs.map(|(dc, ac)| SlotTables { dc, ac }).collect();
            let mut entropy = Sequential::new(self.input, restarts, slots);
            knowledge.last_good_row = coefficients.add(&self.frame, &layout, &mut entropy);
            return Ok(entropy.finish());
        };
        let tables = match pass {
            Pass::DcFirst => self.dc_tables()?,
            Pass::DcRefine => scan.components.iter().map(|_| None).collect(),
            Pass::AcFirst | Pass::AcRefine => self.ac_tables()?,
        };
        let band = Band { pass, first: scan.first, last: scan.last, low: scan.low };
        let slots = tables.iter().map(Option::as_deref).collect();
        let mut entropy = Progressive::new(self.input, restarts, band, slots);
        knowledge.last_good_row = coefficients.add(&self.frame, &layout, &mut entropy);
        Ok(entropy.finish())
    }

    fn quantise(&mut self) -> Result<(), JpegError> {
        self.header.quantise(&self.scan, &mut self.frame)
    }

    fn dc_tables(&self) -> Result<Tables, JpegError> {
        let table = |part: &ScanComponent| self.header.dc_table(part.dc_table).map(Some);
        self.scan.components.iter().map(table).collect()
    }

    fn ac_tables(&self) -> Result<Tables, JpegError> {
        let table = |part: &ScanComponent| self.header.ac_table(part.ac_table).map(Some);
        self.scan.components.iter().map(table).collect()
    }
}

/// Decodes a scan of all components and shows it row by row.
fn show_scan<'a, E: Entropy<'a>>(
    frame: &Frame,
    layout: &Layout,
    mut entropy: E,
    output: &mut Output,
) -> ScanEnd<'a> {
    // All blocks of a unit are decoded before the first is transformed: reading a block right after writing it in small
    // pieces would stall.
    let mut blocks = [[0; 64]; MOST_BLOCKS];
    let blocks = &mut blocks[..layout.blocks.len()];
    for unit_row in 0..frame.unit_rows {
        for (column, row) in layout.units(unit_row) {
            blocks.fill([0; 64]);
            if entropy.begin_unit() {
                for (part, block) in layout.blocks.iter().zip(&mut *blocks) {
                    entropy.block(part.slot, block);
                }
            }
            for (part, block) in layout.blocks.iter().zip(&*blocks) {
                output.put(part.component, part.position(column, row), block);
            }
        }
        output.finish_unit_row(unit_row);
    }
    entropy.finish()
}
