//! Blocks to pixels: transform, upsampling and colours, in bands of one row of interleaved units.

use crate::JpegError;
use crate::colour::Colours;
use crate::error::{filled, reserved};
use crate::frame::{Block, Component, Frame, SIDE};
use crate::idct::{Steps, Target, transform};
use crate::upsample::{Sums, Upsampling, repeat, tall, wide, wide_tall};

/// The picture as far as it is known.
pub(crate) struct Output {
    colours: Colours,
    channels: Vec<Channel>,
    sums: Sums,
    width: usize,
    height: usize,
    /// Rows of the image per row of units, and how many of them wait for the next one.
    band: usize,
    delay: usize,
    /// Rows of `rgb` so far.
    rows: usize,
    /// u8 `[rows, width, 3]`.
    rgb: Vec<u8>,
}

/// Samples of a component: the last two rows of units.
struct Channel {
    upsampling: Upsampling,
    steps: Steps,
    width: usize,
    height: usize,
    stride: usize,
    /// Rows of `samples`; row `y` of the component is at `y` modulo this.
    ring: usize,
    /// First row of the component in this row of units, and where it is in `samples`.
    first: usize,
    first_place: usize,
    samples: Vec<u8>,
    //// A row at the width of the image.
    wide: Vec<u8>,
}

impl Channel {
    fn new(component: &Component, frame: &Frame) -> Result<Self, JpegError> {
        let upsampling = Upsampling::of(component, frame);
        let stride = component.padded_columns * SIDE;
        let ring = 2 * component.vertical * SIDE;
        // A component without a scan has no quantisation: its samples are in the middle.
        let table = component.quantisation.unwrap_or([0; 64]);
        Ok(Channel {
            upsampling,
            steps: table.map(|step| step as i16),
            width: component.width,
            height: component.height,
            stride,
            ring,
            first: 0,
            first_place: 0,
            samples: filled(128, stride * ring)?,
            wide: match upsampling {
                Upsampling::None => Vec::new(),
                Upsampling::Wide
                | Upsampling::Tall
                | Upsampling::WideTall
                | Upsampling::Repeat { .. } => {
                    filled(0, frame.unit_columns * frame.horizontal * SIDE)?
                }
            },
        })
    }

    #[inline(always)]
    fn put(&mut self, (column, row): (usize, usize), block: &Block) {
        let place = row * SIDE - self.first + self.first_place;
        let start = place * self.stride + column * SIDE;
        let target = Target { samples: &mut self.samples, start, stride: self.stride };
        transform(block, &self.steps, target);
    }

    fn next_unit_row(&mut self) {
        self.first += self.ring / 2;
        self.first_place = self.ring / 2 - self.first_place;
    }

    fn row(&self, y: usize) -> &[u8] {
        &self.samples[y % self.ring * self.stride..][..self.width]
    }

    /// Prepares row `y` of the image for [`Channel::wide_row`].
    fn upsample(&mut self, y: usize, sums: &mut Sums) {
        let (near, far) = self.upsampling.sources(y, self.height);
        let mut out = std::mem::take(&mut self.wide);
        let (near, far) = (self.row(near), self.row(far));
        match self.upsampling {
            Upsampling::None => {}
            Upsampling::Wide => wide(near, &mut out),
            Upsampling::Tall => tall(near, far, y, &mut out),
            Upsampling::WideTall => wide_tall(near, far, sums, &mut out),
            Upsampling::Repeat { across, .. } => repeat(near, across, &mut out),
        }
        self.wide = out;
    }

    /// Row `y` of the image, at its width.
    fn wide_row(&self, y: usize) -> &[u8] {
        if self.upsampling == Upsampling::None { self.row(y) } else { &self.wide }
    }
}

impl Output {
    pub(crate) fn new(frame: &Frame, colours: Colours) -> Result<Self, JpegError> {
        let channels: Result<Vec<Channel>, JpegError> =
            frame.components.iter().map(|component| Channel::new(component, frame)).collect();
        let channels = channels?;
        let context = channels.iter().any(|channel| channel.upsampling.needs_context());
        let rgb = frame.width.saturating_mul(frame.height).saturating_mul(3);
        Ok(Output {
            colours,
            channels,
            sums: reserved(frame.width)?,
            width: frame.width,
            height: frame.height,
            band: frame.vertical * SIDE,
            delay: if context { frame.vertical } else { 0 },
            rows: 0,
            rgb: reserved(rgb)?,
        })
    }

    /// Sets the samples of a block.
    #[inline(always)]
    pub(crate) fn put(&mut self, component: usize, position: (usize, usize), block: &Block) {
        self.channels[component].put(position, block);
    }

    /// Adds the rows of the image that are complete after a row of units.
    pub(crate) fn finish_unit_row(&mut self, unit_row: usize) {
        let end = (unit_row + 1) * self.band;
        let ready = if end >= self.height { self.height } else { end - self.delay };
        while self.rows < ready {
            let y = self.rows;
            for channel in &mut self.channels {
                channel.upsample(y, &mut self.sums);
            }
            let empty: &[u8] = &[];
            let mut rows = [empty; 4];
            for (row, channel) in rows.iter_mut().zip(&self.channels) {
                *row = channel.wide_row(y);
            }
            let start = self.rgb.len();
            self.rgb.resize(start + 3 * self.width, 0);
            self.colours.convert(&rows[..self.channels.len()], &mut self.rgb[start..]);
            self.rows += 1;
        }
        self.channels.iter_mut().for_each(Channel::next_unit_row);
    }

    /// The pixels, u8 `[height, width, 3]`.
    pub(crate) fn into_rgb(self) -> Vec<u8> {
        debug_assert_eq!(self.rgb.len(), self.width * self.height * 3, "every row was added");
        self.rgb
    }
}
