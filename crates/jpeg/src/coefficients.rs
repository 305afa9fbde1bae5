//! The coefficients of a whole picture, for files with several scans.

use crate::JpegError;
use crate::entropy::{Entropy, Layout};
use crate::error::filled;
use crate::frame::{Block, Component, Frame, Process};
use crate::output::Output;
use crate::smoothing::{Knowledge, RowSmoother};

/// All blocks of a component, including those of incomplete units.
pub(crate) struct Plane {
    columns: usize,
    blocks: Vec<Block>,
}

impl Plane {
    pub(crate) fn row(&self, row: usize) -> &[Block] {
        &self.blocks[row * self.columns..][..self.columns]
    }
}

/// All blocks of a picture.
pub(crate) struct Coefficients {
    /// By component.
    pub(crate) planes: Vec<Plane>,
}

impl Coefficients {
    pub(crate) fn new(frame: &Frame) -> Result<Self, JpegError> {
        let plane = |component: &Component| {
            let columns = component.padded_columns;
            let count = columns.saturating_mul(component.padded_rows);
            Ok(Plane { columns, blocks: filled([0; 64], count)? })
        };
        let planes: Result<Vec<Plane>, JpegError> = frame.components.iter().map(plane).collect();
        Ok(Coefficients { planes: planes? })
    }

    /// Adds a scan. Returns the last row of units for which there was data.
    pub(crate) fn add<'a>(
        &mut self,
        frame: &Frame,
        layout: &Layout,
        entropy: &mut impl Entropy<'a>,
    ) -> usize {
        let mut last_good_row = 0;
        for unit_row in 0..frame.unit_rows {
            for (column, row) in layout.units(unit_row) {
                if !entropy.is_exhausted() {
                    last_good_row = unit_row;
                }
                if entropy.begin_unit() {
                    self.add_unit(layout, (column, row), entropy);
                }
            }
        }
        last_good_row
    }

    #[inline(always)]
    fn add_unit<'a>(
        &mut self,
        layout: &Layout,
        (column, row): (usize, usize),
        entropy: &mut impl Entropy<'a>,
    ) {
        for part in &layout.blocks {
            let (x, y) = part.position(column, row);
            let plane = &mut self.planes[part.component];
            entropy.block(part.slot, &mut plane.blocks[y * plane.columns + x]);
        }
    }

    /// Transforms all blocks. What an incomplete progressive file does not have is estimated.
    pub(crate) fn show(&self, frame: &Frame, knowledge: &Knowledge, output: &mut Output) {
        let estimate = frame.process == Process::Progressive && knowledge.is_incomplete(frame);
        for unit_row in 0..frame.unit_rows {
            for (index, component) in frame.components.iter().enumerate() {
                let first = unit_row * component.vertical;
                let rows = component.vertical.min(component.block_rows.saturating_sub(first));
                for row in 0..rows {
                    let smoother = estimate
                        .then(|| RowSmoother::new(self, knowledge, frame, index, (unit_row, row)));
                    let blocks = &self.planes[index].row(first + row)[..component.block_columns];
                    let put =
                        |column, block: &Block| output.put(index, (column, first + row), block);
                    show_row(blocks, smoother.as_ref(), put);
                }
            }
            output.finish_unit_row(unit_row);
        }
    }
}

/// Gives each block of a row, or its estimate, to `put`.
fn show_row(
    blocks: &[Block],
    smoother: Option<&RowSmoother<'_>>,
    mut put: impl FnMut(usize, &Block),
) {
    for (column, block) in blocks.iter().enumerate() {
        match smoother {
            Some(smoother) => put(column, &smoother.block(column)),
            None => put(column, block),
        }
    }
}
