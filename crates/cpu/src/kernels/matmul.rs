//! Batched products of two activations.

use cutout_graph::{Layout, RunError, ops};
use cutout_tensor::contiguous_strides;

use crate::execute::{Execute, Io};
use crate::gemm::{
    BatchedLeft, BatchedOutput, BatchedProduct, BatchedRight, Epilogue, batched_gemm,
};
use crate::lower::Site;

/// `epilogue(left · right)` over the last two axes, batch axes broadcast.
pub(crate) struct MatMul {
    epilogue: ops::Epilogue,
    rows: usize,
    columns: usize,
    depth: usize,
    /// Stride of the rows of the left operand.
    row_stride: usize,
    /// Strides of the depths and of the columns of the right operand.
    right_strides: [usize; 2],
    /// The batch axes, outermost first, merged as far as both operands allow. The last is the batch of one `batched_gemm`.
    batch: Vec<BatchAxis>,
}

/// A batch axis and the strides of both operands along it.
#[derive(Clone, Copy, Debug)]
struct BatchAxis {
    length: usize,
    left: usize,
    right: usize,
}

impl MatMul {
    pub(crate) fn new(op: &ops::MatMul, site: &Site<'_>) -> Self {
        let (left, right) = (&site.inputs[0].layout, &site.inputs[1].layout);
        let output = &site.output.shape;
        let rank = output.rank();
        let last = |layout: &Layout| layout.shape.rank() - 1;
        let [inner, outer] = [right.strides[last(right)], right.strides[last(right) - 1]];
        MatMul {
            epilogue: op.epilogue,
            rows: output[rank - 2],
            columns: output[rank - 1],
            depth: left.shape[last(left)],
            // With depth zero the stride is not used.
            row_stride: match left.shape[last(left)] {
                0 => 0,
                _ => left.strides[last(left) - 1],
            },
            right_strides: if op.transpose_right { [inner, outer] } else { [outer, inner] },
            batch: batch_axes(left, right, &output[..rank - 2]),
        }
    }
}

/// The batch axes of two operands that broadcast to `lengths`.
fn batch_axes(left: &Layout, right: &Layout, lengths: &[usize]) -> Vec<BatchAxis> {
    let stride = |layout: &Layout, axis: usize| {
        let missing = lengths.len() + 2 - layout.shape.rank();
        match axis.checked_sub(missing) {
            Some(own) if layout.shape[own] == lengths[axis] => layout.strides[own],
            Some(_) | None => 0,
        }
    };
    let mut axes: Vec<BatchAxis> = Vec::new();
    for (axis, &length) in lengths.iter().enumerate().filter(|(_, length)| **length != 1) {
        let next = BatchAxis { length, left: stride(left, axis), right: stride(right, axis) };
        match axes.last_mut() {
            Some(outer)
                if outer.left == next.left * length && outer.right == next.right * length =>
            {
                *outer = BatchAxis { length: outer.length * length, ..next };
            }
            Some(_) | None => axes.push(next),
        }
    }
    if axes.is_empty() {
        axes.push(BatchAxis { length: 1, left: 0, right: 0 });
    }
    axes
}

impl Execute for MatMul {
    fn run(&self, io: Io<'_>) -> Result<(), RunError> {
        let (left, right) = (io.inputs.f32(0), io.inputs.f32(1));
        let epilogue = Epilogue::new(&self.epilogue, &io.inputs, 2, self.columns);
        let output = io.output.f32();
        if output.is_empty() {
            return Ok(());
        }
        let (outer, inner) = self.batch.split_at(self.batch.len() - 1);
        let [BatchAxis { length, left: left_stride, right: right_stride }] = *inner else {
            panic!("there is always one batch axis")
        };
        let size = self.rows * self.columns;
        let lengths: Vec<usize> = outer.iter().map(|axis| axis.length).collect();
        let steps = contiguous_strides(&lengths);
        for (group, output) in output.chunks_exact_mut(length * size).enumerate() {
            let (mut from_left, mut from_right) = (0, 0);
            for (axis, step) in outer.iter().zip(&steps) {
                let index = group / step % axis.length;
                from_left += index * axis.left;
                from_right += index * axis.right;
            }
            let product = BatchedProduct {
                isa: io.isa,
                batch: length,
                rows: self.rows,
                columns: self.columns,
                depth: self.depth,
                left: BatchedLeft {
                    data: left.get(from_left..).unwrap_or_default(),
                    batch_stride: left_stride,
                    row_stride: self.row_stride,
                },
                right: BatchedRight {
                    data: right.get(from_right..).unwrap_or_default(),
                    batch_stride: right_stride,
                    depth_stride: self.right_strides[0],
                    column_stride: self.right_strides[1],
                },
            };
            let output =
                BatchedOutput { data: output, batch_stride: size, row_stride: self.columns };
            let epilogue = epilogue.shifted(group * length * size);
            batched_gemm(io.pool, &product, &epilogue, output);
        }
        Ok(())
    }
}
