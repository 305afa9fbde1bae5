//! Padding of a tensor.

use cutout_graph::{RunError, ops};

use crate::execute::{Execute, Io};

/// Elements a task writes, at least one row.
const TASK: usize = 1 << 15;

/// Copies a contiguous input into the middle of the padded output.
pub(crate) struct Pad {
    axes: Vec<Axis>,
    value: f32,
}

/// An axis of the output.
struct Axis {
    before: usize,
    length: usize,
    after: usize,
}

impl Axis {
    fn total(&self) -> usize {
        self.before + self.length + self.after
    }
}

impl Pad {
    /// The kernel for an input of this shape. Inner axes without padding are merged into the next outer axis.
    pub(crate) fn new(op: &ops::Pad, shape: &[usize]) -> Self {
        let mut axes: Vec<Axis> = Vec::new();
        for (i, &length) in shape.iter().enumerate() {
            let (before, after) = (op.before[i], op.after[i]);
            match axes.last_mut() {
                Some(outer) if before == 0 && after == 0 => {
                    outer.before *= length;
                    outer.length *= length;
                    outer.after *= length;
                }
                Some(_) | None => axes.push(Axis { before, length, after }),
            }
        }
        if axes.is_empty() {
            axes.push(Axis { before: 0, length: 1, after: 0 });
        }
        Pad { axes, value: op.value }
    }

    /// The input row at row `row` of the output; `None` for a row of padding.
    fn source_row(&self, mut row: usize) -> Option<usize> {
        let (_, outer) = self.axes.split_last().expect("there is always an axis");
        let (mut source, mut step) = (0, 1);
        for axis in outer.iter().rev() {
            let index = (row % axis.total()).checked_sub(axis.before)?;
            if index >= axis.length {
                return None;
            }
            source += index * step;
            step *= axis.length;
            row /= axis.total();
        }
        Some(source)
    }
}

impl Execute for Pad {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let x = io.inputs.f32(0);
        let output = io.output.f32();
        if output.is_empty() {
            return Ok(());
        }
        let last = self.axes.last().expect("there is always an axis");
        let rows = (TASK / last.total()).max(1);
        io.pool.for_chunks(output, rows * last.total(), &|task, output| {
            for (i, row) in output.chunks_exact_mut(last.total()).enumerate() {
                let Some(source) = self.source_row(task * rows + i) else {
                    row.fill(self.value);
                    continue;
                };
                let (before, rest) = row.split_at_mut(last.before);
                let (inside, after) = rest.split_at_mut(last.length);
                before.fill(self.value);
                inside.copy_from_slice(&x[source * last.length..(source + 1) * last.length]);
                after.fill(self.value);
            }
        });
        Ok(())
    }
}
