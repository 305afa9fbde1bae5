//! Tiles of sums, through the epilogue, into the output.

mod store;

use std::ops::Range;

use crate::gemm::split::Shape;
use crate::gemm::{Activation, Epilogue, GROUP_COLUMNS, Groups, Output, Residual};
use crate::simd::prefers_streaming;

/// Applies the epilogue to tiles of sums and stores them in the output.
#[derive(Clone, Copy)]
pub(super) struct OutputWriter<'a> {
    /// The first element of the output.
    pub(super) output: *mut f32,
    /// Elements from one row of the output to the next.
    pub(super) output_stride: usize,
    /// Gaps between rows of the output and of the residual.
    pub(super) row_groups: Groups,
    /// The same for columns; groups are whole vectors.
    pub(super) column_groups: Groups,
    /// Whether the output holds partial sums, over the depths before these, that are added first.
    pub(super) partial: bool,
    /// Whether to use non-temporal stores. Requires an aligned output and stride.
    pub(super) streaming: bool,
    /// Applied to the complete sums.
    pub(super) epilogue: Epilogue<'a>,
}

// SAFETY: code that shares an `OutputWriter` between threads ensures that they write disjoint parts of the output.
unsafe impl Sync for OutputWriter<'_> {}
// SAFETY: as above.
unsafe impl Send for OutputWriter<'_> {}

/// Position of a tile in the output, and how many of its rows and columns are inside.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileBounds {
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl<'a> OutputWriter<'a> {
    /// Checks the epilogue and the output against the product's shape.
    pub(super) fn new(
        shape: Shape,
        epilogue: &Epilogue<'a>,
        output: Output<'_>,
    ) -> OutputWriter<'a> {
        let Output { row_stride: stride, rows, columns, .. } = output;
        let last_column = columns.start(shape.columns - 1, 1);
        let extent = |stride: usize| rows.start(shape.rows - 1, stride) + last_column + 1;
        let one_group = columns.gap == 0 || shape.columns <= columns.length;
        let whole = columns.length.is_multiple_of(GROUP_COLUMNS);
        assert!(one_group || whole, "groups of {} columns", columns.length);
        assert!(shape.rows == 1 || output.is_disjoint(shape.columns), "output rows overlap");
        let (needed, given) = (extent(stride), output.data.len());
        assert!(given >= needed, "output: {needed} elements needed, {given} given");
        if let Residual::Rows { data, row_stride } = epilogue.residual {
            let (needed, given) = (extent(row_stride), data.len());
            assert!(given >= needed, "residual: {needed} elements needed, {given} given");
        }
        if let Some(bias) = epilogue.bias {
            assert_eq!(bias.len(), shape.columns, "one bias element per column");
        }
        let pointer = output.data.as_mut_ptr();
        let strides = [stride, rows.gap, columns.gap];
        let aligned = (pointer as usize).is_multiple_of(64)
            && strides.iter().all(|stride| stride.is_multiple_of(16));
        OutputWriter {
            output: pointer,
            output_stride: stride,
            row_groups: rows,
            column_groups: columns,
            partial: false,
            streaming: aligned && prefers_streaming(needed),
            epilogue: *epilogue,
        }
    }

    /// Whether all depths must be summed before anything is stored: the output holds the residual, so it cannot hold partial
    /// sums that are activated later.
    pub(super) fn needs_complete_sums(&self) -> bool {
        matches!(self.epilogue.residual, Residual::Output)
            && self.epilogue.activation != Activation::Identity
    }

    /// The writer for the sums over `depth`, a part of `0..total`.
    pub(super) fn for_depths(&self, depth: &Range<usize>, total: usize) -> OutputWriter<'a> {
        let (first, last) = (depth.start == 0, depth.end == total);
        let mut writer = *self;
        if first && last {
            return writer;
        }
        writer.streaming = false;
        if !last {
            writer.epilogue.bias = None;
        }
        if matches!(self.epilogue.residual, Residual::Output) {
            // Each part is scaled and added to the output.
            return writer;
        }
        writer.partial = !first;
        if !last {
            writer.epilogue = Epilogue::NONE;
        }
        writer
    }

    /// The writer for an output and a residual that start `elements` later.
    pub(super) fn shifted(&self, elements: usize) -> OutputWriter<'a> {
        OutputWriter {
            output: self.output.wrapping_add(elements),
            streaming: self.streaming && elements.is_multiple_of(16),
            epilogue: self.epilogue.shifted(elements),
            ..*self
        }
    }
}
