//! Resizes images: a horizontal pass, then a vertical one.
//!
//! A task computes a block of output rows. It resizes the input rows under the block horizontally into its scratch memory, and
//! sums them vertically from there. Both passes are weighted sums of contiguous runs: the channels of a pixel if they fill a
//! vector, else as many interleaved input rows as a vector has lanes.

mod passes;

use std::ops::Range;

use cutout_graph::{RunError, ops};
use cutout_parallel::SharedSlice;

use self::passes::{Horizontal, Vertical};
use crate::execute::{Execute, Io};
use crate::kernels::image::Image;
use crate::lower::Site;
use crate::simd::{dispatch, prefers_streaming};

/// Bytes of horizontally resized rows of a task: a quarter of an L2 cache.
const SCRATCH_BYTES: usize = 256 << 10;

/// Output elements of a task with enough channels, so that small images stay on one thread.
const TASK_ELEMENTS: usize = 1 << 16;

/// Most groups of interleaved input rows of a task, so that one mask makes several tasks.
const MOST_GROUPS: usize = 2;

/// A compiled [`ops::Resize`].
pub(crate) struct Resize {
    input: Image,
    output: Image,
    rows: Taps,
    columns: Taps,
    /// The output rows of an image, split into tasks.
    blocks: Vec<Block>,
    /// Elements of scratch memory a task needs.
    scratch: usize,
}

/// Output rows and the input rows under them.
#[derive(Clone, Debug)]
struct Block {
    output: Range<usize>,
    input: Range<usize>,
}

/// An input position and its weight.
type Tap = (usize, f32);

/// The taps of all output positions along one direction.
struct Taps {
    /// Start of the taps of each position, and the end of the last.
    starts: Vec<usize>,
    taps: Vec<Tap>,
}

impl Taps {
    fn new(every: &[Vec<ops::Tap>]) -> Self {
        let mut starts = vec![0];
        let mut taps = Vec::new();
        for position in every {
            taps.extend(position.iter().map(|&(at, weight)| (at, weight as f32)));
            starts.push(taps.len());
        }
        Taps { starts, taps }
    }

    /// The taps of output position `index`.
    #[inline(always)]
    fn at(&self, index: usize) -> &[Tap] {
        &self.taps[self.starts[index]..self.starts[index + 1]]
    }

    /// The input positions that outputs `range` read.
    fn span(&self, range: Range<usize>) -> Range<usize> {
        let taps = &self.taps[self.starts[range.start]..self.starts[range.end]];
        let first = taps.iter().map(|tap| tap.0).min().unwrap_or(0);
        first..taps.iter().map(|tap| tap.0 + 1).max().unwrap_or(first)
    }
}

impl Resize {
    pub(crate) fn new(op: &ops::Resize, site: &Site<'_>) -> Self {
        let input = Image::new(&site.inputs[0].ty.shape);
        let output = Image::new(&site.output.shape);
        let rows = Taps::new(&op.taps(input.height, output.height));
        let columns = Taps::new(&op.taps(input.width, output.width));
        let lanes = site.arithmetic.isa.lanes();
        let side_by_side = if output.channels < lanes { lanes } else { 1 };
        let blocks = cut(&rows, &output, side_by_side);
        let most = blocks.iter().map(|block| block.input.len()).max().unwrap_or(0);
        let scratch = most * output.row() + Horizontal::scratch(&input, lanes, side_by_side);
        Resize { input, output, rows, columns, blocks, scratch }
    }
}

/// Splits the output rows into blocks whose input rows fit the scratch memory. Input rows are resized in groups of `group`, so
/// blocks cover whole groups if possible.
fn cut(rows: &Taps, output: &Image, group: usize) -> Vec<Block> {
    let fitting = SCRATCH_BYTES / size_of::<f32>() / output.row().max(1);
    let (limit, most) = if group > 1 {
        ((fitting / group).clamp(1, MOST_GROUPS) * group, output.height)
    } else {
        (fitting.max(1), TASK_ELEMENTS.div_ceil(output.row().max(1)))
    };
    let mut blocks = Vec::new();
    let mut start = 0;
    while start < output.height {
        let mut end = start + 1;
        let last = output.height.min(start + most);
        while end < last && rows.span(start..end + 1).len() <= limit {
            end += 1;
        }
        blocks.push(Block { output: start..end, input: rows.span(start..end) });
        start = end;
    }
    blocks
}

impl Execute for Resize {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let (source, isa) = (io.inputs.f32(0), io.isa);
        let target = io.output.f32();
        if target.is_empty() {
            return Ok(());
        }
        let streaming = prefers_streaming(target.len());
        let target = SharedSlice::new(target);
        let tasks = self.output.batch * self.blocks.len();
        io.pool.run_with_scratch(tasks, self.scratch, &|task, scratch| {
            let (image, block) = (task / self.blocks.len(), &self.blocks[task % self.blocks.len()]);
            let source = &source[image * self.input.elements()..][..self.input.elements()];
            let (rows, scratch) = scratch.split_at_mut(block.input.len() * self.output.row());
            let source = &source[block.input.start * self.input.row()..];
            let source = &source[..block.input.len() * self.input.row()];
            let columns = &self.columns;
            let shape = (self.input.width, self.output.width, self.output.channels);
            dispatch(isa, Horizontal { source, shape, columns, rows, scratch });
            let start = image * self.output.elements() + block.output.start * self.output.row();
            // SAFETY: tasks make different rows of the output.
            let target = unsafe { target.part(start, block.output.len() * self.output.row()) };
            let (taps, row) = (&self.rows, self.output.row());
            dispatch(isa, Vertical { rows, row, taps, block, target, streaming });
        });
        Ok(())
    }
}
