//! What the decoders of all codings share: the order of blocks in a scan, and the end of a scan.

use crate::frame::{Block, Frame, Scan};
use crate::input::Input;

/// Decodes the blocks of a scan in the order of the file.
pub(crate) trait Entropy<'a> {
    /// Prepares for the next unit; passes a restart marker, if one is due. Returns false if there is no data for the unit.
    fn begin_unit(&mut self) -> bool;

    /// Decodes a block of the component with index `slot` in the scan.
    fn block(&mut self, slot: usize, block: &mut Block);

    /// Whether the data of this segment has run out.
    fn is_exhausted(&self) -> bool;

    /// What follows the scan.
    fn finish(self) -> ScanEnd<'a>;
}

/// What follows a scan.
pub(crate) struct ScanEnd<'a> {
    pub(crate) input: Input<'a>,
    /// A marker that was read already.
    pub(crate) marker: Option<u8>,
    /// Invalid places in the data.
    pub(crate) faults: u32,
}

/// Order of the blocks of a scan.
pub(crate) struct Layout {
    /// Units per row, and rows of units.
    columns: usize,
    rows: usize,
    /// Rows of units per row of fully interleaved units.
    rows_per_unit_row: usize,
    pub(crate) blocks: Vec<UnitBlock>,
}

/// A block of a unit.
#[derive(Clone, Copy)]
pub(crate) struct UnitBlock {
    /// Index of the component in the scan and in the frame.
    pub(crate) slot: usize,
    pub(crate) component: usize,
    /// Blocks per unit, and the place of this one in the unit.
    step: (usize, usize),
    place: (usize, usize),
}

impl UnitBlock {
    /// Column and row of the block in its component.
    #[inline(always)]
    pub(crate) fn position(&self, column: usize, row: usize) -> (usize, usize) {
        (column * self.step.0 + self.place.0, row * self.step.1 + self.place.1)
    }
}

impl Layout {
    pub(crate) fn new(frame: &Frame, scan: &Scan) -> Self {
        if let [only] = scan.components.as_slice() {
            let component = &frame.components[only.index];
            let block = UnitBlock { slot: 0, component: only.index, step: (1, 1), place: (0, 0) };
            return Layout {
                columns: component.block_columns,
                rows: component.block_rows,
                rows_per_unit_row: component.vertical,
                blocks: vec![block],
            };
        }
        let mut blocks = Vec::new();
        for (slot, scanned) in scan.components.iter().enumerate() {
            let component = &frame.components[scanned.index];
            let step = (component.horizontal, component.vertical);
            for y in 0..step.1 {
                let place = |x| UnitBlock { slot, component: scanned.index, step, place: (x, y) };
                blocks.extend((0..step.0).map(place));
            }
        }
        Layout { columns: frame.unit_columns, rows: frame.unit_rows, rows_per_unit_row: 1, blocks }
    }

    /// Column and row of the units in a row of fully interleaved units, in order.
    pub(crate) fn units(&self, unit_row: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let start = unit_row * self.rows_per_unit_row;
        let columns = self.columns;
        let rows = start.min(self.rows)..(start + self.rows_per_unit_row).min(self.rows);
        rows.flat_map(move |row| (0..columns).map(move |column| (column, row)))
    }
}
